"""Memory accounting across stores. Reference-counted: a record that several stores hold is charged once.

Limits are not enforced here.
"""

from __future__ import annotations

from collections.abc import Iterable

from .record import Record

OVERHEAD = 530
"""Bytes per record besides the object itself: name, uid, version and the place in the store, measured with
tracemalloc.

Labels and owners are not included, because records share equal ones (`core.store.interning`).
"""


def weight(record: Record) -> int:
    """Return the approximate size of a record in bytes."""
    return len(record.stored) + len(record.fields) + OVERHEAD


class Tally:
    """The number and size of the records of some stores. Only the writer of the stores changes it; any
    thread may read it.
    """

    def __init__(self) -> None:
        self.objects = 0
        """The number of records. A relist in progress adds its own, except those that are unchanged."""
        self.bytes = 0

    def take(self, record: Record) -> None:
        """Count one more store that holds the record."""
        if not record.holders:
            self.objects += 1
            self.bytes += weight(record)
        record.holders += 1

    def drop(self, record: Record | None) -> None:
        """Count one store less that holds the record."""
        if record is None:
            return
        record.holders -= 1
        if not record.holders:
            self.objects -= 1
            self.bytes -= weight(record)

    def drop_all(self, records: Iterable[Record]) -> None:
        for record in records:
            self.drop(record)

    def reweigh(self, record: Record, before: int) -> None:
        """Charge the new size of a record that was packed again; `before` is its former weight."""
        if record.holders:
            self.bytes += weight(record) - before
