"""IndexBuilder: builds the indexes of one informer on the loop, in slices: those that are declared or added,
and those that reads ask for.

No read waits for an index, and no slice blocks the loop for long. The indexes themselves are in
`core.store.indexes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from kopf_selectcache.core.errors import BadIndex
from kopf_selectcache.core.store.index_spec import Indexed, Values, with_values
from kopf_selectcache.core.store.packing import Tally, weight
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union

from .reflector import Reflector

SLICE = 200
"""Number of objects that are indexed before other tasks run: about 0.1 ms."""

DECODED = 20
"""Number of objects that are decoded before other tasks run, for an index that is added."""


class Failed(Exception):
    """The function of an added index failed for a stored object."""

    def __init__(self, name: str, record: Record, why: str) -> None:
        super().__init__(name, record.key, why)
        self.name = name
        self.record = record
        self.why = why


class Taken(Exception):
    """Another index has the name."""

    def __init__(self, by: Indexed) -> None:
        super().__init__(by)
        self.by = by


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
        self._reflectors: Sequence[Reflector] = ()
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

    def begin(self, union: Union, reflectors: Sequence[Reflector]) -> None:
        """Index the objects of this union from now on."""
        self._union, self._reflectors = union, reflectors
        self._tell()
        for each in self.indexes.values():
            union.store.declare(each)

    def replace(self, indexes: Mapping[str, Indexed], union: Union, reflectors: Sequence[Reflector]) -> None:
        """Have these indexes, of the objects of this union, from now on."""
        self.indexes = indexes
        self.begin(union, reflectors)

    async def compute(
        self, indexes: Sequence[Indexed], records: Sequence[Record], tally: Tally | None
    ) -> None:
        """Compute the missing values of further indexes for some objects; raise Failed."""
        for each in indexes:
            await self._note(each, await self._computed(each, records), records, tally, besides=indexes)

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

        Raise Taken if another index has one of the names, and Failed if a function fails for a stored object:
        then none of them is added. `check` is called again if the stored objects are replaced meanwhile.
        """
        async with self._adding:
            if other := next(
                (
                    known
                    for each in indexes
                    if (known := self.indexes.get(each.name)) is not None and not known.is_like(each)
                ),
                None,
            ):
                raise Taken(other)
            added = self.with_slots([each for each in indexes if each.name not in self.indexes]).values()
            while True:
                union = self._union
                records = union.store.records()[0]
                computed = [(each, await self._computed(each, records)) for each in added]
                if union is self._union:
                    break
                check()
            # From here on nothing fails, and a restart of the informer includes the new indexes.
            self.indexes = {**self.indexes, **{each.name: each for each, _ in computed}}
            self._replaced(self.indexes)
            self._tell()  # Objects that are decoded from now on have their values.
            for each, values in computed:
                self._union.store.declare(each)
                await self._note(each, values, self._union.store.records()[0], self._union.tally)
        await self._built()

    async def _computed(self, indexed: Indexed, records: Sequence[Record]) -> dict[Record, Values]:
        """Return the values of the objects that have none yet; store nothing."""
        values = {}
        for number, record in enumerate(records):
            if number % DECODED == 0:
                await asyncio.sleep(0)
            if not record.stored or indexed.known(record) is not None:
                continue  # An unreadable object has no value.
            try:
                values[record] = indexed.values(record.decode())
            except BadIndex as bad:
                raise Failed(indexed.name, record, str(bad)) from None
        return values

    async def _note(
        self,
        indexed: Indexed,
        values: dict[Record, Values],
        records: Sequence[Record],
        tally: Tally | None,
        *,
        besides: Iterable[Indexed] = (),
    ) -> None:
        """Store the computed values beside the objects, so that building the index does not call the function
        again.

        Objects that came meanwhile, or are being listed, have no computed value: building the index adds it.
        Values of former indexes are removed, except of those `besides`.
        """
        needed = {each.stored_as for each in (*self.indexes.values(), *besides)}
        for number, record in enumerate(records, 1):
            if record in values:
                before = weight(record)
                known = {key: each for key, each in record.indexed().items() if key in needed}
                record.fields = with_values(record.fields, {**known, indexed.stored_as: values[record]})
                if tally is not None:
                    tally.reweigh(record, before)
            if number % SLICE == 0:
                await asyncio.sleep(0)

    async def _built(self) -> None:
        while self._union.build(SLICE):  # It only yields to other tasks.  # noqa: ASYNC110
            await asyncio.sleep(0)

    def _tell(self) -> None:
        for each in self._reflectors:
            each.index(tuple(self.indexes.values()))
