"""The garbage collector: deletes the dependents of deleted owners, and carries out the finalizers `orphan`
and `foregroundDeletion`.

It follows the controller of Kubernetes (pkg/controller/garbagecollector), but runs within the request that
makes the garbage: no timer, no thread, and the same order each time. It writes like any client, by versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import structs

from .history import Change, ObjectKey, Stored, Table
from .kinds import Kinds, Served
from .objects import Objects
from .patches import MERGE
from .status import Problem

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"

# In the bytes of every object that concerns the collector.
_MARKS = (b'"ownerReferences"', b'"deletionTimestamp"')
_encode = msgspec.json.encode


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """One owner reference."""

    apiVersion: str  # The names are those of Kubernetes.  # noqa: N815
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None  # Its name in Kubernetes.  # noqa: N815


class _Metadata(msgspec.Struct):
    ownerReferences: tuple[Owner, ...] = ()  # Its name in Kubernetes.  # noqa: N815
    finalizers: tuple[str, ...] = ()
    deletionTimestamp: str = ""  # Its name in Kubernetes.  # noqa: N815

    def waits_for(self, finalizer: str) -> bool:
        """Return True if the object is being deleted, and this finalizer holds it."""
        return bool(self.deletionTimestamp) and finalizer in self.finalizers


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Place(NamedTuple):
    table: Table
    key: ObjectKey


# The states of an owner. It waits if it is deleted after its dependents.
_SOLID, _WAITING, _ABSENT = "solid", "waiting", "absent"
_NOTHING = _Metadata()
_decode = msgspec.json.Decoder(_Object).decode


class Collector:
    """Follow all changes; `run()` acts upon them until there is nothing left to do."""

    def __init__(self, objects: Objects, kinds: Kinds) -> None:
        self._objects = objects
        self._history = objects.history
        self._kinds = kinds
        self._dependents: dict[str, dict[_Place, None]] = {}
        """By the uid of an owner that exists or not, in the order of their creation."""
        self._to_check: dict[_Place, None] = {}
        self._to_orphan: dict[_Place, None] = {}
        self._unresolved: dict[_Place, None] = {}
        """Objects with an owner of a kind that is not served; it may be served later."""
        self._refused: dict[_Place, None] = {}
        """Objects that could not be written; they are tried again after the next change."""
        self._deleted: dict[str, str] = {}
        """The namespaces of deleted owners by their uids: their kind may be gone as well."""
        self._version = self._history.version
        self.reload()
        self._history.subscribe(self._follow)

    def reload(self) -> None:
        """Read all objects again, after the history has been restored."""
        self._dependents.clear()
        for places in (self._to_check, self._to_orphan, self._unresolved, self._refused):
            places.clear()
        for table in self._history.tables():
            for key in self._history.keys(table):
                stored = self._history.get(table, key)
                self._relate(_Place(table, key), (), _read(stored).ownerReferences)
        self._to_check.clear()  # As of the backup, there is no garbage.

    def run(self) -> None:
        """Collect garbage until there is none."""
        if self._version == self._history.version:
            return
        for place in self._refused:
            self._note(place)
        self._refused.clear()
        while queue := self._to_orphan or self._to_check:
            place = next(iter(queue))
            del queue[place]
            served = next((served for served in self._kinds if served.table == place.table), None)
            stored = self._history.get(*place)
            if served is None or stored is None:
                continue
            try:
                (self._orphan if queue is self._to_orphan else self._check)(served, place, stored)
            except Problem:  # A webhook, or a schema that has changed since.
                self._refused[place] = None
        self._deleted.clear()
        self._version = self._history.version

    # ---- Following.

    def _follow(self, change: Change) -> None:
        before, after = _read(change.before), _read(change.after)
        stored = change.after or change.gone
        assert stored is not None
        place = _Place(change.table, stored.key)
        if before.ownerReferences != after.ownerReferences:
            self._relate(place, before.ownerReferences, after.ownerReferences)
        dependents = self._dependents.get(stored.uid, {})
        if change.after is None:
            self._unresolved.pop(place, None)
            if dependents:
                self._deleted[stored.uid] = stored.key[0]
                self._to_check |= dependents
        elif after.waits_for(ORPHAN) and not before.waits_for(ORPHAN):
            self._to_orphan[place] = None
        elif after.waits_for(FOREGROUND) and not before.waits_for(FOREGROUND):
            self._to_check |= dependents
            self._to_check[place] = None
        if change.table == self._objects.definitions.table:
            self._to_check |= self._unresolved

    def _note(self, place: _Place) -> None:
        queue = self._to_orphan if _read(self._history.get(*place)).waits_for(ORPHAN) else self._to_check
        queue[place] = None

    def _relate(self, place: _Place, before: Sequence[Owner], after: Sequence[Owner]) -> None:
        """Note the owners of an object, and check it if they are new: they may not exist."""
        blocking = {owner.uid for owner in after if owner.blockOwnerDeletion}
        for owner in before:
            if owner.uid in self._dependents and all(owner.uid != other.uid for other in after):
                self._dependents[owner.uid].pop(place, None)
                if not self._dependents[owner.uid]:
                    del self._dependents[owner.uid]
            if owner.blockOwnerDeletion and owner.uid not in blocking:
                with suppress(_UnresolvedError):
                    if (found := self._find(owner, place)) is not None:
                        self._to_check[found] = None
        for owner in after:
            self._dependents.setdefault(owner.uid, {})[place] = None
            if owner not in before:
                self._to_check[place] = None

    # ---- Acting.

    def _check(self, served: Served, place: _Place, stored: Stored) -> None:
        """Delete an object whose owners are gone; release one that waits for its dependents."""
        metadata = _read(stored)
        self._unresolved.pop(place, None)
        if metadata.waits_for(FOREGROUND):
            self._release(served, place, stored, metadata)
        elif metadata.ownerReferences and not metadata.deletionTimestamp:
            try:
                owners = {owner: self._state(owner, place) for owner in metadata.ownerReferences}
            except _UnresolvedError as error:
                if error.may_be_served:
                    self._unresolved[place] = None
                return
            solid = tuple(owner for owner, state in owners.items() if state == _SOLID)
            if len(solid) == len(owners):
                return
            dependents = self._dependents.get(stored.uid, {})
            if solid:
                self._write(served, place, ownerReferences=solid)
            elif dependents and _WAITING in owners.values():
                if any(self._read(other).waits_for(FOREGROUND) for other in dependents):
                    # A circle of owners that wait for each other. The next check finds it unblocked.
                    unblocked = (structs.replace(owner, blockOwnerDeletion=False) for owner in owners)
                    self._write(served, place, ownerReferences=tuple(unblocked))
                    self._to_check[place] = None
                    return
                self._delete(served, place, "Foreground")
            else:
                own = metadata.finalizers
                self._delete(
                    served,
                    place,
                    "Orphan" if ORPHAN in own else "Foreground" if FOREGROUND in own else "Background",
                )

    def _release(self, served: Served, place: _Place, stored: Stored, metadata: _Metadata) -> None:
        """Remove the finalizer of an owner that no dependent blocks, or check those that do."""
        blocking = [
            other
            for other in self._dependents.get(stored.uid, ())
            if any(
                owner.uid == stored.uid and owner.blockOwnerDeletion
                for owner in self._read(other).ownerReferences
            )
        ]
        if not blocking:
            left = tuple(item for item in metadata.finalizers if item != FOREGROUND)
            self._write(served, place, finalizers=left)
        for other in blocking:
            if not self._read(other).waits_for(FOREGROUND):
                self._to_check[other] = None

    def _orphan(self, served: Served, place: _Place, stored: Stored) -> None:
        """Remove the references to an owner from its dependents, and then its finalizer."""
        for other in list(self._dependents.get(stored.uid, ())):
            kind = next(kind for kind in self._kinds if kind.table == other.table)
            left = tuple(owner for owner in self._read(other).ownerReferences if owner.uid != stored.uid)
            self._write(kind, other, ownerReferences=left)
        metadata = _read(self._history.get(*place))
        if metadata.waits_for(ORPHAN):
            self._write(
                served, place, finalizers=tuple(item for item in metadata.finalizers if item != ORPHAN)
            )

    def _state(self, owner: Owner, dependent: _Place) -> str:
        if self._deleted.get(owner.uid) in ("", dependent.key[0]):
            return _ABSENT
        place = self._find(owner, dependent)
        if place is None:
            return _ABSENT
        return _WAITING if self._read(place).waits_for(FOREGROUND) else _SOLID

    def _find(self, owner: Owner, dependent: _Place) -> _Place | None:
        """Return the place of an owner: that of this uid, in the namespace of the dependent or in none."""
        api_version = owner.apiVersion.removeprefix("/")
        for served in self._kinds:
            if (served.api_version, served.kind) == (api_version, owner.kind):
                break
        else:
            raise _UnresolvedError(may_be_served=True)
        namespace = dependent.key[0]
        if served.namespaced and not namespace:
            raise _UnresolvedError(may_be_served=False)
        place = _Place(served.table, (namespace if served.namespaced else "", owner.name))
        stored = self._history.get(*place)
        return None if stored is None or stored.uid != owner.uid else place

    def _read(self, place: _Place) -> _Metadata:
        return _read(self._history.get(*place))

    def _write(self, served: Served, place: _Place, **changes: tuple[object, ...]) -> None:
        patch = {"metadata": {key: value or None for key, value in changes.items()}}
        self._objects.patch(served, *place.key, _encode(patch), MERGE)

    def _delete(self, served: Served, place: _Place, policy: str) -> None:
        self._objects.delete(served, *place.key, {"propagationPolicy": policy})


class _UnresolvedError(Exception):
    """Nobody knows whether the owner exists: then its dependent stays."""

    def __init__(self, *, may_be_served: bool) -> None:
        super().__init__()
        self.may_be_served = may_be_served


def _read(stored: Stored | None) -> _Metadata:
    if stored is None or not any(mark in stored.data for mark in _MARKS):
        return _NOTHING
    return _decode(stored.data).metadata
