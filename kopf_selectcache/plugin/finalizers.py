"""The finalizer of a reconciler: what of an object calls for it, and which reconcilers have cleaned up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import NotDeclared
from kopf_selectcache.cache.own_writes import informers_of
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.reactions.predicates import Predicate
from kopf_selectcache.selectors.object_key import Key

from ._key_records import KeyRecords
from .narrowing import handlers_of
from .reconcile import Reconciler

DELETING = "deleting"
"""Attempts of the calls for an object that is being deleted: they are counted apart."""


def finalizers_of(obj: Mapping[str, Any]) -> list[str]:
    return list(obj["metadata"].get("finalizers") or ())


def removal_of(obj: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the operations of a JSON patch that takes a finalizer off an object, if it is where it was."""
    path = f"/metadata/finalizers/{finalizers_of(obj).index(name)}"
    return [{"op": "test", "path": path, "value": name}, {"op": "remove", "path": path}]


def is_terminating(obj: Mapping[str, Any]) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def keep_finalizer(patch: kopf.Patch, name: str) -> None:
    """See to it that the patch of a handler leaves a finalizer on, whatever it does to others."""
    metadata = patch.get("metadata")
    if isinstance(metadata, dict) and "finalizers" in metadata:
        given = metadata["finalizers"] or []
        if isinstance(given, list) and name not in given:  # The server refuses anything else.
            metadata["finalizers"] = [*given, name]

    def keep(obj: Any) -> None:
        if name not in (given := finalizers_of(obj)):
            obj["metadata"]["finalizers"] = [*given, name]

    if patch.fns:
        patch.fns.append(keep)


@dataclass(frozen=True)
class ConcernsFinalizer(Predicate):
    """Admits the changes of an object that is being deleted, and the loss of the finalizer."""

    name: str

    paths = (("metadata", "deletionTimestamp"), ("metadata", "finalizers"))

    def admits(self, change: Change) -> bool:
        old, new = change.old, change.new
        if new is None:
            return False
        is_lost = old is not None and self.name in finalizers_of(old) and self.name not in finalizers_of(new)
        return is_lost or is_terminating(new)


class Cleanups:
    """The reconcilers of one operator that have cleaned up after objects that are being deleted."""

    def __init__(self, _: Runtime) -> None:
        self.records: dict[int, KeyRecords] = {}
        """What each remembers of its keys, by the id of the reconciler."""
        self.adding: list[tuple[str, str | None]] = []
        """The uids of the objects on which a finalizer is being put, with its name."""
        self.warned: set[str] = set()
        """The resources of which the log has warned that Kopf's finalizer is left on their objects."""

    def close(self) -> None:
        """Forget all."""
        self.records.clear()


class Cleanup:
    """The cleanups of one reconciler.

    Reconcilers of one kind may share a finalizer: it comes off when the last call of each has cleaned up. A
    restart forgets that, and all are called again.
    """

    def __init__(
        self,
        handler: Reconciler,
        handlers: Sequence[Reconciler],
        runtime: Runtime,
        resource: Resource,
        records: KeyRecords,
        *,
        kopfs: str,
        registry: _kopf.OperatorRegistry | None,
    ) -> None:
        self._handler, self._runtime, self._resource, self._records = handler, runtime, resource, records
        self._alike = [each for each in handlers if each.finalizer == handler.finalizer]
        cleanups = runtime.extensions.get(Cleanups)
        self._warned, self._adding, self._of_all = cleanups.warned, cleanups.adding, cleanups.records
        self._of_all[id(handler)] = records
        self.released = kopfs if handler.kopfs is False else None
        """Kopf's finalizer, if this reconciler takes it off."""
        caring = any(
            (each.kopfs is not None or each.finalizer == kopfs) and self._is_of_kind(each)
            for each in handlers
        )
        self._left = None if caring or handlers_of(registry, resource) else kopfs
        """Kopf's finalizer, if nobody takes it off."""

    def leftover_of(self, obj: Mapping[str, Any]) -> str | None:
        """Return Kopf's finalizer if an object has it, and nobody takes it off: once for a kind."""
        if self._left is None or self._left not in finalizers_of(obj):
            return None
        if (resource := str(self._resource)) in self._warned:
            return None
        self._warned.add(resource)
        return self._left

    @contextmanager
    def adding(self, uid: str) -> Iterator[None]:
        """Note that the finalizer is being put on an object: no filter is narrowed past it meanwhile."""
        added = (uid, self._handler.finalizer)
        self._adding.append(added)
        try:
            yield
        finally:
            self._adding.remove(added)

    def end(self, key: Key, uid: str) -> bool:
        """Note that a call has cleaned up; return True if those of all other reconcilers have."""
        self._records[key].cleaned = uid
        return all(self._has_cleaned(each, key, uid) for each in self._alike if self._is_of_kind(each))

    def _has_cleaned(self, reconciler: Reconciler, key: Key, uid: str) -> bool:
        records = self._of_all.get(id(reconciler))
        return records is not None and key in records and records[key].cleaned == uid

    def _is_of_kind(self, other: Reconciler) -> bool:
        with suppress(NotDeclared):
            return self._runtime.informer(other.kind) in informers_of(self._runtime, self._resource)
        return False
