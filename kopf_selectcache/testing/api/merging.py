"""The merge of server-side apply: pure functions of objects, types and sets of fields.

They follow structured-merge-diff, the library of the server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from .merge_types import Type

_ABSENT: Any = msgspec.UNSET
_DOUBLED = Type(is_atomic=True)


# ---- The fields of an object


def fields_of(value: Any, type_: Type) -> Fields:
    """Return the set of the fields that an object has, for the manager that applies it.

    >>> from .merge_types import PLAIN
    >>> fields_of({'spec': {'replicas': 1, 'args': [1, 2]}}, PLAIN)
    {'f:spec': {'f:replicas': {}, 'f:args': {}}}
    """
    return _fields_of(value, type_) or {}


def _fields_of(value: Any, type_: Type) -> Fields | None:
    if isinstance(value, Mapping) and not type_.is_atomic:
        found = {}
        for name, item in value.items():
            inner = _fields_of(item, type_.field(name))
            member = is_member(inner) or item is None or item == {} or not type_.declares(name)
            if (part := node(member=member, inner=inner)) is not None:
                found[f"f:{name}"] = part
        return found or None
    if isinstance(value, list) and type_.keys is not None:
        keys = [key_of(item, type_.keys) for item in value]
        doubled = {key for key, count in Counter(keys).items() if count > 1}
        found = {
            key: {} if key in doubled else node(member=True, inner=_fields_of(item, type_.items())) or {}
            for key, item in zip(keys, value, strict=True)
        }
        return found or None
    return None if value is None else {}


def _all_of(value: Any, type_: Type) -> Fields:
    """Return the set of all fields at and below a value, with each map and list that is merged."""
    if isinstance(value, Mapping) and value and not type_.is_atomic:
        inner = {f"f:{name}": _all_of(item, type_.field(name)) for name, item in value.items()}
    elif isinstance(value, list) and value and type_.keys is not None:
        inner = {key_of(item, type_.keys): _all_of(item, type_.items()) for item in value}
    else:
        inner = {}
    return node(member=True, inner=inner) or {}


# ---- The differences of two objects


class Comparison(NamedTuple):
    """The fields in which two objects differ."""

    removed: Fields
    changed: Fields
    """The fields that are added or have another value."""


def compare(old: Any, new: Any, type_: Type) -> Comparison:
    """Return the fields that a change removes, and those that it adds or changes."""
    removed, changed = _compare(old, new, type_)
    return Comparison(removed or {}, changed or {})


def _compare(old: Any, new: Any, type_: Type) -> tuple[Fields | None, Fields | None]:
    if old is _ABSENT:
        return None, _all_of(new, type_)
    if new is _ABSENT:
        return _all_of(old, type_), None
    if old is new:
        return None, None
    if not type_.is_atomic and (olds := _map(old)) is not None and (news := _map(new)) is not None:
        if olds or news:
            return _compare_parts(
                {f"f:{name}": (item, type_.field(name)) for name, item in olds.items()},
                {f"f:{name}": (item, type_.field(name)) for name, item in news.items()},
            )
    elif type_.keys is not None and (old or new) and not (_is_scalar(old) or _is_scalar(new)):
        return _compare_parts(_items(old, type_), _items(new, type_))
    if same(old, new):
        return None, None
    # Of a map that comes or goes instead of another value, the parts come or go, too.
    gone, found = below(_all_of(old, type_)), below(_all_of(new, type_))
    return gone or None, node(member=True, inner=found)


def _compare_parts(
    olds: Mapping[str, tuple[Any, Type]], news: Mapping[str, tuple[Any, Type]]
) -> tuple[Fields | None, Fields | None]:
    removed, changed = {}, {}
    for key in {**olds, **news}:
        old, type_ = olds.get(key) or (_ABSENT, news[key][1])
        gone, found = _compare(old, news[key][0] if key in news else _ABSENT, type_)
        if gone is not None:
            removed[key] = gone
        if found is not None:
            changed[key] = found
    return removed or None, changed or None


def _map(value: Any) -> Mapping[str, Any] | None:
    """Return a map; null is an empty one, and None is returned for other values."""
    return value if isinstance(value, Mapping) else {} if value is None else None


def _is_scalar(value: Any) -> bool:
    return value is not None and not isinstance(value, list)


def _items(value: Any, type_: Type) -> dict[str, tuple[Any, Type]]:
    """Return the items of a list by their keys. Items of one key count together."""
    found: dict[str, tuple[Any, Type]] = {}
    items = type_.items()
    for item in value or ():
        key = key_of(item, type_.keys or ())
        found[key] = ([found[key][0], item], _DOUBLED) if key in found else (item, items)
    return found


def same(one: Any, other: Any) -> bool:
    """Return True if two values are the same JSON: `1` and `true` are not."""
    encode = msgspec.json.encode
    return one is other or (one == other and encode(one, order="sorted") == encode(other, order="sorted"))


# ---- The merge


def merged(live: Any, applied: Any, type_: Type) -> Any:
    """Return the live value with the applied one merged into it."""
    if not type_.is_atomic and isinstance(live, Mapping) and (maps := _map(applied)) is not None:
        if not live and not maps:
            return applied
        return {
            name: merged(live[name], maps[name], type_.field(name))
            if name in live and name in maps
            else (maps if name in maps else live)[name]
            for name in {**live, **maps}
        }
    if type_.keys is not None and isinstance(live, list) and (applied is None or isinstance(applied, list)):
        return _merged_lists(live, applied or [], type_) if live or applied else applied
    return applied


def _merged_lists(live: list[Any], applied: list[Any], type_: Type) -> list[Any]:
    """Return the merged items. Those of the applied list have its order, the others stay where they are."""
    keys = type_.keys or ()
    lefts, rights = [key_of(item, keys) for item in live], [key_of(item, keys) for item in applied]
    left, right = dict(zip(lefts, live, strict=True)), dict(zip(rights, applied, strict=True))
    counts = Counter(lefts)
    shared = iter([key for key in rights if key in left])
    following = next(shared, None)
    found, done = [], set()
    at = to = 0
    while at < len(lefts) or to < len(rights):
        if at < len(lefts):
            key = lefts[at]
            if to < len(rights) and key in right and key != rights[to] and following not in (None, key):
                at += 1  # It is shared, and has a later place in the applied list.
                continue
            if key not in right:
                found.append(live[at])
                at += 1
                continue
            if key in done or (to < len(rights) and key == rights[to]):
                at += 1
        if to < len(rights):
            key = rights[to]
            # Doubled items are not merged with the applied one, which replaces them.
            both = key in left and counts[key] == 1
            found.append(merged(left[key], right[key], type_.items()) if both else right[key])
            done.add(key)
            to += 1
            if key == following:
                following = next(shared, None)
    return found


def removed(value: Any, fields: Fields, type_: Type) -> Any:
    """Return a value without these fields; null if nothing is left of a map or a list."""
    if isinstance(value, Mapping) and not type_.is_atomic:
        parts = ((f"f:{name}", name, item, type_.field(name)) for name, item in value.items())
        kept = {
            name: _remaining(item, fields[key], inner) if key in fields else item
            for key, name, item, inner in parts
            if not is_member(fields.get(key))
        }
        return kept or None
    if isinstance(value, list) and type_.keys is not None:
        items = [(key_of(item, type_.keys), item) for item in value]
        inner = type_.items()
        left = [
            _remaining(item, fields[key], inner) if key in fields else item
            for key, item in items
            if not is_member(fields.get(key))
        ]
        return left or None
    return None if isinstance(value, Mapping | list) else value


def _remaining(value: Any, fields: Fields, type_: Type) -> Any:
    inner = below(fields)
    return removed(value, inner, type_) if inner else value


# ---- Errors


def problems_of(value: Any, type_: Type, where: str = "") -> Iterator[tuple[str, str]]:
    """Iterate over the places of an applied object that are not of its type, with the server's errors."""
    if why := type_.misfit(value):
        yield where, why
    elif isinstance(value, Mapping) and not type_.is_atomic:
        for name in type_.undeclared(value):
            yield f"{where}.{name}", "field not declared in schema"
        for name, item in value.items():
            yield from problems_of(item, type_.field(name), f"{where}.{name}")
    elif isinstance(value, list) and type_.keys is not None:
        seen = set()
        for index, item in enumerate(value):
            if why := keyless(item, type_.keys):
                yield where, f"element {index}: {why}"
                continue
            key = key_of(item, type_.keys)
            if key in seen:
                yield where, f"duplicate entries for key {key_text(key)}"
            seen.add(key)
            yield from problems_of(item, type_.items(), f"{where}{key_text(key)}")


# ---- Sets of fields, as `fieldsV1` of managedFields has them: pure functions of nested maps.

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
