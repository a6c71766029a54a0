"""The OpenAPI documents that kubectl reads before it writes: each kind can be patched, and validated by the
server.

The schemas have the names of fields, without their types. So kubectl patches built-in kinds by its compiled
types, and the server validates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf_selectcache.testing.api import known_fields
from kopf_selectcache.testing.api.discovery import resources
from kopf_selectcache.testing.api.kinds import Kinds, Served
from kopf_selectcache.testing.api.request import JSON, Answer
from kopf_selectcache.testing.api.status import not_acceptable

_INFO = {"title": "Kubernetes", "version": "v1.36.3"}
_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"  # In requests, also with `@v1.0`.
_EMPTY = b"\n\x032.0"  # A whole document: field 1, `swagger`, is "2.0".


def answer(path: str, accept: str, kinds: Kinds) -> Answer | None:
    """Answer a request for OpenAPI; None if the path is another one."""
    parts = path.strip("/").split("/")
    if parts[0] != "openapi":
        return None
    match parts[1:]:
        case ["v2"]:
            # kubectl asks here if it has not found a kind in version 3, and accepts only protobuf.
            if "openapi.spec.v2" in accept:
                return Answer(200, _EMPTY, _PROTOBUF)
            if not {JSON, "*/*", ""} & {media.partition(";")[0].strip() for media in accept.split(",")}:
                raise not_acceptable(f"only the following media types are accepted: {JSON}, {_PROTOBUF}")
            return Answer.of({"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}})
        case ["v3"]:
            versions = dict.fromkeys((served.group, served.version) for served in kinds)
            paths = [_root(group, version) for group, version in versions]
            return Answer.of(
                {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}
            )
        case ["v3", "api", version]:
            return _document("", version, kinds)
        case ["v3", "apis", group, version]:
            return _document(group, version, kinds)
        case _:
            return None


def _root(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _document(group: str, version: str, kinds: Kinds) -> Answer | None:
    if not resources(group, version, kinds):
        return None
    served = [one for one in kinds if (one.group, one.version) == (group, version)]
    within = {True: "/namespaces/{namespace}", False: ""}
    paths = {
        f"/{_root(group, version)}{within[one.namespaced]}/{one.plural}/{{name}}": _patchable(one)
        for one in served
    }
    schemas = {name: schema for one in served for name, schema in _schemas(one).items()}
    return Answer.of({"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}})


def _schemas(served: Served) -> dict[str, Any]:
    kind = {"group": served.group, "version": served.version, "kind": served.kind}
    if served.custom:
        name = ".".join((*reversed(served.group.split(".")), served.version, served.kind))
        schemas = {name: {**(served.schema or {}), **_metadata_of(served.schema or {})}}
    else:
        schemas = known_fields.schemas_of(served)
        name = next(iter(schemas))
    schemas[name] = {**schemas[name], "x-kubernetes-group-version-kind": [kind]}
    return schemas


def _metadata_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the server itself manages, if a schema has any: the others are known then."""
    own: dict[str, Any] = {field: {} for field in ("apiVersion", "kind", "metadata")}
    known = schema.get("properties")
    return {"properties": {**known, **own}} if known else {}


def _patchable(served: Served) -> dict[str, Any]:
    names = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")
    return {
        "patch": {
            "operationId": f"patch{served.kind}",
            "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names],
            "requestBody": {"content": {"application/merge-patch+json": {"schema": {"type": "object"}}}},
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": {
                "group": served.group,
                "version": served.version,
                "kind": served.kind,
            },
        }
    }
