"""How much the objects take that some stores hold. Each is counted once, whoever holds it; nothing is counted
twice or anew.

It knows no limit, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from .record import Record

OVERHEAD = 530
""" Bytes that each object takes besides its own: its name, uid and version, and its place in the store,
measured with tracemalloc.

Labels and owners are not among them: what many objects have in common is kept once.
"""


def weight(record: Record) -> int:
    """Return about how many bytes a held object takes."""
    return len(record.stored) + len(record.fields) + OVERHEAD


class Tally:
    """What some stores hold, as numbers. The writer of the stores alone changes it; readers may be in any
    thread.
    """

    def __init__(self) -> None:
        self.objects = 0
        """Those of a generation that is being listed anew as well, unless they are unchanged."""
        self.bytes = 0

    def take(self, record: Record) -> None:
        """A store has it now."""
        if not record.holders:
            self.objects += 1
            self.bytes += weight(record)
        record.holders += 1

    def drop(self, record: Record | None) -> None:
        """A store has it no more."""
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
        """It is stored in other bytes now: this was its weight before."""
        if record.holders:
            self.bytes += weight(record) - before
