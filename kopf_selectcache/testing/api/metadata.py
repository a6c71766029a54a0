"""The metadata of objects: read from bodies, checked, and written in the order of the server.

The spec and the status of a body are not read here. `managedFields` are taken as they are: managed_fields.py
reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from kopf_selectcache.core.selection.values import (
    is_dns_label,
    is_dns_subdomain,
    is_label_key,
    is_label_value,
    is_object_name,
)

from . import types
from .kinds import Served
from .status import Problem

# The stored fields, in the server's order: `with_version` relies on the version before everything that users
# write
# freely.
_ORDER = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_MAPS = ("labels", "annotations")
_LISTS = ("ownerReferences", "finalizers")
_STRINGS = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
)
_NUMBERS = ("generation", "deletionGracePeriodSeconds")
_OWNER: Mapping[str, tuple[type, str]] = {
    "apiVersion": (str, "string"),
    "kind": (str, "string"),
    "name": (str, "string"),
    "uid": (str, "types.UID"),
    "controller": (bool, "bool"),
    "blockOwnerDeletion": (bool, "bool"),
}
_STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_FOR_COLLECTOR = frozenset({"orphan", "foregroundDeletion"})
_PATH_NAMES = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})
_GENERATED = 58  # Go's limit of 63 without the five letters of the suffix.

StatusCause: TypeAlias = Mapping[str, str]

LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must"
    " start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used"
    " for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
KEY_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
    " alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must"
    " start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and"
    " end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def cause(reason: str, message: str, field: str) -> StatusCause:
    return {"reason": reason, "message": message, "field": field}


def invalid_value(field: str, value: object, why: str) -> StatusCause:
    told = f'"{value}"' if isinstance(value, str) else str(value)
    return cause("FieldValueInvalid", f"Invalid value: {told}: {why}", field)


def unsupported(field: str, value: object, *supported: object) -> StatusCause:
    told, *listed = (msgspec.json.encode(each).decode() for each in (value, *supported))
    message = f"Unsupported value: {told}: supported values: {', '.join(listed)}"
    return cause("FieldValueNotSupported", message, field)


def forbidden(field: str, why: str) -> StatusCause:
    return cause("FieldValueForbidden", f"Forbidden: {why}", field)


# ---- Reading and writing


def read(served: Served, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that the server stores of a body, without empty fields; raise 400 if a type is
    wrong.
    """
    sent = body.get("metadata")
    if sent is None:
        return {}
    if not isinstance(sent, Mapping):
        raise _unreadable(served, sent, "metadata", "v1.ObjectMeta")
    kept: dict[str, Any] = {}
    for key in _ORDER:
        value = sent.get(key)
        if key == "managedFields":
            if isinstance(value, list):
                kept[key] = value
            continue
        if not value and value != 0:
            continue  # Absent, null, or empty: the server stores none of them.
        if key in _MAPS:
            if not isinstance(value, Mapping):
                raise _unreadable(served, value, f"ObjectMeta.metadata.{key}", "map[string]string")
            for item in value.values():
                if not isinstance(item, str):
                    if item is None:
                        value = {name: "" if text is None else text for name, text in value.items()}
                        continue
                    raise _unreadable(served, item, f"ObjectMeta.metadata.{key}", "string")
            value = dict(value)
        elif key in _LISTS:
            value = _list(served, key, value)
        elif key in _STRINGS and not isinstance(value, str):
            raise _unreadable(served, value, f"ObjectMeta.metadata.{key}", "string")
        elif key in _NUMBERS and (not isinstance(value, int) or isinstance(value, bool)):
            raise _unreadable(served, value, f"ObjectMeta.metadata.{key}", "int64")
        if value != 0 or key != "generation":
            kept[key] = value
    return kept


def _list(served: Served, key: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise _unreadable(
            served,
            value,
            f"ObjectMeta.metadata.{key}",
            "[]string" if key == "finalizers" else "[]v1.OwnerReference",
        )
    if key == "finalizers":
        for item in value:
            if not isinstance(item, str):
                raise _unreadable(served, item, f"ObjectMeta.metadata.{key}", "string")
        return value
    owners: list[dict[str, Any]] = []
    for item in value:
        if not isinstance(item, Mapping | None):
            raise _unreadable(served, item, f"ObjectMeta.metadata.{key}", "v1.OwnerReference")
        owner: dict[str, Any] = {"apiVersion": "", "kind": "", "name": "", "uid": ""}
        for part, (type_of, word) in _OWNER.items():
            if (found := (item or {}).get(part)) is not None:
                if not isinstance(found, type_of):
                    raise _unreadable(served, found, f"OwnerReference.metadata.{key}.{part}", word)
                owner[part] = found
        if owner not in owners:  # The server stores equal references once.
            owners.append(owner)
    return owners


def _unreadable(served: Served, value: object, where: str, wanted: str) -> Problem:
    return types.unhandled(
        served,
        f"json: cannot unmarshal {types.json_type(value)} into Go struct field {where} of type {wanted}",
    )


def in_order(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: metadata[key] for key in _ORDER if key in metadata}


def with_version(data: bytes, version: int) -> bytes:
    """Return the bytes of a stored object as of another version. No object is decoded."""
    before, mark, rest = data.partition(b'"resourceVersion":"')
    _, _, after = rest.partition(b'"')
    return b'%b%b%d"%b' % (before, mark, version, after)


# ---- Checking


def problems_of(served: Served, metadata: Mapping[str, Any]) -> list[StatusCause]:
    """Return the errors of the metadata of an object before it is stored."""
    found: list[StatusCause] = []
    name = metadata.get("name", "")
    if not name:
        found.append(
            cause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name")
        )
    else:
        found += (invalid_value("metadata.name", name, why) for why in _wrong_name(served, name))
    for key, value in metadata.get("labels", {}).items():
        if not is_label_key(key):
            found.append(invalid_value("metadata.labels", key, KEY_NAME))
        if not is_label_value(value):
            found.append(
                invalid_value(
                    "metadata.labels",
                    value,
                    "must be no more than 63 bytes" if len(value) > 63 else LABEL_VALUE,
                )
            )
    for key in metadata.get("annotations", {}):
        if not is_label_key(key.lower()):
            found.append(invalid_value("metadata.annotations", key, KEY_NAME))
    owners = metadata.get("ownerReferences", ())
    for owner in owners:
        found += _wrong_owner(owner)
    first, *others = [f"{owner['kind']}/{owner['name']}" for owner in owners if owner.get("controller")] or [
        ""
    ]
    for other in others:
        why = (
            "Only one reference can have Controller set to true. "
            f'Found "true" in references for {first} and {other}'
        )
        found.append(_not_owners(owners, why))
    for index, finalizer in enumerate(metadata.get("finalizers", ())):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(invalid_value(f"metadata.finalizers[{index}]", finalizer, why))
    return found


def _wrong_name(served: Served, name: str) -> Iterator[str]:
    if served.plural in _PATH_NAMES:
        if not is_object_name(name):
            yield "may not be '.', '..', or contain '/' or '%'"
    elif served.plural in {"namespaces", "services"} and not served.group:
        if "." in name:
            yield "must not contain dots"
        elif not is_dns_label(name):
            yield _LABEL
    elif not is_dns_subdomain(name):
        yield "must be no more than 253 characters" if len(name) > 253 else SUBDOMAIN


def _wrong_owner(owner: Mapping[str, Any]) -> Iterator[StatusCause]:
    group, _, version = owner["apiVersion"].rpartition("/")
    if not version or "/" in group:
        yield invalid_value(
            "metadata.ownerReferences.apiVersion", owner["apiVersion"], "version must not be empty"
        )
    for key in ("kind", "name", "uid"):
        if not owner[key]:
            yield invalid_value(f"metadata.ownerReferences.{key}", "", "must not be empty")
    if (owner["apiVersion"], owner["kind"]) == ("v1", "Event"):
        yield _not_owners(owner, "/v1, Kind=Event is disallowed from being an owner")


def _not_owners(value: object, why: str) -> StatusCause:
    told = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return cause("FieldValueInvalid", f"Invalid value: {told}: {why}", "metadata.ownerReferences")


def problems_of_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[StatusCause]:
    """Return the changes of the metadata that are not allowed."""
    found = [
        invalid_value(f"metadata.{key}", new[key], "field is immutable")
        for key in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
        if new.get(key) != old.get(key)
    ]
    added = [item for item in new.get("finalizers", ()) if item not in old.get("finalizers", ())]
    if added and "deletionTimestamp" in old:
        listed = ", ".join(f'"{item}"' for item in sorted(added))
        found.append(
            forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new finalizers"
                f" []string{{{listed}}}",
            )
        )
    return found


def generated(prefix: str, suffix: str) -> str:
    return prefix[:_GENERATED] + suffix


def finalizers_of_deletion(finalizers: Sequence[str], policy: str, *, default: str = "") -> list[str]:
    """Return the finalizers of an object that is deleted with this policy, for the garbage collector.

    Without a policy, its own finalizers decide, and otherwise the default of its kind.
    """
    if not policy:
        policy = "" if _FOR_COLLECTOR & {*finalizers} else default
        if not policy:
            return list(finalizers)
    own = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}.get(policy)
    left = [item for item in finalizers if item == own or item not in _FOR_COLLECTOR]
    return left if own is None or own in left else [*left, own]
