"""`python -m tests.docs.features` writes tests/FEATURES.md anew from tests/features.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE, PAGE = ROOT / "tests/features.toml", ROOT / "tests/FEATURES.md"
ROWS_OF = {"A": 24, "B": 14, "C": 9, "D": 6, "E": 8}
"""The number of rows of each part."""
FEATURES = "tests/conformance/test_features.py::test_"
# A line of a page may be longer.
# ruff: noqa: E501
HEAD = """# Features

Each row compares a feature of controller-runtime and client-go, or one that their users ask for, with ours. `python -m tests.docs.features` writes this page from `tests/features.toml`.

- *works*: a test runs on the embedded and on the real API server. A *seeded bug* takes the feature out, and `make mutants` shows that the test catches it.
- *partly*: the row says what is missing. *planned*: not implemented yet. *declined*: we decided against it, for the reason given.

Tests are in `tests/`; those without a file are in `tests/conformance/test_features.py`.
"""
COLUMNS = ("", "The reference", "Ours", "State", "Tests", "Seeded bugs")


class Row(NamedTuple):
    """One feature."""

    name: str
    reference: str
    ours: str
    state: str
    why: str = ""
    """The missing part, or why the feature was declined."""
    tests: tuple[str, ...] = ()
    mutants: tuple[str, ...] = ()

    def write(self) -> str:
        state = f"{self.state}: {self.why}" if self.why else self.state
        tests = (test.removeprefix(FEATURES).removeprefix("tests/") for test in self.tests)
        cells = (self.name, self.reference, self.ours, state, _lines(tests, "`"), _lines(self.mutants))
        return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


class Part(NamedTuple):
    title: str
    rows: tuple[Row, ...]


def read(text: str) -> tuple[Part, ...]:
    """Return the parts of the source."""
    return tuple(
        Part(
            f"{part['name']}. {part['title']}",
            tuple(
                Row(
                    **row
                    | {
                        "tests": tuple(map(_id_of, row.get("tests", ()))),
                        "mutants": tuple(row.get("mutants", ())),
                    }
                )
                for row in part["row"]
            ),
        )
        for part in tomllib.loads(text)["part"]
    )


def write(parts: tuple[Part, ...]) -> str:
    """Return the page."""
    ruler = "|".join("---" for _ in COLUMNS)
    head = f"{' | '.join(COLUMNS)} |\n|{ruler}|"
    texts = [
        f"\n## {part.title}\n\n|{head}\n" + "".join(f"{row.write()}\n" for row in part.rows) for part in parts
    ]
    return HEAD + "".join(texts)


def rows() -> list[Row]:
    return [row for part in read(SOURCE.read_text(encoding="utf-8")) for row in part.rows]


def _id_of(test: str) -> str:
    return test if "::" in test else FEATURES + test


def _lines(texts: object, quote: str = "") -> str:
    return "<br>".join(f"{quote}{text}{quote}" for text in texts)  # type: ignore[attr-defined]


if __name__ == "__main__":
    PAGE.write_text(write(read(SOURCE.read_text(encoding="utf-8"))), encoding="utf-8")
