"""ChangeQueue: the changes that one subscriber has still to receive, at most one for each object at a time.

Changes of one object are joined while they wait: updates become one update, an update of an object that has
just entered becomes its entry, and an entry that nobody has received is dropped when the object departs. A
departure is never dropped, unless there are too many. Objects are told apart by their names, so that a new
object waits until the departure of the former one of its name has been handled.

When the informer drops its store, nothing is known about the objects. The queue then keeps them aside until
the store is complete again, and reports those that have really departed. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from msgspec.structs import replace

from .change import Change, ChangeCause, replaced
from .record import Record, UnreadableRecord
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
        self._dropped: dict[ObjectKey, Record] = {}
        """Objects of a dropped store. It is not known if they are still there."""
        self._has_objects_aside = False
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
        before, after = change.before, change.after
        if before is not None and change.cause.is_of_restart:
            self._set_aside(before, with_object=change.cause is ChangeCause.DROPPED)
            return
        if after is not None and (dropped := self._dropped.pop(after.key, None)) is not None:
            if dropped.uid != after.uid:
                self._depart(replaced(dropped))
            elif dropped.version == after.version:
                return
            else:
                change = Change(dropped, after, ChangeCause.UPDATED)
        self.heard(change)
        if change.after is None:
            self._depart(change)
        elif change.cause in self._causes or self._has_arrival(change.after.key):
            self._arrive(change)

    def _set_aside(self, record: Record, *, with_object: bool) -> None:
        if not with_object and self._has_objects_aside:  # An earlier restart has kept them.
            self._dropped = {key: _without_object(each) for key, each in self._dropped.items()}
        self._has_objects_aside = with_object
        self._dropped[record.key] = record if with_object else _without_object(record)

    def find(self, record: Record, *, is_wanted: bool) -> Record | None:
        """Note that the store has this object, which is not reported: it cannot be read, or it `is_wanted` no
        more. Return the last known record if a restart has dropped it, and it has not departed.
        """
        dropped = self._dropped.pop(record.key, None)
        if dropped is None or (is_wanted and dropped.uid == record.uid):
            return dropped
        self._depart(_deselected(dropped) if dropped.uid == record.uid else replaced(dropped))
        return None

    def complete(self, departure_of: Callable[[Record], Change]) -> None:
        """Note that the store is complete: objects that a restart has dropped, and that are not in it, have
        departed.
        """
        dropped, self._dropped = self._dropped, {}
        for record in dropped.values():
            self._depart(departure_of(record))

    def clear(self) -> None:
        """Drop all pending changes."""
        self._ready.clear()
        self._blocked.clear()
        self._dropped.clear()
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


def _without_object(record: Record) -> Record:
    """Return a record without its object: an eviction must free memory."""
    if not record.stored:
        return record
    return Record(
        record.namespace, record.name, record.uid, record.version, record.labels, record.owners, stored=b""
    )


class Narrowing:
    """The changes as a subscriber sees them that wants the matching objects only.

    An object that does not match any more has left. An object that cannot be read is not reported before it
    can be read or departs: it stands for its last known record.
    """

    def __init__(self, queue: ChangeQueue, matches: Callable[[Record], object]) -> None:
        self._queue = queue
        self._matches = matches
        self._known: dict[ObjectKey, Record] = {}
        """The last known records of reported objects that cannot be read now."""

    def add(self, change: Change) -> None:
        """Add to the queue what the subscriber sees of a change, if anything."""
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
        elif before is None:
            before = self._queue.find(after, is_wanted=is_wanted)
        elif not is_wanted:
            self._queue.add(_deselected(before))
        if is_wanted and not after.stored and before is not None and not isinstance(before, UnreadableRecord):
            self._known[after.key] = before

    def _before(self, change: Change) -> Record | None:
        """Return the object before the change, as it was reported last; None if the subscriber does not want
        it. One that was never reported, as it could not be read, is reported when it departs.
        """
        before = change.before
        if before is None:
            return None
        if not before.stored and (known := self._known.pop(before.key, None)) is not None:
            return known
        if not before.stored and change.after is not None:
            return None
        return before if self._matches(before) else None

    def clear(self) -> None:
        """Forget the objects that cannot be read."""
        self._known.clear()
