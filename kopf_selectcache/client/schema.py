"""The schema of a kind, as the server publishes it with OpenAPI: which paths its objects can have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.selection.field_values import as_mapping, as_mappings, as_text
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.projection import Keys

from .transport import Refused, Transport

MOST_BYTES = 16 * 1024 * 1024
"""Limit of the schemas of one group in bytes. Those of the core group are about 1 MB."""

MOST_STEPS = 20
"""Maximum of references and lists between a field and the fields inside it."""

_REFERENCE = "#/components/schemas/"
_UNPUBLISHED = (403, 404, 405, 406)

_T = TypeVar("_T")


class UnknownKey(NamedTuple):
    """The first key of a path that the schema does not name."""

    depth: int
    """Its position in the path."""
    names: tuple[str, ...]
    """The keys that objects can have there instead; none if the schema leaves them open."""


class _Kind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _OfKinds(msgspec.Struct):
    kinds: list[_Kind] = msgspec.field(name="x-kubernetes-group-version-kind", default_factory=list)


class _Components(msgspec.Struct):
    schemas: dict[str, msgspec.Raw]


class _Document(msgspec.Struct):
    components: _Components


class Schema:
    """The schema of one kind. A type is decoded once a path leads through it."""

    def __init__(self, schemas: Mapping[str, msgspec.Raw], root: str) -> None:
        self._schemas = schemas
        self._root = root

    def unknown(self, path: Keys) -> UnknownKey | None:
        """Return the first key of the path that no object can have, or that the schema leaves open; None if
        all of it may be there. The path leads through lists to each item. Raise Garbled.
        """
        schema = self._type(self._root)
        for depth, key in enumerate(path):
            schema = self._inside(schema)
            properties = as_mapping(schema.get("properties"))
            others = schema.get("additionalProperties")
            if key in properties:
                schema = as_mapping(properties[key])
            elif isinstance(others, Mapping):
                schema = others
            elif _is_open(schema):
                return UnknownKey(depth, ())
            elif others is True or not properties:
                return None
            else:
                return UnknownKey(depth, tuple(properties))
        return None

    def _inside(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the schema with the fields of a value: that of its reference, or of the items of a list."""
        for _ in range(MOST_STEPS):
            # A reference with a description or a default is the only part of an `allOf`.
            parts = [schema, *as_mappings(schema.get("allOf"))]
            reference = next(filter(None, (as_text(part.get("$ref")) for part in parts)), "")
            if reference:
                schema = self._type(reference.removeprefix(_REFERENCE))
            elif "items" in schema:
                schema = as_mapping(schema["items"])
            else:
                return schema
        return {}

    def _type(self, name: str) -> Mapping[str, Any]:
        found = self._schemas.get(name)
        return {} if found is None else as_mapping(_decoded(found, Any, name))


async def schema_of(server: Transport, resource: Resource) -> Schema | None:
    """Ask for the schema of a kind; return None if the server publishes none. Raise Refused, Unreachable or
    Garbled.
    """
    kind = resource.kind
    path = f"/openapi/v3/{'apis' if kind.group else 'api'}/{resource.api_version}"
    try:
        data = await server.get(path, {}, most=MOST_BYTES)
    except Refused as refused:
        if refused.refusal.code in _UNPUBLISHED:
            return None
        raise
    wanted = _Kind(kind.group, resource.version, kind.kind)
    schemas = _decoded(data, _Document, path).components.schemas
    for name, schema in schemas.items():
        if wanted in _decoded(schema, _OfKinds, path).kinds:
            return Schema(schemas, name)
    return None


def _decoded(data: bytes | msgspec.Raw, shape: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Garbled(f"{what} is not what the API promises: {error}") from None


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Return True if objects can have other fields than the schema names."""
    return any(
        schema.get(f"x-kubernetes-{name}") is True
        for name in ("preserve-unknown-fields", "embedded-resource")
    )
