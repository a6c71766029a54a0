"""The protocol as a whole: its table of transitions, and what was promised while everything fails at random."""
from __future__ import annotations

from collections import Counter
from itertools import product
from typing import get_args

import pytest

from kopf_selectcache.core.protocol import (
    TRANSITIONS,
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
from kopf_selectcache.core.wire import Bookmark, Event

from .client import CUT, GONE, A, page
from .server import FAULTS
from .simulation import Run

SEEDS, OPERATIONS = 300, 170


# ---- The table.


def test_the_table_speaks_of_every_state_and_every_input_and_of_nothing_else() -> None:
    states, inputs = ({kind.__name__ for kind in get_args(union)} for union in (State, Input))
    assert {state for state, _ in TRANSITIONS} == states
    assert {input_ for _, input_ in TRANSITIONS} == inputs
    assert set().union(*TRANSITIONS.values()) == states - {"Idle"}


STATES: tuple[State, ...] = (
    Idle(Known()), Listing(Known(), exact=True), Filling(Known()), Watching(Known(), "100"), Waiting(Known()), Waiting(Known(), "100"),
    Waiting(Known(), paused=Listing(Known(), exact=True, token="more")))
INPUTS: tuple[Input, ...] = (Start(), page("1"), Opened(), Event("ADDED", A), Bookmark("1"), GONE, CUT, Silent(), Due())


@pytest.mark.parametrize(("state", "input_"), list(product(STATES, INPUTS)), ids=lambda value: type(value).__name__)
def test_what_the_table_does_not_name_is_a_mistake_of_ours(state: State, input_: Input) -> None:
    if (type(state).__name__, type(input_).__name__) in TRANSITIONS:
        assert type(step(state, input_).state).__name__ in TRANSITIONS[type(state).__name__, type(input_).__name__]
    else:
        with pytest.raises(Misuse, match="cannot come in the state"):
            step(state, input_)


# ---- All at random.


def test_whatever_fails_what_was_promised_holds_after_every_step() -> None:
    hits: Counter[tuple[str, str]] = Counter()
    transitions: Counter[tuple[str, str, str]] = Counter()
    slowest = 0
    for seed in range(SEEDS):
        run = Run(seed, hits, transitions)
        try:
            for _ in range(OPERATIONS):
                run.operate()
            slowest = max(slowest, run.settle(200))
        except Exception as error:
            story = "\n".join(run.story)
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\nwhat led to it:\n{story}") from error
    print(f"{SEEDS * OPERATIONS:,} operations with {SEEDS} seeds, {sum(transitions.values()):,} steps; settled within {slowest}")
    for fault, states in FAULTS.items():
        print(f"{fault:28}", *(f"{state}: {hits[fault, state]:<6}" for state in states))
    assert [cell for fault, states in FAULTS.items() for cell in product([fault], states) if not hits[cell]] == []
    assert {(before, input_, after) for (before, input_), afters in TRANSITIONS.items() for after in afters} == set(transitions)
