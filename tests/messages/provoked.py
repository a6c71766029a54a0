"""Provoked messages. To add one, add an entry to a chapter: a function that raises an error or returns
Lines.

`messages.md` is written by `python -m tests.messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "messages.md"

PLACE = "when serializing "
"""Where in a value the error arose: CPython adds such notes since 3.14."""


class Lines(str):
    """Text that is no error: log records, the report of a probe, or the output of a command."""

    __slots__ = ()


class Provoked:
    """The functions that provoke messages, by chapter and title, in the order of the table."""

    def __init__(self) -> None:
        self.chapters: dict[str, dict[str, Callable[[], Any]]] = {}

    def add(self, chapter: str, title: str, provoke: Callable[[], Any]) -> None:
        entries = self.chapters.setdefault(chapter, {})
        assert title not in entries, f"{title} is provoked twice"
        entries[title] = provoke

    def add_all(self, chapters: Mapping[str, Mapping[str, Callable[[], Any]]]) -> None:
        for chapter, entries in chapters.items():
            for title, provoke in entries.items():
                self.add(chapter, title, provoke)

    def each(self) -> list[tuple[str, str]]:
        return [(chapter, title) for chapter, entries in self.chapters.items() for title in entries]

    def describe(self, chapter: str, title: str) -> str:
        """Provoke a message; return it as text: of an error with its class and its data."""
        try:
            answer = self.chapters[chapter][title]()
        except Exception as error:  # It may be of any class: the table shows it.  # noqa: BLE001
            data = {
                name: value
                for name in ("reason", "version", "keys", "code", "retry_after", "transient")
                if (value := getattr(error, name, None)) not in (None, "", False)
            }
            shown = "".join(f"\n{name}: {value}" for name, value in data.items())
            notes = [each for each in getattr(error, "__notes__", ()) if not each.startswith(PLACE)]
            shown += "".join(f"\nnote: {note}" for note in notes)
            return f"{type(error).__name__}: {error}{shown}"
        if isinstance(answer, Lines):
            return str(answer)
        raise AssertionError(f"{title}: no error was raised, but {answer!r} returned")

    def write(self) -> str:
        """Return the table as Markdown."""
        lines = ["# Messages", "", "`python -m tests.messages` writes this file.", ""]
        for chapter, entries in self.chapters.items():
            lines += [f"## {chapter}", ""]
            for title in entries:
                lines += [f"### {title}", "", "```text", self.describe(chapter, title), "```", ""]
        return "\n".join(lines)


def read_table() -> dict[tuple[str, str], str]:
    """Return the descriptions of the file, by chapter and title."""
    found: dict[tuple[str, str], str] = {}
    for chapter in TABLE.read_text().split("\n## ")[1:]:
        name, *entries = chapter.split("\n### ")
        for entry in entries:
            title, _, rest = entry.partition("\n\n```text\n")
            found[name.strip(), title] = rest.partition("\n```")[0]
    return found
