"""Background work on the stored objects of one kind: slow work that must not block the loop. It is done on
the loop in slices, or in a new thread: the threads of asyncio's pool may all be blocked by reads that wait
for this cache.

`DictionaryTraining` trains the compression dictionary, which takes tens of ms, and packs the objects that are
stored already. The memory of a list is returned to the system (`trim_heap`).

`IndexBuilder` builds the indexes of one informer (`core.store.indexes`): those that are declared or added,
and those that reads ask for. No read waits for one of these.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import NamedTuple, Protocol, TypeVar

from kopf_selectcache.core.errors import BadIndex
from kopf_selectcache.core.store.index_spec import Indexed, Values, with_values
from kopf_selectcache.core.store.packing import (
    FEWEST_OBJECTS,
    SAMPLE_OBJECTS,
    SiblingPacking,
    Tally,
    learned,
    weight,
)
from kopf_selectcache.core.store.record import Record, is_newer
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.core.store.union import Union

PACKED_PER_SLICE = 50
"""Number of objects that are packed before other tasks run."""

STILL_SECONDS = 10.0
"""Seconds without a change after which an object is packed, and up to twice as long: most objects change
several times in succession, and then stand still."""

MOST_MOVING_BYTES = 8 * 1024 * 1024
"""Bytes of the objects of one kind that are not packed because they have just changed. Beyond it, those that
have stood still the longest are packed."""

MAPPED_BLOCK_BYTES = 1024 * 1024
"""The size of a block of memory from which it is returned to the system when it is freed."""

SPARE_HEAP_BYTES = 2 * 1024 * 1024
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
            mallopt(_M_MMAP_THRESHOLD, MAPPED_BLOCK_BYTES)
            mallopt(_M_TRIM_THRESHOLD, SPARE_HEAP_BYTES)


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
            await sleep(STILL_SECONDS)
            for number, (key, each) in enumerate(moving):
                if self._moving.get(key) is each:
                    self._settle(key)
                if number % PACKED_PER_SLICE == 0:
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
            and len(objects := [record for record in (*self._all_kept(), *page) if record.stored])
            >= FEWEST_OBJECTS
        ):
            packing.begin()
            samples = [record.data for record in objects[:: max(1, len(objects) // SAMPLE_OBJECTS)]]
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
        while packing.moving > MOST_MOVING_BYTES and self._moving:
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
            if number % PACKED_PER_SLICE == 0:
                await asyncio.sleep(0)


class _Moving(NamedTuple):
    record: Record
    size: int
    """The bytes of the object when it was noted."""


INDEXED_PER_SLICE = 200
"""Number of objects that are indexed before other tasks run: about 0.1 ms."""

DECODED_PER_SLICE = 20
"""Number of objects that are decoded before other tasks run, for an index that is added."""


class IndexFailed(Exception):
    """The function of an added index failed for a stored object."""

    def __init__(self, name: str, record: Record, why: str) -> None:
        super().__init__(name, record.key, why)
        self.name = name
        self.record = record
        self.why = why


class Indexing(Protocol):
    """A stream, whose objects are indexed."""

    def index(self, indexes: tuple[Indexed, ...]) -> None:
        """Read the values of these indexes from now on."""


class IndexBuilder:
    """The indexes of one informer, and the task that builds them."""

    def __init__(
        self,
        declared: Sequence[Indexed],
        replaced: Callable[[Mapping[str, Indexed]], None] = lambda _: None,
    ) -> None:
        self._latest: dict[str, Indexed] = {}  # The latest index of each name: records may have its values.
        self._slots = 0
        self.indexes: Mapping[str, Indexed] = {}
        """The declared and added indexes, by name."""
        self.indexes = self.with_slots(declared)
        self._replaced = replaced  # Called with all indexes after some were added.
        self._union = Union()
        self._reflectors: Sequence[Indexing] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requested = asyncio.Event()
        self._adding = asyncio.Lock()

    def with_slots(self, indexes: Iterable[Indexed]) -> dict[str, Indexed]:
        """Return indexes by name, none of which finds values of another one in a record."""
        found = {}
        for each in indexes:
            formers = self.indexes.get(each.name), self._latest.get(each.name)
            former = next((other for other in formers if other is not None and other.is_like(each)), None)
            if former is not None:
                slot = former.slot
            elif formers == (None, None):
                slot = ""
            else:
                self._slots += 1
                slot = f"{each.name}\0{self._slots}"
            placed = each if each.slot == slot else replace(each, slot=slot)
            found[each.name] = self._latest[each.name] = placed
        return found

    def replace(self, indexes: Mapping[str, Indexed], union: Union, reflectors: Sequence[Indexing]) -> None:
        """Have these indexes, of the objects of this union, from now on."""
        self.indexes, self._union, self._reflectors = indexes, union, reflectors
        for reflector in reflectors:
            reflector.index(
                tuple(indexes.values())
            )  # Objects that are decoded from now on have their values.
        for each in indexes.values():
            union.store.declare(each)

    async def compute(
        self, indexes: Collection[Indexed], records: Sequence[Record], tally: Tally | None
    ) -> None:
        """Compute the missing values of further indexes for some objects, and store them. Raise IndexFailed
        if a function fails: then nothing is stored.

        Building an index adds the values of objects that come meanwhile.
        """
        computed = [(each, await self._computed(each, records)) for each in indexes]
        for each, values in computed:
            await self._note(each, values, records, tally, besides=indexes)

    def want(self) -> None:
        """Wake `run`, from any thread: there is an index to build."""
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop is closed: the operator has ended.
                self._loop.call_soon_threadsafe(self._requested.set)

    async def run(self) -> None:
        """Build the requested indexes until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._built()
            await self._requested.wait()
            self._requested.clear()

    async def add(self, indexes: Sequence[Indexed], check: Callable[[], None] = lambda: None) -> None:
        """Add indexes; return once all stored objects are indexed. Known indexes are skipped.

        Raise IndexFailed if a function fails for a stored object: then none of them is added. `check` raises
        an error if they do not fit the present indexes, and is called again if the stored objects are
        replaced meanwhile.
        """
        async with self._adding:
            check()
            added = self.with_slots([each for each in indexes if each.name not in self.indexes])
            while True:
                union = self._union
                await self.compute(added.values(), union.store.records()[0], union.tally)
                if union is self._union:
                    break
                check()
            # From here on nothing fails, and a restart of the informer includes the new indexes.
            self.replace({**self.indexes, **added}, union, self._reflectors)
            self._replaced(self.indexes)
        await self._built()

    async def _computed(self, indexed: Indexed, records: Sequence[Record]) -> dict[Record, Values]:
        """Return the values of the objects that have none yet; store nothing."""
        values = {}
        for number, record in enumerate(records):
            if number % DECODED_PER_SLICE == 0:
                await asyncio.sleep(0)
            if not record.stored or indexed.known(record) is not None:
                continue  # An unreadable object has no value.
            try:
                values[record] = indexed.values(record.decode())
            except BadIndex as bad:
                raise IndexFailed(indexed.name, record, str(bad)) from None
        return values

    async def _note(
        self,
        indexed: Indexed,
        values: dict[Record, Values],
        records: Sequence[Record],
        tally: Tally | None,
        *,
        besides: Iterable[Indexed],
    ) -> None:
        """Store the computed values beside the objects. Values of former indexes are removed, except of those
        `besides`.
        """
        needed = {each.stored_as for each in (*self.indexes.values(), *besides)}
        for number, record in enumerate(records, 1):
            if record in values:
                before = weight(record)
                known = {key: each for key, each in record.indexed().items() if key in needed}
                record.fields = with_values(record.fields, {**known, indexed.stored_as: values[record]})
                if tally is not None:
                    tally.reweigh(record, before)
            if number % INDEXED_PER_SLICE == 0:
                await asyncio.sleep(0)

    async def _built(self) -> None:
        while self._union.build(INDEXED_PER_SLICE):  # It only yields to other tasks.  # noqa: ASYNC110
            await asyncio.sleep(0)
