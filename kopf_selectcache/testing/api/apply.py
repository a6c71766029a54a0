"""Server-side apply: an object with the applied fields, and the managers of its fields. It stores nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import msgspec

from . import body as reading
from . import known_fields, managed_fields, merge_types, merging, types
from .kinds import Served
from .managed_fields import APPLY, BEFORE_FIRST_APPLY, UPDATE, Entry, Managed, Manager, Writer
from .merge_types import Type
from .merging import Fields, Path
from .status import Problem, bad_request

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"
_LONGEST_ANNOTATIONS = 256 * 1024


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an apply."""

    body: dict[str, Any]
    managed: list[dict[str, Any]]


def applied(
    served: Served,
    before: Mapping[str, Any],
    sent: Mapping[str, Any],
    writer: Writer,
    *,
    force: bool,
    time: str,
) -> Applied:
    """Return the object with the sent one merged into it; `before` is empty if it does not exist yet.

    Raise 400 or 500 if the sent one is no object of its kind, and 409 if it changes fields of others.
    """
    _require_kind(served, sent)
    type_ = merge_types.of(served)
    _require_type(served, sent, type_)
    live = dict(before)
    metadata = dict(live.get("metadata") or {})
    managed = managed_fields.read(metadata.pop("managedFields", None)) or {}
    live |= {"metadata": metadata, "apiVersion": served.api_version, "kind": served.kind}
    if not managed and before:
        first = Manager(UPDATE, BEFORE_FIRST_APPLY, served.api_version, writer.subresource)
        empty = managed_fields.empty(served, live)
        managed = managed_fields.update(managed, type_, empty, live, first, served, time)
    try:
        new, after = _apply(served, type_, live, sent, managed, writer, force=force, time=time)
    except _ConflictsError as error:
        allowed = _of_last_apply(served, type_, live) if writer.name == _KUBECTL else {}
        left = [item for item in error.conflicts if not _has(allowed, item[1])]
        if left:
            raise _conflict(left) from None
        new, after = _apply(served, type_, live, sent, managed, writer, force=True, time=time)
    said = new.get("metadata") or {}
    if writer.name == _KUBECTL and (said.get("annotations") or {}).get(LAST_APPLIED):
        _set_last_applied(said, sent)
    return Applied(new, managed_fields.written(after))


class _ConflictsError(Exception):
    def __init__(self, conflicts: list[tuple[Manager, Path]]) -> None:
        super().__init__()
        self.conflicts = conflicts


def _apply(
    served: Served,
    type_: Type,
    live: dict[str, Any],
    sent: Mapping[str, Any],
    managed: Managed,
    writer: Writer,
    *,
    force: bool,
    time: str,
) -> tuple[dict[str, Any], Managed]:
    """Return the merged object and its managers; raise the conflicts unless they are forced."""
    reset = managed_fields.reset_by(served, writer.subresource)
    mine = writer.manager(served, APPLY)
    last = managed.get(mine)
    fields = merging.without(merging.fields_of(sent, type_), reset)
    new = merging.merged(live, sent, type_)
    others = {manager: entry for manager, entry in managed.items() if manager != mine}
    if last is not None and last.fields:
        owned = reduce(merging.union, managed_fields.owned(others), fields)
        new = pruned(new, last.fields, owned, type_)
    removed, changed = merging.compare(live, new, type_)
    removed, changed = merging.without(removed, reset), merging.without(changed, reset)
    conflicts = [
        (manager, path)
        for manager in sorted(others, key=_identity)
        for path in merging.paths(merging.intersection(others[manager].fields, changed))
    ]
    if conflicts and not force:
        raise _ConflictsError(conflicts)
    after = managed_fields.taken(others, removed, changed)
    if stripped := managed_fields.stripped(fields):
        # A manager who only agrees with others has no time.
        kept = last.time if last is not None else ""
        after[mine] = Entry(served.api_version, stripped, kept if merging.same(live, new) else time)
    return new, after


def pruned(merged: dict[str, Any], last: Fields, owned: Fields, type_: Type) -> dict[str, Any]:
    """Return a merged object without the fields that its manager has applied before, and nobody owns now.

    `last` are the fields of the last apply, `owned` those of all managers, this apply included.
    """
    last, owned = merging.with_declared(last, type_), merging.with_declared(owned, type_)
    everything = merging.with_declared(merging.fields_of(merged, type_), type_)
    left = _fields(merging.removed(merged, last, type_), type_)
    # What others own comes back with the maps and lists that lead to it.
    gone = merging.difference(everything, merging.union(left, owned))
    left = _fields(merging.removed(merged, gone, type_), type_)
    # So does what lost its map or list, and was not of this manager.
    gone = merging.intersection(merging.difference(everything, left), last)
    return merging.removed(merged, gone, type_) or {}


def _fields(value: Any, type_: Type) -> Fields:
    return merging.with_declared(merging.fields_of(value, type_), type_)


# ---- Checks


def _require_kind(served: Served, sent: Mapping[str, Any]) -> None:
    kind, api_version = sent.get("kind") or "", sent.get("apiVersion") or ""
    if (kind, api_version) != (served.kind, served.api_version):
        group, _, version = str(api_version).rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={kind}")
    metadata = sent.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")


def _require_type(served: Served, sent: Mapping[str, Any], type_: Type) -> None:
    found = list(merging.problems_of(sent, type_))
    unknown: list[str] = []
    if served.custom:
        unknown += known_fields.unknown_metadata(sent)
    else:
        known_fields.known(served, sent, unknown)
        if not found:
            try:
                types.require(served, sent)
            except Problem as problem:
                found.append(("", problem.message))
    found += ((f".{path}", "field not declared in schema") for path in unknown)
    if not isinstance(sent.get("metadata", {}), Mapping | None):
        found.append((".metadata", "expected map"))
    if found:
        metadata = sent.get("metadata")
        said = metadata if isinstance(metadata, Mapping) else {}
        lines = [f"{path}: {why}" if path else why for path, why in found]
        what = lines[0] if len(lines) == 1 else "\n  ".join(("errors:", *lines))
        raise Problem(
            500,
            "",
            f"failed to create typed patch object ({said.get('namespace', '')}/{said.get('name', '')};"
            f" {served.group}/{served.version}, Kind={served.kind}): {what}",
        )


# ---- Conflicts


def _identity(manager: Manager) -> tuple[str, ...]:
    return manager.name, manager.operation, manager.api_version, manager.subresource


def _shown(manager: Manager) -> str:
    told = msgspec.json.encode(manager.name).decode()
    if manager.subresource:
        told += f' with subresource "{manager.subresource}"'
    return f"{told} using {manager.api_version}" if manager.operation == UPDATE else told


def _conflict(conflicts: list[tuple[Manager, Path]]) -> Problem:
    """Refuse an apply that changes fields of other managers."""
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_shown(manager)}",
            "field": merging.text(path),
        }
        for manager, path in conflicts
    ]
    if len(causes) == 1:
        lines = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        listed: dict[str, list[str]] = {}
        for manager, path in conflicts:
            listed.setdefault(f"conflicts with {_shown(manager)}:", []).append(f"- {merging.text(path)}")
        texts = (line for head, paths in listed.items() for line in (head, *paths))
        lines = f"{len(causes)} conflicts: " + "\n".join(texts)
    return Problem(409, "Conflict", f"Apply failed with {lines}", details={"causes": causes})


# ---- The annotation of kubectl's client-side apply


def _of_last_apply(served: Served, type_: Type, live: Mapping[str, Any]) -> Fields:
    """Return the fields that kubectl has applied on its side, and that nobody has changed since."""
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    try:
        last = reading.decode(text.encode()) if text else None
    except reading.UnreadableBody:
        return {}
    if not isinstance(last, dict) or last.get("apiVersion") != served.api_version:
        return {}
    if any(merging.problems_of(last, type_)):
        return {}
    removed, changed = merging.compare(last, live, type_)
    fields = merging.difference(merging.fields_of(last, type_), changed)
    return merging.difference(fields, removed)


def _has(fields: Fields, path: Path) -> bool:
    for key in path:
        if key not in fields:
            return False
        fields = fields[key]
    return merging.is_member(fields)


def _set_last_applied(metadata: dict[str, Any], sent: Mapping[str, Any]) -> None:
    said = dict(sent.get("metadata") or {})
    annotations = dict(said.get("annotations") or {})
    if annotations.pop(LAST_APPLIED, None) is not None:
        said["annotations"] = annotations
    text = msgspec.json.encode({**sent, "metadata": said}, order="sorted").decode() + "\n"
    if len(text) <= _LONGEST_ANNOTATIONS:
        metadata["annotations"] = {**metadata["annotations"], LAST_APPLIED: text}


def without_nulls(value: Any) -> Any:
    """Return an object of a built-in kind as its Go type reads it: null is absent."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
