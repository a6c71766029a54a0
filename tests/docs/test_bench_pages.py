"""bench/RESULTS.md and the tables of other pages are those of bench/results.json."""

from __future__ import annotations

from bench.report import BLOCK, BLOCKS, NOTES, PERFORMANCE, README, pages


def test_the_pages_are_generated_from_the_results() -> None:
    stale = [file.name for file, text in pages().items() if file.read_text(encoding="utf-8") != text]
    assert stale == [], "python -m bench.report writes them"


def test_every_table_has_its_place_once() -> None:
    text = "".join(each.read_text(encoding="utf-8") for each in (NOTES, PERFORMANCE, README))
    assert sorted(match[2] for match in BLOCK.finditer(text)) == sorted(BLOCKS)
    assert text.count("<!-- bench") == 2 * len(BLOCKS)
