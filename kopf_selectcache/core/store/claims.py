"""Claims: the states of objects among which the union chooses what readers see (`core.store.union`).

A `Substore` holds those of one stream: its records, as of its version. A `Row` has an object whose departure
is awaited. `OwnWrites` are the operator's own writes that its streams have not reported yet. A `Probe` is a
list that shows how far a quiet stream is.

Theory of operation: own writes
-------------------------------
Reads show an own write instead of an older stored object. The store is not changed: its version, its audit
and its changes describe what the server has sent. A write is over once every stream that could hold its
object has passed the version of the write, unless the store still shows an older object then: one of them has
missed the event. So an own write never brings back an object that was deleted later. `core.store.union` says
when to evaluate a write.

A write that changes nothing of what readers see *rests*: it costs them nothing, and is active again if a
stream reports an older state. So does a deletion, which has no version: no stream can be said to have passed
it. It hides the uids of the name that are gone, also if a stream reports one later, such as after a label
that was removed and added before.

Theory of operation: probes
---------------------------
Nobody tells a quiet watch which version it has reached. A probe has the names, uids and versions of one
stream's objects, as of a version v that the stream may not have reached. If the stream holds exactly these,
all of it at one moment, then the events up to v are over for it: those that it has not received were undone
before v. So the probe *counts*, and the substore jumps to v as if it had been listed.

Objects are never ticked off one by one. If X is equal now and Y later, X may have changed in between: the
watch has still to report an event of X from before v, and would ignore it after the jump.

A watch that reaches v by itself ends the probe. If it holds an object as it was before v, and the list does
not, then it has *missed* an event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from threading import RLock
from typing import NamedTuple, TypeAlias

from kopf_selectcache.core.selection.regions import Keys

from .changes import KnownBy
from .packing import Tally
from .record import (
    ObjectKey,
    Record,
    is_newer,
    is_number,
    is_older,
    is_reached,
    rank_of,
)
from .store import View


class Row(NamedTuple):
    """An object whose departure is awaited, besides what the streams hold of it."""

    left: str
    """The version at which it has left a stream, and which all streams must reach; empty if it is unknown."""
    since: str = ""
    """The first version without the object in that stream; empty if only a list shows that it has left."""
    last: Record | None = None
    """The object as the event of its leave has it."""


HEAP_SLACK_ENTRIES = 1000
"""The slack of the heap before it is compacted."""


class Unclaimed(dict[ObjectKey, Row]):
    """Rows by key, with a heap for the oldest. Those since an unknown version come first."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[tuple[int, str], int, ObjectKey, Row]] = []
        self._numbers = count()

    def __setitem__(self, key: ObjectKey, row: Row) -> None:
        super().__setitem__(key, row)
        self._push(key, row)
        if len(self._heap) > 2 * len(self) + HEAP_SLACK_ENTRIES:
            self._heap.clear()
            for each in self.items():
                self._push(*each)

    def oldest(self) -> Row | None:
        while self._heap and self.get(self._heap[0][2]) is not self._heap[0][3]:
            heappop(self._heap)
        return self._heap[0][3] if self._heap else None

    def _push(self, key: ObjectKey, row: Row) -> None:
        rank = rank_of(row.since) if is_number(row.since) else (0, "")
        heappush(self._heap, (rank, next(self._numbers), key, row))


class Substore:
    """The records and the version of one stream. Only the union (`core.store.union`) writes to it."""

    def __init__(
        self,
        keys: Keys,
        *,
        request_index: Callable[[], None] = lambda: None,
        tally: Tally | None = None,
        epoch: int = 0,
    ) -> None:
        self.keys = keys
        self.holds_all = keys.namespace is None and keys.are_of_path
        """True if the stream could hold an object of any namespace and name."""
        self.view = View(
            request_index=request_index,
            tally=tally,
            proof=self.proof,
        )
        self.epoch = epoch
        self.listed = ""
        """The version of the last list, or of a probe or an event that is as good as one: what happened
        before is unknown to the stream."""
        self.vague: set[ObjectKey] = set()
        """Keys of objects that left at an unknown version, between the last known version and the next."""
        self.writes_added = 0
        """The number of own writes that had been added when the last consistent list began."""
        self.has_missed = False
        """True if the server has not sent an event to the stream, until it is listed."""
        self._waits: list[tuple[tuple[int, str], ObjectKey]] = []
        """A heap of the versions to reach, with the keys to evaluate again then."""
        self._waiting: set[ObjectKey] = set()
        """The keys that wait. Each has one wait, so that an object that comes and goes does not fill the
        heap."""

    def take_over(self, other: Substore) -> None:
        """Be in the place of another one, in this empty one."""
        self.view.take_over(other.view)
        self.epoch, self.listed, self.vague = other.epoch, other.listed, other.vague
        self.has_missed, self._waits, self._waiting = other.has_missed, other._waits, other._waiting

    @property
    def proof(self) -> KnownBy | None:
        """How we know that an object that departs from all streams does not exist, None if it may
        exist. In a split cache, some stream has each object.
        """
        if self.keys.complete:
            return "filter by name"
        return "metadata" if self.keys.are_outside else None

    @property
    def version(self) -> str:
        """The version up to which all events were applied; empty until the first list is complete."""
        return self.view.version

    def wait_for(self, version: str, key: ObjectKey) -> None:
        """Have a key evaluated again once a version is reached."""
        if key not in self._waiting:
            self._waiting.add(key)
            heappush(self._waits, (rank_of(version), key))

    def reach(self, version: str) -> list[ObjectKey]:
        """Advance to a version; return the keys that waited for it."""
        self.view.progress(version)
        keys: list[ObjectKey] = []
        if not self._waits:
            return keys
        if is_number(self.version):
            reached = rank_of(self.version)
            while self._waits and self._waits[0][0] <= reached:
                keys.append(heappop(self._waits)[1])
        else:  # Nobody knows which versions are reached.
            keys = [key for _, key in self._waits]
            self._waits.clear()
        self._waiting.difference_update(keys)
        return keys

    def wait_for_nothing(self) -> None:
        self._waits.clear()
        self._waiting.clear()
        self.vague.clear()


def disproved_by(substore: Substore, shown: View) -> bool:
    """Return True if the list of the substore contradicts a visible record: the list is past it, and has an
    older version or another uid. So the server was restored under higher versions.
    """
    return any(
        other is not None
        and other is not record
        and not is_newer(other.version, substore.version)
        and (
            is_older(record.version, other.version)
            or (record.version == other.version and record.uid != other.uid)
        )
        for record in substore.view.records()[0]
        for other in [shown.held(record.key)]
    )


def supersedes(record: Record, other: Record, *, said: bool) -> bool:
    """Return True if a record is known to be newer, or may be newer and was reported last (`said`)."""
    return is_newer(record.version, other.version) if said else is_older(other.version, record.version)


MOST_OWN_WRITES = 10_000
MOST_OWN_BYTES = 64 * 1024 * 1024
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
    """The number of the write among those that were added."""
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

    def __init__(self, *, most: int = MOST_OWN_WRITES, most_bytes: int = MOST_OWN_BYTES) -> None:
        self.lock = RLock()
        self.size = 0
        """The bytes of the objects."""
        self.added = 0
        """The number of writes that were added so far."""
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

    def add(self, write: OwnWrite) -> Sequence[OwnWrite]:
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
        self.added += 1
        write.number = self.added
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
                self.add(replace(write))
            if selects is None or written is None:
                continue
            is_selected = selects(written)
            if is_selected is None and write.record is None:
                continue  # It is shown when its event arrives.
            is_shown = is_selected is not False
            self.add(
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


Listed: TypeAlias = dict[ObjectKey, tuple[str, str]]
"""The uid and the version of each object of a list."""


class Differences(NamedTuple):
    """How stored objects differ from a list."""

    missing: list[ObjectKey]
    extra: list[ObjectKey]
    outdated: list[ObjectKey]
    """Objects with another uid or version."""


def listed_of(records: Iterable[Record]) -> Listed:
    """Return what a comparison needs of one page."""
    return {record.key: (record.uid, record.version) for record in records}


def differences(held: Mapping[ObjectKey, Record], listed: Listed) -> Differences:
    """Compare stored objects with a list."""
    return Differences(
        [key for key in listed if key not in held],
        [key for key in held if key not in listed],
        [key for key, found in listed.items() if key in held and not _is_equal(held[key], found)],
    )


class Probe:
    """A complete list of one stream, until it counts or is over."""

    def __init__(self, substore: Substore, version: str, listed: Listed) -> None:
        self.version = version
        self._substore = substore
        self._listed = listed
        self._differing = self._compare()

    @property
    def is_over(self) -> bool:
        """True once the watch has reached the version by itself. Versions without order show nothing."""
        return is_reached(self.version, self._substore.version)

    def counts(self) -> bool:
        """Return True if the substore holds exactly the listed objects now.

        A call looks at one difference more than have ended, and at all objects once none is left. So an event
        costs the same on average, however many objects there are.
        """
        while self._differing:
            key = self._differing[-1]
            if not _is_equal(self._substore.view.held(key), self._listed.get(key)):
                return False
            self._differing.pop()
        self._differing = self._compare()
        return not self._differing

    def has_missed(self) -> bool:
        """Return True if a substore that is past the list holds an object that the list has not."""
        held = map(self._substore.view.held, self._compare())
        return any(record is not None and not is_newer(record.version, self.version) for record in held)

    def _compare(self) -> list[ObjectKey]:
        held = {record.key: record for record in self._substore.view.records()[0]}
        missing, extra, outdated = differences(held, self._listed)
        return [*missing, *extra, *outdated]


def _is_equal(held: Record | None, found: tuple[str, str] | None) -> bool:
    return (None if held is None else (held.uid, held.version)) == found
