"""CHANGELOG.md: one line for each entry, and few words."""

from __future__ import annotations

import re

from .pages import ROOT

LINES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
MOST_WORDS = 25


def words_of(entry: str) -> int:
    """Count the words of an entry without its mark and the addresses of its links."""
    return len(re.sub(r"\]\([^)]*\)", "]", entry.removeprefix("- ")).split())


def test_an_entry_is_one_line_of_few_words() -> None:
    entries = [line for line in LINES if line.startswith("- ")]
    assert len(entries) > 50
    assert [line for line in entries if words_of(line) > MOST_WORDS] == []
    assert [line for line in LINES if line.startswith(" ")] == []
