"""Samples: estimate from some objects of a kind how well all compress, and which declared paths have no
value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kopf_selectcache.core.recursion import decoded
from kopf_selectcache.core.store.index_spec import Indexed, without_value
from kopf_selectcache.core.store.projection import Keys
from kopf_selectcache.core.store.record import FEWEST, SAMPLES, Record, Storage, bare, learned
from kopf_selectcache.core.store.siblings import ROOM, Template, packing_of


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
