"""Declarations that change at run time, against a model of a server: changes that are overtaken, cancelled
and refused, foreign and own writes, streams that lag, end, expire and list again, and restarts.

Each read is right for one declaration, the former or the new one, and no object goes back; subscribers
receive each difference once; and in the end nothing is left but what is declared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.hurried import HurriedLoop

from .filter_change_server import Fault
from .filter_change_steps import STEPS, Step, operating, play, without_threads
from .filter_change_world import FILTERS


@pytest.fixture(autouse=True, scope="module")
def _without_threads() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_threads(monkeypatch)
        yield


def run(steps: list[Step], **options: Any) -> None:
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(play(steps, **options))


NUMBERS = st.integers(0, 10)
STEP = st.tuples(st.sampled_from(STEPS), NUMBERS, NUMBERS, NUMBERS)
INITIAL = st.sampled_from(["pages", "stream"])


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(STEP, min_size=20, max_size=20), INITIAL)
def test_16_each_read_is_of_one_declaration_and_nothing_is_left(steps: list[Step], initial: str) -> None:
    run(steps, initial=initial)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, min_size=50, max_size=50), INITIAL)
def test_16_nor_is_it_after_many_steps(steps: list[Step], initial: str) -> None:
    run(steps, initial=initial)


# ---- Found by the model.


def test_16_a_deletion_while_the_next_filter_is_listed_is_not_undone() -> None:
    """The list was read before the deletion."""
    steps = [("foreign", 4, 2, 1), ("latency", 7, 1, 4), ("change", 7, 10, 2), ("time", 9, 9, 4)]
    steps += [("change", 5, 6, 2), ("foreign", 2, 7, 6), ("own", 4, 0, 2), ("relist", 4, 7, 0)]
    run([*steps, ("own", 10, 5, 1)], initial="stream")


def test_16_an_object_that_has_departed_does_not_return_with_the_filter_after_the_next() -> None:
    """The stream of the second filter is behind what readers of the first one have seen."""
    steps = [("refuse", 0, 1, 0), ("change", 1, 6, 0), ("tick", 7, 0, 0), ("foreign", 0, 4, 0)]
    run([*steps, ("time", 2, 0, 0), ("change", 2, 9, 1)])


def test_16_a_newer_change_does_not_wait_for_the_lists_of_an_older_one() -> None:
    async def main() -> None:
        async with operating() as world:
            world.declare(FILTERS[0], {})
            await world.settle()
            world.server.faults.append(Fault("silent", lambda asked: asked.selector == "tier=gold"))
            world.change(FILTERS[1], {}, within=300.0)
            await asyncio.sleep(10.0)
            world.change(FILTERS[6], {}, within=5.0)
            await asyncio.sleep(10.0)
            world.reap()
            world.look()
            assert world.outcomes == ["declare: done", "change: Superseded", "change: done"]
            await world.rest()

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(main())


@pytest.mark.parametrize(
    "steps",
    [
        [
            ("change", 5, 2, 6),
            ("lose", 0, 2, 5),
            ("change", 2, 0, 10),
            ("time", 5, 4, 1),
            ("change", 10, 8, 3),
        ],
        [("change", 5, 9, 3), ("own", 10, 3, 10), ("foreign", 9, 0, 3)],
    ],
    ids=["a limit", "another filter"],
)
def test_16_reads_need_the_kept_streams_as_they_write_to_the_next_store(steps: list[Step]) -> None:
    """Which streams a request needs is computed from their substores, which change with the filter."""
    run(steps, initial="stream")


def test_16_a_kind_that_is_removed_while_its_filter_changes_leaves_no_stream() -> None:
    steps = [("hold", 4, 10, 7), ("change", 3, 0, 1), ("change", 9, 2, 2), ("declare", 7, 2, 2)]
    steps += [("foreign", 4, 8, 6), ("foreign", 9, 10, 6), ("own", 8, 0, 10), ("expire", 0, 5, 2)]
    run([*steps, ("gone", 9, 7, 2), ("foreign", 0, 8, 2), ("remove", 5, 3, 7)], initial="stream")
