"""OwnWrites: the operator's own writes that its streams have not reported yet. Reads show them instead of
older stored objects.

The store is not changed: its version, its audit and its changes describe what the server has sent. A write
is over once every stream that could hold its object has passed the version of the write, unless the store
still shows an older object then: one of them has missed the event. So an own write never brings back an
object that was deleted later. `core.store.union` says when to evaluate a write.

A write that changes nothing of what readers see *rests*: it costs them nothing, and is active again if a
stream reports an older state. So does a deletion, which has no version: no stream can be said to have passed
it. It hides the uids of the name that are gone, also if a stream reports one later, such as after a label
that was removed and added before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import RLock

from .record import ObjectKey, Record, is_number, is_older

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
    number: int = 0
    """The number of the write among those that were laid."""
    floor: str = ""
    """Of a deletion: the newest version that is known from before it. Empty if none is known."""
    outside: Record | None = None
    """The object if it is outside of the filter. The next filter may select it."""
    deleted: frozenset[str] = frozenset()
    """The uids of the objects of this name that are gone: deleted by the operator, or followed by one that it
    has deleted."""

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
        written = self.record or self.outside
        return len(written.stored) if written is not None else 0

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
        self.resting: dict[ObjectKey, OwnWrite] = {}
        """The writes that change nothing of what readers see, the first that did so first."""
        self.doubtful: set[ObjectKey] = set()
        """The objects that only a write shows, though a stream has passed it. They may be gone."""

    def __len__(self) -> int:
        return len(self.writes)

    def __iter__(self) -> Iterator[OwnWrite]:
        return iter(self.writes.values())

    def frozen(self) -> OwnWrites:
        """Return the same writes, as they are now."""
        frozen = OwnWrites()
        frozen.writes, frozen.resting = self.writes.copy(), self.resting.copy()
        return frozen

    def get(self, key: ObjectKey) -> OwnWrite | None:
        """Return the write of an object, also one that rests."""
        return self.writes.get(key) or self.resting.get(key)

    def lay(self, write: OwnWrite) -> Sequence[OwnWrite]:
        """Add a write, unless a newer one of the object is known. Return the writes that were dropped
        because there are too many. Settle the write then.
        """
        if not write.is_deletion and not is_number(write.version):
            return ()  # Nobody could say when it is passed.
        before = self.get(write.key)
        if before is not None:
            if _is_late(write, before):
                return ()
            write.follow(before)
            self.size -= before.size
        self.laid += 1
        write.number = self.laid
        # Replace it in place: a reader without the lock must always find a write.
        self.writes[write.key] = write
        self.resting.pop(write.key, None)
        self.size += write.size
        dropped = []
        while self.resting and (len(self.resting) > self._most or self.size > self._most_bytes):
            self._drop(next(iter(self.resting.values())))
        while len(self.writes) > self._most or self.size > self._most_bytes:
            dropped.append(next(iter(self)))
            self._drop(dropped[-1])
        return dropped

    def clear(self) -> None:
        """Drop all writes: the server was restored to an older state."""
        self.writes.clear()
        self.resting.clear()
        self.doubtful.clear()
        self.size = 0

    def expire(self, before: float) -> Sequence[OwnWrite]:
        """Drop the writes from before a time, and return those that did not rest."""
        for write in [each for each in self.resting.values() if each.at < before]:
            self._drop(write)
        expired = [write for write in self if write.at < before]
        for write in expired:
            self._drop(write)
        return expired

    def inherit(self, present: OwnWrites, selects: Callable[[Record], bool | None] | None) -> None:
        """Take over the writes of another filter. Settle them then. `selects` returns if this filter
        selects an object, None if that is not known; it is None if objects are stored in another form, so
        that only deletions are taken over: the lists of this filter are newer than all writes.
        """
        for write in [*present.resting.values(), *present]:
            written = write.record or write.outside
            if write.is_deletion:
                self.lay(replace(write))
            if selects is None or written is None:
                continue
            is_selected = selects(written)
            if is_selected is None and write.record is None:
                continue  # It is shown when its event arrives.
            is_shown = is_selected is not False
            self.lay(
                replace(
                    write,
                    record=written if is_shown else None,
                    outside=None if is_shown else written,
                    expected=write.expected or is_shown,
                )
            )

    # ---- Evaluation.

    def wake(self, record: Record) -> None:
        """Let a write that rests hide an object. Call it before readers can see that."""
        write = self.resting.get(record.key)
        if write is not None and write.is_newer_than(record, ""):
            self.writes[record.key] = self.resting.pop(record.key)

    def wake_keys(self, keys: Iterable[ObjectKey]) -> None:
        """Let writes hide objects. Call it before readers can see a list: it may have been read before a
        write. Settle them then.
        """
        for key in keys:
            if key in self.resting:
                self.writes[key] = self.resting.pop(key)

    def settle(
        self, write: OwnWrite, held: Record | None, behind: Collection[Record | None], *, passed: int
    ) -> None:
        """Drop a write that is over, or let it rest if it changes nothing of what readers see. `held` is the
        stored object. `behind` has what each stream holds that has not passed the write, and could be read
        without the others, or None for the stored object; `passed` is the number of the other streams.
        """
        is_shown = held is None and write.record is not None and bool(behind)
        hides = is_outdated = held is not None and write.is_newer_than(held, "")
        for each in () if hides else behind:
            hides = hides or (each is not None and write.is_newer_than(each, ""))
        if is_shown or hides:
            self.writes[write.key] = self.resting.pop(write.key, write)
        elif not behind and not write.is_deletion:
            self._drop(write)
        elif write.key in self.writes:
            self.resting[write.key] = self.writes.pop(write.key)
        is_missing = held is None or is_outdated
        if write.record is not None and is_missing and behind and passed:
            self.doubtful.add(write.key)
        else:
            self.doubtful.discard(write.key)

    def _drop(self, write: OwnWrite) -> None:
        self.doubtful.discard(write.key)
        self.writes.pop(write.key, None)
        self.resting.pop(write.key, None)
        self.size -= write.size


def _is_late(write: OwnWrite, known: OwnWrite) -> bool:
    """Return True if a write is older than a known one of the same name: answers may arrive in another order
    than the server gave them.
    """
    if write.is_deletion:
        is_over = known.uid in write.deleted or is_older(known.version, write.floor)
        return not known.is_deletion and not is_over
    return write.uid in known.deleted if known.is_deletion else is_older(write.version, known.version)
