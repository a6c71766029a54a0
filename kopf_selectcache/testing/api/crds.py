"""Custom resources: their definitions are served as soon as they are written, and end with their objects.

In a real cluster, controllers do that with a delay; here, the write itself does it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from kopf_selectcache.core.selection.kinds import Kind

from . import schemas
from .history import History, Stored, Table
from .kinds import Column, Kinds, Served
from .kubectl.tables import DEFAULT, NAME
from .metadata import StatusCause, cause, in_order, invalid_value, unsupported
from .status import Problem
from .strategies import part

TABLE: Table = ("apiextensions.k8s.io", "customresourcedefinitions")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_VERSION = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_VERSION_NAME = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic"
    " character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for"
    " validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


class Writes(Protocol):
    """The writes of objects (`objects.Objects`) that definitions need."""

    history: History
    kinds: Kinds

    def time(self) -> str: ...
    def replace(self, served: Served, old: Stored, body: dict[str, Any]) -> Stored: ...
    def remove(self, served: Served, old: Stored) -> object: ...
    def delete_collection(
        self, served: Served, namespace: str, chosen: Callable[[Stored], bool]
    ) -> object: ...


class Definitions:
    """The effects of CustomResourceDefinitions on the other objects."""

    table = TABLE

    def __init__(self, objects: Writes) -> None:
        self._objects = objects
        self._served: dict[str, list[Served]] = {}
        """The served versions by the definition's name."""
        self._kept: dict[Table, list[Kind]] = {}
        """By the place of objects: the field labels of each of their versions."""
        self._ending: set[Table] = set()
        self.reload()

    def reload(self) -> None:
        for name in tuple(self._served):
            self._withdraw(name)
        self._ending.clear()
        for key in self._objects.history.keys(TABLE):
            if (stored := self._objects.history.get(TABLE, key)) is not None:
                self._serve(key[1], msgspec.json.decode(stored.data))

    # ---- Checks of any write.

    def require_open(self, served: Served, name: str) -> None:
        """Refuse new objects of a definition that is being deleted."""
        if served.table in self._ending:
            raise Problem(
                403,
                "Forbidden",
                f'{served.qualified} "{name}" is forbidden: create not allowed while custom resource'
                " definition is terminating",
                details={"name": name, "group": served.group, "kind": served.plural},
            )

    def shape(self, served: Served, new: dict[str, Any]) -> None:
        """Drop unknown fields, and fill in the defaults of the schema. A definition gets the server's
        defaults.
        """
        if served.schema is not None:
            schemas.prune(served.schema, new)
            schemas.fill(served.schema, new)
        elif served.table == TABLE:
            _fill(new)

    def problems_of(self, served: Served, new: Mapping[str, Any]) -> list[StatusCause]:
        if served.schema is not None:
            return schemas.problems_of(served.schema, new)
        if served.table != TABLE:
            return []
        found = _wrong(new)
        if not found:
            _read(new)  # A definition that cannot be served fails here, before it is stored.
        return found

    def problems_of_change(
        self, served: Served, old: Mapping[str, Any], new: Mapping[str, Any]
    ) -> list[StatusCause]:
        if served.table != TABLE:
            return []
        return [
            invalid_value(f"spec.{key}", new["spec"].get(key), "field is immutable")
            for key in ("group", "scope")
            if old["spec"].get(key) != new["spec"].get(key)
        ]

    def field_values(self, served: Served, body: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the values of all field labels of an object, in all versions."""
        if not served.custom:
            return served.fields.values(body)
        values: dict[str, str] = {}
        for kind in self._kept.get(served.table, (served.fields,)):
            values |= kind.values(body)
        return values

    # ---- Effects of a write.

    def written(self, served: Served, stored: Stored) -> None:
        if served.table != TABLE:
            return
        body: dict[str, Any] = msgspec.json.decode(stored.data)
        name = stored.key[1]
        established = _established(body, self._objects.time())
        if established is not None:
            # As in a cluster: watches see the definition first without, then with its conditions.
            self._objects.replace(served, stored, established)
            return
        self._serve(name, body)

    def removed(self, served: Served, gone: Stored) -> None:
        """End a definition whose last object is deleted, or the kind of a deleted definition."""
        if served.table == TABLE:
            self._withdraw(gone.key[1])
        elif served.table in self._ending:
            definition = self._objects.history.get(TABLE, ("", f"{served.plural}.{served.group}"))
            if definition is not None:
                self._end(definition)

    def terminating(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the definition after its deletion: it ends with its objects."""
        said = dict(body["metadata"])
        said.pop("deletionGracePeriodSeconds", None)
        # Its generation does not increase, unlike that of others.
        said["generation"] = body["metadata"]["generation"] - 1
        said["finalizers"] = list(dict.fromkeys([*said.get("finalizers", []), FINALIZER]))
        status = part(body, "status")
        conditions = [item for item in status.get("conditions") or () if item["type"] != "Terminating"]
        message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        status["conditions"] = [
            *conditions,
            _condition("Terminating", "InstanceDeletionPending", message, said["deletionTimestamp"]),
        ]
        return {**body, "metadata": in_order(said), "status": status}

    def empty(self, definition: Stored) -> None:
        """Delete all objects of a definition that is being deleted; the definition ends with the last one."""
        served = self._served.get(definition.key[1], [])
        for kind in served[:1]:
            self._objects.delete_collection(kind, "", lambda _: True)
        self._end(definition)

    def _end(self, definition: Stored) -> None:
        history = self._objects.history
        now = history.get(TABLE, definition.key)
        served = self._served.get(definition.key[1], [])
        if now is None or (served and history.keys(served[0].table)):
            return
        body: dict[str, Any] = msgspec.json.decode(now.data)
        finalizers = [item for item in body["metadata"].get("finalizers", []) if item != FINALIZER]
        found = self._objects.kinds.find(TABLE[0], "v1", TABLE[1])
        if found is None:
            return
        if finalizers:
            if finalizers != body["metadata"]["finalizers"]:
                body["metadata"]["finalizers"] = finalizers
                self._objects.replace(found, now, body)
        else:
            self._objects.remove(found, now)

    def _serve(self, name: str, body: Mapping[str, Any]) -> None:
        before = self._served.get(name, [])
        after = list(_read(body))
        for served in after:
            self._objects.kinds.add(served)
        for served in before:
            if served.version not in {other.version for other in after}:
                self._objects.kinds.remove(served)
        self._served[name] = after
        if after:
            table = after[0].table
            kinds = [Kind.custom(body, version["name"]) for version in body["spec"]["versions"]]
            if self._kept.get(table) != kinds:
                self._kept[table] = kinds
                self._read_fields(table, after[0])
            if "deletionTimestamp" in body["metadata"]:
                self._ending.add(table)

    def _read_fields(self, table: Table, served: Served) -> None:
        """Extract the values of a definition's new fields from existing objects."""
        for key in self._objects.history.keys(table):
            stored = self._objects.history.get(table, key)
            if stored is not None and isinstance(stored.fields, dict):
                stored.fields.update(self.field_values(served, msgspec.json.decode(stored.data)))

    def _withdraw(self, name: str) -> None:
        for served in self._served.pop(name, []):
            self._objects.kinds.remove(served)
            self._ending.discard(served.table)
            self._kept.pop(served.table, None)


def _read(body: Mapping[str, Any]) -> list[Served]:
    """Return the kinds of a definition: one entry for each served version."""
    spec = body["spec"]
    names = spec["names"]
    found = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        schema = schemas.without_nulls(part(part(version, "schema"), "openAPIV3Schema"))
        found.append(
            Served(
                spec["group"],
                version["name"],
                names["plural"],
                names["singular"],
                names["kind"],
                spec["scope"] == "Namespaced",
                Kind.custom(body, version["name"]),
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                has_status=part(version, "subresources").get("status") is not None,
                has_generation=True,
                columns=_columns(version),
                table=(spec["group"], names["plural"]),
                custom=True,
                unconditional=False,
                schema=(
                    {**schema, "x-kubernetes-preserve-unknown-fields": True}
                    if spec.get("preserveUnknownFields")
                    else schema
                ),
            )
        )
    return found


def _columns(version: Mapping[str, Any]) -> tuple[Column, ...]:
    printed = version.get("additionalPrinterColumns")
    if not printed:
        return DEFAULT
    return (
        NAME,
        *(
            Column(item["name"], item["jsonPath"], item["type"], wide=bool(item.get("priority")))
            for item in printed
        ),
    )


def _fill(new: dict[str, Any]) -> None:
    spec = part(new, "spec")
    names = part(spec, "names")
    kind = names.get("kind")
    if isinstance(kind, str) and kind:
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
    versions = [item or {} for item in spec.get("versions") or ()]
    new["spec"] = {
        **spec,
        "names": names,
        "conversion": spec.get("conversion") or {"strategy": "None"},
        "versions": versions,
    }
    status = part(new, "status")
    stored = [item.get("name") for item in versions if item.get("storage")]
    kept = status.get("storedVersions") or []
    new["status"] = {
        "conditions": status.get("conditions"),
        "acceptedNames": status.get("acceptedNames") or {"plural": "", "kind": ""},
        "storedVersions": [*kept, *(name for name in stored if name not in kept)],
    }


def _wrong(new: Mapping[str, Any]) -> list[StatusCause]:
    """Return the errors of a definition that cannot be served."""
    spec, name = new["spec"], new["metadata"].get("name", "")
    names, group, versions = spec["names"], spec.get("group") or "", spec["versions"]
    found = []
    if name != f"{names.get('plural', '')}.{group}":
        found.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    found += (
        cause("FieldValueRequired", "Required value", f"spec.{key}")
        for key in ("group", "scope")
        if not spec.get(key)
    )
    if spec.get("scope") not in (None, "", "Cluster", "Namespaced"):
        found.append(unsupported("spec.scope", spec["scope"], "Cluster", "Namespaced"))
    if group and "." not in group:
        found.append(invalid_value("spec.group", group, "should be a domain with at least one dot"))
    for index, version in enumerate(versions):
        where = f"spec.versions[{index}]"
        if not isinstance(part(version, "schema").get("openAPIV3Schema"), Mapping):
            found.append(cause("FieldValueRequired", "Required value", f"{where}.schema.openAPIV3Schema"))
        if not _VERSION.fullmatch(version.get("name") or ""):
            found.append(invalid_value(f"{where}.name", version.get("name") or "", _VERSION_NAME))
        if found:
            continue
        # With a single version, the server reports it as if it stood at the top.
        where = "spec" if len(versions) == 1 else where
        schema = schemas.without_nulls(version["schema"]["openAPIV3Schema"])
        for at, item in enumerate(version.get("selectableFields") or ()):
            path = part({"": item}, "").get("jsonPath") or ""
            if not schemas.has(schema, path):
                why = "is an invalid path: does not refer to a valid field"
                found.append(invalid_value(f"{where}.selectableFields[{at}].jsonPath", path, why))
        for at, item in enumerate(version.get("additionalPrinterColumns") or ()):
            found += _wrong_column(item or {}, f"{where}.additionalPrinterColumns[{at}]")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        found.append(
            invalid_value(
                "spec.versions", len(versions), "must have exactly one version marked as storage version"
            )
        )
    found += (
        cause("FieldValueRequired", "Required value", f"spec.names.{key}")
        for key in ("plural", "singular", "kind", "listKind")
        if not names.get(key)
    )
    return found


def _wrong_column(column: Mapping[str, Any], where: str) -> Iterator[StatusCause]:
    wanted = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column.get("name"):
        yield cause("FieldValueRequired", "Required value", f"{where}.name")
    if not column.get("type"):
        yield cause("FieldValueRequired", f"Required value: {wanted}", f"{where}.type")
    elif column["type"] not in _COLUMN_TYPES:
        yield invalid_value(f"{where}.type", column["type"], wanted)
    if not column.get("jsonPath"):
        yield cause("FieldValueRequired", "Required value", f"{where}.JSONPath")
    elif not column["jsonPath"].startswith("."):
        yield invalid_value(
            f"{where}.JSONPath", column["jsonPath"], "must be a simple json path starting with ."
        )


def _condition(kind: str, reason: str, message: str, time: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": time, "reason": reason, "message": message}


def _established(body: Mapping[str, Any], time: str) -> dict[str, Any] | None:
    """Return the definition with the status that the controllers write, or None if it has that already."""
    status = body["status"]
    names = body["spec"]["names"]
    if status["conditions"] and status["acceptedNames"] == names:
        return None
    conditions = status["conditions"] or [
        _condition("NamesAccepted", "NoConflicts", "no conflicts found", time),
        _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", time),
    ]
    return {**body, "status": {**status, "conditions": conditions, "acceptedNames": names}}
