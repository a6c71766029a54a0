"""Memory: the bytes that each informer stores, its limits, and the remedy if it exceeds them.

Before a cache exists, its number of objects and their bytes are estimated: objects are counted by metadata,
and a sample of whole ones is measured. `Samples` tell from some objects of a kind how well all compress, and
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
from kopf_selectcache.core.selection.kinds import KindKey, Resource, find
from kopf_selectcache.core.store.index_spec import Indexed, without_value
from kopf_selectcache.core.store.packing import (
    FEWEST,
    OVERHEAD,
    ROOM,
    SAMPLES,
    WARM,
    SiblingPacking,
    Storage,
    Tally,
    Template,
    bare,
    learned,
    packing_of,
    weights_of,
)
from kopf_selectcache.core.store.projection import ALL, Keys, Projection
from kopf_selectcache.core.store.record import Record, compact_json
from kopf_selectcache.selectors.kind_keys import text_of
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.checks import Size, bytes_in, readable
from kopf_selectcache.settings.planner import Stream

from .background import run_in_thread

AGAIN = 600.0
"""Mean seconds until an informer whose store was dropped lists again: objects may have been deleted."""

SAMPLED_VALUES = 5000
"""The number of objects whose indexed values are measured, as a sample of all."""

LARGEST = 3
"""Number of the largest caches that a message names."""

# ---- Accounting.


class Excess(NamedTuple):
    """The size of an informer's store when it exceeded a budget."""

    objects: int
    bytes: int
    limit: Size
    """The limit as it was declared."""
    allowed: int
    """The bytes that it may store: its own limit, or the rest of the overall limit."""
    largest: tuple[tuple[str, int], ...] = ()
    """The largest caches with their bytes, if the overall limit is exceeded."""
    total: int = 0
    """The bytes of all caches, if the overall limit is exceeded."""


class Budget:
    """The overall limit of all caches of one operator."""

    def __init__(self, limit: Size | None = None) -> None:
        self.limit = limit
        self._most = None if limit is None else bytes_in(limit)
        self._shares: list[Share] = []

    def share(self, key: KindKey, limit: Size | None) -> Share:
        """Return the share of one informer, with its own limit in bytes."""
        share = Share(self, text_of(key), limit)
        self._shares.append(share)
        return share

    def release(self, share: Share) -> None:
        """Forget the share of an informer that was removed."""
        self._shares = [each for each in self._shares if each is not share]

    def replace(self, share: Share, by: Share) -> None:
        """Count another share from now on, instead of one."""
        self._shares = [by if each is share else each for each in self._shares]

    def excess(self, share: Share, tally: Tally) -> Excess | None:
        """Return the excess of one informer if all caches together exceed the overall limit, else None."""
        if self._most is None or self.limit is None:
            return None
        total = sum(each.bytes for each in self._shares)
        if total <= self._most:
            return None
        largest = sorted(((each.key, each.bytes) for each in self._shares), key=lambda named: -named[1])[
            :LARGEST
        ]
        return Excess(
            tally.objects,
            tally.bytes,
            self.limit,
            max(0, self._most - total + share.bytes),
            tuple(largest),
            total,
        )

    def left(self, share: Share) -> int:
        """Return the bytes that the objects of all caches, and the unpacked templates of the others, leave to
        one informer.
        """
        if self._most is None:
            return WARM
        warm = sum(each.warm_bytes for each in self._shares if each is not share)
        return max(0, self._most - sum(each.bytes for each in self._shares) - warm)

    def limit_warm(self) -> None:
        """Have all informers drop unpacked templates, if these and the objects exceed the overall limit."""
        if self._most is not None and sum(each.bytes + each.warm_bytes for each in self._shares) > self._most:
            for each in self._shares:
                each.limit_warm()


class Share:
    """The bytes that one informer stores, and its limit."""

    def __init__(self, budget: Budget, key: str, limit: Size | None) -> None:
        self.key = key
        self.limit = limit
        self.excess: Excess | None = None
        """The excess, once a limit was exceeded. The share then counts as 0 bytes: the store is dropped."""
        self.tally: Tally | None = None
        """The accounting of the stored objects; None without any limit."""
        self.packing: SiblingPacking | None = None
        """The compression of the stored objects."""
        self._asked = 0  # The bytes at the last check.
        self.budget = budget
        self.records: Callable[[], Sequence[Record]] = tuple
        """Returns the records of the store, while the present one has the same tally."""
        self._base = 0  # The bytes of the present store at the last count, until it is released.
        self._former: Share | None = None  # That of the present store, until the exchange.
        self.is_suspended = False
        """True if the limit is not checked, because another store is to take the place of this one."""
        self._most = None if limit is None else bytes_in(limit)

    @property
    def bytes(self) -> int:
        """The bytes that are stored."""
        return self.tally.bytes - self._base if self.tally is not None and self.excess is None else 0

    def begin(self) -> Tally | None:
        """Start to count from 0; return the new tally, or None without any limit."""
        self.excess = None
        self._asked = self._base = 0
        self.tally = Tally() if self._most is not None or self.budget.limit is not None else None
        return self.tally

    def release(self) -> None:
        """Take no part in the overall limit any more."""
        self.budget.release(self)

    def successor(self, limit: Size | None) -> Share:
        """Return the share of the store that will take the place of the present one, with its own limit.
        Until then the present store may keep what it has: its limit is not checked.
        """
        following = Share(self.budget, self.key, limit)
        following.tally = self.tally
        if self.tally is None and (limit is not None or self.budget.limit is not None):
            following.tally = Tally()
        following._base, following._former = self.bytes, self
        self.is_suspended = True
        return following

    def give_up(self) -> None:
        """Have the former share check its limit again: its store stays."""
        assert self._former is not None, "it succeeds none"
        self._former.resume()

    def resume(self) -> None:
        """Check the limit again. The tally has lost the objects of the store that was to take the place."""
        self.is_suspended, self._asked = False, 0

    def take_over(self) -> None:
        """Count all bytes: the former store was released."""
        assert self._former is not None, "it succeeds none"
        self.budget.replace(self._former, self)
        self._base, self._asked, self._former, self.records = 0, 0, None, tuple

    def check(self) -> None:
        """Count the records, and note an excess: the tally has those of the present store, too."""
        if self._most is not None and self.limit is not None:
            assert self.tally is not None, "there is a limit"
            weights = weights_of(self.records())
            self._base = self.tally.bytes - weights.total
            if weights.total > self._most:
                self.excess = Excess(weights.objects, weights.total, self.limit, self._most)

    def is_beyond(self) -> bool:
        """Return True if a limit is exceeded. It is checked only if the store grew since the last call."""
        tally = self.tally
        grown = tally is not None and tally.bytes > self._asked
        self._asked = tally.bytes if tally is not None else 0
        # If it has not grown, another cache has, and its own check finds that.
        if tally is not None and grown and self.excess is None and not self.is_suspended:
            if self._most is not None and self.limit is not None and self.bytes > self._most:
                if self._former is None:
                    self.excess = Excess(tally.objects, self.bytes, self.limit, self._most)
                else:
                    self.check()  # The present store may have grown.
            self.excess = self.excess or self.budget.excess(self, tally)
        if grown and self._former is None:
            self.limit_warm()
            self.budget.limit_warm()
        return self.excess is not None

    @property
    def warm_bytes(self) -> int:
        """The bytes of unpacked templates."""
        return self.packing.warm_bytes if self.packing is not None else 0

    def limit_warm(self) -> None:
        """Unpacked templates only save time: they have the memory that the objects leave."""
        if self.packing is not None:
            self.packing.limit_warm(self._left())

    def _left(self) -> int:
        """Return the bytes that the limits leave to data which can be made again."""
        left = self.budget.left(self)
        return left if self._most is None else max(0, min(left, self._most - self.bytes))


# ---- Remedies.


@dataclass(frozen=True, slots=True)
class LetGo:
    """The store of an informer was dropped, because it exceeded a limit."""

    excess: Excess
    filter: Selector | AnyOf
    """The declared filter."""
    packed: bool
    """True if the objects were stored packed, or packing did not save memory."""
    indexes: tuple[str, ...] = ()
    """The names of the indexes."""
    values: int = 0
    """The bytes of the stored values of indexes."""
    is_next: bool = False
    """True if it is the store of the next filter: the present one stays."""


def bytes_of(records: Iterable[Record]) -> int:
    """Return the bytes of the objects as they are stored, without overhead."""
    weights = weights_of(records)
    return weights.stored + weights.values


def indexed_bytes(records: Sequence[Record]) -> int:
    """Return an estimate of the bytes of index values, which are stored beside the objects."""
    step = max(1, len(records) // SAMPLED_VALUES)
    return step * sum(len(compact_json(record.indexed())) for record in records[::step] if record.fields)


def lessened(declared: str, objects: int, allowed: float, *, packed: bool) -> str:
    """Return the remedy if the given number of objects must fit into `allowed` bytes."""
    if objects * OVERHEAD > allowed:
        return (
            f"Select less in {declared}: {objects:,} objects take {readable(objects * OVERHEAD)} even if none"
            " of"
            " their fields is kept"
        )
    packing = "" if packed else "\nStore it packed: Cached(..., storage='packed')"
    return f"Keep less of each object in {declared}: Cached(..., keep=[...]){packing}\nNarrow its filter"


def expected(objects: int, json: int, values: int, *, leaves: float) -> int:
    """Return an estimate of the bytes of a cache, from its number of objects and the bytes of their JSON and
    index values.

    `leaves` is the fraction of the JSON that is left after packing.
    """
    return objects * OVERHEAD + round(json * leaves) + values


class _Sample(NamedTuple):
    uid: str
    data: bytes
    owners: tuple[str, ...]


def _in_training_order(kept: Sequence[_Sample]) -> list[bytes]:
    """Return objects in an order in which the training tries none whose sibling it has looked at: few objects
    of a large cluster have a sibling among the samples of its dictionary.
    """
    groups: dict[str, list[bytes]] = {}
    step = max(1, len(kept) // SAMPLES)
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
        found = learned(_in_training_order(kept)) if objects >= FEWEST else None
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
        left = sum(len(each.stored) for each in siblings) + ROOM * len(templates)
        return (found.leaves * alone + left) / whole

    def __len__(self) -> int:
        return len(self._kept)

    def without_value(self, paths: Iterable[Keys]) -> list[Keys]:
        """Return the paths at which no sample has a value."""
        return without_value(paths, [decoded(each.data) for each in self._kept.values()])

    def without_key(self, indexes: Iterable[Indexed]) -> list[Indexed]:
        """Return the indexes that no sample has a value by."""
        return [each for each in indexes if each.stored_as not in self._indexed]


PAGE_LIMIT = 500


PATIENCE = 120.0
"""Maximum of the sum of pauses between the pages of one list, in seconds."""

WEIGHED = 100
"""Number of objects that are measured at a time: of the first page, and of ever fewer later ones."""


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
        paging = Paging({"labelSelector": str(label)}, page_limit=PAGE_LIMIT, patience=PATIENCE)
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
        found, paging, listed, due = Amount(), Paging(query, page_limit=PAGE_LIMIT, patience=PATIENCE), 0, 0
        while not paging.is_complete:
            if pause := paging.take_pause(1.0):
                await self._sleep(pause)
            asked = paging.query
            page = await page_of_metadata(self._transport, self._resource, path, paging)
            paging.turn(page)
            keys = {record.key for record in page.records if within.have(record.key)}
            if keys and listed >= due:  # After 0, 1, 3, 7, ... full pages: pages of large objects have fewer.
                found += await self._weighed(path, asked, projection, stream, indexes)
                due = 2 * due + PAGE_LIMIT
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
            answer = await self._some(path, {}, WEIGHED)
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
        limit = PAGE_LIMIT if stream.is_wider else WEIGHED
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
