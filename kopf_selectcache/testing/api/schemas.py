"""The schemas of custom resources, applied: unknown fields are dropped, defaults are filled in, the rest is
validated.

It has the checks that schemas of operators commonly use; expressions (CEL) are not evaluated.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from .metadata import StatusCause, cause, unsupported

_PRESERVES = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING = "x-kubernetes-int-or-string"
# Fields that the server itself manages, in the whole object and in embedded ones.
_OWN = frozenset({"apiVersion", "kind", "metadata"})


def without_nulls(schema: Any) -> Any:
    """Return a schema as the server reads it: null values are absent."""
    if isinstance(schema, dict):
        return {key: without_nulls(value) for key, value in schema.items() if value is not None}
    return schema


def prune(schema: Mapping[str, Any], obj: dict[str, Any]) -> None:
    """Drop the unknown fields of the whole object."""
    for _, home, key in unknown(schema, obj):
        del home[key]


def unknown(schema: Mapping[str, Any], obj: dict[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    """Return the unknown fields of the whole object: the path, the parent and the key of each."""
    return list(_unknown(schema, obj, "", own=True))


def _unknown(
    schema: Mapping[str, Any], value: Any, path: str, *, own: bool = False
) -> Iterator[tuple[str, dict[str, Any], str]]:
    own = own or schema.get(_EMBEDDED) is True
    for key, item, inner in _parts(schema, value):
        where = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}" if path else key
        if own and key in _OWN:
            continue
        if inner is not None:
            yield from _unknown(inner, item, where)
        elif (
            isinstance(key, str)
            and schema.get(_PRESERVES) is not True
            and schema.get("additionalProperties") is not True
        ):
            yield where, value, key


def _parts(
    schema: Mapping[str, Any], value: Any
) -> Iterator[tuple[int | str, Any, Mapping[str, Any] | None]]:
    """Iterate over the items of a list or an object: its index or key, the value, and its schema, if there is
    one.
    """
    if isinstance(value, list):
        items = schema.get("items")
        for index, item in enumerate(value):
            yield index, item, items if isinstance(items, Mapping) else None
    elif isinstance(value, dict):
        known = schema.get("properties") or {}
        rest = schema.get("additionalProperties")
        for key, item in list(value.items()):
            yield key, item, known.get(key, rest if isinstance(rest, Mapping) else None)


def fill(schema: Mapping[str, Any], value: Any) -> None:
    """Fill in defaults, and drop each null that its field does not allow."""
    if isinstance(value, dict):
        for key, inner in (schema.get("properties") or {}).items():
            if key in value and value[key] is None and not inner.get("nullable"):
                del value[key]
            if key not in value and "default" in inner:
                value[key] = copy.deepcopy(inner["default"])
    for _, item, inner in _parts(schema, value):
        if inner is not None:
            fill(inner, item)


def has(schema: Mapping[str, Any], path: str) -> bool:
    """Return True if a path such as `.spec.color` leads to a string, a number or a boolean of the schema."""
    first, *names = path.split(".")
    for name in names:
        inner = (schema.get("properties") or {}).get(name)
        if not isinstance(inner, Mapping):
            return False
        schema = inner
    return not first and bool(names) and schema.get("type") in ("string", "integer", "boolean")


# ---- Checks


def problems_of(schema: Mapping[str, Any], obj: Mapping[str, Any]) -> list[StatusCause]:
    """Return the violations of an object, in the order of its fields."""
    return list(_problems(schema, obj, ""))


def _problems(schema: Mapping[str, Any], value: Any, where: str) -> Iterator[StatusCause]:
    if value is None and schema.get("nullable"):
        return
    given = _type_of(value)
    wanted = (
        ("integer", "string")
        if schema.get(_INT_OR_STRING)
        else (schema["type"],)
        if schema.get("type")
        else ()
    )
    if wanted and given not in wanted and not (given == "integer" and "number" in wanted):
        message = f'Invalid value: "{given}": {where} in body must be of type {",".join(wanted)}: "{given}"'
        yield cause("FieldValueTypeInvalid", message, where)
    elif isinstance(value, dict):
        yield from _of_object(schema, value, where)
    elif isinstance(value, list):
        yield from _of_list(schema, value, where)
    elif isinstance(value, str):
        yield from islice(_of_string(schema, value, where), 1)  # The server reports only the first.
    elif not isinstance(value, bool) and value is not None:
        yield from _of_number(schema, value, where)
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        yield unsupported(where, value, *allowed)


def _of_object(schema: Mapping[str, Any], value: Mapping[str, Any], where: str) -> Iterator[StatusCause]:
    known = schema.get("properties") or {}
    rest = schema.get("additionalProperties")
    for key, item in value.items():
        inner = known.get(key, rest)
        if isinstance(inner, Mapping) and not (not where and key in _OWN):
            yield from _problems(inner, item, f"{where}.{key}" if where else key)
    required = [*(("apiVersion", "kind") if schema.get(_EMBEDDED) else ()), *(schema.get("required") or ())]
    for key in dict.fromkeys(required):
        if key not in value and not (not where and key in _OWN):
            yield cause("FieldValueRequired", "Required value", f"{where}.{key}" if where else key)
    if len(value) < schema.get("minProperties", 0):
        yield _invalid(where, value, f"in body should have at least {schema['minProperties']} properties")
    if len(value) > schema.get("maxProperties", len(value)):
        yield cause(
            "FieldValueTooMany",
            f"Too many: {len(value)}: must have at most {schema['maxProperties']} items",
            where,
        )


def _of_list(schema: Mapping[str, Any], value: list[Any], where: str) -> Iterator[StatusCause]:
    items = schema.get("items")
    if isinstance(items, Mapping):
        for index, item in enumerate(value):
            yield from _problems(items, item, f"{where}[{index}]")
    if len(value) < schema.get("minItems", 0):
        yield _invalid(where, len(value), f"in body should have at least {schema['minItems']} items")
    if len(value) > schema.get("maxItems", len(value)):
        yield cause(
            "FieldValueTooMany",
            f"Too many: {len(value)}: must have at most {schema['maxItems']} items",
            where,
        )


def _of_string(schema: Mapping[str, Any], value: str, where: str) -> Iterator[StatusCause]:
    if len(value) > schema.get("maxLength", len(value)):
        yield cause("FieldValueTooLong", f"Too long: may not be more than {schema['maxLength']} bytes", where)
    if len(value) < schema.get("minLength", 0):
        yield _invalid(where, value, f"in body should be at least {schema['minLength']} chars long")
    pattern = schema.get("pattern")
    if pattern and not _matches(pattern, value):
        yield _invalid(where, value, f"in body should match '{pattern}'")


def _matches(pattern: str, value: str) -> bool:
    """Return True if a text matches a pattern. Patterns of Go that Python does not have match everything."""
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True


def _of_number(schema: Mapping[str, Any], value: float, where: str) -> Iterator[StatusCause]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
        yield _invalid(
            where,
            value,
            f"in body should be greater than{'' if schema.get('exclusiveMinimum') else ' or equal to'}"
            f" {least}",
        )
    if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
        yield _invalid(
            where,
            value,
            f"in body should be less than{'' if schema.get('exclusiveMaximum') else ' or equal to'} {most}",
        )


def _type_of(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return "integer"
    names = {bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _invalid(where: str, value: object, why: str) -> StatusCause:
    return cause("FieldValueInvalid", f"Invalid value: {_as_json(value)}: {where} {why}", where)
