"""The packed objects that are read often, unpacked: to decode one takes two thirds to three quarters of the
time.

An object is unpacked when it is read for the second time, so that a reader of all objects displaces none.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import msgspec

from .record import Record

MOST = 8 * 1024 * 1024
"""Bytes of these objects of one store. Beyond them, those that were not read lately are dropped."""

READ_ONCE = 2048
"""The number of objects that are remembered as read once."""

ENTRY = 200
"""Bytes of an entry besides its object."""

_decode = msgspec.json.Decoder().decode


class _Unpacked:
    __slots__ = ("data", "is_used", "record")

    def __init__(self, record: Record, data: bytes) -> None:
        self.record = record  # Its `id` is the key, so it must exist as long as the entry.
        self.data = data
        self.is_used = False


class OftenRead:
    """The packed objects of one store that are read often. Any thread may call it."""

    __slots__ = ("__weakref__", "_entries", "_lock", "_most", "_read_once", "bytes")

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._entries: dict[int, _Unpacked] = {}
        self._read_once: dict[int, None] = {}
        """The `id` of each record. If another record has it meanwhile, that is unpacked a read too early."""
        self._lock = Lock()
        """Held to add and to drop entries."""
        self.bytes = 0

    def decode(self, record: Record) -> dict[str, Any]:
        """Return the object of a packed record as a new dict, as `Record.decode` does."""
        entry = self._entries.get(id(record))
        if entry is None:
            return self._first_reads(record)
        entry.is_used = True
        return _decoded(record, entry.data)

    def forget(self, record: Record) -> None:
        """Drop an object that is not stored any more."""
        if id(record) in self._entries:
            with self._lock:
                self._drop(id(record))

    def _first_reads(self, record: Record) -> dict[str, Any]:
        number = id(record)
        with self._lock:
            is_second = number in self._read_once
            if is_second:
                del self._read_once[number]
            else:
                self._read_once[number] = None
                if len(self._read_once) > READ_ONCE:
                    self._read_once.pop(next(iter(self._read_once)))
        if not is_second:
            return record.decode()
        data = record.data
        self._keep(record, data)
        return _decoded(record, data)

    def _keep(self, record: Record, data: bytes) -> None:
        if len(data) + ENTRY > self._most // 8:  # It would displace many others.
            return
        with self._lock:
            self._drop(id(record))
            self._entries[id(record)] = _Unpacked(record, data)
            self.bytes += len(data) + ENTRY
            self._make_room()

    def _make_room(self) -> None:
        while self.bytes > self._most:
            number = next(iter(self._entries))
            entry = self._entries[number]
            if entry.is_used:
                entry.is_used = False
                self._entries[number] = self._entries.pop(number)
            else:
                self._drop(number)

    def _drop(self, number: int) -> None:
        entry = self._entries.pop(number, None)
        if entry is not None:
            self.bytes -= len(entry.data) + ENTRY


def _decoded(record: Record, data: bytes) -> dict[str, Any]:
    """Return the object of a record from its JSON."""
    obj: dict[str, Any]
    try:
        obj = _decode(data)
    except (msgspec.ValidationError, RecursionError):
        obj = record.decode()  # This takes nesting and numbers that `_decode` refuses.
    return obj
