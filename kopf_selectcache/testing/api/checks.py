"""The checks of a write by its request and by the stored object; each raises the server's refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from . import events, metadata, options, strategies
from .history import ObjectKey, Stored
from .kinds import Served
from .status import CHANGED, Problem, already_exists, bad_request, conflict, invalid

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def require_kind(served: Served, kind: str, api_version: str, body: Mapping[str, Any]) -> None:
    if served.custom:
        name = strategies.part(body, "metadata").get("name", "")
        if not kind:
            raise bad_request(
                f"the object provided is unrecognized (must be of type {served.kind}): Object 'Kind' is"
                " missing"
            )
        if api_version != served.api_version:
            raise bad_request(
                f"the API version in the data ({api_version}) does not match the expected API version"
                f" ({served.api_version})"
            )
        if kind != served.kind:
            other = metadata.invalid_value("kind", kind, f"must be {served.kind}")
            raise invalid(kind, name, [other], group=served.group)
    elif kind not in ("", served.kind):
        version = api_version.rpartition("/")[2] or served.version
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {served.kind}: '
            f"converting ({version}.{kind}) to"
            f" ({served.group.partition('.')[0] or 'core'}.{served.kind}): unknown conversion"
        )
    elif api_version not in ("", served.api_version) and kind:
        version = api_version.rpartition("/")[2]
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {served.kind}: no kind "{kind}" is'
            f' registered for version "{api_version}" in scheme "pkg/runtime/scheme.go:111"'
        )


def require_version(served: Served, old: Stored, version: str) -> None:
    if version == "0":
        return
    if _number(version) != old.version:
        raise conflict(served.plural, old.key[1], CHANGED, group=served.group)


def _number(version: str) -> int:
    try:
        return options.unsigned(version)
    except ValueError as error:
        raise Problem(500, "", str(error)) from None


def check(
    served: Served, found: list[metadata.StatusCause], name: str, more: list[metadata.StatusCause]
) -> None:
    if found or more:
        group = (
            "" if served.table == events.TABLE else served.group
        )  # Events of both groups are reported as those of the core.
        raise invalid(served.kind, name, [*found, *more], group=group)


def forbidden(served: Served, name: str, why: str, causes: list[metadata.StatusCause]) -> Problem:
    details: dict[str, Any] = {
        "name": name,
        **({"group": served.group} if served.group else {}),
        "kind": served.plural,
    }
    if causes:
        details["causes"] = [dict(cause) for cause in causes]
    return Problem(403, "Forbidden", f'{served.qualified} "{name}" is forbidden: {why}', details=details)


def check_name(said: Mapping[str, Any], name: str) -> None:
    if "name" not in said:
        raise bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if said["name"] != name:
        raise bad_request(
            f"the name of the object ({said['name']}) does not match the name on the URL ({name})"
        )


def fill_namespace(served: Served, said: dict[str, Any], namespace: str) -> None:
    if not served.namespaced:
        said.pop("namespace", None)
    elif said.setdefault("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def taken(served: Served, there: Stored) -> Problem:
    problem = already_exists(served.plural, there.key[1], group=served.group)
    if "deletionTimestamp" in _decode(there.data)["metadata"]:
        return Problem(
            409, problem.reason, f"object is being deleted: {problem.message}", details=problem.details
        )
    return problem


def require_no_uid(served: Served, key: ObjectKey, said: Mapping[str, Any]) -> None:
    """Refuse to replace an absent object by one that names its uid; a wrong version is an error as ever."""
    if "uid" in said:
        raise other_uid(served, key, said["uid"], "")
    _number(said.get("resourceVersion", "0"))


def other_uid(served: Served, key: ObjectKey, given: str, there: str) -> Problem:
    path = "/".join(filter(None, ("/registry", served.group if served.custom else "", served.plural, *key)))
    why = (
        f"StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {given}, UID in object meta: {there}"
    )
    return conflict(served.plural, key[1], why, group=served.group)
