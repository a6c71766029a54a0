"""PendingChanges: the changes that one subscriber has still to receive, one for each object at a time.

Changes of one object are joined while they wait: updates become one update, an update of an object that has
just entered becomes its entry, and an entry that nobody has received is dropped when the object departs. A
departure is never dropped, unless there are too many. Objects are told apart by their names, so that a new
object waits until the departure of the former one of its name has been handled. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol

from msgspec.structs import replace

from .change import Change, ChangeCause
from .record import EvictedRecord, Keep, Record, UnreadableRecord
from .substore import ObjectKey

MOST_DEPARTURES = 100_000
"""The departures that are not handled at most. Present objects have at most one change each."""


class _Pending:
    """The changes of one name, in their order: departures, then one entry, update or resync."""

    __slots__ = ("arrival", "departures", "is_outlived", "taken")

    def __init__(self) -> None:
        self.departures: list[Change] = []
        """At most one for each uid."""
        self.arrival: Change | None = None
        self.taken: Change | None = None
        """The change that is being handled, or whose handling has failed."""
        self.is_outlived = False
        """True if the object of `taken` has departed, which nobody wants to receive."""

    def __bool__(self) -> bool:
        return bool(self.departures) or self.arrival is not None

    def pop(self) -> Change:
        """Remove and return the first change that waits."""
        if self.departures:
            return self.departures.pop(0)
        change, self.arrival = self.arrival, None
        assert change is not None, "none waits"
        return change


class PendingChanges:
    """The pending changes of one subscriber, used on one thread.

    It takes the changes of each object with `take` and `finish`, in an order of its own; or all of them with
    `drain`. `causes` are those that it wants to receive; `most` is the limit of departures that are not
    handled.
    """

    def __init__(
        self, *, causes: Collection[ChangeCause] = frozenset(ChangeCause), most: int = MOST_DEPARTURES
    ) -> None:
        self._causes = causes
        self._most = most
        self._departures = 0
        """The departures that are not handled, those that were taken included."""
        self._pending: dict[ObjectKey, _Pending] = {}
        self.lost = 0
        """The number of departures that were dropped, because there were too many."""
        self.added: Callable[[ObjectKey, Change, bool], object] = lambda *_: None
        """Called with each change of an object, and with True if there is now one to take."""

    def __len__(self) -> int:
        """Return the number of names with changes that are not handled."""
        return len(self._pending)

    # ---- Writing.

    def add(self, change: Change) -> None:
        """Join a change with those of its object that wait."""
        record = change.before if change.after is None else change.after
        assert record is not None, "a change has an object"
        key = record.namespace, record.name
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending()
        if change.after is None:
            self._depart(pending, change)
        elif pending.arrival is not None:  # An update refreshes it, also if nobody wants updates.
            pending.arrival = self._joined(pending.arrival, change)
        elif change.cause in self._causes:
            pending.arrival = change
        is_ready = pending.taken is None and (pending.arrival is not None or bool(pending.departures))
        if not is_ready and pending.taken is None:
            del self._pending[key]
        self.added(key, change, is_ready)

    def clear(self) -> None:
        """Drop all pending changes."""
        self._pending.clear()
        self._departures = self.lost = 0

    def _depart(self, pending: _Pending, change: Change) -> None:
        assert change.before is not None, "it departs from the store"
        pending.arrival = None
        if change.cause not in self._causes:
            pending.is_outlived = pending.taken is not None
            return
        for index, earlier in enumerate(pending.departures):
            if earlier.before is not None and earlier.before.uid == change.before.uid:
                pending.departures[index] = change  # It came back, and left again, unseen.
                return
        if self._departures >= self._most:
            self.lost += 1
            return
        self._departures += 1
        pending.departures.append(change)

    def _joined(self, earlier: Change, later: Change) -> Change:
        """Return one entry, update or resync for two. A resync has the present object."""
        if earlier.cause is not ChangeCause.RESYNC:
            return replace(earlier, after=later.after)
        if later.cause is not ChangeCause.RESYNC and ChangeCause.UPDATED in self._causes:
            return Change(earlier.before, later.after, ChangeCause.UPDATED)
        return Change(later.after, later.after, ChangeCause.RESYNC)

    # ---- Reading.

    def take(self, key: ObjectKey) -> Change | None:
        """Return the change of an object to handle now; None if there is none. Call `finish` once it is
        handled.

        If the last one is not finished, its handling has failed. Then return the same departure; the entry or
        update, joined with later ones; or the departure of the object, if it has departed since. None if
        nobody wants to receive that departure.
        """
        pending = self._pending.get(key)
        if pending is None:
            return None
        taken = pending.taken
        if taken is None:
            taken = pending.pop()
        elif taken.after is not None:
            if pending.is_outlived:
                return None
            if pending.departures:
                taken = pending.pop()
            elif pending.arrival is not None:
                taken = self._joined(taken, pending.pop())
        pending.taken = taken
        return taken

    def finish(self, key: ObjectKey) -> bool:
        """Note that the taken change of an object is handled; return True if there is another one."""
        pending = self._pending.get(key)
        if pending is None:
            return False
        if pending.taken is not None and pending.taken.after is None:
            self._departures -= 1
        pending.taken, pending.is_outlived = None, False
        if pending:
            return True
        del self._pending[key]
        return False

    def drain(self) -> Iterator[Change]:
        """Take and finish each change."""
        while self._pending:
            key = next(iter(self._pending))
            pending = self._pending.pop(key)
            change = pending.pop()
            if pending:
                self._pending[key] = pending  # Names take turns.
            self._departures -= change.after is None
            yield change


def _deselected(record: Record) -> Change:
    """Return the departure of an object that the store has, and that a subscriber no longer wants."""
    return Change(record, None, ChangeCause.LEFT, known_by="cache")


class Sink(Protocol):
    """Takes the changes that a subscriber sees."""

    def add(self, change: Change, /) -> object: ...


class Narrowing:
    """The changes as a subscriber sees them that wants the matching objects only.

    An object that does not match any more has left. An object that cannot be read is not reported before it
    can be read or departs: it stands for its last known record.
    """

    def __init__(self, queue: Sink, matches: Callable[[Record], object], keep: Keep = lambda _: True) -> None:
        """`keep` returns what is needed of an evicted object that matches (`informer.subscribers`)."""
        self._queue = queue
        self._matches = matches
        self._keep = keep
        self._known: dict[ObjectKey, Record] = {}
        """The last known records of reported objects that cannot be read now."""

    def add(self, change: Change) -> None:
        """Pass on what the subscriber sees of a change, if anything."""
        if change.cause is ChangeCause.RESYNC:
            if change.after is not None and change.after.stored and self._matches(change.after):
                self._queue.add(change)
            return
        before, after, cause = self._before(change), change.after, change.cause
        if after is None:
            if before is not None:
                self._queue.add(Change(before, None, cause, change.filter_changed, change.known_by))
            return
        is_wanted = bool(self._matches(after))
        if is_wanted and after.stored:
            cause = ChangeCause.ENTERED if before is None else ChangeCause.UPDATED
            self._queue.add(Change(before, after, cause, change.filter_changed, initial=change.initial))
        elif before is not None and not is_wanted:
            self._queue.add(_deselected(before))
        elif before is not None and not isinstance(before, UnreadableRecord):
            self._known[after.key] = before

    def _before(self, change: Change) -> Record | None:
        """Return the object before the change, as it was reported last; None if the subscriber does not want
        it. One that was never reported, as it could not be read, is reported when it departs.
        """
        before = change.before
        if before is None or isinstance(before, EvictedRecord):
            return before  # Of an evicted object that is not wanted, nothing was kept.
        if not before.stored and (known := self._known.pop(before.key, None)) is not None:
            return known
        if not before.stored and change.after is not None:
            return None
        return before if self._matches(before) else None

    def keep(self, record: Record) -> Any:
        """Return what is needed of an object that is about to be evicted, None if it is not wanted."""
        known = self._known.get(record.key)
        if known is not None and known.stored:
            self._known[record.key] = replace(EvictedRecord.of(known), kept=self._keep(known))
        if known is not None:
            return True
        if not self._matches(record):
            return None
        return self._keep(record) if record.stored else True

    def clear(self) -> None:
        """Forget the objects that cannot be read."""
        self._known.clear()
