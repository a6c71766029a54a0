"""YAML of clients, which is what server-side apply sends: decoded, or refused with the server's text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from . import body as reading
from . import types
from .status import Problem, bad_request, not_implemented

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
        value = reading.decode(data)
    except reading.UnreadableBody:
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
        if depth > reading.DEEPEST:
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
