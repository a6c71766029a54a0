"""The tables of bench/FAULTS.md stay true: some of their rows are played again."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from bench.comparison import (
    BOOKMARKS,
    CONTENTS,
    DOCUMENT,
    OUTCOMES,
    RECORDS,
    play_contents,
    play_outcome,
    play_records,
    shown,
)
from bench.faults import ROWS, Row
from bench.outcomes import NOT_CALLED, REPEATED, RIGHT, Operation, Repeated, play_fault, play_repeated
from bench.records import KEEPERS, KILLED
from bench.staging import CONTENDERS, ENDED, Contender
from kopf_selectcache.testing import EmbeddedCluster

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(
        importlib.util.find_spec("kubernetes") is None, reason="the informer is in an environment of its own"
    ),
]
EXPIRED = "410 for the second page of a list"
WORDS = (EXPIRED, "a read of a pod outside the filter")
CACHE, INDEX, *_ = CONTENDERS
BY_NAME = {row.words: row for row in ROWS}
CONTENDERS_BY_NAME = pytest.mark.parametrize("contender", CONTENDERS, ids=lambda each: each.name)


class Staged(Protocol):
    def __call__(
        self, contender: Contender, *, patience: float = 60
    ) -> AbstractContextManager[Operation]: ...


@pytest.fixture
def staged(tmp_path: Path) -> Staged:
    @contextmanager
    def stage(contender: Contender, *, patience: float = 60) -> Iterator[Operation]:
        with (
            EmbeddedCluster(bookmarks_every=BOOKMARKS).in_thread() as cluster,
            Operation(cluster, contender, tmp_path, patience=patience) as staging,
        ):
            yield staging

    return stage


@CONTENDERS_BY_NAME
@pytest.mark.parametrize("row", [row for row in ROWS if row.words in WORDS], ids=lambda row: row.words)
def test_a_contender_holds_the_contents_on_the_page(row: Row, contender: Contender) -> None:
    assert play_contents(row, contender) == shown(DOCUMENT.read_text(), CONTENTS)[row.words, contender.name]


@CONTENDERS_BY_NAME
def test_a_handler_writes_the_outcome_on_the_page(contender: Contender) -> None:
    assert (
        play_outcome(BY_NAME[EXPIRED], contender)
        == shown(DOCUMENT.read_text(), OUTCOMES)[EXPIRED, contender.name]
    )


@pytest.mark.parametrize("contender", KEEPERS, ids=lambda each: each.name)
def test_records_are_as_the_page_says(contender: Contender) -> None:
    assert (
        play_records(KILLED, contender) == shown(DOCUMENT.read_text(), RECORDS)[KILLED.words, contender.name]
    )


@pytest.mark.parametrize("row", REPEATED, ids=lambda row: row.words)
@pytest.mark.parametrize("contender", [CACHE, INDEX], ids=lambda each: each.name)
def test_two_rounds_are_as_wrong_as_the_page_says(
    row: Repeated, contender: Contender, staged: Staged
) -> None:
    with staged(contender) as stage:
        seen = play_repeated(stage, row, rounds=2)
    ever_wrong = not shown(DOCUMENT.read_text(), OUTCOMES)[row.words, contender.name].startswith("0 of ")
    assert seen == ("2 of 2 wrong" if ever_wrong else "0 of 2 wrong")


def test_an_operator_that_ends_is_started_again_and_its_new_result_is_compared(staged: Staged) -> None:
    with staged(CACHE) as stage:
        assert play_fault(stage, BY_NAME["an ERROR of 500 in the stream"]) == f"restarted: {RIGHT}"


def test_an_operator_that_ends_after_its_restart_is_not_started_a_third_time(staged: Staged) -> None:
    with staged(INDEX) as stage:
        assert (
            play_fault(stage, BY_NAME["the server knows no initial streams (422)"])
            == f"{ENDED}, and again after its restart"
        )


def test_a_handler_that_kopf_never_calls_is_distinguished_from_a_wrong_one(staged: Staged) -> None:
    row = replace(BY_NAME["no watch ever says anything"], patience=5.0)
    with staged(CACHE, patience=row.patience) as stage:
        assert play_fault(stage, row) == NOT_CALLED


def test_a_cache_that_never_finds_out_makes_a_wrong_result(staged: Staged) -> None:
    row = replace(BY_NAME["the server loses a deletion"], patience=5.0)
    with staged(INDEX, patience=row.patience) as stage:
        assert play_fault(stage, row) == "wrong: keeps 1 deleted"
