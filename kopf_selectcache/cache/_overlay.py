"""The handler's own object, shown instead of the stored one if it is newer.

Two streams race: Kopf's, which called the handler with an object, and the cache's. A handler that does not
find its own object, or finds it older than its body, would act on an outdated state. So if the body is newer
than the stream, it replaces the stored object of its name.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec

from kopf_selectcache.core.errors import Garbled, Untransformed
from kopf_selectcache.core.json_text import with_room
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.index_spec import ODD, Indexed
from kopf_selectcache.core.store.indexes import Lookup, Selection
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.core.store.record import OutsideRecord, Record, UnreadableRecord, is_newer, is_older
from kopf_selectcache.informer.state import InformerState
from kopf_selectcache.selectors.selecting import selects
from kopf_selectcache.selectors.selector import Branches

from .freshness import has_passed

Pair: TypeAlias = tuple[Record | None, Record | None]
"""A stored object, and the one that a read shows instead."""


@dataclass(frozen=True, slots=True)
class Own:
    """A handler's own object, where it is newer than the stream."""

    key: tuple[str, str]
    """Its namespace and name."""
    version: str
    record: Record | None
    """None if it is deleted, or has left the filter."""
    outside: Record | None = None
    """The object if it has left the filter."""

    def instead_of(self, held: Record | None) -> Record | None:
        """Return whichever is newer. Of two uids of one name, the newer is the one that is there."""
        return held if held is not None and not is_older(held.version, self.version) else self.record


def is_of(body: Mapping[str, Any], resource: Resource) -> bool:
    return (body.get("apiVersion"), body.get("kind")) == (resource.api_version, resource.kind.kind)


def latest_of(
    body: Mapping[str, Any], state: InformerState, *, deleted: bool
) -> tuple[Mapping[str, Any], bool]:
    """Return the body, and True if its object is deleted or the streams have shown a later state of it.

    The version of a store is that of its slowest stream, which perhaps could not hold the object at all. An
    object that has left is not stored either: only this tells it from one that is still to come.
    """
    if state.union.is_alone or deleted:
        return body, deleted
    body = copy.copy(body)  # That of a daemon changes.
    metadata = body.get("metadata") or {}
    version = metadata.get("resourceVersion")
    if state.resource is None or not is_of(body, state.resource) or not isinstance(version, str):
        return body, deleted
    key = metadata.get("namespace") or "", metadata.get("name") or ""
    known = state.union.store.locate(*key)[0]  # Another stream than the object's may be behind.
    is_outside = isinstance(known, OutsideRecord) and is_newer(known.version, version)
    return body, is_outside or has_passed(state, key, version)


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

    Raise Untransformed if the operator's own function fails for it: the stored object is older, and must not
    be shown instead.
    """
    # Kopf replaces the contents of a daemon's body as a whole, even while a thread reads it. The shallow copy
    # keeps the present contents.
    body = copy.copy(body)
    if not is_of(body, resource):
        return None
    own = (body.get("metadata") or {}).get("resourceVersion")
    if not isinstance(own, str) or not is_older(version, own):
        return None
    try:
        record = Reader.of(resource, projection, indexes=indexes).record(
            with_room(partial(msgspec.json.encode, dict(body)))
        )
    except Untransformed:
        raise
    except (Garbled, RecursionError, UnicodeEncodeError):
        # Made by hand, in a test perhaps: without a name or uid it is no object. A lone surrogate has no
        # UTF-8.
        return None
    selected = not deleted and selects(declared, record, resource, projection)
    if selected is None:
        return None
    return Own(record.key, own, record if selected else None, None if selected or deleted else record)


def laid_over(chosen: Selection, lookup: Lookup, pairs: Collection[Pair]) -> Selection:
    """Return the candidates with some objects replaced by those that are shown instead."""
    hidden = {id(held) for held, _ in pairs}
    shown = [record for _, record in pairs if record is not None]
    records = [record for record in chosen.records if id(record) not in hidden]
    unreadable = [record for record in chosen.unreadable if id(record) not in hidden]
    unreadable += [record for record in shown if isinstance(record, UnreadableRecord)]
    rest = chosen.rest
    if any(ODD in index.of(record) for record in shown if record.stored for index, _ in lookup.where):
        # A path may lead into a list there: the reader compares it, as where there is no index.
        rest = rest._replace(where=lookup.where)
    done = [(index, value) for index, value in lookup.where if (index, value) not in rest.where]
    records += [
        record
        for record in shown
        if record.stored
        and lookup.admits(record)
        and all(index.keys(record) == (value,) for index, value in done)
    ]
    return chosen._replace(records=records, rest=rest, unreadable=tuple(unreadable), answer=None)
