"""Sets of fields, as `fieldsV1` of managedFields has them: pure functions of nested maps.

A key is a field (`f:spec`), an item of a list by its keys (`k:{"name":"a"}`) or an item of a set (`v:"a"`). A
path is in the set if its map is empty, or has `.`; otherwise the map only leads to others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from .merge_types import Type

Fields: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]

_SELF = "."
# The order of keys: fields, items by keys, items of sets.
_RANKS: Mapping[str, int] = {"f": 0, "k": 1, "v": 2, "i": 3}


def is_member(fields: Fields | None) -> bool:
    """Return True if the path that has led here is in the set."""
    return fields is not None and (not fields or _SELF in fields)


def below(fields: Fields) -> Fields:
    """Return the set of the paths that go on from here."""
    return {key: inner for key, inner in fields.items() if key != _SELF}


def node(*, member: bool, inner: Fields | None) -> Fields | None:
    """Return the map for a path: None if neither it nor a longer one is in the set."""
    if not inner:
        return {} if member else None
    return {_SELF: {}, **inner} if member else inner


def union(one: Fields, other: Fields) -> Fields:
    """Return the paths that are in either set.

    >>> union({'f:a': {}}, {'f:a': {'f:b': {}}})
    {'f:a': {'.': {}, 'f:b': {}}}
    """
    found = dict(one)
    for key, inner in other.items():
        if key not in one:
            found[key] = inner
        elif key != _SELF:
            both = union(below(one[key]), below(inner))
            found[key] = node(member=is_member(one[key]) or is_member(inner), inner=both) or {}
    return found


def difference(one: Fields, other: Fields) -> Fields:
    """Return the paths of the first set that are not in the other.

    >>> difference({'f:a': {'.': {}, 'f:b': {}}}, {'f:a': {}})
    {'f:a': {'f:b': {}}}
    """
    found = {}
    for key, inner in one.items():
        if key in other:
            member = is_member(inner) and not is_member(other[key])
            left = node(member=member, inner=difference(below(inner), below(other[key])))
            if left is not None:
                found[key] = left
        else:
            found[key] = inner
    return found


def intersection(one: Fields, other: Fields) -> Fields:
    """Return the paths that are in both sets."""
    found = {}
    for key, inner in one.items():
        if key in other:
            member = is_member(inner) and is_member(other[key])
            both = node(member=member, inner=intersection(below(inner), below(other[key])))
            if both is not None:
                found[key] = both
    return found


def without(one: Fields, other: Fields) -> Fields:
    """Return the paths of the first set that neither are in the other nor continue a path of it.

    >>> without({'f:spec': {'f:a': {}}, 'f:status': {'f:b': {}}}, {'f:status': {}})
    {'f:spec': {'f:a': {}}}
    """
    found = {}
    for key, inner in one.items():
        if key not in other:
            found[key] = inner
        elif not is_member(other[key]):
            left = node(member=is_member(inner), inner=without(below(inner), below(other[key])))
            if left is not None:
                found[key] = left
    return found


def with_declared(fields: Fields, type_: Type) -> Fields:
    """Return the set with each declared field that leads to a path of it."""
    found = {}
    for key, inner in fields.items():
        kind, name = key[0], key[2:]
        declared = kind == "f" and type_.declares(name)
        more = with_declared(below(inner), type_.field(name) if kind == "f" else type_.items())
        found[key] = node(member=declared or is_member(inner), inner=more) or {}
    return found


def paths(fields: Fields) -> Iterator[Path]:
    """Iterate over the paths of the set, in the server's order: the shorter ones first."""
    keys = sorted((key for key in fields if key != _SELF), key=_rank)
    yield from ((key,) for key in keys if is_member(fields[key]))
    for key in keys:
        yield from ((key, *rest) for rest in paths(below(fields[key])))


def in_order(fields: Fields) -> Fields:
    """Return the set with its keys in the server's order."""
    found = {key: in_order(fields[key]) for key in sorted(fields, key=_rank) if key != _SELF}
    return {_SELF: {}, **found} if _SELF in fields else found


def _rank(key: str) -> tuple[int, str]:
    return _RANKS.get(key[0], -1), key


def is_valid(fields: Any) -> bool:
    """Return True if a value has the form of a set."""
    return isinstance(fields, Mapping) and all(
        key == _SELF or (key[1:2] == ":" and key[0] in _RANKS and is_valid(inner))
        for key, inner in fields.items()
    )


# ---- Keys


def key_of(item: Any, keys: tuple[tuple[str, Any], ...]) -> str:
    """Return the key of an item of a list. One that lacks the keys is identified by its whole value."""
    if keys and isinstance(item, Mapping) and (said := _keys_of(item, keys)):
        return f"k:{_json(said)}"
    return f"v:{_json(item)}"


def _keys_of(item: Mapping[str, Any], keys: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {name: item.get(name, default) for name, default in keys if name in item or default is not None}


def keyless(item: Any, keys: tuple[tuple[str, Any], ...]) -> str:
    """Return the server's error of an item that has no key; empty if it has one."""
    if not keys:
        if isinstance(item, Mapping):
            return "associative list without keys has an element that's a map type"
        if isinstance(item, list):
            return "not supported: associative list with lists as elements"
        return (
            "" if item is not None else "associative list without keys has an element that's an explicit null"
        )
    if item is None:
        return "associative list with keys may not have a null element"
    if not isinstance(item, Mapping):
        return "associative list with keys may not have non-map elements"
    if _keys_of(item, keys):
        return ""
    names = " ".join(f'"{name}"' for name, _ in keys)
    return (
        f"associative list with keys has an element that omits all key fields [{names}] (and doesn't have"
        " default values for any key fields)"
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def text(path: Path) -> str:
    """Return a path as the server's errors show it.

    >>> text(('f:spec', 'f:containers', 'k:{"name":"a"}', 'f:image'))
    '.spec.containers[name="a"].image'
    """
    return "".join(map(key_text, path))


def key_text(key: str) -> str:
    kind, rest = key[0], key[2:]
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys = msgspec.json.decode(rest).items()
        return f"[{','.join(f'{name}={_json(value)}' for name, value in keys)}]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"
