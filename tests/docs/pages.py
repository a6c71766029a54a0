"""The pages that users read, and their fenced blocks. Reads them only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FAULTS = ROOT / "bench/FAULTS.md"
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")),
    *sorted(DOCS.rglob("*.md")),
    ROOT / "examples/README.md",
    *sorted(ROOT.glob("examples/*/README.md")),
    *(ROOT / f"bench/{name}.md" for name in ("FAULTS", "NOTES", "RESULTS")),
    *(ROOT / f"tests/{name}.md" for name in ("FEATURES", "GUARANTEES")),
]

_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"# (\S+\.\w+)\n")


class Fence(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """The file name in its first line; empty for others."""
        found = _NAME.match(self.text)
        return found[1] if found else ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def fences(page: Path, language: str = "") -> Iterator[Fence]:
    """Yield the fenced blocks of a page; of one language, or of all."""
    text = page.read_text()
    for found in _FENCE.finditer(text):
        if language in ("", found[1]):
            yield Fence(page, text[: found.start()].count("\n") + 1, found[1], found[2])


def saved(page: Path, folder: Path) -> list[Path]:
    """Write the files of a page into a folder, as its reader does."""
    files = [folder / fence.name for fence in fences(page) if fence.name]
    for fence in fences(page):
        if fence.name:
            (folder / fence.name).write_text(fence.text)
    return files


def section(page: Path, heading: str) -> str:
    """Return the text below a heading, up to the next one of its rank or a higher one."""
    rank = len(heading) - len(heading.lstrip("#"))
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{rank}}} |\Z)", page.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found is not None, f"{page} has no {heading}"
    return found[1]


def rows_of(text: str) -> list[list[str]]:
    """Return the rows of the tables of a text, cell by cell."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
