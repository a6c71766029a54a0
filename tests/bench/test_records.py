"""The records that an operator keeps by changes, compared with those changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.comparison import RECORDS, cells
from bench.contenders.asking import OPTIONS
from bench.contenders.results import (
    former_records,
    read_results,
    recorded,
    write_departure,
    write_entry,
)
from bench.faults import ROWS
from bench.outcomes import DELETIONS
from bench.records import KEEPERS, KILLED, TEN_TIMES, compare_records
from bench.staging import EQUAL
from tests.rows import each_row

THERE, GONE = True, False
PRESENT, DEPARTED = {"a"}, {"b": 1}


@each_row(
    ("changes", "words"),
    [
        ([("a", THERE), ("b", THERE), ("b", GONE)], EQUAL),
        ([("a", THERE), ("a", THERE), ("b", GONE)], EQUAL),
        ([("a", THERE), ("b", THERE)], "misses 1 departure"),
        ([("a", THERE)], "misses 1 departure"),
        ([("a", THERE), ("b", GONE), ("b", GONE)], "is told 1 departure twice"),
        ([("a", THERE), ("b", GONE), ("b", GONE), ("b", GONE)], "is told 2 departures twice"),
        ([("a", GONE), ("a", THERE), ("b", GONE)], "is told 1 departure that did not happen"),
        ([("a", THERE), ("a", GONE), ("b", GONE)], "is told 1 departure that did not happen, lacks 1"),
        ([("b", GONE)], "lacks 1"),
        ([("a", THERE), ("b", GONE), ("b", THERE)], "keeps 1"),
        ([], "misses 1 departure, lacks 1"),
    ],
)
def test_the_changes_received_are_compared_with_those_that_happened(
    changes: list[tuple[str, bool]], words: str
) -> None:
    assert compare_records(changes, present=PRESENT, departed=DEPARTED) == words


def test_records_outlive_the_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "results"
    monkeypatch.setenv(OPTIONS, json.dumps({"results": str(file)}))
    assert former_records() == set()
    write_entry("a")
    write_entry("b")
    write_departure("b")
    assert former_records() == {"a"}
    assert recorded(read_results(file)) == [("a", THERE), ("b", THERE), ("b", GONE)]


def test_each_fault_is_played_to_each_keeper_of_records() -> None:
    words = [row.words for row in ROWS if not row.is_read] + [KILLED.words]
    assert [(cell.row.words, cell.contender.name) for cell in cells() if cell.begin == RECORDS] == [
        (each, keeper.name) for each in [*words, *(row.words for row in TEN_TIMES)] for keeper in KEEPERS
    ]
    assert len(TEN_TIMES) == len(DELETIONS) == 3
    assert all("delete" in row.words for row in TEN_TIMES)
