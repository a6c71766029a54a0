"""All states that small systems can be in, to a depth: the invariants hold in each, and each comes to equal
what there is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .exploration import explore
from .small import Action, Rules, System

SYSTEMS = [
    Rules(objects=1, writes=3, faults=2),
    Rules(objects=1, writes=2, faults=2, synced=False, streaming=True),
    Rules(objects=2, writes=2, faults=1),
    Rules(objects=3, writes=2, faults=2),
    Rules(objects=3, writes=1, faults=2, synced=False),
]
STATES, MORE = 1_000, 100_000
"""So many states of each system are visited in the default run, and in the soak."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("states", [STATES, pytest.param(MORE, marks=pytest.mark.soak)])
@pytest.mark.parametrize("rules", SYSTEMS, ids=str)
def test_the_invariants_hold_in_every_state_that_a_few_steps_lead_to(
    rules: Rules, states: int, counted: Callable[[str], None]
) -> None:
    explored = explore(rules, states=states)
    counted(f"exploration: {explored}")
    # Two of them have no more states than these; without faults, none has as many as the default run visits.
    assert explored.states >= min(states, 30_000)
    assert explored.states >= states or explored.widths[-1] == 0


def test_worlds_that_differ_in_nothing_but_which_object_is_which_are_one() -> None:
    one, two, three = System(Rules()), System(Rules()), System(Rules())
    one.do(Action("write", "b", "A"))
    two.do(Action("write", "c", "A"))
    three.do(Action("write", "c", "B"))
    assert one.frozen() == two.frozen() == two.copy().frozen()
    assert three.frozen() != two.frozen()


def test_a_system_and_its_copy_go_on_without_each_other() -> None:
    system = System(Rules())
    before, copy = system.frozen(), system.copy()
    copy.do(Action("write", "b", "A"))
    copy.settle()
    assert system.frozen() == before != copy.frozen()
