"""Estimates of the objects and bytes of a cache before it exists: objects are counted by metadata, and a
sample of whole ones is measured. `Samples` tell from some objects of a kind how well all compress, and
which declared paths have no value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import msgspec

from kopf_selectcache.client.fetcher import page_of_metadata, pages_of_metadata
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import JSON, Transport, accept_of, ask_in_size
from kopf_selectcache.core.json_text import decoded
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.protocol.pager import PageSize, Paging
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.core.store.index_spec import Indexed, without_value
from kopf_selectcache.core.store.packing import (
    FEWEST_OBJECTS,
    OVERHEAD_BYTES,
    SAMPLE_OBJECTS,
    TEMPLATE_PLACE_BYTES,
    Storage,
    Template,
    bare,
    learned,
    packing_of,
)
from kopf_selectcache.core.store.projection import ALL, Keys, Projection
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.background import run_in_thread
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.planner import Stream

PAGE_OBJECTS = 500

PATIENCE_SECONDS = 120.0
"""Maximum of the sum of pauses between the pages of one list."""

WEIGHED_OBJECTS = 100
"""Number of objects that are measured at a time: of the first page, and of ever fewer later ones."""


def expected(objects: int, json: int, values: int, *, leaves: float) -> int:
    """Return an estimate of the bytes of a cache, from its number of objects and the bytes of their JSON and
    index values.

    `leaves` is the fraction of the JSON that is left after packing.
    """
    return objects * OVERHEAD_BYTES + round(json * leaves) + values


class _Sample(NamedTuple):
    uid: str
    data: bytes
    owners: tuple[str, ...]


def _in_training_order(kept: Sequence[_Sample]) -> list[bytes]:
    """Return objects in an order in which the training tries none whose sibling it has looked at: few objects
    of a large cluster have a sibling among the samples of its dictionary.
    """
    groups: dict[str, list[bytes]] = {}
    step = max(1, len(kept) // SAMPLE_OBJECTS)
    for each in kept[::step]:
        groups.setdefault(each.owners[0] if each.owners else each.uid, []).append(each.data)
    tried, others = list[bytes](), list[bytes]()
    for group in groups.values():
        # A group larger than the others would leave too few of them to train with.
        (tried if 4 * len(tried) < len(others) >= len(group) else others).extend(group)
    ordered = list[bytes]()
    while others:  # The training tries every fifth, beginning with the first.
        ordered += tried[:1] or others[:1]
        ordered += others[:4] if tried else others[1:5]
        others = others[4:] if tried else others[5:]
        tried = tried[1:]
    return ordered


class Samples:
    """Some objects of one kind, as a cache would store them."""

    def __init__(self) -> None:
        self._kept: dict[str, _Sample] = {}  # By the uid: several lists may have the same objects.
        self._indexed: set[str] = set()

    def take(self, records: Iterable[Record]) -> None:
        for record in records:
            self._kept[record.uid] = _Sample(record.uid, record.data, record.owners)
            self._indexed |= {
                name
                for name, values in record.indexed().items()
                if any(value is not None for value in values)
            }

    def leaves(self, storage: Storage, objects: int) -> float:
        """Return the fraction of bytes that is left after packing, by the rule of the cache itself.

        `objects` is the number of all objects. They are listed by name, so that siblings are together in the
        sample as they are in the whole.
        """
        packing, kept = packing_of(storage), list(self._kept.values())
        if packing is None or not kept:
            return 1.0
        found = learned(_in_training_order(kept)) if objects >= FEWEST_OBJECTS else None
        packing.adopt(found)
        whole = sum(len(each.data) for each in kept)
        if found is None or not packing.learned:
            return sum(len(packing.pack(each.data)) for each in kept) / whole
        records = [
            Record("", "", each.uid, "", {}, each.owners, bare(each.data), b"", packing) for each in kept
        ]
        for record in records:
            packing.pack_record(record)
        # The ratio of objects that are packed alone is that of some that were not used for the training.
        alone = sum(len(record.data) for record in records if record.packing is packing)
        siblings = [record for record in records if isinstance(record.packing, Template)]
        templates = {each.packing for each in siblings if isinstance(each.packing, Template)}
        alone += sum(len(packing.unpack(each.stored)) for each in templates)
        left = sum(len(each.stored) for each in siblings) + TEMPLATE_PLACE_BYTES * len(templates)
        return (found.leaves * alone + left) / whole

    def __len__(self) -> int:
        return len(self._kept)

    def without_value(self, paths: Iterable[Keys]) -> list[Keys]:
        """Return the paths at which no sample has a value."""
        return without_value(paths, [decoded(each.data) for each in self._kept.values()])

    def without_key(self, indexes: Iterable[Indexed]) -> list[Indexed]:
        """Return the indexes that no sample has a value by."""
        return [each for each in indexes if each.stored_as not in self._indexed]


@dataclass(frozen=True)
class Amount:
    """A number of objects, and an estimate of their bytes in a cache."""

    objects: int = 0
    weighed: int = 0
    weight: int = 0
    """The bytes of JSON of the measured objects."""
    beside: int = 0
    """The bytes of values stored beside the measured objects: of indexes, and of dropped fields."""

    @property
    def bytes(self) -> int:
        """The estimated bytes of JSON of all objects, extrapolated from the measured ones."""
        return round(self.weight / self.weighed * self.objects) if self.weighed else 0

    @property
    def values(self) -> int:
        """The estimated bytes of values stored beside all objects, extrapolated as well."""
        return round(self.beside / self.weighed * self.objects) if self.weighed else 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.objects + other.objects,
            self.weighed + other.weighed,
            self.weight + other.weight,
            self.beside + other.beside,
        )


class _ListMetadata(msgspec.Struct):
    remaining: int = msgspec.field(default=0, name="remainingItemCount")


class _List(msgspec.Struct):
    metadata: _ListMetadata


async def labelled_namespaces(
    transport: Transport, labels: Iterable[LabelSelector]
) -> dict[LabelSelector, frozenset[str]]:
    """Return the namespaces that have each label; raise Refused, Unreachable or Garbled."""
    kind = find("namespaces")
    assert kind is not None, "it is built in"
    resource, found = Resource(kind, "v1"), {}
    for label in labels:
        paging = Paging({"labelSelector": str(label)}, page_limit=PAGE_OBJECTS, patience=PATIENCE_SECONDS)
        pages = pages_of_metadata(
            transport, resource, resource.path(None), paging, chance=lambda: 1.0, sleep=asyncio.sleep
        )
        found[label] = frozenset([record.name async for records in pages for record in records])
    return found


class Counter:
    """Counts the objects of one resource. Raises Refused, Unreachable and Garbled."""

    def __init__(
        self,
        transport: Transport,
        resource: Resource,
        *,
        step: Callable[[int], object] = lambda _: None,
        look: Callable[[Record], object] = lambda _: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.samples = Samples()
        """A sample of the objects that would be stored."""
        self._transport = transport
        self._resource = resource
        self._step = step  # Called with the number of objects of each page.
        self._look = look  # Called with the metadata of each object that is held.
        self._sleep = sleep

    async def held(
        self,
        stream: Stream,
        projection: Projection,
        seen: set[tuple[str, str]],
        indexes: tuple[Indexed, ...] = (),
    ) -> Amount:
        """Return the amount of a stream, without objects that earlier streams had; note its objects."""
        path, query, within = stream.path(self._resource), stream.query(), stream.keys
        found, paging, listed, due = (
            Amount(),
            Paging(query, page_limit=PAGE_OBJECTS, patience=PATIENCE_SECONDS),
            0,
            0,
        )
        while not paging.is_complete:
            if pause := paging.take_pause(1.0):
                await self._sleep(pause)
            asked = paging.query
            page = await page_of_metadata(self._transport, self._resource, path, paging)
            paging.turn(page)
            keys = {record.key for record in page.records if within.have(record.key)}
            if keys and listed >= due:  # After 0, 1, 3, 7, ... full pages: pages of large objects have fewer.
                found += await self._weighed(path, asked, projection, stream, indexes)
                due = 2 * due + PAGE_OBJECTS
            new = keys - seen
            for record in page.records:
                if record.key in new:
                    self._look(record)
            found += Amount(len(new))
            seen |= keys
            self._step(len(keys))
            listed += len(page.records)
        return found

    async def all(self, namespaces: Collection[str] | None) -> Amount:
        """Return the amount of all objects in these namespaces, as a cache without selectors would
        hold them.
        """
        found = Amount()
        for namespace in (
            (None,) if namespaces is None or self._resource.kind.namespaced is False else namespaces
        ):
            path = self._resource.path(namespace)
            answer = await self._some(path, {}, WEIGHED_OBJECTS)
            records = self._records(answer, ALL)  # Raises Garbled for an invalid answer.
            found += Amount(
                len(records) + msgspec.json.decode(answer, type=_List).metadata.remaining, *_sizes(records)
            )
        return found

    async def memory(self, amount: Amount, storage: Storage) -> int:
        """Return the estimated bytes of an amount in a cache with this storage."""
        leaves = await run_in_thread(partial(self.samples.leaves, storage, amount.objects))
        return expected(amount.objects, amount.bytes, amount.values, leaves=leaves)

    async def _weighed(
        self,
        path: str,
        query: Mapping[str, str],
        projection: Projection,
        stream: Stream,
        indexes: tuple[Indexed, ...],
    ) -> Amount:
        # Objects of a shared watch may be anywhere in the page.
        limit = PAGE_OBJECTS if stream.is_wider else WEIGHED_OBJECTS
        answer = await self._some(path, query, limit, accept_of(projection, is_list=True))
        records = self._records(answer, projection, indexes)
        named = [record for record in records if stream.keys.have(record.key)]
        self.samples.take(named)
        return Amount(0, *_sizes(named))

    async def _some(self, path: str, query: Mapping[str, str], limit: int, accept: str = JSON) -> bytes:
        """Return the bytes of a page of at most `limit` objects, or of fewer if the page is too large."""
        size = PageSize(limit)
        return await ask_in_size(
            size,
            lambda: self._transport.get(path, {**query, **size.query}, accept=accept, most=size.most_bytes),
        )

    def _records(
        self, answer: bytes, projection: Projection, indexes: tuple[Indexed, ...] = ()
    ) -> Sequence[Record]:
        page = Reader.of(self._resource, projection, indexes=indexes).page(answer)
        if isinstance(page, Refusal):
            raise Refused(page)
        return page.records


def _sizes(records: Sequence[Record]) -> tuple[int, int, int]:
    """Return the number of objects, their bytes of JSON, and the bytes of the values beside them."""
    return (
        len(records),
        sum(len(record.data) for record in records),
        sum(len(record.fields) for record in records),
    )
