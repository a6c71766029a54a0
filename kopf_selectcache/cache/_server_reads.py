"""Reads that ask the server where the cache cannot answer, such as `fetch`, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from kopf_selectcache._errors import NotDeclared, NotKept, NotSynced, Stale, StateError
from kopf_selectcache.client.fetcher import metadata_of
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import JSON, METADATA, accept_of
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.json_text import decoded
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.selection.grammar import Sent
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.projection import ALL, Projection
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.audit import Audit
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.kind_keys import key_of
from kopf_selectcache.settings.planner import questions

from . import snapshots
from ._checks import require_names_of, require_namespaces, require_place, require_stored
from .errors import NotFound, OutsideFilter, Unmatchable, Unreadable, answering, require_readable
from .formats.formats import RAISE
from .formats.partial import object_of
from .matcher import Match, paths_of
from .request import Request, requested_key
from .snapshots import Access, Snapshot, form_objects, informer_of

_T = TypeVar("_T")


async def fetch_object(runtime: Runtime, request: Request) -> Any:
    """Return one object from the server, in its form."""
    resource = await resource_of(runtime, request)
    projection = _projection_of(runtime, request)
    require_place(request, resource)
    require_names_of(request)
    require_stored(request, resource, projection)
    read = partial(Reader.of(resource, projection).record, kindless=False)
    record = await _ask(runtime, request, resource, accept_of(projection), read)
    require_readable(request, [record])
    return object_of(record) if request.form is None else request.form.make(record, None)


async def fetch_record(runtime: Runtime, request: Request, resource: Resource) -> Record:
    """Return one whole object from the server as a record."""
    read = partial(Reader.of(resource, ALL).record, kindless=False)
    record = await _ask(runtime, request, resource, JSON, read)
    require_readable(request, [record])
    return record


async def fetch_subresource(
    runtime: Runtime, request: Request, resource: Resource, subresource: str
) -> dict[str, Any]:
    """Return a subresource that is no whole object, such as a Scale."""
    return await _get(runtime, request, resource, JSON, _decode, f"/{subresource}")


def _decode(data: bytes) -> dict[str, Any]:
    found: object = None
    with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
        found = decoded(data)
    if not isinstance(found, dict):
        raise Garbled("the answer isn't an object")
    return found


async def fetch_uid(runtime: Runtime, request: Request) -> str | None:
    """Return the uid of the object of this name, from its metadata alone; None if there is none."""
    resource = await resource_of(runtime, request)
    require_place(request, resource)
    require_names_of(request)
    read = partial(metadata_of, resource)
    with suppress(NotFound):
        return (await _ask(runtime, request, resource, METADATA, read)).uid
    return None


async def fetch_objects(runtime: Runtime, request: Request) -> Sequence[Any]:
    """Return several objects from the server, in their form."""
    resource = await resource_of(runtime, request)
    projection = _projection_of(runtime, request)
    require_namespaces(request, resource)
    require_stored(request, resource, projection)
    records: list[Record] = []
    wanted = request.region()
    enough = request.limit if request.where is None and request.sort_by is None else None
    with answering(request, "list", resource):
        # Only labels are compared: a field that is read wrongly must not make an answer an error.
        reader = Reader.of(resource, projection, sent=Sent(tuple(wanted.requirements)))
        for path, query in questions(resource, wanted):
            more = None if enough is None else enough - len(records)
            if more is not None and more <= 0:
                break
            found = await runtime.fetches.pages(
                path,
                query,
                reader,
                accept=accept_of(projection, is_list=True),
                page_limit=runtime.settings.page_limit,
                patience=runtime.settings.sync_timeout,
                enough=more,
            )
            records += [_require_requested(record, wanted.namespaces, wanted.names) for record in found]
    require_readable(request, records)
    return form_objects(request, Match(where=paths_of(request.where)), records)


async def resource_of(runtime: Runtime, request: Request) -> Resource:
    """Return the requested resource, declared or not; ask the server if that is not known."""
    with answering(request, "get", None):
        key = requested_key(request.verb, request.kind)
        with suppress(NotDeclared, NotSynced):
            if (declared := runtime.informer(key).state.resource) is not None:
                return declared
        return await runtime.resolve(key)


def _projection_of(runtime: Runtime, request: Request) -> Projection:
    """Return the projection of the kind, so that answers look as cached ones do, or that of whole objects."""
    if request.whole or request.verb.startswith("live."):
        return ALL
    with suppress(NotDeclared, NotSynced):
        return runtime.informer(key_of(request.kind)).state.projection
    return ALL


async def _ask(
    runtime: Runtime, request: Request, resource: Resource, accept: str, read: Callable[[bytes], Record]
) -> Record:
    namespaces = ("",) if request.namespace is None else (request.namespace,)
    return await _get(
        runtime,
        request,
        resource,
        accept,
        lambda answer: _require_requested(read(answer), namespaces, (request.name or "",)),
    )


async def _get(
    runtime: Runtime,
    request: Request,
    resource: Resource,
    accept: str,
    read: Callable[[bytes], _T],
    suffix: str = "",
) -> _T:
    """Return the answer to a GET of the requested object, or of its subresource."""
    path = resource.path(request.namespace, request.name) + suffix
    with answering(request, "get", resource):
        try:
            answer = await runtime.fetches.get(path, {}, accept=accept)
        except Refused as error:
            # If the kind itself is not served, a server answers 404 without that reason.
            if (error.refusal.code, error.refusal.reason) == (404, "NotFound"):
                raise NotFound(request, "") from None
            raise
        return read(answer)


def _require_requested(
    record: Record, namespaces: Collection[str] | None, names: Collection[str] | None
) -> Record:
    """Return the object if its name and namespace were requested; else raise Garbled."""
    if (namespaces is None or record.namespace in namespaces) and (names is None or record.name in names):
        return record
    raise Garbled(f"the answer is another object, {'/'.join(part[:253] for part in record.key if part)!r}")


async def audit(informer: Informer, request: Request, snapshot: Snapshot) -> Audit:
    """Compare the names and versions of all held objects with those of the server."""
    with answering(request, "list", snapshot.resource):
        return await informer.auditor.audit()


# ---- Reads that ask the server where the cache cannot answer: `fetch`, `fetch_list` and `is_deleted`.

_NOT_HERE = (OutsideFilter, NotDeclared, NotSynced, Stale, StateError, Unmatchable)
"""Errors of reads that the server may be able to answer."""


async def fetch(access: Access, request: Request) -> Any:
    """Return one object in its form, or the default if it is absent."""
    await access.wait(request)
    try:
        with suppress(*_NOT_HERE, NotKept, Unreadable):
            return access.read(request, snapshots.get_object)
        return await fetch_object(access.runtime, request)
    except NotFound:
        if request.default is RAISE:
            raise
        return request.default


async def fetch_list(access: Access, request: Request) -> Any:
    """Return all requested objects in their form."""
    await access.wait(request)
    with suppress(*_NOT_HERE, NotKept):
        return access.read(request, snapshots.list_objects)
    return await fetch_objects(access.runtime, request)


async def is_deleted(access: Access, departed: str | None, request: Request) -> bool:
    """Return True if an object does not exist. `departed` may be gone although it is held."""
    uid = request.uid
    await access.wait(request)
    held = ""
    try:
        held = access.read(request, snapshots.get_record).uid
    except OutsideFilter as error:
        held = error.uid  # Empty if it is not known.
    except NotFound:
        if uid and request.at_least is not None and request.at_least.uid == uid:
            return True  # It existed in that version, and the cache is as new: it came and went.
    except _NOT_HERE:
        pass
    if held:
        informer = informer_of(access.runtime, request)
        if (
            uid in (None, held)
            and held != departed
            and not informer.state.union.is_unconfirmed((request.namespace or "", request.name or ""))
        ):
            return False
    # The server alone knows of an object that is absent here, and that the reader may know from elsewhere.
    found = await fetch_uid(access.runtime, request)
    return found is None or uid not in (None, found)
