"""docs/bench.md and the tables of docs/performance.md are those of docs/bench.json."""

from __future__ import annotations

import re

from bench.report import BLOCK, BLOCKS, PERFORMANCE, README, RESULTS, filled, pages
from bench.run import read_results


def test_the_pages_are_generated_from_the_results() -> None:
    stale = [file.name for file, text in pages().items() if file.read_text(encoding="utf-8") != text]
    assert stale == [], "python -m bench.report writes them"


def test_every_table_has_its_place_once() -> None:
    text = PERFORMANCE.read_text(encoding="utf-8") + README.read_text(encoding="utf-8")
    assert sorted(match[2] for match in BLOCK.finditer(text)) == sorted(BLOCKS)
    assert text.count("<!-- bench") == 2 * len(BLOCKS)


def test_a_table_is_replaced_and_the_text_around_it_stays() -> None:
    text = PERFORMANCE.read_text(encoding="utf-8")
    emptied = BLOCK.sub(r"\1\3", text)
    assert emptied != text
    _, results, _ = read_results(RESULTS)
    assert re.sub(r"<!-- bench: .*?ends -->", "", filled(emptied, results), flags=re.DOTALL) == re.sub(
        r"<!-- bench: .*?ends -->", "", text, flags=re.DOTALL
    )
    assert "this cache, first; last" in filled(emptied, results)
