"""At no time do two replicas act on a range, and every range is served soon after the last fault.

An adversary may stop, delay or break processes, requests, answers, watches, clocks, the server, and objects.
A scope that fails prints the shortest story that leads to something wrong: `python -m tests.assignment`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .explore import explore, wander
from .mistakes import MISTAKES, Mistake, with_mistake
from .scopes import KNOWN_LIMIT, LARGE, NO_TRACE, RANDOM, SMALL, scope_of
from .world import Scope

DECISIONS = Path(__file__).parents[2] / "docs/dev/decisions.md"

FEW_STATES = 100
"""How far the larger scopes are explored by default, the shortest stories first."""

MOST_STATES = 50_000
"""How far they are with `-m soak`."""


@pytest.mark.parametrize("scope", SMALL, ids=[scope.name for scope in SMALL])
def test_21_nobody_acts_on_a_range_of_somebody_else_and_every_range_is_served(scope: Scope) -> None:
    explored = explore(scope, most=FEW_STATES)
    assert not explored.broken, str(explored)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("scope", [*SMALL, *LARGE], ids=[scope.name for scope in (*SMALL, *LARGE)])
def test_21_nobody_acts_on_a_range_of_somebody_else_in_larger_worlds(scope: Scope) -> None:
    explored = explore(scope, most=MOST_STATES)
    assert not explored.broken, str(explored)


@pytest.mark.parametrize("scope", RANDOM, ids=[scope.name for scope in RANDOM])
def test_21_nobody_acts_on_a_range_of_somebody_else_in_long_stories(scope: Scope) -> None:
    for seed in range(3):
        assert not wander(scope, seed, 150), seed


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("scope", RANDOM, ids=[scope.name for scope in RANDOM])
def test_21_nobody_acts_on_a_range_of_somebody_else_in_many_long_stories(scope: Scope) -> None:
    for seed in range(3, 200):
        assert not wander(scope, seed, 300), seed


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_21_each_mistake_is_found(mistake: Mistake) -> None:
    explored = explore(scope_of(mistake.scope), with_mistake(mistake), says=mistake.says)
    assert explored.broken, f"nobody notices it in {explored.states} states"


def test_each_mistake_that_others_have_made_has_its_story() -> None:
    made = [each.seen_at for each in MISTAKES if "#" in each.seen_at]
    assert [each for each in made if not re.fullmatch(r"\S+#\d+[^:]*: [^#]{20,}", each)] == []
    assert len(made) == 10
    assert "Ten mistakes happened to other projects" in " ".join(
        DECISIONS.read_text(encoding="utf-8").split()
    )


def test_21_a_new_replica_cannot_know_that_an_earlier_assignment_was_put_back() -> None:
    """A limit: the owner must see it. Others know the newer assignment, and stop."""
    assert explore(KNOWN_LIMIT).broken == "b catches up on 1 before its last write has arrived"


def test_21_a_new_replica_cannot_know_of_a_replica_that_has_left_no_trace() -> None:
    """A limit: somebody has deleted its Lease and the assignment, and it can't see that."""
    assert explore(NO_TRACE).broken == "b catches up on 0 before its last write has arrived"
