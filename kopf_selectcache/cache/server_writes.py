"""Executes the writes of `cache.live`: checks them, sends them, and makes the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from kopf_selectcache._errors import InvalidObject, NotDeclared, require
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.writer import Unsettled, WriteCall
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.json_text import decoded, with_room
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.lost_answer import Verb, Write
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.selection.kinds import Resource, find, parse_key
from kopf_selectcache.core.selection.values import is_dns_label
from kopf_selectcache.core.store.projection import ALL, Projection
from kopf_selectcache.core.store.record import Record, UnreadableRecord
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.kind_keys import AnyKey, key_of
from kopf_selectcache.selectors.object_key import Key, split_hint
from kopf_selectcache.selectors.signatures import miscalled
from kopf_selectcache.selectors.text import is_name

from ._checks import require_place_of_key, require_stored
from ._server_reads import resource_of
from ._write_errors import not_writable, refused_write, unknown_outcome
from .dropped_fields import DroppedFields, writer_of
from .errors import Unreadable, request_error
from .formats.given import Given
from .formats.partial import partial_of
from .misuse import naming
from .noting import noting
from .own_writes import read_written, remember_answer, remember_deletion, shown_uids
from .request import Request, requested_key, split_name, with_form, written_call

WRITE_SECONDS = 30.0
"""Seconds for a write with all its tries."""

MANAGER = "kopf-selectcache"
"""The field manager of writes, unless another one is given."""

RIGHTS: Mapping[Verb, str] = {
    Verb.CREATE: "create",
    Verb.REPLACE: "update",
    Verb.MERGE: "patch",
    Verb.STRATEGIC: "patch",
    Verb.JSON: "patch",
    Verb.APPLY: "patch",
    Verb.DELETE: "delete",
}
"""The verb of a Role that each kind of write needs."""

_MANAGED = ("metadata", "managedFields")
WHOLE_ANSWERS = ("", "approval", "ephemeralcontainers", "finalize", "resize", "status")
"""Subresources that are written and answered as the whole object."""


class Options(NamedTuple):
    """The options of every write."""

    dry_run: bool = False
    field_manager: str = MANAGER
    timeout: float = WRITE_SECONDS


def options_of(verb: str, given: Mapping[str, Any]) -> Options:
    """Return the options of a write; raise InvalidObject for values that they cannot have."""
    options = Options(**given)
    call = f"cache.{verb}()"
    require(
        isinstance(options.dry_run, bool), InvalidObject, call, "dry_run", options.dry_run, "True or False"
    )
    manager = options.field_manager
    fits = isinstance(manager, str) and 0 < len(manager) <= 128 and manager.isprintable()
    require(fits, InvalidObject, call, "field_manager", manager, "a name of at most 128 characters")
    timeout = options.timeout
    fits = isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout > 0
    require(fits, InvalidObject, call, "timeout", timeout, "a number of seconds, 0 or more")
    return options


def require_subresource(verb: str, subresource: object) -> None:
    """Raise InvalidObject for a subresource that cannot be one."""
    fits = isinstance(subresource, str) and (subresource == "" or subresource.isalpha())
    require(fits, InvalidObject, f"cache.{verb}()", "subresource", subresource, "one such as 'status'")


# ---- The request of a write.


def request_for(verb: str, given: Given, as_: Any) -> Request:
    """Return the request of a write that is given an object."""
    request = Request(
        verb=verb, kind=given.key, name=given.name or None, namespace=given.namespace, obj=str(given)
    )
    return with_form(request, as_, given.client_class)


def request_of(verb: str, kind: AnyKey, name: Any, namespace: Any, as_: Any) -> Request:
    """Return the request of a write that names an object; raise InvalidObject for names that are no text."""
    if named := naming(verb, kind):
        raise miscalled(f"cache.{verb}() got an object instead of a kind and a name", remedy=named)
    by_key = isinstance(name, Key)
    if not isinstance(name, str):
        name, namespace = split_name(verb, kind, name, namespace)
    for argument, value in (("name", name), ("namespace", namespace)):
        fits = isinstance(value, str) or (argument == "namespace" and value is None)
        require(fits, InvalidObject, f"cache.{verb}()", argument, value, "a text")
    request = Request(verb=verb, kind=kind, name=name, namespace=namespace, by_key=by_key)
    return with_form(request, as_, kind if isinstance(kind, type) else None)


async def resource_for(runtime: Runtime, request: Request) -> Resource:
    """Return the resource of a write. Objects and versioned names of built-in kinds need no request.

    Raise InvalidObject if the name, or the namespace, is missing or cannot be one.
    """
    key = requested_key(request.verb, request.kind)
    known, (_, version, _) = find(key), parse_key(key)
    if known is not None:
        _require_place(request, known.plural, is_namespaced=known.namespaced)
    _require_names(request)
    resource = (
        Resource(known, version)
        if known is not None and version is not None
        else await resource_of(runtime, request)
    )
    _require_place(request, str(resource), is_namespaced=resource.kind.namespaced)
    require_stored(request, resource, ALL)
    return resource


def _require_place(request: Request, plural: str, *, is_namespaced: bool | None) -> None:
    require_place_of_key(request, plural, is_namespaced=is_namespaced)
    if is_namespaced is True and not request.namespace:
        what, way = f"{plural} need a namespace", "Give it a namespace"
        if request.obj:
            raise not_writable(request, what, way)
        call = written_call(request.verb, request.kind, request.name)
        raise InvalidObject(what, remedy=split_hint(request.name or "") or f"Write: {call}")
    if is_namespaced is False and request.namespace:
        raise not_writable(
            request,
            f"{plural} are cluster-scoped, and there is the namespace {shown(request.namespace)}",
            "Leave the namespace out",
        )


def _require_names(request: Request) -> None:
    for part, given, fits in (
        ("name", request.name, request.name is None or is_name(request.name)),
        ("namespace", request.namespace, request.namespace is None or is_dns_label(request.namespace)),
    ):
        if not fits:
            raise not_writable(
                request,
                f"no object can have the {part} {clipped(repr(given), 200)}",
                split_hint(given or "") or "Correct it",
            )


# ---- Partly kept kinds.


def informer_of_kind(runtime: Runtime, request: Request) -> Informer | None:
    """Return the informer of the kind; None if the kind is not declared. Raise NotSynced if that is not known
    yet.
    """
    with suppress(NotDeclared):
        return runtime.informer(key_of(request.kind))
    return None


def require_unmarked(request: Request, given: Given) -> None:
    """Raise InvalidObject for an object that says that only a part of it is stored."""
    if partial := partial_of(given.source):
        raise not_writable(
            request,
            f"only a part of the object is stored, {clipped(partial, 500)}, and the written one would lack"
            " the rest",
            "Read whole objects with cache.live.get(...), or change parts with cache.live.patch(...)",
        )


def _projection_of(runtime: Runtime, request: Request) -> Projection:
    """Return the part of each object that the cache of a kind keeps."""
    informer = informer_of_kind(runtime, request)
    return ALL if informer is None else informer.state.projection


def require_unread(runtime: Runtime, request: Request, given: Given) -> None:
    """Raise InvalidObject for an object that was read, if only a part of each object is kept: a new object
    would lack the rest.
    """
    projection = _projection_of(runtime, request)
    if projection.partial and (given.uid or given.version):
        raise not_writable(
            request,
            f"only a part of each object is kept, {clipped(projection, 500)}, and this one was read:"
            " it has a metadata.uid or metadata.resourceVersion",
            "Read whole objects with cache.live.get(...), and remove both",
        )


async def require_whole(
    runtime: Runtime, request: Request, resource: Resource, given: Given, *, subresource: str = ""
) -> None:
    """Raise InvalidObject for an object that lacks parts which the cache does not store and the server has.

    A dict does not show if it came from the cache. So if only a part of each object is stored, the object of
    the server is read, and cut as the cache does. The given object must not have any changed part as it is
    after the cut.
    """
    projection = _projection_of(runtime, request)
    if not projection.partial:
        return
    if not given.version:
        raise not_writable(
            request,
            f"only a part of each object is kept, {clipped(projection, 500)}, and the object has no"
            " metadata.resourceVersion",
            "Read it with cache.live.get(...), and change that",
        )
    whole, part = await _read_both(runtime, request, resource, projection)
    if whole is None or whole.get("metadata", {}).get("resourceVersion") != given.version:
        return  # The server refuses the write: the object is in another version.
    for path in _cut(whole, part):
        if subresource == "status" and path[0] != "status":
            continue  # The server replaces nothing else.
        if path != _MANAGED and _at(given.obj, path) == _at(part, path):
            raise not_writable(
                request,
                f"{'.'.join(path)} is as the cache keeps it, {clipped(projection, 500)}, and the"
                " write would remove the rest",
                "Read whole objects with cache.live.get(...), or change parts with cache.live.patch(...)",
            )


async def _read_both(
    runtime: Runtime, request: Request, resource: Resource, projection: Projection
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the server's object, and the part of it that is kept; None if it is absent."""
    try:
        data = await runtime.fetches.get(resource.path(request.namespace, request.name), {})
        part = Reader.of(resource, projection).record(data, kindless=False)
        return decoded(data), {} if isinstance(part, UnreadableRecord) else part.decode()
    except Refused as error:
        if error.refusal.code == 404:
            return None, {}
        raise refused_write(request, "get", resource, error.refusal) from None
    except (Unreachable, Garbled) as error:
        raise request_error(request, error) from error


_MISSING: Any = object()


def _cut(whole: Any, part: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths that differ, each as short as it can be."""
    for key, value in whole.items():
        other = part.get(key, _MISSING)
        if isinstance(value, dict) and isinstance(other, dict):
            yield from _cut(value, other, (*path, key))
        elif value != other:
            yield (*path, key)


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        obj = obj.get(key, _MISSING) if isinstance(obj, Mapping) else _MISSING
    return obj


# ---- The write.


async def execute(
    runtime: Runtime,
    request: Request,
    resource: Resource,
    write: Write,
    options: Options,
    *,
    force: bool = False,
    by: str = "",
) -> bytes:
    """Send a write; return the server's answer. Raise ServerError, or NotFound, Missing or Stalled. `by` is
    who writes, for a warning; the call of a handler by default.
    """
    write = _with_options(write, options)
    query = {"dryRun": "All"} if options.dry_run and write.verb is not Verb.DELETE else {}
    query |= {"fieldManager": options.field_manager} if write.verb is not Verb.DELETE else {}
    query |= {"force": "true"} if force else {}
    object_path = resource.path(request.namespace, request.name) if request.name else ""
    path = resource.path(request.namespace) if write.verb is Verb.CREATE else object_path
    path = f"{path}/{write.subresource}" if write.subresource else path
    if write.verb is Verb.REPLACE and write.subresource not in WHOLE_ANSWERS:
        object_path = path  # It is compared with the sent object.
    dropped, by = runtime.extensions.get(DroppedFields), by or writer_of(request.verb)
    call = WriteCall(write, path, query, object_path, lambda header: dropped.warn(header, resource, by))
    right = RIGHTS[write.verb]
    before = frozenset[str]()
    if write.verb is Verb.DELETE:
        before = shown_uids(runtime, resource, request.namespace, write.name)
    note = noting(runtime, resource, request.namespace, write)
    try:
        data = await runtime.writer.run(call, timeout=options.timeout)
    except Refused as error:
        raise refused_write(request, right, resource, error.refusal) from None
    except Unsettled as error:
        raise unknown_outcome(request, right, resource, error) from None
    except Unreachable as error:
        raise request_error(request, error) from error
    await dropped.warn_of_ignored(runtime.fetches, resource, write, data, by)
    if not options.dry_run:
        note(data)
        _remember(runtime, request, resource, write, data, before)
        is_whole = write.subresource in WHOLE_ANSWERS
        await read_written(runtime, resource, request.namespace, data, options.timeout, is_whole=is_whole)
    return data


def _with_options(write: Write, options: Options) -> Write:
    body = write.body
    if write.verb is Verb.DELETE and options.dry_run:
        body = {**body, "dryRun": ["All"]}
    return dataclasses.replace(write, body=body, manager=options.field_manager, dry_run=options.dry_run)


def _remember(
    runtime: Runtime,
    request: Request,
    resource: Resource,
    write: Write,
    data: bytes,
    before: frozenset[str],
) -> None:
    if write.verb is Verb.DELETE:
        # Where the answer was lost, all that were shown before are gone: the server has none of the name.
        if uid := write.uid or _deleted_uid(data) or ("" if data else min(before, default="")):
            remember_deletion(runtime, resource, request.namespace, write.name, uid, data, before=before)
    elif write.subresource in WHOLE_ANSWERS:
        remember_answer(runtime, resource, data)


def _deleted_uid(data: bytes) -> str:
    """Return the uid in the answer to a deletion, which is a Status or the object; empty if there is none."""
    try:
        answer = decoded(data) if data else {}
        part = answer.get("details") if answer.get("kind") == "Status" else answer.get("metadata")
        uid = part.get("uid") if isinstance(part, dict) else None
    except (msgspec.DecodeError, UnicodeError, RecursionError, AttributeError):
        uid = None
    return uid if isinstance(uid, str) else ""


def read_answer(
    request: Request, resource: Resource, data: bytes, *, subresource: str = "", dry_run: bool = False
) -> Any:
    """Return the object of an answer in its form."""
    if subresource not in WHOLE_ANSWERS:
        return decoded(data)
    try:
        # An object that a dry run creates has no version.
        record = _unstored(data) if dry_run else Reader.of(resource, ALL).record(data, kindless=False)
    except Garbled as error:
        raise request_error(request, error) from error
    if isinstance(record, UnreadableRecord):
        raise Unreadable(request, [record])
    return in_form(request, record)


def _unstored(data: bytes) -> Record:
    """Return an object that the server has not stored as a record."""
    try:
        obj = decoded(data)
        metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError, TypeError, AttributeError):
        raise Garbled("the answer to a dry run isn't an object") from None
    stored = with_room(partial(msgspec.json.encode, {**obj, "metadata": metadata}))
    return Record(
        str(metadata.get("namespace") or ""), str(metadata.get("name") or ""), "", "", {}, (), stored
    )


def in_form(request: Request, record: Record) -> Any:
    """Return an object in the form of the request."""
    return record.decode() if request.form is None else request.form.make(record, None)
