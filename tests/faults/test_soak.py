"""Operators under a rain of every fault of the test kit, over real sockets: their reads never lie, and
nothing grows.

Each seed is a sequence of its own: 140 faults of one seed here, and 10,000 of twenty more in `make soak`. A
failure names its seed."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kopf_selectcache.testing import faults
from kopf_selectcache.testing.faults import Fault

from .hurried import HurriedLoop
from .mishaps import MISHAPS, lag
from .soaking import Soak, soaking

WARM = 15
"""The number of faults after which everything has been in use once."""

MORE_SOCKETS, MORE_TASKS, MORE_OBJECTS, MORE_BYTES = 20, 20, 20_000, 128 * 1024 * 1024
"""By so much two moments of rest may differ, however long it goes on: connections are kept for a while, and
so are answers."""


def test_every_kind_of_fault_that_there_is_can_come() -> None:
    kinds = {
        kind
        for kind in vars(faults).values()
        if isinstance(kind, type) and issubclass(kind, Fault) and kind is not Fault
    }
    assert {type(mishap.fault(Random(0))) for mishap in (*MISHAPS, lag(1))} == kinds


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seed", "some"),
    [
        (1, 20),
        *(pytest.param(seed, 500, marks=pytest.mark.soak) for seed in range(3, 23)),
    ],
)
def test_1_to_31_whatever_goes_wrong_reads_never_lie_caches_end_up_right_and_nothing_grows(
    seed: int, some: int, counted: Callable[[str], None]
) -> None:
    async def main() -> None:
        async with soaking(seed) as soak:
            await played(soak, WARM)
            before = used()
            await played(soak, WARM + some)
            after = used()
            counted(f"sockets: {soak.hits.total()} faults of {len(soak.hits)} kinds of seed {seed}")
            for what, least, most, more in zip(
                ("sockets", "tasks", "objects", "bytes"),
                before,
                after,
                (MORE_SOCKETS, MORE_TASKS, MORE_OBJECTS, MORE_BYTES),
                strict=True,
            ):
                assert most <= least + more, f"{what} grew from {least} to {most}"

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(main())


async def played(soak: Soak, faults: int) -> None:
    while soak.hits.total() < faults:
        await soak.play()


def used() -> tuple[int, int, int, int]:
    """Return how many sockets, tasks and objects there are, and how many bytes of memory are in use."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return (
        len(list(Path("/proc/self/fd").iterdir())),
        len(asyncio.all_tasks()),
        len(gc.get_objects()),
        pages * resource.getpagesize(),
    )
