"""The managers of an object's fields, `metadata.managedFields`: read, changed by a write, and written.

Fields are tracked of objects that were applied, or created by a request with a `fieldManager`. A change of
another object costs nothing more than before; at its first apply, all its fields belong to
`before-first-apply`. Servers do the same with objects of which they have no `managedFields`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from . import merging
from .kinds import Served
from .merge_types import Type
from .merging import Fields
from .metadata import StatusCause, cause

APPLY, UPDATE = "Apply", "Update"
BEFORE_FIRST_APPLY = "before-first-apply"
LONGEST = 128
"""The limit of bytes of a manager's name."""
_OLD = "ancient-changes"
_MOST_UPDATERS = 10
_STRIPPED: Fields = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        "f:name": {},
        "f:namespace": {},
        "f:creationTimestamp": {},
        "f:selfLink": {},
        "f:uid": {},
        "f:clusterName": {},
        "f:generation": {},
        "f:managedFields": {},
        "f:resourceVersion": {},
    },
}
_STATUS: Fields = {"f:status": {}}
_SPEC: Fields = {"f:spec": {}}
# What else than the spec is not written by the subresource of the status.
_NOT_OF_STATUS: Mapping[str, Fields] = {
    "pods": {"f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}}},
    "deployments.apps": {"f:metadata": {"f:labels": {}}},
}
# Of built-in kinds, these are present in every object: nobody creates them.
_PRESENT: Mapping[str, Any] = {"metadata": {}, "spec": {}, "status": {}}
_PRESENT_TEMPLATE: Mapping[str, Any] = {"metadata": {}, "spec": {}}


@dataclass(frozen=True, slots=True)
class Manager:
    """The identity of an entry. One manager has an entry for each operation and subresource."""

    operation: str
    name: str
    api_version: str
    """Empty for `Apply`, where it does not distinguish entries."""
    subresource: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The fields of one manager."""

    api_version: str
    fields: Fields
    time: str = ""


Managed: TypeAlias = dict[Manager, Entry]


@dataclass(frozen=True, slots=True)
class Writer:
    """The manager who makes a request."""

    named: str = ""
    """The manager that the request names: then the fields of an object that it creates are tracked."""
    user_agent: str = ""
    subresource: str = ""

    @property
    def name(self) -> str:
        return self.named or agent(self.user_agent)

    def manager(self, served: Served, operation: str) -> Manager:
        version = "" if operation == APPLY else served.api_version
        return Manager(operation, self.name, version, self.subresource)


def agent(header: str) -> str:
    """Return the manager of a request that names none: the first part of its `User-Agent`."""
    name = ""
    for letter in header.partition("/")[0]:
        if len((name + letter).encode()) > LONGEST:
            break
        if letter.isprintable():
            name += letter
    return name or "unknown"


def problems_of(query: Mapping[str, str], *, applies: bool) -> list[StatusCause]:
    """Return the errors of the manager in the query of a write."""
    name = query.get("fieldManager", "")
    if applies and not name:
        return [cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")]
    found = []
    if len(name.encode(errors="replace")) > LONGEST:
        why = f"Too long: may not be more than {LONGEST} bytes"
        found.append(cause("FieldValueTooLong", why, "fieldManager"))
    at = 0
    for letter in name:
        if not letter.isprintable():
            why = f"invalid character U+{ord(letter):04X} (at position {at})"
            told = msgspec.json.encode(name).decode()
            found.append(cause("FieldValueInvalid", f"Invalid value: {told}: {why}", "fieldManager"))
        at += len(letter.encode(errors="replace"))
    return found


# ---- Reading and writing


def read(sent: Any) -> Managed | None:
    """Read `managedFields`; None if they are invalid."""
    if not isinstance(sent, list):
        return None
    found = {}
    for item in sent:
        if not isinstance(item, Mapping):
            return None
        texts = [item.get(key) or "" for key in ("operation", "manager", "apiVersion", "subresource", "time")]
        fields = item.get("fieldsV1") or {}
        if not all(isinstance(text, str) for text in texts) or not merging.is_valid(fields):
            return None
        operation, name, api_version, subresource, time = texts
        if operation not in (APPLY, UPDATE) or not api_version or item.get("fieldsType") != "FieldsV1":
            return None
        manager = Manager(operation, name, "" if operation == APPLY else api_version, subresource)
        found[manager] = Entry(api_version, dict(fields), time)
    return found


def written(managed: Managed) -> list[dict[str, Any]]:
    """Return `managedFields`, in the order of the server."""
    return [
        {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": entry.api_version,
            **({"time": entry.time} if entry.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": merging.in_order(entry.fields),
            **({"subresource": manager.subresource} if manager.subresource else {}),
        }
        for manager, entry in sorted(managed.items(), key=_place)
    ]


def _place(item: tuple[Manager, Entry]) -> tuple[str, ...]:
    manager, entry = item
    return manager.operation, entry.time, manager.name, entry.api_version, manager.subresource


def is_reset(sent: Any) -> bool:
    """Return True if a write asks to track no fields any more: `[]`, or one empty entry."""
    return sent in ([], [{}])


def without_times(listed: Any) -> Any:
    """Return `managedFields` as they are compared: a write that changes nothing but times is none."""
    return [{key: value for key, value in item.items() if key != "time"} for item in listed or ()]


# ---- Changes


def reset_by(served: Served, subresource: str) -> Fields:
    """Return the fields that a write does not change, whatever its body has there."""
    if not subresource:
        return _STATUS if served.has_status else {}
    if served.custom:
        return _SPEC | {"f:metadata": {}}
    return _SPEC | _NOT_OF_STATUS.get(served.qualified, {})


def managed_before(before: Mapping[str, Any], sent: Any, writer: Writer) -> Managed:
    """Return the managers to start from: those of the body, if they are valid, else those of the object."""
    if not writer.subresource:
        if is_reset(sent):
            return {}
        if found := read(sent):
            return found
    return read(before.get("metadata", {}).get("managedFields")) or {}


def is_tracked(before: Mapping[str, Any], sent: Any, writer: Writer) -> bool:
    """Return True if the managers of an object may change by an ordinary write."""
    return bool(sent) or ("managedFields" in before["metadata"] if before else bool(writer.named))


def updated(
    served: Served,
    type_: Type,
    before: Mapping[str, Any],
    new: Mapping[str, Any],
    sent: Any,
    writer: Writer,
    time: str,
) -> list[dict[str, Any]]:
    """Return `managedFields` after an ordinary write; without entries, the object is not tracked.

    `before` is empty for a creation. `sent` are the `managedFields` of the body.
    """
    managed = managed_before(before, sent, writer)
    if not managed and (before or not writer.named):
        return []
    old = before or empty(served, new)
    after = update(managed, type_, old, new, writer.manager(served, UPDATE), served, time)
    return written(_capped(after))


def empty(served: Served, new: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object that a new one is compared with."""
    if served.custom:
        return {}
    spec = new.get("spec")
    if isinstance(spec, Mapping) and "template" in spec:
        return {**_PRESENT, "spec": {"template": _PRESENT_TEMPLATE}}
    return _PRESENT


def update(
    managed: Managed,
    type_: Type,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    manager: Manager,
    served: Served,
    time: str,
) -> Managed:
    """Return the managers after a change: the manager gets each field that it adds or changes."""
    removed, changed = merging.compare(old, new, type_)
    reset = reset_by(served, manager.subresource)
    removed, changed = merging.without(removed, reset), merging.without(changed, reset)
    after = taken(managed, removed, changed)
    if mine := merging.difference(changed, _STRIPPED):
        entry = after.get(manager)
        fields = merging.union(entry.fields, mine) if entry else mine
        after[manager] = Entry(served.api_version, fields, time)
    return after


def taken(managed: Managed, removed: Fields, changed: Fields) -> Managed:
    """Return the managers without the fields that a change removes or takes from them."""
    after = {}
    for manager, entry in managed.items():
        left = merging.difference(merging.difference(entry.fields, changed), removed)
        if left:
            after[manager] = entry if left == entry.fields else replace(entry, fields=left)
    return after


def stripped(fields: Fields) -> Fields:
    """Return a set without the fields that belong to nobody: names, versions, times."""
    return merging.difference(fields, _STRIPPED)


def _capped(managed: Managed) -> Managed:
    """Join the oldest entries of ordinary writes if there are too many."""
    updaters = sorted(
        (item for item in managed.items() if item[0].operation == UPDATE),
        key=lambda item: (item[0].name != _OLD, item[1].time, item[0].name, item[0].subresource),
    )
    excess = len(updaters) - _MOST_UPDATERS
    first: dict[str, Manager] = {}
    for manager, entry in updaters if excess > 0 else ():
        bucket = Manager(UPDATE, _OLD, entry.api_version, "")
        if entry.api_version in first:
            if bucket not in managed:
                managed[bucket] = managed.pop(first[entry.api_version])
            del managed[manager]
            joined = merging.union(entry.fields, managed[bucket].fields)
            managed[bucket] = Entry(entry.api_version, joined, entry.time)
            excess -= 1
            if not excess:
                break
        else:
            first[entry.api_version] = manager
    return managed


def owned(managed: Managed) -> Iterator[Fields]:
    return (entry.fields for entry in managed.values())
