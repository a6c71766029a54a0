"""One kind as one handler sees it: what is held, with the handler's own object laid over it. A read sees one generation.

Two streams race: Kopf's, which called the handler with an object, and the cache's. A handler that does not find its own
object, or finds it older than the body it was called with, would undo what it has just seen. So where the body is newer
than the stream, it counts: it is in the filter or out of it, and whatever is held under its name is older.
"""
from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from .core.problems import Garbled, Untransformed
from .core.projection import ALL, Projection
from .core.record import Record, is_older
from .core.resources import Resource
from .core.store import Readable
from .core.wire import Reader
from .matching import selects
from .selector import AnyOf, Branches, Comparisons, Selector


@dataclass(frozen=True, slots=True)
class Own:
    """A handler's own object, where it is newer than the stream."""

    key: tuple[str, str]
    """Its namespace and name."""
    version: str
    record: Record | None
    """None if it is deleted, or has left the filter."""

    def instead_of(self, held: Record | None) -> Record | None:
        """Return whichever is newer. Of two objects of one name, with two uids, the newer is the one that is there."""
        return held if held is not None and not is_older(held.version, self.version) else self.record


@dataclass(frozen=True, slots=True)
class View:
    """One kind as one handler sees it."""

    resource: Resource
    filter: Selector | AnyOf
    store: Readable
    comparisons: Comparisons
    body: Mapping[str, Any] | None = None
    """What the handler was called with, of whatever kind."""
    deleted: bool = False
    """Whether it was called with a deletion. The body then has the labels of before: they must not be matched."""
    projection: Projection = ALL
    """What is kept of each object, the handler's own as well."""

    def get(self, namespace: str, name: str) -> tuple[Record | None, str]:
        """Return the object, if there is one, and the version as of which that is so."""
        held, version = self.store.get(namespace, name)
        own = self._own(version)
        if own is None or own.key != (namespace, name):
            return held, version
        found = own.instead_of(held)
        return found, own.version if found is own.record else version

    def records(self, namespace: str | None = None) -> list[Record]:
        """Return all objects, or those of one namespace."""
        records, version = self.store.records(namespace)
        own = self._own(version)
        if own is None or namespace not in (None, own.key[0]):
            return records
        held = next((record for record in records if record.key == own.key), None)
        found = own.instead_of(held)
        if found is held:
            return records
        others = [record for record in records if record is not held]
        return others if found is None else [*others, found]

    def newest(self, held: Record) -> Record | None:
        """Return an object that came by the stream, or what the handler knows of it already, if that is newer."""
        own = self._own(held.version)
        return own.instead_of(held) if own is not None and own.key == held.key else held

    def _own(self, version: str) -> Own | None:
        """Return the own object, if it is of this kind, and newer than the stream's version."""
        if self.body is None:
            return None
        return own_of(self.body, self.resource, self.filter, deleted=self.deleted, version=version, projection=self.projection)


def own_of(
    body: Mapping[str, Any], resource: Resource, declared: Branches, *, deleted: bool, version: str, projection: Projection,
) -> Own | None:
    """Read a handler's own object; None if it is of another kind, or not newer than this version of the stream.

    Raise Untransformed if the operator's own function fails for it: what is held is older, and must not pass for it.
    """
    # A daemon's body is a view of what is replaced under its hands as a whole, in a thread even while it is read.
    # Its shallow copy is a view of what it was.
    body = copy.copy(body)
    if (body.get("apiVersion"), body.get("kind")) != (resource.api_version, resource.kind.kind):
        return None
    own = (body.get("metadata") or {}).get("resourceVersion")
    if not isinstance(own, str) or not is_older(version, own):
        return None
    try:
        record = Reader.of(resource, projection).record(msgspec.json.encode(dict(body)))
    except Untransformed:
        raise
    except Garbled:
        return None   # Made by hand, in a test perhaps: without a name or uid it is no object.
    selected = not deleted and selects(declared, record, resource)
    return None if selected is None else Own(record.key, own, record if selected else None)
