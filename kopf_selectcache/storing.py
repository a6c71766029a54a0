"""When it is learned how the objects of a kind are packed: once there are enough of them, and when those that come are others. And what is free then.

Learning takes some hundredths of a second, which it spends in a thread; packing what is there already is done bit by bit.
"""
from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from .core.packing import FEWEST, SAMPLES, Packing, learned
from .core.record import Record
from .core.tally import Tally, weight

Storage: TypeAlias = Literal["auto", "packed", "raw"]
"""How objects are stored: packed where it is worthwhile, always, or never."""

AT_ONCE = 50
"""So many objects are packed until others are let go on."""


def give_back() -> None:
    """Let the system have the memory that is free again, where the C library would keep it, as glibc does.

    The pages of a list take more than what is kept of them, and leave as much behind.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def packing_of(storage: Storage) -> Packing | None:
    """Return how the objects of one kind are packed; None if they never are."""
    return None if storage == "raw" else Packing(always=storage == "packed")


async def learn(packing: Packing | None, kept: Callable[[], Sequence[Record]], tally: Tally | None = None) -> None:
    """Learn from the objects of one kind, if it is due; and pack them, if nothing had been learned before.

    A tally is told what that saves.
    """
    if packing is None or packing.fits:
        return
    records = kept()
    if len(records) < FEWEST:
        return
    first = not packing.learned
    packing.begin()
    samples = [record.data for record in records[::max(1, len(records) // SAMPLES)]]
    packing.adopt(await asyncio.to_thread(learned, samples))
    for number, record in enumerate(records if first and packing.learned else ()):
        before = weight(record)
        record.pack()
        if tally is not None:
            tally.reweigh(record, before)
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
