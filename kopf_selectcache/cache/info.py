"""`Info`: the filter of one cache, where its values come from, its state, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from sys import getsizeof

from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.store.claims import OwnWrites
from kopf_selectcache.core.store.indexes import in_words
from kopf_selectcache.core.store.packing import weights_of
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Readable
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.settings.namespaces import Origin

SAMPLES = 500
"""Number of objects that are measured, as a sample of all."""


@dataclass(frozen=True, slots=True)
class Memory:
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
            lines.append(f"  {self.unreadable:,} of them can't be read")
        if self.own_writes:
            lines.append(f"  {self.own_writes:,} own writes that the watch has not reported yet")
        lines.append(f"  {self.records:,} bytes for names, uids and versions{self._apiece(self.records)}")
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


def memory_of(store: Readable, own_writes: OwnWrites) -> Memory:
    """Return the memory of a store. Visits all records in the calling thread, without a lock."""
    records, _ = store.records()
    weights = store.weights()
    samples = records[:: max(1, len(records) // SAMPLES)]
    each = len(records) / len(samples) if samples else 0.0
    whole = weights_of(records)
    return Memory(
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


@dataclass(frozen=True, slots=True)
class Info:
    """The cache of one kind at a moment, from `cache.info`. `str` gives one line of text."""

    kind: str
    """The kind, as it is declared."""
    filter: Selector | AnyOf
    """The present filter. Namespaces that it chooses by a label are those that have the label now."""
    origins: tuple[Origin, ...]
    """The level that each value comes from: a namespace of the kind, the kind, or the defaults."""
    state: str
    """Its health, such as `synced`, `stale` or `forbidden`."""
    trouble: str
    """The failure; empty if there is none."""
    age: float | None
    """The seconds since the server last confirmed the objects; None before the first list."""
    version: str
    """The resourceVersion that the cache has reached; empty before the first list."""
    objects: int
    """The number of cached objects."""
    _memory: Callable[[], Memory] = field(repr=False, compare=False)

    @property
    def memory(self) -> Memory:
        """The bytes of the objects and of each index. It visits all of them: don't ask at each event."""
        return self._memory()

    @property
    def bytes(self) -> int:
        """The bytes of the objects, of what is known of each, and of the indexes."""
        memory = self.memory
        return memory.stored + memory.values + memory.records + sum(memory.indexes.values())

    def __str__(self) -> str:
        age = "" if self.age is None else f", {self.age:.0f} s old"
        number = f"{self.objects:,} object{'' if self.objects == 1 else 's'}"
        trouble = f": {self.trouble}" if self.trouble else ""
        return f"{self.kind} with {clipped(self.filter)}: {number}{age}, {self.state}{trouble}"


def info_of(informer: Informer) -> Info:
    """Return the info of an informer."""
    store, own_writes = informer.state.store, informer.state.own_writes
    records, version = store.records()
    return Info(
        str(informer),
        informer.state.filter,
        informer.declared.origins_for(informer.state.resource),
        informer.state.health.value,
        informer.state.message,
        informer.state.age(),
        version,
        len(records),
        partial(memory_of, store, own_writes),
    )
