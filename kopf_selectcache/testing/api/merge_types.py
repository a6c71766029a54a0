"""The types of objects for server-side apply: which lists and maps are merged, by which keys, and which are
replaced as a whole.

Those of built-in kinds are in a generated table, those of custom resources in their schemas. Without a type,
a map is merged and a list is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from ._merge_table import KINDS, TYPES
from .kinds import Served

Keys: TypeAlias = tuple[tuple[str, Any], ...]
"""The keys that identify the items of a list, each with its default; None is no default."""


class Type:
    """The type of a value. Without rules, as here, it is that of unknown fields."""

    __slots__ = ("is_atomic", "keys")

    def __init__(self, *, is_atomic: bool = False, keys: Keys | None = None) -> None:
        self.is_atomic = is_atomic
        """True if a map is replaced as a whole."""
        self.keys = keys
        """The keys of a list's items: none for a set, None if the list is replaced as a whole."""

    def field(self, _: str, /) -> Type:
        """Return the type of a field."""
        return UNKNOWN

    def declares(self, _: str, /) -> bool:
        """Return True if the field has a name in the type. Keys of maps have none."""
        return False

    def items(self) -> Type:
        return UNKNOWN

    def misfit(self, _: Any, /) -> str:
        """Return the error of a value that is not of this type; empty if it fits."""
        return ""

    def undeclared(self, _: Mapping[str, Any], /) -> Iterator[str]:
        """Iterate over the fields of a value that the type forbids."""
        return iter(())


UNKNOWN = Type()


class _Plain(Type):
    """An object of a built-in kind without rules: all its fields are declared."""

    __slots__ = ()

    def field(self, _: str, /) -> Type:
        return PLAIN

    def declares(self, _: str, /) -> bool:
        return True

    def items(self) -> Type:
        return PLAIN


PLAIN = _Plain()


# The definitions of custom resources are not in the schema of which the table is made.
_TYPES: Mapping[str, Mapping[str, str]] = {
    **TYPES,
    "CustomResourceDefinition": {"metadata": "ObjectMeta", "status": "CustomResourceDefinitionStatus"},
    "CustomResourceDefinitionStatus": {"conditions": "[type]"},
}
_RULE = re.compile(r"(?P<rule>\[[^]]*\]|\{!?\}|!?) ?(?P<inner>.*)")


class _Ruled(Type):
    """A type of the table, or a list or map of such a type."""

    __slots__ = ("_inner", "_rule", "_rules")

    def __init__(self, rule: str) -> None:
        """Read a rule of the table: `[name=""] Container`."""
        found = _RULE.fullmatch(rule)
        assert found is not None
        self._rule, self._inner = found["rule"], found["inner"]
        self._rules = {} if self._rule else _TYPES.get(self._inner, {})
        keys = tuple(map(_key, self._rule[1:-1].split())) if self._rule.startswith("[") else None
        super().__init__(is_atomic="!" in self._rule, keys=keys)

    def field(self, name: str, /) -> Type:
        if self._rule:
            return self.items()
        return _Ruled(self._rules[name]) if name in self._rules else PLAIN

    def declares(self, _: str, /) -> bool:
        return not self._rule

    def items(self) -> Type:
        return _Ruled(self._inner) if self._inner else PLAIN

    def misfit(self, value: Any, /) -> str:
        is_list = self._rule.startswith("[")
        if value is None or isinstance(value, list if is_list else Mapping):
            return ""
        return f"expected {'list' if is_list else 'map'}, got &{{{_plain(value)}}}"


def _key(text: str) -> tuple[str, Any]:
    name, has_default, default = text.partition("=")
    return name, msgspec.json.decode(default) if has_default else None


_METADATA = _Ruled("ObjectMeta")
_SCALARS: Mapping[str, str] = {
    "string": "string",
    "integer": "numeric",
    "number": "numeric",
    "boolean": "boolean",
}


class _OfSchema(Type):
    """The type of a custom resource, or of a part of it."""

    __slots__ = ("_is_whole", "_known", "_schema")

    def __init__(self, schema: Mapping[str, Any], *, is_whole: bool = False) -> None:
        self._schema = schema
        self._is_whole = is_whole or schema.get("x-kubernetes-embedded-resource") is True
        self._known: Mapping[str, Any] = schema.get("properties") or {}
        keys: Keys | None = None
        match schema.get("x-kubernetes-list-type"):
            case "set":
                keys = ()
            case "map":
                items = (schema.get("items") or {}).get("properties") or {}
                names = schema.get("x-kubernetes-list-map-keys") or ()
                keys = tuple((name, (items.get(name) or {}).get("default")) for name in names)
        super().__init__(is_atomic=schema.get("x-kubernetes-map-type") == "atomic", keys=keys)

    def field(self, name: str, /) -> Type:
        if self._is_whole and name in ("apiVersion", "kind", "metadata"):
            return _METADATA if name == "metadata" else PLAIN
        rest = self._schema.get("additionalProperties")
        inner = self._known.get(name, rest)
        return _OfSchema(inner) if isinstance(inner, Mapping) else UNKNOWN

    def declares(self, name: str, /) -> bool:
        return name in self._known or (self._is_whole and name in ("apiVersion", "kind", "metadata"))

    def items(self) -> Type:
        items = self._schema.get("items")
        return _OfSchema(items) if isinstance(items, Mapping) else UNKNOWN

    def misfit(self, value: Any, /) -> str:
        if value is None or self._schema.get("x-kubernetes-int-or-string"):
            return ""
        wanted = str(self._schema.get("type", ""))
        if wanted == "object":
            return "" if isinstance(value, Mapping) else f"expected map, got {_in_go(value)}"
        if wanted == "array":
            return "" if isinstance(value, list) else f"expected list, got {_in_go(value)}"
        if wanted not in _SCALARS or _scalar(value) == _SCALARS[wanted]:
            return ""
        return f"expected {_SCALARS[wanted]}, got {_in_go(value)}"

    def undeclared(self, value: Mapping[str, Any], /) -> Iterator[str]:
        if self._schema.get("x-kubernetes-preserve-unknown-fields") or self._schema.get(
            "additionalProperties"
        ):
            return
        for name in value:
            if not self.declares(name):
                yield name


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "numeric" if isinstance(value, int | float) else "string" if isinstance(value, str) else ""


def _in_go(value: Any) -> str:
    """Return a value as the server's errors show it."""
    if isinstance(value, Mapping | list):
        return f"&{{{_plain(value)}}}"
    return f"&value.valueUnstructured{{Value:{msgspec.json.encode(value).decode()}}}"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{key}:{_plain(item)}' for key, item in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_plain, value))}]"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_BUILT_IN: Mapping[str, Type] = {
    **{kind: _Ruled(name) for kind, name in KINDS.items()},
    "apiextensions.k8s.io/v1/CustomResourceDefinition": _Ruled("CustomResourceDefinition"),
}


def of(served: Served) -> Type:
    """Return the type of a kind's objects."""
    if served.schema is not None:
        return _OfSchema(served.schema, is_whole=True)
    return _BUILT_IN.get(f"{served.api_version}/{served.kind}", PLAIN)
