"""The table of docs/comparison.md stays true: some of its rows are played again."""
from __future__ import annotations

import importlib.util

import pytest

from bench.comparison import DOCUMENT, played, shown
from bench.faults import ROWS, Row
from bench.staging import CONTENDERS, Contender

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(importlib.util.find_spec("kubernetes") is None, reason="the informer is in an environment of its own"),
]
WORDS = (
    "410 for the second page of a list", "a read of a pod that is there, outside of the filter")


@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda each: each.name)
@pytest.mark.parametrize("row", [row for row in ROWS if row.words in WORDS], ids=lambda row: row.words)
def test_a_contender_holds_what_the_page_says(row: Row, contender: Contender) -> None:
    assert played(row, contender) == shown(DOCUMENT.read_text())[row.words, contender.name]
