"""The writes of `cache.live`, each as the requests that it needs, and the adoption of hidden objects."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any

import msgspec

from kopf_selectcache._errors import (
    AlreadyExists,
    Conflict,
    HiddenByFilter,
    InvalidObject,
    OutcomeUnknown,
    call_of,
    require,
)
from kopf_selectcache.core.protocol.lost_answer import Verb, Write
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.selection.field_values import as_mapping
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.selecting import failures
from kopf_selectcache.selectors.selector import Branches

from ._server_reads import fetch_record, fetch_subresource
from ._write_errors import Edit
from .errors import NotFound, target_of
from .formats.given import Given, given_object, plain
from .own_writes import remember_answer
from .request import Request
from .server_writes import (
    WHOLE_ANSWERS,
    Options,
    execute,
    in_form,
    informer_of_kind,
    options_of,
    read_answer,
    request_for,
    require_subresource,
    require_unmarked,
    require_unread,
    require_whole,
    resource_for,
)

_POLICIES = {"background": "Background", "foreground": "Foreground", "orphan": "Orphan"}
_TYPES = {"merge": Verb.MERGE, "json": Verb.JSON, "strategic": Verb.STRATEGIC}


async def create(runtime: Runtime, obj: object, as_: Any, given_options: Mapping[str, Any]) -> Any:
    """Create an object, and return it as the server has it."""
    given, request, options = _read(obj, "live.create", as_, given_options, is_named=False)
    resource = await resource_for(runtime, request)
    require_unread(runtime, request, given)
    data = await execute(runtime, request, resource, Write(Verb.CREATE, given.obj, given.name), options)
    return _answer(request, resource, data, given, options)


async def replace_object(
    runtime: Runtime, obj: object, as_: Any, given_options: Mapping[str, Any], *, subresource: str
) -> Any:
    """Replace an object or its subresource, and return the object as the server has it."""
    given, request, options = _read(obj, "live.replace", as_, given_options, is_whole=not subresource)
    require_subresource(request.verb, subresource)
    if subresource not in WHOLE_ANSWERS:
        raise InvalidObject(
            f"cache.live.replace() can't write {shown(subresource)}, which is an object of another kind",
            remedy="Use cache.live.update or cache.live.patch, which take a kind",
        )
    resource = await resource_for(runtime, request)
    await require_whole(runtime, request, resource, given, subresource=subresource)
    write = Write(Verb.REPLACE, given.obj, given.name, subresource=subresource)
    data = await execute(runtime, request, resource, write, options)
    return _answer(request, resource, data, given, options)


async def apply(
    runtime: Runtime, obj: object, as_: Any, given_options: Mapping[str, Any], *, force: bool
) -> Any:
    """Apply an object on the server's side, and return it as the server has it."""
    given, request, options = _read(obj, "live.apply", as_, given_options)
    if given.metadata.get("managedFields"):
        raise InvalidObject(
            "cache.live.apply() got an object that was read, with metadata.managedFields: the operator would"
            " own all of its fields",
            remedy="Give only the name of the object and the fields that the operator owns",
        )
    resource = await resource_for(runtime, request)
    data = await execute(
        runtime, request, resource, Write(Verb.APPLY, given.obj, given.name), options, force=force
    )
    return _answer(request, resource, data, given, options)


async def patch(
    runtime: Runtime,
    request: Request,
    changes: object,
    given_options: Mapping[str, Any],
    *,
    type_: str,
    subresource: str,
    by: str = "",
) -> Any:
    """Patch an object or a subresource, and return it as the server has it."""
    options = options_of(request.verb, given_options)
    body = _changes_of(changes, type_)
    require_subresource(request.verb, subresource)
    resource = await resource_for(runtime, request)
    write = Write(_TYPES[type_], body, request.name or "", subresource=subresource)
    data = await execute(runtime, request, resource, write, options, by=by)
    return read_answer(request, resource, data, subresource=subresource, dry_run=options.dry_run)


def _changes_of(changes: object, type_: str) -> Any:
    call = "cache.live.patch()"
    require(type_ in _TYPES, InvalidObject, call, "type", type_, f"one of {', '.join(_TYPES)}")
    is_list = isinstance(changes, (list, tuple)) and all(isinstance(each, Mapping) for each in changes)
    fits = is_list if type_ == "json" else isinstance(changes, Mapping)
    wanted = "a list of operations" if type_ == "json" else "a dict with the changed part of the object"
    require(fits, InvalidObject, call, "changes", changes, wanted)
    return plain(call, changes)


async def delete(
    runtime: Runtime,
    request: Request,
    given_options: Mapping[str, Any],
    *,
    uid: str | None,
    version: str | None,
    propagation: str,
    grace_period: int | None,
) -> None:
    """Delete an object."""
    call = "cache.live.delete()"
    options = options_of(request.verb, given_options)
    for argument, value in (("uid", uid), ("version", version)):
        fits = value is None or (isinstance(value, str) and value != "")
        require(fits, InvalidObject, call, argument, value, "a text")
    wanted = f"one of {', '.join(_POLICIES)}"
    require(propagation in _POLICIES, InvalidObject, call, "propagation", propagation, wanted)
    is_count = isinstance(grace_period, int) and not isinstance(grace_period, bool) and grace_period >= 0
    fits = grace_period is None or is_count
    require(fits, InvalidObject, call, "grace_period", grace_period, "a number of seconds")
    preconditions = {"uid": uid} if uid else {}
    preconditions |= {"resourceVersion": version} if version else {}
    body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    body |= {"propagationPolicy": _POLICIES[propagation]}
    body |= {"preconditions": preconditions} if preconditions else {}
    body |= {"gracePeriodSeconds": grace_period} if grace_period is not None else {}
    resource = await resource_for(runtime, request)
    await execute(runtime, request, resource, Write(Verb.DELETE, body, request.name or ""), options)


async def update(
    runtime: Runtime,
    request: Request,
    function: Edit | None,
    given_options: Mapping[str, Any],
    *,
    subresource: str,
) -> Any:
    """Read an object, change it by the function, and replace it; again if it has changed meanwhile."""
    options = options_of(request.verb, given_options)
    wanted = "a function of an object, which changes it or returns another one"
    require(callable(function), InvalidObject, "cache.live.update()", "function", function, wanted)
    assert function is not None, "it was checked"
    require_subresource(request.verb, subresource)
    resource = await resource_for(runtime, request)
    end, failures = runtime.writer.end_of(options.timeout), 0
    unknown: OutcomeUnknown | None = None
    while True:
        with _rather(unknown):
            record: Record | None = None
            if subresource in WHOLE_ANSWERS:
                record = await fetch_record(runtime, request, resource)
                found = record.decode()
            else:
                found = await fetch_subresource(runtime, request, resource, subresource)
            changed = _changed(request, function, found)
            if changed == found:  # If an answer was lost: it does not matter who has written that.
                return found if record is None else _as_read(runtime, request, resource, record)
            if unknown is not None:
                raise unknown
        write = Write(Verb.REPLACE, changed, request.name or "", subresource=subresource)
        try:
            left = options._replace(timeout=max(runtime.writer.left(end), 0.0))
            data = await execute(runtime, request, resource, write, left)
            return read_answer(request, resource, data, subresource=subresource, dry_run=options.dry_run)
        except (Conflict, OutcomeUnknown) as error:
            if not await runtime.writer.pause(failures, end, error.retry_after):
                raise
            failures, unknown = failures + 1, error if isinstance(error, OutcomeUnknown) else None


@contextmanager
def _rather(unknown: OutcomeUnknown | None) -> Iterator[None]:
    """Raise the error of an earlier write, if there is one, in place of another error: that write may have
    been executed.
    """
    try:
        yield
    except Exception as error:
        if unknown is None or error is unknown:
            raise
        raise unknown from error


def _changed(request: Request, function: Edit, found: dict[str, Any]) -> dict[str, Any]:
    """Return the changed object, for the version that was read."""
    call, own = "cache.live.update()", copy.deepcopy(found)
    answer = function(own)
    if isawaitable(answer):
        if hasattr(answer, "close"):
            answer.close()
        raise InvalidObject(
            f"{call}: the function is async, and can't be awaited", remedy="Give a plain function"
        )
    given = given_object("live.update", own if answer is None else answer)
    require_unmarked(request, given)
    changed = given.obj
    for part in ("name", "namespace", "uid", "resourceVersion"):
        if changed["metadata"].get(part, found["metadata"].get(part)) != found["metadata"].get(part):
            raise InvalidObject(f"{call}: the function changes metadata.{part}", remedy="Leave it as it is")
    precondition = {part: found["metadata"][part] for part in ("uid", "resourceVersion")}
    return {**changed, "metadata": {**changed["metadata"], **precondition}}


async def ensure(
    runtime: Runtime, obj: object, as_: Any, given_options: Mapping[str, Any], *, adopt: bool
) -> Any:
    """Create an object, or return the existing one; with `adopt`, add missing labels and owners to it."""
    given, request, options = _read(obj, "live.ensure", as_, given_options)
    resource = await resource_for(runtime, request)
    require_unread(runtime, request, given)
    end, failures, is_there = runtime.writer.end_of(options.timeout), 0, False
    unknown: OutcomeUnknown | None = None
    while True:
        left = options._replace(timeout=max(runtime.writer.left(end), 0.0))
        with _rather(unknown):
            try:
                if is_there:
                    made = await _existing(runtime, request, resource, given, left, adopt=adopt)
                else:
                    write = Write(Verb.CREATE, given.obj, given.name)
                    data = await execute(runtime, request, resource, write, left)
                    made = read_answer(request, resource, data, dry_run=options.dry_run)
            except AlreadyExists:
                if is_there:
                    raise
                is_there = True
            except (NotFound, Conflict, OutcomeUnknown) as error:
                # It was deleted, or changed, meanwhile; but what a new object lacks does not come by itself.
                is_lacking = isinstance(error, NotFound) and not is_there
                if is_lacking or not await runtime.writer.pause(failures, end, None):
                    raise
                failures, is_there = failures + 1, False
                if isinstance(error, OutcomeUnknown):  # It does not matter who has written it.
                    unknown, is_there = error, True
            else:
                given.connect(made)
                return made


async def _existing(
    runtime: Runtime, request: Request, resource: Resource, given: Given, options: Options, *, adopt: bool
) -> Any:
    """Return an existing object; with `adopt`, add what it lacks."""
    record = await fetch_record(runtime, request, resource)
    informer = informer_of_kind(runtime, request)
    declared = informer.state.filter if informer is not None else None
    if not adopt:
        if declared is not None:
            require_selected(request, resource, declared, record, given)
        return _as_read(runtime, request, resource, record)
    changes = adoption_of(request, resource, declared, record, given)
    if changes is None:
        return _as_read(runtime, request, resource, record)
    write = Write(Verb.MERGE, changes, given.name)
    data = await execute(runtime, request, resource, write, options)
    return read_answer(request, resource, data, dry_run=options.dry_run)


def _as_read(runtime: Runtime, request: Request, resource: Resource, record: Record) -> Any:
    """Return an object that a write has read and left as it is. Reads show it from now on."""
    remember_answer(runtime, resource, record.data)
    return in_form(request, record)


def _read(
    obj: object,
    verb: str,
    as_: Any,
    given_options: Mapping[str, Any],
    *,
    is_named: bool = True,
    is_whole: bool = True,
) -> tuple[Given, Request, Options]:
    options = options_of(verb, given_options)
    given = given_object(verb, obj, is_named=is_named)
    request = request_for(verb, given, as_)
    if is_whole:
        require_unmarked(request, given)
    return given, request, options


def _answer(request: Request, resource: Resource, data: bytes, given: Given, options: Options) -> Any:
    made = read_answer(request, resource, data, dry_run=options.dry_run)
    given.connect(made)
    return made


# ---- Objects that exist and that the declared filter hides: the error that names the label, and the patch
# that adds it.


def require_selected(
    request: Request, resource: Resource, declared: Branches, record: Record, given: Given
) -> None:
    """Raise HiddenByFilter if the filter does not hold the object."""
    if failed := failures(declared, record, resource):
        adopted = _with(record, _missing_labels(declared, record, given))
        is_enough = not failures(declared, adopted, resource)
        remedy = f"Add it: {call_of('live.ensure', 'adopt=True')}" if is_enough else _relabel()
        raise _hidden(request, resource, record, failed, remedy)


def _relabel() -> str:
    patch = call_of("live.patch")
    return f"Give the object these labels\nTo change a label that has another value: {patch}"


def _with(record: Record, labels: Mapping[str, Any]) -> Record:
    return msgspec.structs.replace(record, labels={**record.labels, **labels})


def adoption_of(
    request: Request, resource: Resource, declared: Branches | None, record: Record, given: Given
) -> dict[str, Any] | None:
    """Return the merge patch that adds the labels and owners of the given object to the existing one, in this
    version; None if it has them.

    Raise AlreadyExists if another controller owns the existing object, and HiddenByFilter if the filter would
    not select it with these labels: labels with another value are not changed.
    """
    found = record.decode().get("metadata", {})
    _require_no_other_controller(request, resource, found, given)
    labels = _missing_labels(declared, record, given)
    if declared is not None and (failed := failures(declared, _with(record, labels), resource)):
        raise _hidden(request, resource, record, failed, _relabel())
    known = {each.get("uid") for each in _owners(found)}
    owners = [each for each in _owners(given.metadata) if each.get("uid") not in known]
    changes: dict[str, Any] = {"labels": labels} if labels else {}
    changes |= {"ownerReferences": [*_owners(found), *owners]} if owners else {}
    if not changes:
        return None
    return {"metadata": {**changes, "uid": record.uid, "resourceVersion": record.version}}


def _missing_labels(declared: Branches | None, record: Record, given: Given) -> dict[str, Any]:
    """Return the labels of the given object that the filter requires and the existing object lacks."""
    if declared is None:
        return {}
    wanted = as_mapping(given.metadata.get("labels"))
    keys = {each.key for branch in declared.branches for each in branch.requirements}
    return {key: wanted[key] for key in sorted(keys) if key in wanted and key not in record.labels}


def _require_no_other_controller(
    request: Request, resource: Resource, found: Mapping[str, Any], given: Given
) -> None:
    controller = next((each for each in _owners(found) if each.get("controller") is True), None)
    if controller is None or controller.get("uid") in {each.get("uid") for each in _owners(given.metadata)}:
        return
    owner = clipped(f"{controller.get('kind')} {controller.get('name')}", 300)
    what, target = (
        f"{request.subject} already exists, and {owner} controls it",
        target_of(request, "patch", resource),
    )
    raise AlreadyExists(what, remedy="Choose another name\nLet its owner delete it", target=target)


def _hidden(
    request: Request, resource: Resource, record: Record, failed: Sequence[str], remedy: str
) -> HiddenByFilter:
    lacks = tuple(dict.fromkeys(failed))
    fails = clipped(" and ".join(lacks), 500)
    what = f"{request.subject} already exists, but the filter leaves it out: it fails {fails}"
    target = target_of(request, "create", resource)._replace(name=record.name)
    return HiddenByFilter(what, remedy=remedy, lacks=lacks, target=target)


def _owners(metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    owners = metadata.get("ownerReferences")
    return [each for each in owners if isinstance(each, Mapping)] if isinstance(owners, list) else []
