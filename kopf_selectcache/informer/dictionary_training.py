"""How what a cache keeps is stored: when it is learned how a kind is packed, what is packed then, and what
memory is free.

Learning takes some hundredths of a second, which it spends in a thread of its own: those that asyncio lends
may all be waiting, for this cache. What is there already is packed bit by bit.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

from kopf_selectcache.core.store.accounting import Tally, weight
from kopf_selectcache.core.store.compression import FEWEST, SAMPLES, Packing, learned
from kopf_selectcache.core.store.record import Record

AT_ONCE = 50
"""So many objects are packed until others are let go on."""

_T = TypeVar("_T")


def give_back() -> None:
    """Let the system have the memory that is free again, where the C library would keep it, as glibc does.

    The pages of a list take more than what is kept of them, and leave as much behind.
    """
    with suppress(OSError, TypeError):  # Windows has no such library.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


async def apart(work: Callable[[], _T]) -> _T:
    """Return what comes of the work, or raise what it raises, done in a thread of its own."""
    done: Future[_T] = Future()
    done.set_running_or_notify_cancel()  # Who has gone before it is done is told nothing.

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # Whoever waits is told of it, or would wait for ever.  # noqa: BLE001
            done.set_exception(error)

    Thread(target=run, name="selectcache", daemon=True).start()
    return await asyncio.wrap_future(done)


class DictionaryTraining:
    """How what one list and watch keeps is stored."""

    def __init__(
        self,
        packing: Packing | None,
        *,
        kept: Callable[[], Sequence[Record]],
        all_kept: Callable[[], Sequence[Record]],
        tally: Tally | None,
    ) -> None:
        self._packing = packing
        self._kept = kept  # What this one keeps.
        self._all_kept = all_kept  # What all lists and watches of the kind do.
        self._tally = tally
        self._has_caught_up = False  # Whether all that came before anything was learned has been packed.

    async def taken(self, page: Sequence[Record] = ()) -> None:
        """Take note that objects have come: a page, which is not kept yet, or others. Learn from all there
        are, if it is due.
        """
        packing = self._packing
        if packing is None:
            return
        kept = self._kept
        page = [
            each for each in page if each.stored
        ]  # A wider list brings others as well, of which nothing is kept; as of what is unreadable.
        if (
            not packing.fits
            and len(objects := [record for record in (*self._all_kept(), *page) if record.stored]) >= FEWEST
        ):
            packing.begin()
            samples = [record.data for record in objects[:: max(1, len(objects) // SAMPLES)]]
            try:
                packing.adopt(await apart(partial(learned, samples)))
            except asyncio.CancelledError:
                packing.forget_begun()
                raise
            kept = self._all_kept  # Others may be waiting for their next event by now.
        if packing.learned and not self._has_caught_up:
            await self._pack([*kept(), *page])
            self._has_caught_up = True

    async def _pack(self, records: Sequence[Record]) -> None:
        for number, record in enumerate(records):
            before = weight(record)
            record.pack()
            if self._tally is not None:
                self._tally.reweigh(record, before)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
