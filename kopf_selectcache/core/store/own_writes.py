"""OwnWrites: the operator's own writes that its streams have not reported yet. Reads show them instead of
older stored objects.

The store is not changed: its version, its audit and its changes describe what the server has sent. A write
is retired when every stream that could show its object has passed the version of the write, or when a stream
reports a newer version of the object. So an own write never brings back an object that was deleted later. A
stream that has no older state of the object, and whose selector excludes what was written, is not waited for:
it may be quiet for a minute and more, while the object is deleted. If such a stream reports an older state
later, the write hides that.

A deletion has no version, so no stream can be said to have passed it. It hides the uids of the name that are
gone while a stream shows one of them. When none is shown, the deletion *rests*: it costs readers nothing, and
hides the uids again if a stream reports one, such as after a label that was removed and added before. A write
that is retired while a stream has not passed it rests likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from threading import RLock

from .record import ObjectKey, Record, is_newer, is_number, is_older, rank_of
from .substore import Substore

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
        """The deletions of whose objects the streams show none, the oldest departure first."""
        self._due: set[ObjectKey] = set()
        """The keys of writes that all streams have passed, and of deletions of whose name a stream has
        reported something."""
        self._substores: Collection[Substore] = ()
        self._selects: Callable[[Substore, Record], bool] = lambda *_: True
        """Returns False if a stream is known not to select an object."""
        self._waits: dict[Substore, list[tuple[tuple[int, str], ObjectKey]]] = {}
        """For each stream, a heap of the versions that it has to pass, with the keys of the writes."""

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
        """Return the write of an object, also a deletion that rests."""
        return self.writes.get(key) or self.resting.get(key)

    def lay(self, write: OwnWrite) -> Sequence[OwnWrite]:
        """Add a write, unless the streams have passed it or a newer one of the object is known. Return the
        writes that were dropped because there are too many.
        """
        if not write.is_deletion and not is_number(write.version):
            return ()  # Nobody could say when it is passed.
        write.behind = {each for each in self._substores if self._is_behind(each, write)}
        before = self.get(write.key)
        if before is not None and _is_late(write, before):
            return ()
        if self._substores and not write.behind:
            self._rest(write)
            return ()
        if before is not None:
            # It is replaced in place: readers without the lock must not find that there is no write.
            write.follow(before)
            self.size -= before.size
        self.laid += 1
        write.number = self.laid
        self.writes[write.key] = write
        self.resting.pop(write.key, None)
        self.size += write.size
        if write.is_deletion:
            self._due.add(write.key)
        else:
            self._due.discard(write.key)
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

    def _is_behind(self, substore: Substore, write: OwnWrite) -> bool:
        if not substore.keys.have(write.key):
            return False
        return write.is_deletion or (
            self._is_older(substore, write)
            and (
                write.record is None
                or substore.view.held(write.key) is not None
                or self._selects(substore, write.record)
            )
        )

    @staticmethod
    def _is_older(substore: Substore, write: OwnWrite) -> bool:
        return not substore.version or is_older(substore.version, write.version)

    def clear(self) -> None:
        """Drop all writes: the server was restored to an older state."""
        self.writes.clear()
        self.resting.clear()
        self._due.clear()
        self._waits = {substore: [] for substore in self._substores}
        self.size = 0

    def expire(self, before: float) -> Sequence[OwnWrite]:
        """Drop the writes from before a time, and return those that did not rest."""
        self.resting = {key: write for key, write in self.resting.items() if write.at >= before}
        expired = [write for write in self if write.at < before]
        for write in expired:
            self._drop(write)
        return expired

    def inherit(self, present: OwnWrites, selects: Callable[[Record], bool | None] | None) -> None:
        """Take over the writes of another filter, which `follow` has been called without. `selects` returns
        if this filter selects an object, None if that is not known; it is None if objects are stored in
        another form, so that only deletions are taken over: the lists of this filter are newer than all
        writes.
        """
        for write in [*present.resting.values(), *present]:
            if write.is_deletion:
                self.lay(replace(write, behind=set()))
                continue
            written = write.record or write.outside
            if written is None:
                self.resting[write.key] = write  # A kept stream may still report what was there before.
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
                    behind=set(),
                )
            )

    def overtake(self, held: Callable[[ObjectKey], Record | None]) -> None:
        """Drop the writes of which readers of the former filter have seen a newer state."""
        for write in tuple(self):
            record = None if write.is_deletion else held(write.key)
            if record is not None and is_older(write.version, record.version):
                self._drop(write)

    # ---- Reports of streams.

    def follow(
        self,
        substores: Collection[Substore],
        selects: Callable[[Substore, Record], bool] = lambda *_: True,
    ) -> None:
        """Wait for other streams from now on."""
        self._selects = selects
        self._substores, self._waits = substores, {substore: [] for substore in substores}
        self._due.clear()
        for write in list(self):
            write.behind = {each for each in substores if self._is_behind(each, write)}
            if substores and not write.behind:
                self._drop(write)
            else:
                self._wait(write)

    def put(self, record: Record, substore: Substore) -> None:
        """Note that a stream reports an object. Call it before readers can see the object."""
        write = self.writes.get(record.key)
        if write is None:
            write = self.resting.get(record.key)
            if write is not None and write.is_newer_than(record, ""):
                self.writes[record.key] = self.resting.pop(record.key)
                if not write.is_deletion:
                    self._due.add(record.key)
        elif substore.view.stages_nothing:  # Readers see nothing of a list before it is complete.
            if write.is_deletion:
                self._due.add(write.key)
            elif not is_newer(write.version, record.version):
                self._pass(write, substore)

    def leave(self, record: Record, substore: Substore) -> None:
        """Note that a stream has reported the departure of an object.

        A departure at the version of the write may be its own effect in this stream, while the object enters
        another one.
        """
        write = self.writes.get(record.key)
        if write is None or not substore.view.stages_nothing:
            return
        if write.is_deletion:
            self._due.add(write.key)
        elif is_older(write.version, record.version):
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

    def wake(self) -> None:
        """Let resting deletions hide objects again. Call it before readers can see a list: it may have been
        read before a deletion, and while it was staged, the deletion hid nothing.
        """
        self.writes |= self.resting
        self._due |= self.resting.keys()
        self.resting = {}

    def join(self, substores: Iterable[Substore]) -> None:
        """Note that streams hold what they held for the former filter. Until now they were empty, so that
        deletions rest which hide some of that, and writes wait which they have passed.
        """
        self.wake()
        for substore in substores:
            self.progress(substore, substore.version)

    def list(self, substore: Substore, version: str, laid: int) -> None:
        """Note that a list of a stream is complete. It has the newest state as of a time when `laid` writes
        had been laid; the stream has passed these, whatever its version is: a server may have been restored.
        """
        self.progress(substore, version)
        for write in self:
            if write.is_deletion:
                self._due.add(write.key)
            elif write.number <= laid and substore in write.behind:
                self._pass(write, substore)

    def _pass(self, write: OwnWrite, substore: Substore) -> None:
        write.behind.discard(substore)
        if not write.behind:
            self._due.add(write.key)

    def settle(self, held: Callable[[ObjectKey], Record | None]) -> None:
        """Drop the writes that all streams have passed, and let deletions rest that hide nothing. `held`
        returns the stored object of a key.

        While an object moves between streams, the store may show it as it was before the write. So may one of
        the streams, to reads that need no other.
        """
        for key in tuple(self._due):
            write = self.writes[key]
            if not write.is_newer_than(held(key), write.version) and not self._is_shown_older(write):
                self._drop(write)
                self._rest(write)

    def _is_shown_older(self, write: OwnWrite) -> bool:
        return not write.is_deletion and any(
            (record := substore.view.held(write.key)) is not None and is_older(record.version, write.version)
            for substore in self._substores
            if self._is_older(substore, write)
        )

    def _rest(self, write: OwnWrite) -> None:
        """Let a write hide what a stream that has not passed it may still report; nothing else is left of
        it.
        """
        if not write.is_deletion:
            if not any(
                substore.keys.have(write.key) and self._is_older(substore, write)
                for substore in self._substores
            ):
                return
            write = replace(write, record=None, outside=None, expected=False, behind=set())
        self.resting[write.key] = write
        if len(self.resting) > self._most:
            del self.resting[next(iter(self.resting))]

    def _drop(self, write: OwnWrite) -> None:
        del self.writes[write.key]
        self._due.discard(write.key)
        self.size -= write.size


def _is_late(write: OwnWrite, known: OwnWrite) -> bool:
    """Return True if a write is older than a known one of the same name: answers may arrive in another order
    than the server gave them.
    """
    if write.is_deletion:
        is_over = known.uid in write.deleted or is_older(known.version, write.floor)
        return not known.is_deletion and not is_over
    return write.uid in known.deleted if known.is_deletion else is_older(write.version, known.version)
