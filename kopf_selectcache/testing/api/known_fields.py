"""Drops the fields of objects of built-in kinds that their types lack, as Go's decoder does."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ._known_fields import FIELDS
from .kinds import Served

_METADATA = "meta.v1.ObjectMeta"
# Definitions of custom resources are not in the schema of which the table is made.
_DEFINITION = f"""\
apiextensions.k8s.io/v1/CustomResourceDefinition: apiVersion kind metadata:{_METADATA} spec status
"""


@cache
def _types() -> Mapping[str, Mapping[str, str]]:
    """Return the fields of each type, with the type of what is in them."""
    found = {}
    for line in (FIELDS + _DEFINITION).strip().replace("\n ", " ").split("\n"):
        name, _, fields = line.partition(": ")
        pairs = (field.partition(":") for field in fields.split())
        found[name] = {field: inner for field, _, inner in pairs}
    return found


def schemas_of(served: Served) -> dict[str, Any]:
    """Return the OpenAPI schemas of a built-in kind: itself first, then each type inside. They have the names
    of fields, and nothing else.
    """
    found: dict[str, Any] = {}
    names = [f"{served.api_version}/{served.kind}"]
    for name in names:  # It grows.
        fields = _types()[name]
        properties = {
            field: {"$ref": f"#/components/schemas/{_component(inner)}"} if inner else {}
            for field, inner in fields.items()
        }
        found[_component(name)] = {"type": "object", "properties": properties}
        names += [inner for inner in dict.fromkeys(fields.values()) if inner and inner not in names]
    return found


def _component(name: str) -> str:
    return name.replace("/", ".")


def known(served: Served, body: Mapping[str, Any], unknown: list[str]) -> dict[str, Any]:
    """Return an object of a built-in kind without unknown fields, and add their paths to a list."""
    return _known(f"{served.api_version}/{served.kind}", body, "", unknown)


def unknown_metadata(body: Mapping[str, Any]) -> list[str]:
    """Return the paths of unknown fields in metadata."""
    unknown: list[str] = []
    _inside(_METADATA, body.get("metadata"), "metadata", unknown)
    return unknown


def _known(name: str, value: Mapping[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    fields, found = _types()[name], {}
    for key, item in value.items():
        where = f"{path}.{key}" if path else key
        if key in fields:
            found[key] = _inside(fields[key], item, where, unknown)
        else:
            unknown.append(where)
    return found


def _inside(name: str, value: Any, path: str, unknown: list[str]) -> Any:
    if name and isinstance(value, Mapping):
        return _known(name, value, path, unknown)
    if name and isinstance(value, list):
        return [_inside(name, item, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    return value
