"""Our correlator of Events against that of client-go, on the same scripts in virtual time."""

from __future__ import annotations

import pytest

from tests.apiserver.build import Go
from tests.oracle import golang
from tests.oracle.event_correlators import (
    COUNT,
    DIFFERENCES,
    MODULE,
    SORTS,
    ask,
    is_alike,
    scripts,
    stored,
)

LIVE = 20_000


@pytest.mark.parametrize("sort", SORTS)
def test_the_outcomes_are_those_of_client_go(sort: str) -> None:
    answered = stored()[sort]
    assert len(answered) == COUNT
    assert [script for script, theirs in answered if not is_alike(script, theirs)] == []


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_known_difference_is_still_one(name: str) -> None:
    script, theirs = stored()["differences"][list(DIFFERENCES).index(name)]
    assert script == DIFFERENCES[name]
    assert not is_alike(script, theirs, shown=3, whole=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_live_outcomes_of_client_go_are_ours(go: Go) -> None:
    oracle = golang.build(go, MODULE)
    for sort in SORTS:
        asked = scripts(2, -(-LIVE // len(SORTS)), sort)
        wrong = [script for script, theirs in ask(oracle, asked) if not is_alike(script, theirs)]
        assert wrong == [], sort
    for script, theirs in ask(oracle, DIFFERENCES.values()):
        assert not is_alike(script, theirs, shown=3, whole=True)
