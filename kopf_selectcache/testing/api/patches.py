"""Patches: merge patch (RFC 7386), JSON patch (RFC 6902), and their content types."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from . import body, strategic, types
from .kinds import Served
from .metadata import cause
from .status import Problem, bad_request, not_implemented

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_PREFIX = "error decoding patch: "

Apply: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


def read(patch: bytes, content_type: str, served: Served) -> Apply:
    """Return a function that applies the patch. It does not change the given object."""
    kind = content_type.partition(";")[0].strip()
    if kind == APPLY:
        raise not_implemented("server-side apply")
    if kind not in (MERGE, JSON) and (kind != STRATEGIC or served.custom):
        raise _unsupported(served)
    value = _decode(patch, prefix="" if kind == STRATEGIC else _PREFIX)
    if kind == JSON:
        steps = _steps(value)
        return lambda obj: _apply_steps(obj, steps)
    if not isinstance(value, dict):
        raise _undecodable(value, "map[string]interface {}", prefix="" if kind == STRATEGIC else _PREFIX)
    if kind == MERGE:
        return lambda obj: merged(obj, value)
    return lambda obj: strategic.merged(obj, value)


def _decode(patch: bytes, *, prefix: str) -> Any:
    try:
        return body.decode(patch)
    except body.UnreadableBody as error:
        raise bad_request(f"{prefix}{error}") from None


def _undecodable(value: object, wanted: str, *, prefix: str = _PREFIX) -> Problem:
    return bad_request(
        f"{prefix}json: cannot unmarshal {types.json_type(value)} into Go value of type {wanted}"
    )


def _steps(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise _undecodable(value, "[]handlers.jsonPatchOp")
    for step in value:
        if why := types.misfit(step, types.JSON_PATCH_STEP, "handlers.jsonPatchOp"):
            raise bad_request(f"{_PREFIX}{why}")
    return value


def _unsupported(served: Served) -> Problem:
    if not served.custom:
        return Problem(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    return Problem(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {JSON}, {MERGE},"
        f" {APPLY}",
    )


def unreadable(patched: Mapping[str, Any], why: str) -> Problem:
    """Refuse a patch whose result is no object of its kind."""
    why = reason_in(why)
    found = cause("FieldValueInvalid", f"Invalid value: {_as_json(_as_json(patched))}: {why}", "patch")
    return Problem(422, "Invalid", f' "" is invalid: patch: {found["message"]}', details={"causes": [found]})


def reason_in(why: str) -> str:
    """Return the last part of the error of an unreadable object, the only one that is reported here."""
    return why.partition(" cannot be handled as a ")[2].partition(": ")[2] or why


def _as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# ---- Merge patch


def merged(target: Any, patch: Any) -> Any:
    """Return the target with the patch merged into it; null removes.

    >>> merged({'a': 1, 'b': {'c': 2, 'd': 3}}, {'a': None, 'b': {'c': 4}})
    {'b': {'c': 4, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


# ---- JSON patch


def _apply_steps(obj: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    result: Any = copy.deepcopy(obj)
    for step in steps:
        try:
            result = _apply(result, step)
        except (LookupError, TypeError, ValueError, RecursionError):
            raise _rejected() from None
    if not isinstance(result, dict) or body.is_too_deep(result):
        raise _rejected()
    return result


def _rejected() -> Problem:
    return Problem(
        422, "Invalid", "the server rejected our request due to an error in our request", details={}
    )


def _apply(obj: Any, step: Mapping[str, Any]) -> Any:
    path = _keys(step["path"])
    match step["op"]:
        case "add":
            return _add(obj, path, step.get("value"))
        case "replace":
            # Unlike in RFC 6902, the server's library accepts a missing key.
            return _set(obj, path, step.get("value"))
        case "remove":
            _remove(obj, path)
            return obj
        case "move":
            value = _find(obj, _keys(step["from"]))
            _remove(obj, _keys(step["from"]))
            return _add(obj, path, value)
        case "copy":
            return _add(obj, path, copy.deepcopy(_find_or_null(obj, _keys(step["from"]))))
        case "test":
            return _test(obj, path, step.get("value"))
        case _:
            raise ValueError(step["op"])


def _keys(pointer: str | None) -> list[str]:
    if pointer is None or (pointer and not pointer.startswith("/")):
        raise ValueError(pointer)
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]


def _index(key: str, end: int) -> int:
    """Read an index, which may count from the end with a minus sign, as in the server's library."""
    if not (key.isascii() and key.removeprefix("-").isdecimal()):
        raise ValueError(key)
    index = int(key)
    if not -end <= index < end:
        raise IndexError(key)
    return index + end if index < 0 else index


def _find(obj: Any, path: list[str]) -> Any:
    for key in path:
        obj = obj[_index(key, len(obj))] if isinstance(obj, list) else obj[key]
    return obj


def _find_or_null(obj: Any, path: list[str]) -> Any:
    """As in the server's library: an absent key is null."""
    home = _find(obj, path[:-1])
    return home.get(path[-1]) if path and isinstance(home, dict) else _find(obj, path)


def _set(obj: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    home = _find(obj, path[:-1])
    if isinstance(home, list):
        home[_index(path[-1], len(home))] = value
    else:
        home[path[-1]] = value
    return obj


def _add(obj: Any, path: list[str], value: Any) -> Any:
    home = _find(obj, path[:-1]) if path else None
    if not isinstance(home, list):
        return _set(obj, path, value)
    home.insert(len(home) if path[-1] == "-" else _index(path[-1], len(home) + 1), value)
    return obj


def _remove(obj: Any, path: list[str]) -> None:
    home = _find(obj, path[:-1])
    if isinstance(home, list):
        del home[_index(path[-1], len(home))]
    else:
        del home[path[-1]]


def _test(obj: Any, path: list[str], value: Any) -> Any:
    found = _find_or_null(obj, path)
    if msgspec.json.encode(found, order="sorted") != msgspec.json.encode(value, order="sorted"):
        raise ValueError(path)
    return obj
