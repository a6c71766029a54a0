"""Byte budgets: how many bytes each informer stores and may store, and what to change if it is too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kopf_selectcache.core.selection.kinds import Key
from kopf_selectcache.core.store.accounting import OVERHEAD, Tally
from kopf_selectcache.core.store.record import Record, kept_json
from kopf_selectcache.selectors.kind_keys import text_of
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.settings.quantity import Size, bytes_in, written

AGAIN = 600.0
"""After so many seconds, about, a cache that was let go is tried again: objects may have been deleted."""

SAMPLES = 5000
"""The number of objects whose indexed values are measured; they stand for the others."""

LARGEST = 3
"""So many of the largest caches are named."""

# ---- Who holds how much.


class Excess(NamedTuple):
    """What a cache held when it was found to be beyond a budget."""

    objects: int
    bytes: int
    limit: Size
    """The limit as it was declared."""
    allowed: int
    """How many bytes it may hold: of an overall limit, what other caches leave."""
    largest: tuple[tuple[str, int], ...] = ()
    """The largest caches with their bytes, where it is the overall limit."""
    total: int = 0
    """How many bytes all of them held, likewise."""


class Budget:
    """What all caches of one operator may hold together."""

    def __init__(self, limit: Size | None = None) -> None:
        self.limit = limit
        self._most = None if limit is None else bytes_in(limit)
        self._shares: list[Share] = []

    def share(self, key: Key, limit: Size | None) -> Share:
        """Return the part of one cache, which may hold so many bytes itself."""
        share = Share(self, text_of(key), limit)
        self._shares.append(share)
        return share

    def excess(self, share: Share, tally: Tally) -> Excess | None:
        """Return by what a cache is beyond, if all are that together."""
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


class Share:
    """What one cache holds, and may hold."""

    def __init__(self, budget: Budget, key: str, limit: Size | None) -> None:
        self.key = key
        self.limit = limit
        self.excess: Excess | None = None
        """By what it has been found to be beyond. From then on it counts as nothing to others: it is let
        go."""
        self.tally: Tally | None = None
        """What is held; None where there is no limit at all."""
        self._asked = 0  # How many bytes were held when it was asked last whether that is too much.
        self._budget = budget
        self._most = None if limit is None else bytes_in(limit)

    @property
    def bytes(self) -> int:
        """How many bytes are held."""
        return self.tally.bytes if self.tally is not None and self.excess is None else 0

    def begin(self) -> Tally | None:
        """Count anew; return who is to be told of what is held."""
        self.excess = None
        self._asked = 0
        self.tally = Tally() if self._most is not None or self._budget.limit is not None else None
        return self.tally

    def is_beyond(self) -> bool:
        """Whether it is too much, where it has grown since this was asked last."""
        tally = self.tally
        grown = tally is not None and tally.bytes > self._asked
        self._asked = tally.bytes if tally is not None else 0
        if (
            tally is not None and grown and self.excess is None
        ):  # Another cache may have grown: it is asked itself.
            if self._most is not None and self.limit is not None and tally.bytes > self._most:
                self.excess = Excess(tally.objects, tally.bytes, self.limit, self._most)
            else:
                self.excess = self._budget.excess(self, tally)
        return self.excess is not None


# ---- What to change.


@dataclass(frozen=True, slots=True)
class LetGo:
    """The store of an informer was dropped, because it was larger than it may be."""

    excess: Excess
    filter: Selector | AnyOf
    """As it was declared."""
    packed: bool
    """True if the objects were stored packed, or packing was found to be of no use."""
    indexes: tuple[str, ...] = ()
    """The names of the indexes."""
    values: int = 0
    """The bytes of the indexed values that were stored."""


def indexed_bytes(records: Sequence[Record]) -> int:
    """Return about how many bytes the values of declared and added indexes take, which are kept beside
    objects.
    """
    step = max(1, len(records) // SAMPLES)
    return step * sum(len(kept_json(record.indexed())) for record in records[::step] if record.fields)


def lessened(declared: str, objects: int, allowed: float, *, packed: bool) -> str:
    """Say what to change where so many objects are to take no more than is allowed."""
    if objects * OVERHEAD > allowed:
        return (
            f"Select less in {declared}: {objects:,} objects take {written(objects * OVERHEAD)} with nothing"
            " kept of them"
        )
    packing = "" if packed else "; or store it packed: Cached(..., storage='packed')"
    return f"Keep less of each object in {declared}: Cached(..., keep=[...]){packing}; or narrow its filter"


def expected(objects: int, json: int, values: int, *, leaves: float) -> int:
    """Return about how many bytes such a cache would hold, of objects with so much JSON and such values
    beside it, before there is one.

    `leaves` is the part of the JSON that is left of it where it is packed.
    """
    return objects * OVERHEAD + round(json * leaves) + values
