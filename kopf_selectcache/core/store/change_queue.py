"""ChangeQueue: the changes that one subscriber has still to receive, at most one for each object at a time.

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

    __slots__ = ("arrival", "departures")

    def __init__(self) -> None:
        self.departures: list[Change] = []
        """At most one for each uid."""
        self.arrival: Change | None = None

    def __bool__(self) -> bool:
        return bool(self.departures) or self.arrival is not None

    def pop(self) -> Change:
        """Remove and return the first change."""
        if self.departures:
            return self.departures.pop(0)
        change, self.arrival = self.arrival, None
        assert change is not None, "an empty one is dropped"
        return change


class ChangeQueue:
    """The pending changes of one subscriber. It has one writer and one reader, on one thread.

    `causes` are those that the subscriber wants to receive; `most` is the limit of departures that are not
    handled.
    """

    def __init__(
        self, *, causes: Collection[ChangeCause] = frozenset(ChangeCause), most: int = MOST_DEPARTURES
    ) -> None:
        self._causes = causes
        self._most = most
        self._departures = 0
        """The departures that are not handled, those that were taken included."""
        self._ready: dict[ObjectKey, _Pending] = {}
        """Names with changes that can be taken, the oldest first."""
        self._blocked: dict[ObjectKey, _Pending] = {}
        """Names with changes that wait until their object is done."""
        self._taken: dict[ObjectKey, Change] = {}
        """The changes that were taken, and are not finished."""
        self._outlived: set[ObjectKey] = set()
        """Names with a taken change whose object has departed, which nobody wants to receive."""
        self.lost = 0
        """The number of departures that were dropped, because there were too many."""
        self.heard: Callable[[Change], object] = lambda _: None
        """Called with each change of an object."""

    def __len__(self) -> int:
        """Return the number of names with pending changes."""
        return len(self._ready) + len(self._blocked)

    def __bool__(self) -> bool:
        """Return True if there is a change to take."""
        return bool(self._ready)

    # ---- Writing.

    def add(self, change: Change) -> None:
        """Add a change as the informer reports it."""
        self.heard(change)
        if change.after is None:
            self._depart(change)
        elif change.cause in self._causes or self._has_arrival(change.after.key):
            self._arrive(change)

    def clear(self) -> None:
        """Drop all pending changes."""
        self._ready.clear()
        self._blocked.clear()
        self._departures = sum(1 for change in self._taken.values() if change.after is None)
        self.lost = 0

    def _pending(self, key: ObjectKey) -> _Pending:
        of = self._blocked if key in self._taken else self._ready
        if (pending := of.get(key)) is None:
            pending = of[key] = _Pending()
        return pending

    def _depart(self, change: Change) -> None:
        assert change.before is not None, "it departs from the store"
        pending = self._pending(change.before.key)
        pending.arrival = None
        if change.cause not in self._causes:
            if change.before.key in self._taken:
                self._outlived.add(change.before.key)
            self._forget_if_empty(change.before.key, pending)
            return
        for index, earlier in enumerate(pending.departures):
            if earlier.before is not None and earlier.before.uid == change.before.uid:
                pending.departures[index] = change  # It came back, and left again, unseen.
                return
        if self._departures >= self._most:
            self.lost += 1
            self._forget_if_empty(change.before.key, pending)
            return
        self._departures += 1
        pending.departures.append(change)

    def _has_arrival(self, key: ObjectKey) -> bool:
        """Return True if an entry waits. An update refreshes it, also if nobody wants updates."""
        pending = self._ready.get(key) or self._blocked.get(key)
        return pending is not None and pending.arrival is not None

    def _arrive(self, change: Change) -> None:
        assert change.after is not None, "it is in the store"
        pending = self._pending(change.after.key)
        pending.arrival = change if pending.arrival is None else self._joined(pending.arrival, change)

    def _joined(self, earlier: Change, later: Change) -> Change:
        """Return one entry, update or resync for two. A resync has the present object."""
        if earlier.cause is not ChangeCause.RESYNC:
            return replace(earlier, after=later.after)
        if later.cause is not ChangeCause.RESYNC and ChangeCause.UPDATED in self._causes:
            return Change(earlier.before, later.after, ChangeCause.UPDATED)
        return Change(later.after, later.after, ChangeCause.RESYNC)

    def _forget_if_empty(self, key: ObjectKey, pending: _Pending) -> None:
        if not pending:
            (self._blocked if key in self._taken else self._ready).pop(key)

    # ---- Reading.

    def take(self) -> Change:
        """Return the next change. No other change of its name is returned before `finish`."""
        key = next(iter(self._ready))
        pending = self._ready.pop(key)
        self._taken[key] = change = pending.pop()
        if pending:
            self._blocked[key] = pending
        return change

    def finish(self, key: ObjectKey) -> None:
        """Note that the change of a name was handled: the next one may be taken."""
        if self._taken.pop(key).after is None:
            self._departures -= 1
        self._outlived.discard(key)
        if (pending := self._blocked.pop(key, None)) is not None:
            self._ready[key] = pending

    def renew(self, change: Change) -> Change | None:
        """Return what to handle instead of a change whose handling failed: the same departure; an entry or
        update joined with later ones; or the departure of the object, if it has departed since. None if
        nobody wants to receive that departure.
        """
        if change.after is not None and change.after.key in self._outlived:
            return None
        if change.after is None or (pending := self._blocked.get(change.after.key)) is None:
            return change
        if not pending.departures:
            assert pending.arrival is not None, "an empty one is dropped"
            change = self._joined(change, pending.arrival)
            pending.arrival = None
        else:
            change = pending.pop()
        key = change.key
        self._taken[key] = change
        if not pending:
            del self._blocked[key]
        return change

    def drain(self) -> Iterator[Change]:
        """Take and finish each change that can be taken."""
        while self._ready:
            change = self.take()
            self.finish(change.key)
            yield change


def _deselected(record: Record) -> Change:
    """Return the departure of an object that the store has, and that a subscriber wants no more."""
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
