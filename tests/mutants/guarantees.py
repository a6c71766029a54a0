"""`python -m tests.mutants.guarantees` writes tests/GUARANTEES.md: the tests and seeded bugs of each promise.

A test belongs to a promise if it catches one of its bugs, or has its number in its name: `test_16_...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .seeded import MUTANTS

ROOT = Path(__file__).parents[2]
DOCUMENT, PAGE = ROOT / "docs/guarantees.md", ROOT / "tests/GUARANTEES.md"
TEST = re.compile(r"^(?:async )?def (test_(?:contract_)?(\d+)_\w+)", re.MULTILINE)
PROTOCOL = ("tests/core/protocol", "tests/real/test_protocol")
"""Numbers in these files are those of the faults in docs/dev/protocol.md."""
HEAD = """\
# Guarantees and their tests

Each [promise](../docs/guarantees.md) with the tests that show it. After a test come the *seeded bugs* that
it catches with a failing assertion. `make mutants` puts each of them into a copy of the code, and prints the
tests that catch it.

`python -m tests.mutants.guarantees` writes this page from `tests/mutants/`.
"""


def promises() -> dict[int, str]:
    """Return the heading of each promise by its number."""
    found = re.findall(r"^## (\d+)\. (.+)$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    return {int(number): heading for number, heading in found}


def numbered() -> Iterator[tuple[int, str]]:
    """Yield the number of a promise with each test that has it in its name."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        short = str(file.relative_to(ROOT))
        if not short.startswith(PROTOCOL):
            for name, number in TEST.findall(file.read_text(encoding="utf-8")):
                yield int(number), f"{short}::{name}"


def tests_of() -> dict[int, dict[str, list[str]]]:
    """Return the tests of each promise, and the seeded bugs that each of them catches."""
    found: dict[int, dict[str, list[str]]] = {number: {} for number in promises()}
    for mutant in MUTANTS:
        for test in dict.fromkeys(each.partition("[")[0] for each in mutant.tests):
            found[mutant.breaks].setdefault(test, []).append(mutant.name)
    for number, test in numbered():
        if number in found:
            found[number].setdefault(test, [])
    return found


def written() -> str:
    """Return the page."""
    parts = [HEAD]
    headings = promises()
    for number, tests in tests_of().items():
        parts.append(f"\n## {number}. {headings[number]}\n\n")
        for test in sorted(tests):
            bugs = "; ".join(tests[test])
            parts.append(f"- `{test}`" + (f": {bugs}\n" if bugs else "\n"))
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
