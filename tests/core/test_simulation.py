"""The core against a model of servers that fail in every known way: what readers were promised holds in what
they saw."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from typing import NamedTuple

import pytest

from kopf_selectcache.core.protocol.machine import TRANSITIONS

from .faults import Hits, empty, struck, table
from .guarantees import Violation
from .shrinking import shrunk
from .simulation import Run

LENGTH = 170
"""How many operations each seed gives."""


class Outcome(NamedTuple):
    hits: Hits
    transitions: Counter[tuple[str, str, str]]
    slowest: int
    settled_by_lists: int


def operations(seed: int) -> list[int]:
    drawn = random.Random(f"operations of {seed}")
    return [drawn.getrandbits(32) for _ in range(LENGTH)]


def failure(seed: int, chosen: Sequence[int]) -> tuple[str, str, list[str]] | None:
    """Return which invariant a run violates, and what led to it."""
    run = Run(seed, Counter(), Counter())
    try:
        run.run(chosen)
    except Violation as violation:
        return violation.invariant, str(violation), list(run.story)
    except Exception as error:  # Whatever it is, the run has failed with it.  # noqa: BLE001
        return type(error).__name__, f"{type(error).__name__}: {error}", list(run.story)
    return None


def reported(seed: int, invariant: str) -> str:
    """Return a report of a seed that fails, with no more operations than it takes."""

    def fails(chosen: Sequence[int]) -> bool:
        found = failure(seed, chosen)
        return found is not None and found[0] == invariant

    kept = shrunk(operations(seed), fails)
    found = failure(seed, kept)
    assert found is not None
    story = "\n".join(found[2])
    return (
        f"{found[1]}\nseed {seed}, with {len(kept)} of {LENGTH} operations: {kept}\nwhat led to it:\n{story}"
    )


def simulated(seeds: range) -> Outcome:
    hits, transitions, slowest, settled_by_lists = (
        Counter[tuple[str, str]](),
        Counter[tuple[str, str, str]](),
        0,
        0,
    )
    for seed in seeds:
        try:
            run = Run(seed, hits, transitions)
            slowest = max(slowest, run.run(operations(seed)))
            settled_by_lists += run.settled_by_lists
        except Violation as violation:
            raise AssertionError(reported(seed, violation.invariant)) from None
        except Exception as error:
            raise AssertionError(reported(seed, type(error).__name__)) from error
    return Outcome(hits, transitions, slowest, settled_by_lists)


def summed(outcomes: Sequence[Outcome]) -> Outcome:
    hits, transitions = Counter[tuple[str, str]](), Counter[tuple[str, str, str]]()
    for outcome in outcomes:
        hits += outcome.hits
        transitions += outcome.transitions
    return Outcome(
        hits,
        transitions,
        max(outcome.slowest for outcome in outcomes),
        sum(outcome.settled_by_lists for outcome in outcomes),
    )


def judged(seeds: int, outcome: Outcome, counted: Callable[[str], None]) -> None:
    faults = struck(outcome.hits)
    counted(
        f"simulation: {seeds * LENGTH:,} operations of {seeds:,} seeds, {faults:,} faults,"
        f" {sum(outcome.transitions.values()):,} steps of the protocol; settled within {outcome.slowest};"
        f" {outcome.settled_by_lists:,} leaves settled by joined lists"
    )
    for line in table(outcome.hits):
        counted(line)
    assert outcome.settled_by_lists > seeds / 20
    assert empty(outcome.hits) == [], "these can be reached, and were not"
    reached = {
        (before, input_, after) for (before, input_), afters in TRANSITIONS.items() for after in afters
    }
    assert reached == set(outcome.transitions)


def test_whatever_fails_what_was_promised_holds_in_what_readers_saw(counted: Callable[[str], None]) -> None:
    seeds = 600
    judged(seeds, simulated(range(seeds)), counted)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_operations_with_a_hundred_thousand_faults(counted: Callable[[str], None]) -> None:
    seeds = 6_000
    with get_context("spawn").Pool() as pool:
        outcome = summed(
            pool.map(simulated, [range(first, first + 100) for first in range(0, seeds, 100)], chunksize=1)
        )
    judged(seeds, outcome, counted)
    assert struck(outcome.hits) >= 100_000


def test_a_failing_run_is_made_short() -> None:
    assert shrunk(range(100), lambda kept: {17, 60, 61} <= set(kept)) == [17, 60, 61]
    assert shrunk([1], bool) == [1]


def test_a_run_is_the_same_each_time_and_a_part_of_it_can_be_left_out() -> None:
    stories = []
    for chosen in (operations(7), operations(7), operations(7)[1:]):
        run = Run(7, Counter(), Counter())
        run.run(chosen)
        stories.append(list(run.story))
    assert stories[0] == stories[1]
    assert stories[2]
