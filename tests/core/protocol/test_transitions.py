"""The protocol's table of transitions: what the states take, and that it is no more than the table says."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from kopf_selectcache.core.protocol.machine import (
    Due,
    Filling,
    Idle,
    Input,
    Known,
    Listing,
    Misuse,
    Opened,
    Silent,
    Start,
    State,
    Waiting,
    Watching,
    step,
)
from kopf_selectcache.core.protocol.messages import Bookmark, Event
from kopf_selectcache.core.protocol.pager import Pager
from tests.core.client import CUT, GONE, A, page
from tests.core.diagram import TRANSITIONS
from tests.rows import each_row

# ---- The table.


def test_the_table_speaks_of_every_state_and_every_input_and_of_nothing_else() -> None:
    states, inputs = ({kind.__name__ for kind in get_args(union)} for union in (State, Input))
    assert {state for state, _ in TRANSITIONS} == states
    assert {input_ for _, input_ in TRANSITIONS} == inputs
    assert set().union(*TRANSITIONS.values()) == states - {"Idle"}


STATES: tuple[State, ...] = (
    Idle(Known()),
    Listing(Known(), exact=True),
    Filling(Known()),
    Watching(Known(), "100"),
    Waiting(Known()),
    Waiting(Known(), "100"),
    Waiting(Known(), paused=Listing(Known(), exact=True, pager=Pager(token="more"))),
)
INPUTS: tuple[Input, ...] = (
    Start(),
    page("1"),
    Opened(),
    Event("ADDED", A),
    Bookmark("1"),
    GONE,
    CUT,
    Silent(),
    Due(),
)


@each_row(("state", "input_"), list(product(STATES, INPUTS)), ids=lambda value: type(value).__name__)
def test_an_input_that_the_table_does_not_name_raises_misuse(state: State, input_: Input) -> None:
    if (type(state).__name__, type(input_).__name__) in TRANSITIONS:
        assert (
            type(step(state, input_).state).__name__
            in TRANSITIONS[type(state).__name__, type(input_).__name__]
        )
    else:
        with pytest.raises(Misuse):
            step(state, input_)
