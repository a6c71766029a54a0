"""Record: a stored object. It has the metadata that reads select by, and the object as bytes, which may be
packed (`core.store.packing`).

Each read decodes the bytes into a new dict, so that readers may change their result, and objects that nobody
reads cost no dict. `OftenRead` keeps the JSON of packed objects that are read often.

Versions are compared here as well (`is_newer`, `least`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Any, Protocol, TypeAlias

import msgspec

from kopf_selectcache.core.errors import Undecodable
from kopf_selectcache.core.json_text import decoded

ObjectKey: TypeAlias = tuple[str, str]
"""The namespace and name of an object."""


class Unpacking(Protocol):
    """Unpacks the objects of one kind, or of one group of them. Any thread may call it."""

    @property
    def kind(self) -> Unpacking:
        """The compression of the kind."""

    def unpack(self, stored: bytes) -> bytes:
        """Return the object in JSON that was packed."""


_decode = msgspec.json.Decoder().decode

INDEXED = ""
"""The key of the values of declared indexes in `Record.fields`. It cannot be a field label."""


class Record(msgspec.Struct, eq=False, gc=False):
    """A stored object. The garbage collector skips it (`gc=False`), because it cannot be part of a cycle."""

    namespace: str
    """Empty for a cluster-scoped kind."""
    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    labels: dict[str, str]
    """Other records may share this dict, so it must not be changed. Readers get their own from `decode`."""
    owners: tuple[str, ...]
    """The uids of the owners."""
    stored: bytes
    """The object in JSON, packed or not. `replace` may exchange it for other bytes of the same object. Empty
    if the object is unreadable."""
    fields: bytes = b""
    """Values in JSON that the stored object lacks: those of field labels whose paths the projection drops,
    and of declared indexes. Empty if there is none."""
    packing: Unpacking | None = None
    """The compression of its kind or of its group; None if objects are never packed."""
    holders: int = 0
    """The number of stores that hold it, if they have a tally (`core.store.packing`)."""

    def __repr__(self) -> str:
        """Show the identity of the object and none of its contents, because it may be a Secret."""
        return (
            f"Record(namespace={self.namespace!r}, name={self.name!r}, uid={self.uid!r},"
            f" version={self.version!r})"
        )

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def compression(self) -> Unpacking | None:
        """The compression of its kind; None if objects are never packed."""
        return None if self.packing is None else self.packing.kind

    @property
    def data(self) -> bytes:
        """The object in JSON, with its apiVersion and kind."""
        stored = self.stored  # First: see `replace`.
        return stored if self.packing is None else self.packing.unpack(stored)

    def decode(self) -> dict[str, Any]:
        """Return the object as a new dict."""
        obj: dict[str, Any]
        try:
            stored = self.stored  # First: see `replace`.
            obj = _decode(stored if self.packing is None else self.packing.unpack(stored))
        except (msgspec.ValidationError, RecursionError):
            obj = decoded(self.data)
        return obj

    def replace(self, stored: bytes, packing: Unpacking) -> None:
        """Exchange the stored bytes for others of the same object. Safe while other threads read, because
        they read `stored` before `packing`: the new packing must unpack the old bytes as well.
        """
        self.packing = packing
        self.stored = stored

    def is_same(self, other: Record) -> bool:
        """Return True if this is the same object in the same version with the same contents. Contents are
        compared because a restored server uses versions again.
        """
        return (self.uid, self.version, self.fields) == (other.uid, other.version, other.fields) and (
            # Equal bytes of two groups are different objects.
            (self.stored == other.stored and (self.packing is other.packing or not self.stored))
            or (self.stored != b"" != other.stored and self.data == other.data)
        )

    def lost(self) -> dict[str, str]:
        """Return the values of the field labels whose paths the projection drops."""
        values: dict[str, str] = msgspec.json.decode(self.fields) if self.fields else {}
        values.pop(INDEXED, None)
        return values

    def indexed(self) -> dict[str, list[Any]]:
        """Return the known values of declared indexes by name."""
        values: dict[str, list[Any]] = (
            msgspec.json.decode(self.fields).get(INDEXED, {}) if self.fields else {}
        )
        return values


class PartialRecord(Record):
    """A stored object of which a part was dropped, or was not received."""

    part: str = ""
    """The stored part, as it is declared. All records of a kind share this text."""


class OutsideRecord(Record):
    """The identity of an object outside of the filter, in a split cache. No read returns it."""


class EvictedRecord(Record, gc=True):
    """The metadata of an object whose store was dropped to free memory, for one subscriber."""

    kept: Any = True
    """The part of the object that the subscriber has kept; True if this record is enough."""

    @classmethod
    def of(cls, record: Record) -> EvictedRecord:
        return cls(
            record.namespace,
            record.name,
            record.uid,
            record.version,
            record.labels,
            record.owners,
            stored=b"",
        )


Keep: TypeAlias = Callable[[Record], Any]
"""Returns what a subscriber needs of an object that is evicted: the `kept` of the `EvictedRecord` that it
receives later. True if the metadata is enough; None if it does not want the object."""

TOO_DEEP = "it is nested too deeply"


OUT_OF_RANGE = "it has a number that is out of range"


class UnreadableRecord(Record):
    """A stored object that cannot be decoded. Only its metadata is known."""

    why: str = ""
    """A clause, such as `it is nested too deeply`."""

    @property
    def data(self) -> bytes:
        raise Undecodable(self.why, self.why)

    def decode(self) -> dict[str, Any]:
        raise Undecodable(self.why, self.why)

    @property
    def is_suspect(self) -> bool:
        """True if the object may have been damaged in transit: API servers send UTF-8 and valid JSON, but of
        any depth and with any numbers.
        """
        return self.why not in (TOO_DEEP, OUT_OF_RANGE)

    def is_same(self, other: Record) -> bool:
        """Return True if the object, its version, its metadata and the reason are the same."""
        return (
            isinstance(other, UnreadableRecord)
            and super().is_same(other)
            and ((self.labels, self.owners, self.why) == (other.labels, other.owners, other.why))
        )


def compact_json(value: object) -> bytes:
    """Return a value as JSON without spare capacity. The encoder's own result has unused bytes at its end,
    which would be stored with each record.
    """
    return bytes(memoryview(msgspec.json.encode(value)))


def is_newer(version: str, than: str) -> bool:
    """Return True if one resourceVersion is or may be newer than another. Versions that are not numbers may
    be newer if they differ.
    """
    if version == than:  # Own writes and lists often repeat a version.
        return False
    if not (version.isascii() and version.isdecimal() and than.isascii() and than.isdecimal()):
        return True
    # Texts of equal length compare as the numbers do.
    return version > than if len(version) == len(than) else rank_of(version) > rank_of(than)


def is_older(version: str, than: str) -> bool:
    """Return True if one resourceVersion is known to be older than another. Versions that are not numbers
    never are.
    """
    if version == than:
        return False
    if not (version.isascii() and version.isdecimal() and than.isascii() and than.isdecimal()):
        return False
    return version < than if len(version) == len(than) else rank_of(version) < rank_of(than)


def is_reached(version: str, by: str) -> bool:
    """Return True if one resourceVersion is known to be as new as another. Both are numbers."""
    return is_number(version) and is_number(by) and not is_older(by, version)


def is_number(version: str) -> bool:
    """Return True if the resourceVersion is a number and can be compared. Those of some aggregated servers
    are not.
    """
    return version.isascii() and version.isdecimal()


def are_numbers(versions: Iterable[str]) -> bool:
    """Return True if all of these versions are numbers and can be compared."""
    digits = "".join(versions)
    return digits.isascii() and digits.isdecimal()


def rank_of(version: str) -> tuple[int, str]:
    """Return a key that sorts versions that are numbers."""
    # Kubernetes compares versions by length, then by digits. `int` is not used because Python limits its
    # digits.
    digits = version.lstrip("0")
    return len(digits), digits


def least(versions: Iterable[str]) -> str:
    """Return the oldest version. An empty one is older than all others."""
    found, *others = all_ = tuple(versions)
    if not all(all_):
        return ""
    if len(set(map(len, all_))) == 1 and are_numbers(all_):
        # Much faster than comparisons in pairs: there may be a hundred versions at each event.
        return min(all_)
    for version in others:
        if is_older(version, found):
            found = version
    return found


def newest_of(versions: Iterable[str]) -> str:
    """Return the newest version; empty if there is none. The first one, if they cannot be compared."""
    found = ""
    for version in versions:
        if not found or is_older(found, version):
            found = version
    return found


def older_of(one: str, other: str) -> str:
    """Return the older of two versions; empty if one of them is unknown."""
    return "" if not one or not other else other if is_older(other, one) else one


Held: TypeAlias = Mapping[str, Mapping[str, Record]]
"""Records by namespace and name."""


def all_of(held: Held) -> Iterator[Record]:
    """Yield all records."""
    return (record for named in held.values() for record in named.values())


def differing(before: Held, after: Held) -> Iterator[tuple[Record | None, Record | None]]:
    """Yield each changed record before and after, None for absence. An object that was replaced by another
    with the same name yields two pairs: a removal and an addition.
    """
    for old in all_of(before):
        new = after.get(old.namespace, {}).get(old.name)
        if new is None or new.uid != old.uid:
            yield old, None
    for new in all_of(after):
        same = before.get(new.namespace, {}).get(new.name)
        if same is None or same.uid != new.uid:
            yield None, new
        elif same is not new:
            yield same, new


OFTEN_READ_BYTES = 8 * 1024 * 1024
"""Bytes of these objects of one store. Beyond them, those that were not read lately are dropped."""

READ_ONCE_OBJECTS = 2048
"""The number of objects that are remembered as read once."""

OFTEN_READ_ENTRY_BYTES = 200
"""Bytes of an entry besides its object."""


class _Unpacked:
    __slots__ = ("data", "is_used", "record")

    def __init__(self, record: Record, data: bytes) -> None:
        self.record = record  # Its `id` is the key, so it must exist as long as the entry.
        self.data = data
        self.is_used = False


class OftenRead:
    """The packed objects of one store that are read often. Any thread may call it."""

    __slots__ = ("__weakref__", "_entries", "_lock", "_most", "_read_once", "bytes")

    def __init__(self, most: int = OFTEN_READ_BYTES) -> None:
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
                if len(self._read_once) > READ_ONCE_OBJECTS:
                    self._read_once.pop(next(iter(self._read_once)))
        if not is_second:
            return record.decode()
        data = record.data
        self._keep(record, data)
        return _decoded(record, data)

    def _keep(self, record: Record, data: bytes) -> None:
        if len(data) + OFTEN_READ_ENTRY_BYTES > self._most // 8:  # It would displace many others.
            return
        with self._lock:
            self._drop(id(record))
            self._entries[id(record)] = _Unpacked(record, data)
            self.bytes += len(data) + OFTEN_READ_ENTRY_BYTES
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
            self.bytes -= len(entry.data) + OFTEN_READ_ENTRY_BYTES


def _decoded(record: Record, data: bytes) -> dict[str, Any]:
    """Return the object of a record from its JSON."""
    obj: dict[str, Any]
    try:
        obj = _decode(data)
    except (msgspec.ValidationError, RecursionError):
        obj = record.decode()  # This takes nesting and numbers that `_decode` refuses.
    return obj
