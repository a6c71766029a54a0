"""Trains the compression dictionary of a kind, packs the objects that are stored already, and returns free
memory to the system.

Training takes tens of ms, in a new thread: the threads of asyncio's pool may all be blocked by reads that
wait for this cache. Objects that are stored already are packed in slices on the loop.
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
"""Number of objects that are packed before other tasks run."""

_T = TypeVar("_T")


def trim_heap() -> None:
    """Return free heap pages to the system (`malloc_trim`), if the C library has that call.

    The pages of a list take more memory than the objects that are stored of them, and glibc keeps it.
    """
    with suppress(OSError, TypeError):  # Windows has no such library.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


async def run_in_thread(work: Callable[[], _T]) -> _T:
    """Run the function in a new thread; return its result, or raise its exception."""
    done: Future[_T] = Future()
    done.set_running_or_notify_cancel()  # A running future cannot be cancelled, so `set_result` never fails.

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # The caller would wait for ever.  # noqa: BLE001
            done.set_exception(error)

    Thread(target=run, name="selectcache", daemon=True).start()
    return await asyncio.wrap_future(done)


class DictionaryTraining:
    """Dictionary training and packing for one stream. Streams of an informer share the `Packing`."""

    def __init__(
        self,
        packing: Packing | None,
        *,
        kept: Callable[[], Sequence[Record]],
        all_kept: Callable[[], Sequence[Record]],
        tally: Tally | None,
    ) -> None:
        self._packing = packing
        self._kept = kept  # Returns the records of this stream.
        self._all_kept = all_kept  # Returns the records of all streams of the informer.
        self._tally = tally
        self._has_caught_up = False  # True once the records from before the training are packed.

    def follow(
        self,
        kept: Callable[[], Sequence[Record]],
        all_kept: Callable[[], Sequence[Record]],
        tally: Tally | None,
    ) -> None:
        """Pack the records of another store from now on."""
        self._kept, self._all_kept, self._tally = kept, all_kept, tally

    async def taken(self, page: Sequence[Record] = ()) -> None:
        """Note new objects, of a page that is not stored yet or of events. Train if there are enough."""
        packing = self._packing
        if packing is None:
            return
        kept = self._kept
        # Nothing is stored of unreadable objects, nor of those that a wider list has outside of the selector.
        page = [each for each in page if each.stored]
        if (
            not packing.fits
            and len(objects := [record for record in (*self._all_kept(), *page) if record.stored]) >= FEWEST
        ):
            packing.begin()
            samples = [record.data for record in objects[:: max(1, len(objects) // SAMPLES)]]
            try:
                packing.adopt(await run_in_thread(partial(learned, samples)))
            except asyncio.CancelledError:
                packing.forget_begun()
                raise
            kept = self._all_kept  # The other streams may wait for their next event, and would pack late.
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
