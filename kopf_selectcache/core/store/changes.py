"""Changes: the differences that subscribers, predicates and readers of `cache.changes` receive, and those
that one subscriber has still to receive. Pure.

`PendingChanges` has one change for each object at a time. Changes of one object are joined while they wait:
updates become one update, an update of an object that has just entered becomes its entry, and an entry that
nobody has received is dropped when the object departs. A departure is never dropped, unless there are too
many. Objects are told apart by their names, so that a new object waits until the departure of the former one
of its name has been handled. `Fifo` joins none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from kopf_selectcache.core.redact import shown

from .record import EvictedRecord, Keep, ObjectKey, Record, UnreadableRecord


class ChangeCause(StrEnum):
    """Why subscribers receive a change. `left` and `deleted` are departures."""

    ENTERED = "entered"
    UPDATED = "updated"
    RESYNC = "resync"
    """Nothing has changed: subscribers receive each stored object again, once per period."""
    LEFT = "left"
    """No stream selects the object any more. It may still exist."""
    DELETED = "deleted"
    """The object does not exist any more: its stream selects by name and namespace alone, a split cache has
    all others, or another object has its name."""
    RESUMED = "resumed"
    """A reader was too slow, and receives the present state instead of the changes that it has missed."""
    SENT = "sent"
    """A `Channel`, or a source of the operator's author, has sent the object. No cache has it."""


KnownBy: TypeAlias = Literal["filter by name", "metadata", "confirmed", "cache"]
"""How we know that an object was deleted, or that it left and still exists."""


class Change(Struct, frozen=True, gc=False):
    """A change of an object: it enters a cache, is updated, or departs.

        async for change in cache.changes('jobs', labels='app=web'):
            if change.cause in ('left', 'deleted'):
                print(change.name, change.cause, change.old['status'])

    `old`, `new` and `body` are views, as those of `as_='view'`.
    """

    before: Record | None
    """The stored object before the change. Read `old` instead."""
    after: Record | None
    """The stored object after the change. Read `new` instead."""
    cause: ChangeCause
    """`entered`, `updated`, `resync`, `left`, `deleted`, `resumed` or `sent`."""
    filter_changed: bool = False
    """True if it entered or left because the filter of the cache was changed, and not the object."""
    known_by: KnownBy | None = None
    """How we know that the object is `deleted`, or that it has `left` and still exists; else None.

    `'filter by name'`: the filter selects by name and namespace alone. `'metadata'`: a split cache has
    all others. `'confirmed'`: another object has its name. `'cache'`: the cache has it, and it does not
    match what was asked for any more."""
    initial: bool = False
    """True if it entered because it was there when its subscriber began to follow the kind."""
    views: Callable[[Record], Any] | None = None
    """Makes the views of the records. A subscription attaches it to the changes that it delivers."""
    last: Record | None = None
    """The object as the watch event of its departure has it; None if a list or a request shows it."""

    @classmethod
    def sent(cls, obj: Mapping[str, Any]) -> Change:
        """Return the change that reports an object, or anything else that has happened, to a source.

        >>> Change.sent({'metadata': {'name': 'web', 'namespace': 'shop'}})
        <Change: shop/web sent>
        """
        require_mapping("what is sent", obj)
        return cls(None, record := _identity_of(obj), ChangeCause.SENT, views=_Given({record: obj}))

    @classmethod
    def of(cls, cause: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Change:
        """Return a change of an object that no cache has, for a source or for the test of a predicate.

        >>> web = {'metadata': {'name': 'web'}}
        >>> change = Change.of('updated', web, {**web, 'data': {}})
        >>> change, change.new['data']
        (<Change: web updated>, {})
        """
        if cause not in _SIDES:
            known = ", ".join(repr(str(each)) for each in _SIDES)
            raise ValueError(f"Change.of(): cause must be one of {known}, not {shown(cause)}")
        for side, obj, has in zip(("old", "new"), (old, new), _SIDES[ChangeCause(cause)], strict=True):
            if not has and obj is not None:
                raise ValueError(f"Change.of(): {cause!r} has no {side} object: {side} must be None")
            if has and obj is None:
                raise ValueError(f"Change.of(): {cause!r} needs the {side} object: {side} must not be None")
            if has:
                require_mapping(f"Change.of(): {side}", obj)
        before, after = (None if obj is None else _identity_of(obj) for obj in (old, new))
        return cls(before, after, ChangeCause(cause), views=_Given({before: old, after: new}))

    @property
    def key(self) -> tuple[str, str]:
        """The namespace and name, as a store has them."""
        record = self.record
        return record.namespace, record.name

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def namespace(self) -> str | None:
        """The namespace; None for a cluster-scoped object."""
        return self.record.namespace or None

    @property
    def uid(self) -> str:
        return self.record.uid

    @property
    def version(self) -> str:
        """The version of the object after the change; empty if it has departed."""
        return "" if self.after is None else self.after.version

    @property
    def is_whole(self) -> bool:
        """False if the former object is not known any more, such as after an eviction (`max_bytes`)."""
        return self.before is None or self.before.stored != b""

    @property
    def old(self) -> Any | None:
        """The object before; None if it enters. If it is not known any more, `old` of a departure has
        metadata only, and that of an update is None.
        """
        before = self.before
        if before is None or (self.after is not None and before.stored == b""):
            return None
        assert self.views is not None, "it was delivered"
        return self.views(before)

    @property
    def new(self) -> Any | None:
        """The object now; None if it has departed."""
        if self.after is None:
            return None
        assert self.views is not None, "it was delivered"
        return self.views(self.after)

    @property
    def body(self) -> Any:
        """The object as it was last known. If only its metadata is known, it has no other part."""
        record = self.record
        assert self.views is not None, "it was delivered"
        return self.views(record)

    @property
    def objects(self) -> Sequence[Any]:
        """With `resumed`: all present objects that match. Otherwise empty."""
        return ()

    @property
    def record(self) -> Record:
        """The stored object as it was last known. Read `body` instead."""
        record = self.before if self.after is None else self.after
        assert record is not None, "a change has an object"
        return record

    def __repr__(self) -> str:
        """Return the identity of the object without its contents."""
        kind = "" if self.views is None else str(self.views)
        named = "/".join(filter(None, self.key))
        return f"<Change: {' '.join(filter(None, (kind, named, self.cause)))}>"


def replaced(record: Record) -> Change:
    """Return the departure of an object whose name another one has."""
    return Change(record, None, ChangeCause.DELETED, known_by="confirmed")


_SIDES = {
    ChangeCause.ENTERED: (False, True),
    ChangeCause.UPDATED: (True, True),
    ChangeCause.RESYNC: (True, True),
    ChangeCause.LEFT: (True, False),
    ChangeCause.DELETED: (True, False),
    ChangeCause.SENT: (False, True),
}
"""The causes of changes, and if there is an object before and after. `resumed` has several objects."""


def require_mapping(what: str, given: object) -> None:
    """Raise TypeError unless this is a mapping, as every object and every event is."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must be a mapping, not {type(given).__name__}")


class _Given(dict[Record | None, Mapping[str, Any] | None]):
    """The objects that a change was made of, by their records. The change can be hashed, as others can."""

    __call__ = dict.__getitem__
    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]  # A dict has none.

    def __str__(self) -> str:
        return ""


def _identity_of(obj: Mapping[str, Any]) -> Record:
    """Return a record with the identity of an object. What it stores is in the views of the change."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        metadata = {}  # Anything may be sent.
    namespace, name, uid, version = (
        str(metadata.get(each) or "") for each in ("namespace", "name", "uid", "resourceVersion")
    )
    return Record(namespace, name, uid, version, {}, (), b"{}")


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

    def keys(self) -> list[ObjectKey]:
        """Return the keys of the objects with changes that are not handled."""
        return list(self._pending)

    def drop(self, key: ObjectKey, *, keeps_departures: bool) -> None:
        """Drop the changes of an object that are not handled: all, or all but its departures."""
        if (pending := self._pending.pop(key, None)) is None:
            return
        departures = pending.departures
        if pending.taken is not None and pending.taken.after is None:
            departures.insert(0, pending.taken)
        if keeps_departures and departures:
            self._pending[key] = kept = _Pending()
            kept.departures = departures
        else:
            self._departures -= len(departures)

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


class Narrowing:
    """The changes as a subscriber sees them that wants the matching objects only.

    An object that does not match any more has left. An object that cannot be read is not reported before it
    can be read or departs: it stands for its last known record.
    """

    def __init__(
        self,
        pass_on: Callable[[Change], object],
        matches: Callable[[Record], object],
        keep: Keep = lambda _: True,
    ) -> None:
        """`pass_on` is called with the changes that the subscriber sees. `keep` returns what is needed of an
        evicted object that matches (`informer.subscribers`).
        """
        self._pass_on = pass_on
        self._matches = matches
        self._keep = keep
        self._known: dict[ObjectKey, Record] = {}
        """The last known records of reported objects that cannot be read now."""

    def add(self, change: Change) -> None:
        """Pass on what the subscriber sees of a change, if anything."""
        if change.cause is ChangeCause.RESYNC:
            if change.after is not None and change.after.stored and self._matches(change.after):
                self._pass_on(change)
            return
        before, after, cause = self._before(change), change.after, change.cause
        if after is None:
            if before is not None:
                self._pass_on(Change(before, None, cause, change.filter_changed, change.known_by))
            return
        is_wanted = bool(self._matches(after))
        if is_wanted and after.stored:
            cause = ChangeCause.ENTERED if before is None else ChangeCause.UPDATED
            self._pass_on(Change(before, after, cause, change.filter_changed, initial=change.initial))
        elif before is not None and not is_wanted:
            self._pass_on(_deselected(before))
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


_DEPARTURES = (ChangeCause.LEFT, ChangeCause.DELETED)


class Fifo:
    """The changes that one subscriber has still to receive, up to `most`.

    If there are more, all of them are dropped, and further ones until `clear`: then the subscriber compares
    what it has received with the present objects. The same happens after `drop`.
    """

    def __init__(
        self,
        most: int,
        added: Callable[[], object] = lambda: None,
        knows: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`added` is called with each change, also if it is dropped. `knows` returns False for the uid of an
        object that the subscriber has not received: nobody wants to hear that it has departed.
        """
        self._changes: deque[Change] = deque()
        self._departures: dict[str, Change] = {}
        self._most = most
        self._added = added
        self._knows = knows
        self.is_full = False
        """True if changes are dropped, until `clear`."""

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, change: Change) -> None:
        """Add a change as the last one."""
        if len(self._changes) >= self._most:
            self.drop()
        if self.is_full:
            self._note(change)
        else:
            self._changes.append(change)
        self._added()

    def take(self) -> Change | None:
        """Remove and return the first change; None if there is none."""
        return self._changes.popleft() if self._changes else None

    def drop(self) -> None:
        """Drop all changes, and further ones until `clear`, but note which objects have departed."""
        self.is_full = True
        while self._changes:
            self._note(self._changes.popleft())

    def clear(self) -> dict[str, Change]:
        """Drop all changes, because the subscriber looks at the present objects now. Return the departures
        among the dropped ones, by uid, of objects that have not come back.
        """
        self.drop()
        departures, self._departures = self._departures, {}
        self.is_full = False
        return departures

    def _note(self, change: Change) -> None:
        if change.cause not in _DEPARTURES:
            self._departures.pop(change.uid, None)
        elif self._knows(change.uid):
            self._departures[change.uid] = change
