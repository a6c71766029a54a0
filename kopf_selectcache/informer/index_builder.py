"""Builds the indexes of one cache on the loop, slice by slice: those that are declared or added, and those
that reads want.

Neither a reader nor the loop ever waits for one. What is indexed, and how it is found, is the core's
(`core.store.indexes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from kopf_selectcache.core.errors import BadIndex
from kopf_selectcache.core.store.accounting import weight
from kopf_selectcache.core.store.index_spec import Indexed, Values, with_values
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union

from .reflector import Reflector

SLICE = 200
"""So many objects are taken into an index before others on the loop go on: some 0.1 ms."""

DECODED = 20
"""So many are decoded first for an index that is added."""


class Failed(Exception):
    """The function of an index that is added failed for an object that is held."""

    def __init__(self, name: str, record: Record, why: str) -> None:
        super().__init__(name, record.key, why)
        self.name = name
        self.record = record
        self.why = why


class Taken(Exception):
    """There is another index of the name."""

    def __init__(self, by: Indexed) -> None:
        super().__init__(by)
        self.by = by


class IndexBuilder:
    """The indexes of one cache, and what builds them."""

    def __init__(
        self,
        declared: Sequence[Indexed],
        replaced: Callable[[Mapping[str, Indexed]], None] = lambda _: None,
    ) -> None:
        self.indexes: Mapping[str, Indexed] = {each.name: each for each in declared}
        """Those that can be read by, by name."""
        self._replaced = replaced  # Called with all indexes after some were added.
        self._union = Union()
        self._reflectors: Sequence[Reflector] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted = asyncio.Event()
        self._adding = asyncio.Lock()

    def begin(self, union: Union, reflectors: Sequence[Reflector]) -> None:
        """Index what is kept from now on."""
        self._union, self._reflectors = union, reflectors
        self._tell()
        for each in self.indexes.values():
            union.store.declare(each)

    def want(self) -> None:
        """Take note, in any thread, that there is something to build."""
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop is closed: the operator has ended.
                self._loop.call_soon_threadsafe(self._wanted.set)

    async def run(self) -> None:
        """Build whatever is wanted, until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._built()
            await self._wanted.wait()
            self._wanted.clear()

    async def add(self, indexes: Sequence[Indexed]) -> None:
        """Index what is held and what will be held by these as well; return once that is done, or at once if
        it was.

        Raise Taken if there is another index of a name, and Failed if a function fails for what is held: then
        nothing is left of any of them.
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
            computed = [
                (each, await self._computed(each)) for each in indexes if each.name not in self.indexes
            ]
            # From here on nothing fails, and whoever begins anew tells of them as well.
            self.indexes = {**self.indexes, **{each.name: each for each, _ in computed}}
            self._replaced(self.indexes)
            self._tell()  # What comes from now on brings its values.
            for each, values in computed:
                self._union.store.declare(each)
                await self._note(each, values)
        await self._built()

    async def _computed(self, indexed: Indexed) -> dict[Record, Values]:
        """Return the values of what is held, beside which nothing is noted yet."""
        values = {}
        for number, record in enumerate(self._union.store.records()[0]):
            if number % DECODED == 0:
                await asyncio.sleep(0)
            if not record.stored:
                continue  # It is unreadable, and has no value.
            try:
                values[record] = indexed.values(record.decode())
            except BadIndex as bad:
                raise Failed(indexed.name, record, str(bad)) from None
        return values

    async def _note(self, indexed: Indexed, values: dict[Record, Values]) -> None:
        """Note the values beside what is held, ahead of who builds the index, and would call the function
        again.

        What came meanwhile, or is being listed, is left to that one.
        """
        union = self._union
        for number, record in enumerate(union.store.records()[0], 1):
            if record in values and indexed.known(record) is None:
                before = weight(record)
                record.fields = with_values(record.fields, {**record.indexed(), indexed.name: values[record]})
                if union.tally is not None:
                    union.tally.reweigh(record, before)
            if number % SLICE == 0:
                await asyncio.sleep(0)

    async def _built(self) -> None:
        while self._union.build(SLICE):  # It waits for nothing, but for its next turn.  # noqa: ASYNC110
            await asyncio.sleep(0)

    def _tell(self) -> None:
        for each in self._reflectors:
            each.index(tuple(self.indexes.values()))
