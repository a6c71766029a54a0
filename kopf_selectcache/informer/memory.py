"""Byte budgets: the bytes that each informer stores, its limits, and the remedy if it exceeds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.store.accounting import OVERHEAD, Tally
from kopf_selectcache.core.store.record import Record, compact_json
from kopf_selectcache.selectors.kind_keys import text_of
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.settings.quantity import Size, bytes_in, written

AGAIN = 600.0
"""Mean seconds until an informer whose store was dropped lists again: objects may have been deleted."""

SAMPLES = 5000
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


class Share:
    """The bytes that one informer stores, and its limit."""

    def __init__(self, budget: Budget, key: str, limit: Size | None) -> None:
        self.key = key
        self.limit = limit
        self.excess: Excess | None = None
        """The excess, once a limit was exceeded. The share then counts as 0 bytes: the store is dropped."""
        self.tally: Tally | None = None
        """The accounting of the stored objects; None without any limit."""
        self._asked = 0  # The bytes at the last check.
        self._budget = budget
        self._most = None if limit is None else bytes_in(limit)

    @property
    def bytes(self) -> int:
        """The bytes that are stored."""
        return self.tally.bytes if self.tally is not None and self.excess is None else 0

    def begin(self) -> Tally | None:
        """Start to count from 0; return the new tally, or None without any limit."""
        self.excess = None
        self._asked = 0
        self.tally = Tally() if self._most is not None or self._budget.limit is not None else None
        return self.tally

    def is_beyond(self) -> bool:
        """Return True if a limit is exceeded. It is checked only if the store grew since the last call."""
        tally = self.tally
        grown = tally is not None and tally.bytes > self._asked
        self._asked = tally.bytes if tally is not None else 0
        # If it has not grown, another cache has, and its own check finds that.
        if tally is not None and grown and self.excess is None:
            if self._most is not None and self.limit is not None and tally.bytes > self._most:
                self.excess = Excess(tally.objects, tally.bytes, self.limit, self._most)
            else:
                self.excess = self._budget.excess(self, tally)
        return self.excess is not None


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


def indexed_bytes(records: Sequence[Record]) -> int:
    """Return an estimate of the bytes of index values, which are stored beside the objects."""
    step = max(1, len(records) // SAMPLES)
    return step * sum(len(compact_json(record.indexed())) for record in records[::step] if record.fields)


def lessened(declared: str, objects: int, allowed: float, *, packed: bool) -> str:
    """Return the remedy if the given number of objects must fit into `allowed` bytes."""
    if objects * OVERHEAD > allowed:
        return (
            f"Select less in {declared}: {objects:,} objects take {written(objects * OVERHEAD)} with nothing"
            " kept of them"
        )
    packing = "" if packed else "; or store it packed: Cached(..., storage='packed')"
    return f"Keep less of each object in {declared}: Cached(..., keep=[...]){packing}; or narrow its filter"


def expected(objects: int, json: int, values: int, *, leaves: float) -> int:
    """Return an estimate of the bytes of a cache, from its number of objects and the bytes of their JSON and
    index values.

    `leaves` is the fraction of the JSON that is left after packing.
    """
    return objects * OVERHEAD + round(json * leaves) + values
