"""Stats: the number of objects of a cache, and the memory of their data, records and indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import getsizeof

from kopf_selectcache.core.store.accounting import weights_of
from kopf_selectcache.core.store.own_writes import OwnWrites
from kopf_selectcache.core.store.postings import in_words
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Readable

SAMPLES = 500
"""Number of objects that are measured, as a sample of all."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The memory of a cache in bytes. `objects`, `stored`, `values` and `unreadable` are exact, the others
    are estimates. `str` gives a few lines of text.
    """

    objects: int
    """The number of stored objects."""
    stored: int
    """The objects as they are stored."""
    values: int
    """The values beside them: those of declared indexes, and of dropped fields that selectors can use."""
    json: int
    """The objects in JSON, as reads decode them."""
    records: int
    """The records: name, uid and version of each object, and the map of names. Values that objects share,
    such as labels, are not counted."""
    unreadable: int
    """The number of objects that cannot be read: nothing of them is stored."""
    indexes: Mapping[str, int]
    """The containers of each index, by its name. An index that is being built is not included."""
    own_writes: int = 0
    """The number of own writes that the watch has not reported yet. Reads show them, and they are not counted
    above."""

    def __str__(self) -> str:
        lines = [f"{self.objects:,} object{'' if self.objects == 1 else 's'}"]
        lines.append(f"  {self.stored:,} bytes stored, of about {self.json:,} in JSON")
        if self.values:
            lines.append(
                f"  {self.values:,} bytes for values of declared indexes, and of fields that were"
                f" dropped{self._apiece(self.values)}"
            )
        if self.unreadable:
            lines.append(f"  {self.unreadable:,} of them cannot be read")
        if self.own_writes:
            lines.append(
                f"  {self.own_writes:,} own writes beside them, which the watch has not reported yet"
            )
        lines.append(
            f"  {self.records:,} bytes for what is known of each besides{self._apiece(self.records)}"
        )
        return "\n".join(
            [
                *lines,
                *(
                    f"  {size:,} bytes for the {in_words(by)}{self._apiece(size)}"
                    for by, size in self.indexes.items()
                ),
            ]
        )

    def _apiece(self, size: int) -> str:
        return f": {size / self.objects:,.0f} an object" if self.objects else ""


def stats_of(store: Readable, own_writes: OwnWrites) -> Stats:
    """Return the stats of a store. Visits all records in the calling thread, without a lock."""
    records, _ = store.records()
    weights = store.weights()
    samples = records[:: max(1, len(records) // SAMPLES)]
    each = len(records) / len(samples) if samples else 0.0
    whole = weights_of(records)
    return Stats(
        objects=whole.objects,
        stored=whole.stored,
        values=whole.values,
        json=round(each * sum(len(record.data) for record in samples if record.stored)),
        records=round(each * _besides(samples)) + weights.pop(""),
        unreadable=sum(not record.stored for record in records),
        indexes=weights,
        own_writes=len(own_writes),
    )


def _besides(records: Sequence[Record]) -> int:
    """Return the bytes of the records with their names, uids and versions, including Python's overhead."""
    empty = getsizeof(b"")
    return sum(
        getsizeof(record) + empty + sum(map(getsizeof, (record.name, record.uid, record.version)))
        for record in records
    )
