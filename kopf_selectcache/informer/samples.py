"""Samples: estimate from some objects of a kind how well all compress, and which declared paths have no
value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kopf_selectcache.core.recursion import decoded
from kopf_selectcache.core.store.compression import FEWEST, Storage, learned
from kopf_selectcache.core.store.index_spec import Indexed, ends
from kopf_selectcache.core.store.projection import Projection, as_written
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.siblings import packing_of

ENOUGH = 20
"""Minimum of objects for the conclusion that a path has no value."""


class Samples:
    """Some objects of one kind, as a cache would store them."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}  # By the uid: several lists may have the same objects.
        self._indexed: set[str] = set()

    def take(self, records: Iterable[Record]) -> None:
        for record in records:
            self._kept[record.uid] = record.data
            self._indexed |= {
                name
                for name, values in record.indexed().items()
                if any(value is not None for value in values)
            }

    def leaves(self, storage: Storage, objects: int) -> float:
        """Return the fraction of bytes that is left after packing, by the rule of the cache itself.

        `objects` is the number of all objects.
        """
        packing, kept = packing_of(storage), list(self._kept.values())
        if packing is None or not kept:
            return 1.0
        found = learned(kept) if objects >= FEWEST else None
        packing.adopt(found)
        if found is not None and packing.learned:
            return found.leaves  # Measured on objects that were not used for the training.
        return sum(len(packing.pack(each)) for each in kept) / sum(map(len, kept))

    def lacking(self, projection: Projection, indexes: Iterable[Indexed]) -> Iterator[str]:
        """Yield the declared paths and indexes without a value in any sample."""
        many = len(self._kept)
        if many < ENOUGH:
            return
        objects = [decoded(each) for each in self._kept.values()]
        for path in projection.keep or () if projection.transform is None else ():
            if all(value is None for obj in objects for value in ends(obj, path)):
                yield (
                    f"keep=[{as_written(path)!r}] keeps nothing of the {many:,} that were weighed: none has"
                    " anything there"
                )
        for each in indexes:
            if each.stored_as not in self._indexed:
                yield f"index={{{each}}} finds none of the {many:,} that were weighed: none has a value by it"
