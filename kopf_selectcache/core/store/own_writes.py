"""OwnWrites: the operator's own writes that its streams have not reported yet. Reads show them instead of
older stored objects.

The store is not changed: its version, its audit and its changes describe what the server has sent. A write
is retired when every stream that could hold its object has passed the version of the write, or when a stream
reports a newer version of the object. So an own write never brings back an object that was deleted later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from threading import RLock

from .record import Record, is_newer, is_number, is_older, rank_of
from .substore import ObjectKey, Substore

MOST = 10_000
MOST_BYTES = 64 * 1024 * 1024
"""The number of own writes of one kind and the bytes of their objects. Beyond them the oldest are dropped."""


@dataclass(slots=True, eq=False)
class OwnWrite:
    """The last own write of one object that a stream has still to report."""

    key: ObjectKey
    uid: str
    version: str
    """The version of the object after the write. Empty for a deletion: the server does not tell it."""
    record: Record | None
    """The object; None if it is deleted, or outside of the filter."""
    at: float
    """The time of the write."""
    expected: bool = True
    """True if a stream must report it: the object is in the filter, or was stored before the write."""
    behind: set[Substore] = field(default_factory=set)
    """The streams that could hold the object and have not passed the write."""
    number: int = 0
    """The number of the write among those that were laid."""
    floor: str = ""
    """Of a deletion: the newest version that is known from before it. Empty if none is known."""
    deleted: frozenset[str] = frozenset()
    """The uids of the objects of this name that the operator has deleted."""

    def __post_init__(self) -> None:
        if self.is_deletion:
            self.deleted |= {self.uid}

    def follow(self, before: OwnWrite) -> None:
        """Note the write of the same name that this one replaces."""
        self.deleted |= before.deleted
        known = before.version or before.floor
        if self.is_deletion and (not self.floor or is_older(self.floor, known)):
            self.floor = known

    @property
    def is_deletion(self) -> bool:
        return not self.version

    @property
    def size(self) -> int:
        return len(self.record.stored) if self.record is not None else 0

    def is_newer_than(self, held: Record | None, version: str) -> bool:
        """Return True if the write is newer than the stored object; if there is none, than the store."""
        if self.is_deletion:
            return held is not None and (held.uid in self.deleted or is_older(held.version, self.floor))
        return is_older(held.version if held is not None else version, self.version)

    def instead_of(self, held: Record | None, version: str) -> Record | None:
        """Return the object that a read shows: `held`, as of a version of the store, or that of the write."""
        return self.record if self.is_newer_than(held, version) else held


class OwnWrites:
    """The own writes of one informer. Each method needs the lock, and any thread may call it.

    The writer of the store holds the lock while it applies an event. So a reader that holds it sees one
    generation of the store and the writes that go with it.
    """

    def __init__(self, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.lock = RLock()
        self.size = 0
        """The bytes of the objects."""
        self.laid = 0
        """The number of writes that were laid so far."""
        self._most = most
        self._most_bytes = most_bytes
        self.writes: dict[ObjectKey, OwnWrite] = {}
        """The writes, the oldest first. Whoever only looks if there are any needs no lock."""
        self._passed: set[ObjectKey] = set()
        """The keys of writes that all streams have passed."""
        self._substores: Collection[Substore] = ()
        self._waits: dict[Substore, list[tuple[tuple[int, str], ObjectKey]]] = {}
        """For each stream, a heap of the versions that it has to pass, with the keys of the writes."""

    def __len__(self) -> int:
        return len(self.writes)

    def __iter__(self) -> Iterator[OwnWrite]:
        return iter(self.writes.values())

    def get(self, key: ObjectKey) -> OwnWrite | None:
        return self.writes.get(key)

    def lay(self, write: OwnWrite) -> Sequence[OwnWrite]:
        """Add a write, unless the streams have passed it or a newer one of the object is known. Return the
        writes that were dropped because there are too many.
        """
        if not write.is_deletion and not is_number(write.version):
            return ()  # Nobody could say when it is passed.
        write.behind = {each for each in self._substores if self._is_behind(each, write)}
        if self._substores and not write.behind:
            return ()
        before = self.writes.get(write.key)
        if before is not None:
            if _is_late(write, before):
                return ()
            # It is replaced in place: readers without the lock must not find that there is no write.
            write.follow(before)
            self._passed.discard(before.key)
            self.size -= before.size
        self.laid += 1
        write.number = self.laid
        self.writes[write.key] = write
        self.size += write.size
        self._wait(write)
        dropped = []
        while len(self.writes) > self._most or self.size > self._most_bytes:
            dropped.append(next(iter(self)))
            self._drop(dropped[-1])
        return dropped

    def _wait(self, write: OwnWrite) -> None:
        if not write.is_deletion:
            for substore in write.behind:
                heappush(self._waits[substore], (rank_of(write.version), write.key))

    @staticmethod
    def _is_behind(substore: Substore, write: OwnWrite) -> bool:
        return substore.keys.have(write.key) and (
            write.is_deletion or not substore.version or is_older(substore.version, write.version)
        )

    def forget(self, key: ObjectKey) -> None:
        """Drop the write of an object."""
        if (write := self.writes.get(key)) is not None:
            self._drop(write)

    def clear(self) -> None:
        """Drop all writes: the server was restored to an older state."""
        self.writes.clear()
        self._passed.clear()
        self._waits = {substore: [] for substore in self._substores}
        self.size = 0

    def expire(self, before: float) -> Sequence[OwnWrite]:
        """Drop the writes from before a time, and return them."""
        expired = [write for write in self if write.at < before]
        for write in expired:
            self._drop(write)
        return expired

    # ---- Reports of streams.

    def follow(self, substores: Collection[Substore]) -> None:
        """Wait for other streams from now on."""
        self._substores, self._waits = substores, {substore: [] for substore in substores}
        self._passed.clear()
        for write in list(self):
            write.behind = {each for each in substores if self._is_behind(each, write)}
            if substores and not write.behind:
                self._drop(write)
            else:
                self._wait(write)

    def put(self, record: Record, substore: Substore) -> None:
        """Note that a stream has reported an object."""
        write = self.writes.get(record.key)
        if write is None:
            return
        if write.is_deletion:
            if not write.is_newer_than(record, ""):
                self._drop(write)  # It is another object of the name.
        elif not is_newer(write.version, record.version):
            self._pass(write, substore)

    def leave(self, record: Record) -> None:
        """Note that a stream has reported the departure of an object.

        A departure at the version of the write may be its own effect in this stream, while the object enters
        another one. That of a deleted object may be older than the deletion.
        """
        write = self.writes.get(record.key)
        if write is None:
            return
        if write.is_deletion:
            if record.uid == write.uid and not is_older(record.version, write.floor):
                self._passed.add(write.key)
        elif is_older(write.version, record.version):
            self._drop(write)

    def confirm(self, key: ObjectKey, version: str) -> None:
        """Note that as of a version there is no such object in the filter."""
        write = self.writes.get(key)
        if write is None:
            return
        if write.is_deletion:
            self._passed.add(key)
        elif is_older(write.version, version):
            self._drop(write)

    def progress(self, substore: Substore, version: str) -> None:
        """Note that a stream has passed a version."""
        waits = self._waits.get(substore)
        if not waits or not is_number(version):
            return
        passed = rank_of(version)
        while waits and waits[0][0] <= passed:
            at, key = heappop(waits)
            write = self.writes.get(key)
            if write is None or write.is_deletion or rank_of(write.version) != at:
                continue  # It was dropped, or a newer one has replaced it.
            self._pass(write, substore)

    def list(self, substore: Substore, laid: int) -> None:
        """Note that a stream has the newest state as of a time when `laid` writes had been laid. It has
        passed these, whatever its version is: a server may have been restored.
        """
        for write in [write for write in self if write.number <= laid and substore in write.behind]:
            self._pass(write, substore)

    def _pass(self, write: OwnWrite, substore: Substore) -> None:
        write.behind.discard(substore)
        if not write.behind:
            self._passed.add(write.key)

    def settle(self, held: Callable[[ObjectKey], Record | None]) -> None:
        """Drop the writes that all streams have passed. `held` returns the stored object of a key.

        While an object moves between streams, the store may show it as it was before the write.
        """
        for key in tuple(self._passed):
            write = self.writes[key]
            if not write.is_newer_than(held(key), write.version):
                self._drop(write)

    def _drop(self, write: OwnWrite) -> None:
        del self.writes[write.key]
        self._passed.discard(write.key)
        self.size -= write.size


def _is_late(write: OwnWrite, known: OwnWrite) -> bool:
    """Return True if a write is older than a known one of the same name: answers may arrive in another order
    than the server gave them.
    """
    if write.is_deletion:
        return not known.is_deletion and known.uid != write.uid
    return known.uid == write.uid if known.is_deletion else is_older(write.version, known.version)
