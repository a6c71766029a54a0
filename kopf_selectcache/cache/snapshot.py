"""One kind as one handler sees it: what is held, with the handler's own object laid over it. A read sees one
generation.

Two streams race: Kopf's, which called the handler with an object, and the cache's. A handler that does not
find its own object, or finds it older than the body it was called with, would undo what it has just seen. So
where the body is newer than the stream, it counts: it is in the filter or out of it, and whatever is held
under its name is older.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from kopf_selectcache.core.errors import Garbled, Untransformed
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.recursion import with_room
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.index_spec import ODD, Indexed
from kopf_selectcache.core.store.indexes import Chosen, Lookup
from kopf_selectcache.core.store.projection import ALL, Projection
from kopf_selectcache.core.store.record import Record, Unreadable, is_older
from kopf_selectcache.core.store.store import Readable
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector

from .matcher import selects
from .memo import Comparisons


@dataclass(frozen=True, slots=True)
class Own:
    """A handler's own object, where it is newer than the stream."""

    key: tuple[str, str]
    """Its namespace and name."""
    version: str
    record: Record | None
    """None if it is deleted, or has left the filter."""

    def instead_of(self, held: Record | None) -> Record | None:
        """Return whichever is newer. Of two objects of one name, with two uids, the newer is the one that is
        there.
        """
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
    """Whether it was called with a deletion. The body then has the labels of before: they must not be
    matched."""
    projection: Projection = ALL
    """What is kept of each object, the handler's own as well."""
    indexes: Mapping[str, Indexed] = field(default_factory=dict)
    """Those that are declared, by name."""

    def get(self, namespace: str, name: str) -> tuple[Record | None, str]:
        """Return the object, if there is one, and the version as of which that is so."""
        held, version = self.store.get(namespace, name)
        own = self._own(version) if self._own_key() == (namespace, name) else None
        if own is None:
            return held, version
        found = own.instead_of(held)
        return found, own.version if found is own.record else version

    def chosen(self, lookup: Lookup, *, asking: bool = True) -> Chosen:
        """Return what must be looked at to find this, as of one generation."""
        key = self._own_key()
        chosen = self.store.chosen(lookup, key, asking=asking)
        own = self._own(chosen.version) if key is not None else None
        found = own.instead_of(chosen.beside) if own is not None else chosen.beside
        if own is None or found is chosen.beside:
            return chosen
        others = [record for record in chosen.records if record is not chosen.beside]
        unreadable = tuple(record for record in chosen.unreadable if record is not chosen.beside)
        if isinstance(found, Unreadable):
            return chosen._replace(records=others, unreadable=(*unreadable, found))
        rest = chosen.rest
        if found is not None and any(ODD in index.of(found) for index, _ in lookup.where):
            rest = rest._replace(
                where=lookup.where
            )  # What is there, whoever asks has to see, as where nothing is indexed.
        if (
            found is not None
            and lookup.admits(found)
            and all(
                index.of(found) == (value,)
                for index, value in lookup.where
                if (index, value) not in rest.where
            )
        ):
            others.append(found)
        return chosen._replace(records=others, rest=rest, unreadable=unreadable)

    def newest(self, held: Record) -> Record | None:
        """Return an object that came by the stream, or what the handler knows of it already, if that is
        newer.
        """
        own = self._own(held.version)
        return own.instead_of(held) if own is not None and own.key == held.key else held

    def _own_key(self) -> tuple[str, str] | None:
        """Return the namespace and name of the handler's own object, if it is of this kind, and may be of
        this cache.
        """
        body = self.body
        if body is None or (body.get("apiVersion"), body.get("kind")) != (
            self.resource.api_version,
            self.resource.kind.kind,
        ):
            return None
        metadata = body.get("metadata") or {}
        return metadata.get("namespace") or "", metadata.get("name") or ""

    def _own(self, version: str) -> Own | None:
        """Return the own object, if it is of this kind, and newer than the stream's version."""
        if self.body is None:
            return None
        return own_of(
            self.body,
            self.resource,
            self.filter,
            deleted=self.deleted,
            version=version,
            projection=self.projection,
            indexes=tuple(self.indexes.values()),
        )


def own_of(
    body: Mapping[str, Any],
    resource: Resource,
    declared: Branches,
    *,
    deleted: bool,
    version: str,
    projection: Projection,
    indexes: tuple[Indexed, ...] = (),
) -> Own | None:
    """Read a handler's own object; None if it is of another kind, or not newer than this version of the
    stream.

    Raise Untransformed if the operator's own function fails for it: what is held is older, and must not pass
    for it.
    """
    # A daemon's body is a view of what is replaced under its hands as a whole, in a thread even while it is
    # read. Its shallow copy is a view of what it was.
    body = copy.copy(body)
    if (body.get("apiVersion"), body.get("kind")) != (resource.api_version, resource.kind.kind):
        return None
    own = (body.get("metadata") or {}).get("resourceVersion")
    if not isinstance(own, str) or not is_older(version, own):
        return None
    try:
        record = replace(Reader.of(resource, projection), indexes=indexes).record(
            with_room(partial(msgspec.json.encode, dict(body)))
        )
    except Untransformed:
        raise
    except (Garbled, RecursionError, UnicodeEncodeError):
        # Made by hand, in a test perhaps: without a name or uid it is no object. A lone surrogate has no
        # UTF-8.
        return None
    selected = not deleted and selects(declared, record, resource)
    return None if selected is None else Own(record.key, own, record if selected else None)
