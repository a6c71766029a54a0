"""Trains the compression dictionary of a kind, packs the objects that are stored already, and returns free
memory to the system.

Training takes tens of ms, in a new thread: the threads of asyncio's pool may all be blocked by reads that
wait for this cache. Objects that are stored already are packed in slices on the loop.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import NamedTuple, TypeVar

from kopf_selectcache.core.store.packing import FEWEST, SAMPLES, SiblingPacking, Tally, learned
from kopf_selectcache.core.store.record import Record, is_newer
from kopf_selectcache.core.store.store import Store

AT_ONCE = 50
"""Number of objects that are packed before other tasks run."""

STILL = 10.0
"""Seconds without a change after which an object is packed, and up to twice as long: most objects change
several times in succession, and then stand still."""

MOVING = 8 * 1024 * 1024
"""Bytes of the objects of one kind that are not packed because they have just changed. Beyond it, those that
have stood still the longest are packed."""

MAPPED = 1024 * 1024
"""The size of a block of memory from which it is returned to the system when it is freed."""

SPARE = 2 * 1024 * 1024
"""Free memory at the end of a heap that is not returned to the system."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # From malloc.h.

_T = TypeVar("_T")


def trim_heap() -> None:
    """Return free heap pages to the system (`malloc_trim`), if the C library has that call.

    The pages of a list take more memory than the objects that are stored of them, and glibc keeps it.
    """
    with suppress(OSError, TypeError):  # Windows has no such library.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def limit_spare_heap() -> None:
    """Have the C library return large blocks to the system as soon as they are free (`mallopt`), if it has
    that call and the environment does not set it up.

    glibc gives each thread a heap of its own, and adapts to large blocks that are freed: after the training
    of a dictionary, it would keep 10 MB in the heap of a thread that has ended, where `trim_heap` does not
    reach.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    with suppress(OSError, TypeError):  # As above.
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, MAPPED)
            mallopt(_M_TRIM_THRESHOLD, SPARE)


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
    """Dictionary training and packing for one stream. Streams of an informer share the packing."""

    def __init__(
        self,
        packing: SiblingPacking | None,
        *,
        view: Store | None,
        all_kept: Callable[[], Sequence[Record]],
        tally: Tally | None,
    ) -> None:
        self._packing = packing
        self._view = view  # Has the records of this stream.
        self._all_kept = all_kept  # Returns the records of all streams of the informer.
        self._tally = tally
        self._has_caught_up = False  # True once the records from before the training are packed.
        self._moving: dict[tuple[str, str], _Moving] = {}
        """The objects that have changed and are not packed yet, the one that has stood still the longest
        first."""
        self._has_work = asyncio.Event()
        """Set if there are objects that have changed, or compressors to free."""

    def follow(self, view: Store, all_kept: Callable[[], Sequence[Record]], tally: Tally | None) -> None:
        """Pack the records of another store from now on."""
        self._view, self._all_kept, self._tally = view, all_kept, tally

    def end(self) -> None:
        """Pack nothing any more, and reference no record."""
        if self._packing is not None:
            self._packing.moving -= sum(each.size for each in self._moving.values())
            self._packing.forget_firsts()
        self._packing, self._view, self._all_kept, self._tally = None, None, list, None
        self._moving = {}

    def changed(self, record: Record, *, is_initial: bool) -> None:
        """Note the record of an event, before it is stored. It is packed once it stands still. It is packed
        at once if it belongs to the initial state, or if there is a limit of bytes, which is compared with
        the bytes of packed objects.
        """
        packing = self._packing
        if packing is None or not record.stored:
            return
        if is_initial or self._tally is not None or not packing.packs:
            packing.pack_record(record, self._tally)
            # The reflector frees the compressors after the initial state.
            if packing.packs and not is_initial:
                self._has_work.set()
            return
        held = None if self._view is None else self._view.peek(record.namespace, record.name)
        if held is not None and not is_newer(record.version, held.version):
            return  # It is replayed, and the store ignores it. The newer one shall be packed.
        key, size = (record.namespace, record.name), len(record.stored)
        before = self._moving.pop(key, None)
        self._moving[key] = _Moving(record, size)
        if before is None:
            packing.moving += size
            self._has_work.set()
        else:
            packing.moving += size - before.size

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Pack the objects that stand still, until the task is cancelled. Free the compressors after it."""
        while True:
            await self._has_work.wait()
            moving = list(self._moving.items())
            await sleep(STILL)
            for number, (key, each) in enumerate(moving):
                if self._moving.get(key) is each:
                    self._settle(key)
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
            if not self._moving:
                self._has_work.clear()
            self.free_compressors()

    def free_compressors(self) -> None:
        """Free what only packing needs, after many objects."""
        if self._packing is not None:
            self._packing.free_compressors()

    def _settle(self, key: tuple[str, str]) -> None:
        """Pack an object that stands still."""
        record, size = self._moving.pop(key)
        if self._packing is not None:
            self._packing.moving -= size
            self._packing.pack_record(record, self._tally)

    async def taken(self, page: Sequence[Record] = ()) -> None:
        """Note new objects, of a page that is not stored yet or of events. Train if there are enough."""
        packing = self._packing
        if packing is None or self._view is None:
            return
        kept: Callable[[], Sequence[Record]] = self._view.writing
        # Nothing is stored of unreadable objects, nor of those that a wider list has outside of the selector.
        page = [each for each in page if each.stored]
        if (
            not packing.fits
            and len(objects := [record for record in (*self._all_kept(), *page) if record.stored]) >= FEWEST
        ):
            packing.begin()
            samples = [record.data for record in objects[:: max(1, len(objects) // SAMPLES)]]
            limit_spare_heap()
            try:
                packing.adopt(await run_in_thread(partial(learned, samples)))
            except asyncio.CancelledError:
                packing.forget_begun()
                raise
            kept = self._all_kept  # The other streams may wait for their next event, and would pack late.
        if packing.learned and not self._has_caught_up:
            await self._pack(kept())
            self._has_caught_up = True
        await self._pack(page)
        while packing.moving > MOVING and self._moving:
            self._settle(next(iter(self._moving)))

    def _is_shared(self, record: Record) -> bool:
        """Return True if the same object is stored already: the record shares its bytes from now on."""
        held = self._view.peek(record.namespace, record.name) if self._view is not None else None
        packing = held.packing if held is not None else None
        if held is None or held is record or record.holders or record.packing is not self._packing:
            return False  # It is stored itself, or packed.
        if packing is None or packing.kind is not self._packing or not held.is_same(record):
            return False
        record.replace(held.stored, packing)
        return True

    async def _pack(self, records: Sequence[Record]) -> None:
        for number, record in enumerate(records):
            if self._packing is not None and not self._is_shared(record):
                self._packing.pack_record(record, self._tally)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)


class _Moving(NamedTuple):
    record: Record
    size: int
    """The bytes of the object when it was noted."""
