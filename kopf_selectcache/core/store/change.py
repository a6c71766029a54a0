"""Change: the difference that a subscriber, a predicate or a reader of `cache.changes` receives. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from kopf_selectcache.core.redact import shown

from .record import Record


class ChangeCause(StrEnum):
    """Why subscribers receive a change. `left` and `deleted` are departures."""

    ENTERED = "entered"
    UPDATED = "updated"
    RESYNC = "resync"
    """Nothing has changed: subscribers receive each stored object again, once per period."""
    LEFT = "left"
    """No stream selects the object any more. It may still exist."""
    DELETED = "deleted"
    """The object does not exist any more: its stream selects by name and namespace alone, the server has
    confirmed it, or another object has its name."""
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
    all others. `'confirmed'`: by a request, or by another object of the name. `'cache'`: the cache has
    it, and it does not match what was asked for any more."""
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
        record = self.before if self.after is None else self.after
        if record is None:
            record = self._record
        return record.namespace, record.name

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def namespace(self) -> str | None:
        """The namespace; None for a cluster-scoped object."""
        return self._record.namespace or None

    @property
    def uid(self) -> str:
        return self._record.uid

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
        record = self._record
        assert self.views is not None, "it was delivered"
        return self.views(record)

    @property
    def objects(self) -> Sequence[Any]:
        """With `resumed`: all present objects that match. Otherwise empty."""
        return ()

    @property
    def _record(self) -> Record:
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
    """The objects that a change was made of, by their records."""

    __call__ = dict.__getitem__

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
