"""Read your writes: hands the server's answers to writes over to the informers, which lay them over reads.

Each answer is compared with the whole filter: an object in it is shown, and one outside of it hides the
stored one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import msgspec

from kopf_selectcache._errors import ReadError
from kopf_selectcache.core.errors import Garbled, Untransformed
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.recursion import with_room
from kopf_selectcache.core.redact import shown_with_type
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.own_writes import OwnWrite
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime

from .formats.given import as_dict
from .matcher import selects


def remember_answer(runtime: Runtime, resource: Resource, answer: bytes) -> None:
    """Show an object as the server answered a write, until the streams have passed its version."""
    for informer in _informers_of(runtime, resource):
        _lay(informer, _write_of(informer, resource, answer))


def remember_deletion(
    runtime: Runtime, resource: Resource, namespace: str | None, name: str, uid: str, answer: bytes = b""
) -> None:
    """Hide a deleted object. If the server's answer is the object, which waits for its finalizers or the end
    of its grace period, show that.
    """
    if _still_exists(answer):
        remember_answer(runtime, resource, answer)
        return
    for informer in _informers_of(runtime, resource):
        _lay(informer, _deletion_of(informer, (namespace or "", name), uid))


def remember(runtime: Runtime, call: str, source: object, *, deleted: bool = False) -> None:
    """Show or hide the object that another client has received; raise ReadError if it is no such object."""
    obj = as_dict(source) or {}
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        raise ReadError(
            f"{call}: {shown_with_type(source)} is no object",
            remedy="Give the object that the client returned",
        )
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    needed = {"apiVersion": api_version, "kind": kind} | {
        f"metadata.{key}": metadata.get(key)
        for key in ("name", "uid", *(() if deleted else ("resourceVersion",)))
    }
    if lacking := [path for path, value in needed.items() if not isinstance(value, str) or not value]:
        raise ReadError(
            f"{call}: the object has no {lacking[0]}",
            remedy="Give the object that the server returned, and not the one that was sent",
        )
    name, uid, namespace = metadata["name"], metadata["uid"], metadata.get("namespace") or ""
    for informer in list(runtime.informers.values()):
        resource = informer.resource
        if resource is None or (resource.api_version, resource.kind.kind) != (api_version, kind):
            continue
        if deleted:
            write: OwnWrite | None = _deletion_of(informer, (namespace, name), uid)
        else:
            # The caller's dict may change later.
            write = _write_of(informer, resource, with_room(partial(msgspec.json.encode, obj)))
        _lay(informer, write)


def _informers_of(runtime: Runtime, resource: Resource) -> Iterator[Informer]:
    """Return the informers of a resource. An object of another version of the kind has another form."""
    for informer in list(runtime.informers.values()):
        known = informer.resource
        if known is not None and (known.api_version, known.kind.plural) == (
            resource.api_version,
            resource.kind.plural,
        ):
            yield informer


def _lay(informer: Informer, write: OwnWrite | None) -> None:
    if write is not None:
        informer.laying.lay(write)


def _write_of(informer: Informer, resource: Resource, answer: bytes) -> OwnWrite | None:
    """Return the write of an object that was created or changed; None if it is not known whether the filter
    selects it, or if the operator's own function fails for it, as it will for the event of its stream.
    """
    state = informer.state
    try:
        reader = replace(Reader.of(resource, state.projection), indexes=tuple(state.indexes.values()))
        record = reader.record(answer, kindless=False)
    except (Garbled, Untransformed):
        return None
    selected = selects(state.filter, record, resource)
    if selected is None:
        return None
    return OwnWrite(
        record.key,
        record.uid,
        record.version,
        record if selected else None,
        informer.environment.clock(),
        expected=selected or _held(informer, record.key) is not None,
    )


def _deletion_of(informer: Informer, key: tuple[str, str], uid: str) -> OwnWrite:
    held = _held(informer, key)
    if held is None or held.uid != uid:
        return OwnWrite(key, uid, "", None, informer.environment.clock(), expected=False)
    return OwnWrite(key, uid, "", None, informer.environment.clock(), floor=held.version)


def _held(informer: Informer, key: tuple[str, str]) -> Record | None:
    return informer.store.peek(*key)


def _still_exists(answer: bytes) -> bool:
    """Return True if the answer to a deletion is an object that exists until others let it go."""
    try:
        metadata = msgspec.json.decode(answer, type=_Deleted).metadata
    except msgspec.DecodeError:
        return False
    return metadata.deletion_timestamp is not None and bool(
        metadata.finalizers or metadata.deletion_grace_period_seconds
    )


class _DeletedMetadata(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] | None = None


class _Deleted(msgspec.Struct):
    metadata: _DeletedMetadata = msgspec.field(default_factory=_DeletedMetadata)
