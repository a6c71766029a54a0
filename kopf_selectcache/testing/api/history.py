"""All objects and all their changes: one version counter for the whole cluster, a log of changes, a horizon.

An object is stored as the bytes that are served, without its kind and apiVersion, which depend on the
request. Lists and watches also need labels and the values of field labels; they are extracted once, when the
object is written.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from .status import expired

Table: TypeAlias = tuple[str, str]
"""The place of the objects of one resource: its group and plural."""
ObjectKey: TypeAlias = tuple[str, str]
"""Namespace (empty if there is none) and name."""

# Changes that are remembered, unless they are compacted before: some minutes of a very busy cluster.
KEPT = 100_000
KEPT_BYTES = 24 * 1024 * 1024  # The limit of bytes of old versions, which are in memory for nothing else,
KEPT_AT_LEAST = 1_000  # unless they are of the last changes: those stay, at any size.


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of an object."""

    key: ObjectKey
    uid: str
    version: int
    data: bytes
    """JSON as served, without kind and apiVersion: `{"metadata":{...},...}`."""
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    """The value of each field label that selectors can select by."""


class Change(NamedTuple):
    """The effect of one write on one object."""

    version: int
    table: Table
    before: Stored | None
    after: Stored | None
    gone: Stored | None = None
    """For a deletion: the last state, with the version of the deletion itself."""


class History:
    """The store of one cluster. Every write has its own version, higher than all before."""

    def __init__(
        self,
        *,
        version: int = 1,
        kept: int = KEPT,
        kept_bytes: int = KEPT_BYTES,
        kept_at_least: int = KEPT_AT_LEAST,
    ) -> None:
        self.version = version
        self.horizon = version
        """The horizon: changes from this version on are known; earlier ones are not, as after etcd's
        compaction.
        """
        self._objects: dict[Table, dict[ObjectKey, Stored]] = {}
        self._order: dict[Table, list[ObjectKey]] = {}
        self._log: deque[Change] = deque()
        self._log_bytes = 0
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._kept_at_least = kept_at_least
        self._listeners: list[Callable[[Change], None]] = []

    # ---- Reading.

    def get(self, table: Table, key: ObjectKey) -> Stored | None:
        return self._objects.get(table, {}).get(key)

    def keys(self, table: Table, *, namespace: str = "", after: ObjectKey | None = None) -> list[ObjectKey]:
        """Return the keys in order: those of a namespace, if given, and those after a key."""
        order = self._order.get(table, [])
        return _within(order, namespace, after)

    def at(
        self, table: Table, version: int, *, namespace: str = "", after: ObjectKey | None = None
    ) -> list[Stored]:
        """Return the objects as of this version, in order; raise Expired (410) if it is forgotten."""
        objects = self._objects.get(table, {})
        changed = list(self.since(version, table))
        if not changed:
            return [objects[key] for key in self.keys(table, namespace=namespace, after=after)]
        then = dict(objects)
        for change in reversed(changed):
            if change.before is not None:
                then[change.before.key] = change.before
            elif change.after is not None:
                del then[change.after.key]
        return [then[key] for key in _within(sorted(then, key=_place), namespace, after)]

    def since(self, version: int, table: Table | None = None) -> Iterator[Change]:
        """Iterate over the changes after this version, in order; raise Expired (410) if they
        are forgotten.
        """
        self.require(version)
        later = []
        for change in reversed(self._log):
            if change.version <= version:
                break
            if table is None or change.table == table:
                later.append(change)
        return reversed(later)

    def require(self, version: int) -> None:
        """Raise Expired (410) if the changes after this version are no longer known."""
        if version < self.horizon:
            raise expired(f"too old resource version: {version} ({self.horizon})")

    def tables(self) -> list[Table]:
        return list(self._objects)

    # ---- Writing.

    def next_version(self) -> int:
        """The version of the next write: it is written into the object."""
        return self.version + 1

    def put(self, table: Table, stored: Stored) -> None:
        """Store a new object, or a new version of one; its version is `next_version()`."""
        objects = self._objects.setdefault(table, {})
        before = objects.get(stored.key)
        if before is None:
            insort(self._order.setdefault(table, []), stored.key, key=_place)
        objects[stored.key] = stored
        self._happened(Change(stored.version, table, before, stored))

    def remove(self, table: Table, gone: Stored) -> None:
        """Remove an object; `gone` is its last state, with the version of its deletion."""
        before = self._objects[table].pop(gone.key)
        order = self._order[table]
        del order[bisect_left(order, _place(gone.key), key=_place)]
        self._happened(Change(gone.version, table, before, None, gone))

    def _happened(self, change: Change) -> None:
        self.version = change.version
        self._log.append(change)
        self._log_bytes += _weight(change)
        while len(self._log) > self._kept or (
            self._log_bytes > self._kept_bytes and len(self._log) > self._kept_at_least
        ):
            forgotten = self._log.popleft()
            self._log_bytes -= _weight(forgotten)
            self.horizon = forgotten.version
        for listener in tuple(self._listeners):
            listener(change)

    # ---- Subscribing, compacting, restoring.

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call a function with every change, within the write; return a function that unregisters it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def compact(self) -> int:
        """Forget the history up to now, as etcd does every few minutes; return the present version."""
        self._forget()
        return self.version

    def backup(self) -> Backup:
        return Backup(self.version, {table: dict(objects) for table, objects in self._objects.items()})

    def restore(self, backup: Backup) -> None:
        """Return to the state of a backup: versions go back, and watches are not notified. Cut them off
        first.
        """
        self.version = backup.version
        self._forget()
        self._objects = {table: dict(objects) for table, objects in backup.objects.items()}
        self._order = {table: sorted(objects, key=_place) for table, objects in self._objects.items()}

    def _forget(self) -> None:
        self._log.clear()
        self._log_bytes = 0
        self.horizon = self.version


class Backup(NamedTuple):
    """A copy of all objects at one version."""

    version: int
    objects: Mapping[Table, Mapping[ObjectKey, Stored]]


def at_version(stored: Stored, version: int, data: bytes) -> Stored:
    """Return the object as of another version, with bytes that have it."""
    return replace(stored, version=version, data=data)


def _weight(change: Change) -> int:
    """Return the bytes of old versions that are stored for this change."""
    return sum(len(stored.data) for stored in (change.before, change.gone) if stored is not None)


def _place(key: ObjectKey) -> str:
    """Return the sort key of objects in etcd: those of `apps-2` come before those of `apps`."""
    return f"{key[0]}/{key[1]}"


def _within(order: list[ObjectKey], namespace: str, after: ObjectKey | None) -> list[ObjectKey]:
    start = bisect_right(order, _place(after), key=_place) if after is not None else 0
    if not namespace:
        return order[start:]
    start = max(start, bisect_left(order, f"{namespace}/", key=_place))
    return order[
        start : bisect_left(order, f"{namespace}0", key=_place)
    ]  # 0 is the character after the slash.
