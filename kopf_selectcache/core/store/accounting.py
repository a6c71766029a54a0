"""Memory accounting across stores. Reference-counted: a record that several stores hold is charged once.

Limits are not enforced here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .record import Record
from .siblings import ROOM, SiblingPacking, Template

OVERHEAD = 530
"""Bytes per record besides the object itself: name, uid, version and the place in the store, measured with
tracemalloc.

Labels and owners are not included, because records share equal ones (`core.protocol._shared_metadata`).
"""


def weight(record: Record) -> int:
    """Return the approximate size of a record in bytes."""
    return len(record.stored) + len(record.fields) + OVERHEAD


class Weights(NamedTuple):
    """The number of some records, and their bytes."""

    objects: int
    stored: int
    """The objects as they are stored, with their templates."""
    values: int
    """The values that are stored beside the objects."""
    templates: int
    """The number of templates that they use."""

    @property
    def total(self) -> int:
        """All of their bytes, as a tally counts them."""
        return self.stored + self.values + self.objects * OVERHEAD + self.templates * ROOM


def weights_of(records: Iterable[Record]) -> Weights:
    """Weigh some records, and their templates, each once."""
    templates: set[Template] = set()
    objects = stored = values = 0
    for record in records:
        objects += 1
        stored += len(record.stored)
        values += len(record.fields)
        if isinstance(record.packing, Template):
            templates.add(record.packing)
    return Weights(objects, stored + sum(len(each.stored) for each in templates), values, len(templates))


class Tally:
    """The number and size of the records of some stores, and of their templates. Only the writer of the
    stores changes it; any thread may read it.
    """

    def __init__(self) -> None:
        self.objects = 0
        """The number of records. A relist in progress adds its own, except those that are unchanged."""
        self.bytes = 0

    def take(self, record: Record) -> None:
        """Count one more store that holds the record."""
        record.holders += 1
        if record.holders == 1:
            self.objects += 1
            self.charge(record)

    def drop(self, record: Record | None) -> None:
        """Count one store less that holds the record."""
        if record is None:
            return
        if record.holders == 1:
            self.objects -= 1
            self.discharge(record)
            if isinstance(record.packing, SiblingPacking):
                record.packing.forget_first(record)  # It would take memory that is not counted.
        record.holders -= 1

    def drop_all(self, records: Iterable[Record]) -> None:
        for record in records:
            self.drop(record)

    def charge(self, record: Record) -> None:
        """Add the size of a record, if a store holds it; a template counts once."""
        if record.holders:
            self.bytes += weight(record)
            if isinstance(record.packing, Template):
                self.bytes += 0 if record.packing.holders else record.packing.weight
                record.packing.holders += 1

    def discharge(self, record: Record) -> None:
        """Subtract the size of a record, before its stored bytes are exchanged."""
        if record.holders:
            self.bytes -= weight(record)
            if isinstance(record.packing, Template):
                record.packing.holders -= 1
                self.bytes -= 0 if record.packing.holders else record.packing.weight

    def reweigh(self, record: Record, before: int) -> None:
        """Charge the new size of the values of a record; `before` is its former weight."""
        if record.holders:
            self.bytes += weight(record) - before
