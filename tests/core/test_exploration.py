"""All states that small worlds can be in, to a depth: the invariants hold in each, and each comes to equal what there is."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from .exploration import explore
from .small import Action, Rules, World

WORLDS = [
    Rules(objects=1, writes=3, faults=2), Rules(objects=1, writes=2, faults=2, synced=False, streaming=True),
    Rules(objects=2, writes=2, faults=1), Rules(objects=3, writes=2, faults=2), Rules(objects=3, writes=1, faults=2, synced=False),
]
STATES = 8_000
"""So many states of each world are visited in the default run."""


@pytest.mark.parametrize("rules", WORLDS, ids=str)
def test_the_invariants_hold_in_every_state_that_a_few_steps_lead_to(rules: Rules, counted: Callable[[str], None]) -> None:
    explored = explore(rules, states=STATES)
    counted(f"exploration: {explored}")
    assert explored.states >= STATES
    assert explored.depth >= 2


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("rules", WORLDS, ids=str)
def test_the_invariants_hold_in_every_state_that_eight_steps_lead_to(rules: Rules, counted: Callable[[str], None]) -> None:
    explored = explore(rules, states=10**9, depth=8)
    counted(f"exploration: {explored}")
    assert explored.depth == 8


def test_worlds_that_differ_in_nothing_but_which_object_is_which_are_one() -> None:
    one, two, three = World(Rules()), World(Rules()), World(Rules())
    one.do(Action("write", "b", "A"))
    two.do(Action("write", "c", "A"))
    three.do(Action("write", "c", "B"))
    assert one.frozen() == two.frozen() == two.copy().frozen()
    assert three.frozen() != two.frozen()


def test_a_world_and_its_copy_go_on_without_each_other() -> None:
    world = World(Rules())
    before, copy = world.frozen(), world.copy()
    copy.do(Action("write", "b", "A"))
    copy.settle()
    assert world.frozen() == before != copy.frozen()
