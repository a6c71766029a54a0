"""How much a cache holds, and what that takes: of its objects, of what is known of each, and of each
index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import getsizeof

from kopf_selectcache.core.store.postings import in_words
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Readable

SAMPLES = 500
"""So many objects are weighed, and stand for the others."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a cache takes, in bytes: estimates, but for `objects`, `stored` and `values`. As text, a few
    lines.
    """

    objects: int
    """How many are held."""
    stored: int
    """The objects as they are stored."""
    values: int
    """What is kept beside them: the values of declared indexes, and of fields that were dropped and can be
    selected by."""
    json: int
    """The objects in JSON, as they are when they are read."""
    records: int
    """What is known of each besides: its name, uid and version, and where it is found by its name. What many
    have in common, such as labels, is not counted."""
    unreadable: int
    """How many of the objects cannot be read: nothing of them is stored."""
    indexes: Mapping[str, int]
    """Each index, by what it is by: the containers alone, since the objects are there anyway. An index that
    is being built is not there yet."""

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


def weighed(store: Readable) -> Stats:
    """Weigh what is held: all of it is looked at, in the reader's thread, and nobody waits for that."""
    records, _ = store.records()
    weights = store.weights()
    samples = records[:: max(1, len(records) // SAMPLES)]
    each = len(records) / len(samples) if samples else 0.0
    return Stats(
        objects=len(records),
        stored=sum(len(record.stored) for record in records),
        values=sum(len(record.fields) for record in records),
        json=round(each * sum(len(record.data) for record in samples if record.stored)),
        records=round(each * _besides(samples)) + weights.pop(""),
        unreadable=sum(not record.stored for record in records),
        indexes=weights,
    )


def _besides(records: Sequence[Record]) -> int:
    """Return the bytes of what is known of each; of each object of Python, some are its own."""
    empty = getsizeof(b"")
    return sum(
        getsizeof(record) + empty + sum(map(getsizeof, (record.name, record.uid, record.version)))
        for record in records
    )
