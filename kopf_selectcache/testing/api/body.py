"""Bodies of clients, in JSON and YAML: decoded, or refused with the server's text. It knows no kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from . import types
from .status import Problem, bad_request, not_implemented

# Levels. The server allows ten thousand, which no object needs, and the recursion here would not survive.
DEEPEST = 200


class UnreadableBody(ValueError):
    """The body is no JSON, or nested too deeply."""


def decode(data: bytes) -> Any:
    """Decode JSON. Bytes that are no UTF-8 become the replacement character, as on the server."""
    try:
        value = msgspec.json.decode(data)
    except UnicodeDecodeError:
        return decode(data.decode(errors="replace").encode())
    except msgspec.DecodeError as error:
        raise UnreadableBody(str(error)) from None
    except RecursionError:
        raise _too_deep(data) from None
    if data.count(b"{") + data.count(b"[") > DEEPEST and is_too_deep(value):
        raise _too_deep(data)
    return value


def is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def _too_deep(data: bytes) -> UnreadableBody:
    bracket = "[" if data.count(b"[") > data.count(b"{") else "{"
    return UnreadableBody(f"invalid character '{bracket}' exceeded max depth")


def summary(data: bytes) -> str:
    """Return the start of the body, as the server quotes it."""
    if not data:
        return "<empty>"
    start = data[:30].decode(errors="replace") if data.startswith(b"{") else data[:30].hex()
    return f"{start} ..." if len(data) > 30 else start


# ---- YAML of clients, which is what server-side apply sends: decoded, or refused with the server's text.

_FASTEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_FASTEST):  # type: ignore[misc]  # The class is known at run time only.
    """Reads YAML as the server does: a date is a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _FASTEST.yaml_implicit_resolvers.items()
}


def read(data: bytes) -> dict[str, Any]:
    """Read an object from YAML or JSON; of several documents, the first counts. Raise 400."""
    try:
        value = decode(data)
    except UnreadableBody:
        value = _from_yaml(data)
    if value is not None and not isinstance(value, dict):
        raise _undecodable(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal"
            f" {types.json_type(value)} into Go value of type map[string]interface {{}}"
        )
    return value or {}


def _from_yaml(data: bytes) -> Any:
    try:
        _require_flat(data)
        value = next(iter(yaml.load_all(data, Loader=_Loader)), None)
        # In JSON, keys are texts, and there are neither sets nor bytes.
        return msgspec.json.decode(msgspec.json.encode(value))
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise _undecodable(f"error converting YAML to JSON: yaml: {first}") from None


def _require_flat(data: bytes) -> None:
    """Refuse (400) YAML that is nested too deeply, which ends the process of a faster loader."""
    depth = 0
    for event in yaml.parse(data, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise not_implemented("aliases in YAML")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError("exceeded max depth")


def _undecodable(why: str) -> Problem:
    return bad_request(f"error decoding YAML: {why}")


def doubled(data: bytes) -> list[str]:
    """Return the server's errors of keys that a map of this YAML or JSON has twice.

    >>> doubled(b'{"a": 1, "a": 2}')
    ['line 1: key "a" already set in map']
    """
    try:
        _require_flat(data)
        root = next(iter(yaml.compose_all(data, Loader=_Loader)), None)
        return list(_doubled(root))
    except (yaml.YAMLError, ValueError):
        return []  # Its JSON is valid, as YAML it is not.


def _doubled(node: Any) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                told = msgspec.json.encode(key.value).decode()
                yield f"line {key.start_mark.line + 1}: key {told} already set in map"
            seen.add(key.value)
            yield from _doubled(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _doubled(item)


def refuse_doubled(lines: list[str]) -> None:
    """Refuse (400) keys that come twice."""
    if lines:
        listed = "\n  ".join(lines)
        raise bad_request(
            f"error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {listed}"
        )
