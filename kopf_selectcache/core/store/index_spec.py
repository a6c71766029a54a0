"""Declared index: its path or function, and the extraction of its values from objects.

The values are extracted from an object when it arrives, before the projection drops anything, and are stored
in its record. An index that is added later extracts them from the stored part of the object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, Final, TypeAlias

import msgspec

from kopf_selectcache.core.errors import BadIndex, Undecodable, let_exit
from kopf_selectcache.core.redact import function_name

from .projection import Keys, as_written, at, repeated, where_of
from .record import INDEXED, Record, compact_json

_KEYS: Final = {True: (True,), False: (False,)}


def is_same(one: object, other: object) -> bool:
    """Return True if two values are equal as JSON, also in lists and objects.

    >>> is_same(1, True), is_same(True, True), is_same(1, 1.0), is_same([{'a': 0}], [{'a': False}])
    (False, True, True, False)
    """
    if one != other:
        return False
    pairs = [(one, other)]  # No recursion: a value may be nested as deeply as the decoder accepts.
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, bool) is not isinstance(other, bool):
            return False
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            pairs += [(value, other[key]) for key, value in one.items()]
        elif isinstance(one, list) and isinstance(other, list):
            pairs += zip(one, other, strict=True)
    return True


def key_of(value: object) -> object:
    """Return the key of a plain value in an index: equal for two values if these are the same.

    >>> key_of(1) == key_of(True), key_of(True) == key_of(True), key_of(1) == key_of(1.0)
    (False, True, True)
    """
    return _KEYS[value] if isinstance(value, bool) else value


def keys_of(values: Iterable[object]) -> tuple[object, ...]:
    """Return the keys of several values, each once."""
    return tuple(dict.fromkeys(map(key_of, values)))


Value: TypeAlias = str | bool | int | float

Function: TypeAlias = Callable[
    ..., str | Collection[str] | Mapping[Any, Any] | Collection[Mapping[Any, Any]] | None
]
"""Returns the values of an object: a text, a list of texts, or dicts by values, as a function of
`@kopf.index` does. It is called with the object, or with its parts by name."""

PARTS = ("body", "meta", "spec", "status", "uid", "name", "namespace", "labels", "annotations")
"""The parts of an object that a function may take by name, as Kopf's handlers do."""

ODD: Final = None
"""Marks, among the values at a path, that the object has anything there but exactly one value."""

Values: TypeAlias = tuple[Value | None, ...]

Failing: TypeAlias = Callable[[tuple[str, str], str], object]
"""A callback with the namespace and name of an object, and the reason why an index has no value for it. It
may be called in any thread."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """A declared index: its name, and its path or function."""

    name: str
    path: Keys | None = None
    function: Function | None = None
    by_parts: bool = False
    """True if the function takes the parts of an object by name, as one of `@kopf.index` does."""
    late: bool = False
    """True if it was added later. It is built from the stored part of all objects, new ones included."""
    failing: Failing | None = field(default=None, repr=False, compare=False)
    """Called for each object without a value because the function of an index that was added fails."""
    slot: str = field(default="", repr=False, compare=False)
    """The key of its values in records, if it is not the name: records may still have values of a former
    index of that name.
    """

    def __str__(self) -> str:
        """Write it as it is declared."""
        by = repr(as_written(self.path)) if self.path is not None else function_name(self.function)
        return f"{self.name!r}: {by}"

    def __repr__(self) -> str:
        return f"Indexed({self})"

    def is_like(self, other: Indexed) -> bool:
        """Return True if both have the same path or function, declared or added."""
        return (self.path, self.function) == (other.path, other.function)

    @property
    def stored_as(self) -> str:
        """The key of its values in records."""
        return self.slot or self.name

    def known(self, record: Record) -> Values | None:
        """Return the values that are stored in a record; None if there are none."""
        known = record.indexed().get(self.stored_as)
        return None if known is None else tuple(known)

    def of(self, record: Record) -> Values:
        """Return the values that are stored in a record, or else extract them from its object. There are none
        if the function fails or the object is unreadable.
        """
        if (known := self.known(record)) is not None:
            return known
        try:
            return self.come(record.key, record.decode())
        except (BadIndex, Undecodable):
            return ()

    def keys(self, record: Record) -> tuple[object, ...]:
        """Return the keys of the values, which a read compares with those that it requires."""
        return keys_of(self.of(record))

    def come(self, key: tuple[str, str], obj: dict[str, Any]) -> Values:
        """Return the values of an object that has arrived; raise the errors of `values` if the index was
        declared.

        The failure of an index that was added is only reported: it must not make objects unreadable that the
        declaration accepts.
        """
        try:
            return self.values(obj)
        except (BadIndex, Undecodable) as bad:
            if not self.late and self.failing is None:
                raise
            if self.failing is not None:
                self.failing(key, str(bad))
            return ()

    def values(self, obj: dict[str, Any]) -> Values:
        """Return the values of an object; raise BadIndex if its function fails or returns anything else than
        `Function` allows, and Undecodable if it recurses too deeply.

        The errors do not quote the function's error, which may contain a Secret.
        """
        return _at(obj, self.path) if self.path is not None else self._made(obj)

    def _made(self, obj: dict[str, Any]) -> Values:
        assert self.function is not None, "an index is by a path or a function"
        call = partial(self.function, **_parts_of(obj)) if self.by_parts else partial(self.function, obj)
        try:
            # The second call gets the same object, because the function must not change it.
            made = repeated(call, call, f"index function {self.name!r}")
            values = _returned(made, as_dicts=self.by_parts)
        except Undecodable:
            raise
        except BaseException as error:  # It is anybody's code.  # noqa: BLE001
            let_exit(error)
            why = f"raised {type(error).__name__}{where_of(error)}"
        else:
            if not isinstance(values, str):
                return values
            why = f"returned {values}"
        # Raised outside of the handler, so that its context is not the error, which may hold the object.
        raise BadIndex(self.name, why)


def _parts_of(obj: dict[str, Any]) -> dict[str, Any]:
    meta = obj.get("metadata") or {}
    parts = {"body": obj, "meta": meta, "spec": obj.get("spec") or {}, "status": obj.get("status") or {}}
    parts |= {name: meta.get(name) for name in ("uid", "name", "namespace")}
    return parts | {name: meta.get(name) or {} for name in ("labels", "annotations")}


def _returned(made: object, *, as_dicts: bool) -> Values | str:
    """Return the values that a function has returned, perhaps as keys of dicts. If it has returned anything
    else, return a text that says it.
    """
    if made is None:
        return ()
    found = (made,) if isinstance(made, (str, Mapping)) else made
    if not isinstance(found, Collection) or isinstance(found, (bytes, bytearray)):
        return f"a value of the type {type(made).__name__}"
    values: dict[Value, None] = {}
    for each in found:
        if isinstance(each, str):
            keys: list[object] = [str.__str__(each)]
        elif as_dicts and isinstance(each, Mapping):
            keys = [key for key in each if key is not None]  # None is the key of no value.
        else:
            is_list = isinstance(made, (list, tuple, set, frozenset))
            return (
                "a list with values that aren't texts"
                if is_list
                else f"a value of the type {type(made).__name__}"
            )
        for key in keys:
            if wrong := wrong_key(key):
                return wrong
            values[joined(key)] = None
    return tuple(values)


def wrong_key(key: object) -> str:
    """Return a text about a value that JSON cannot hold, or an empty one. A number that is not finite would
    be null there, which has another meaning.
    """
    if isinstance(key, str) and key.isascii():
        return ""
    if not (_is_plain(key) or isinstance(key, tuple)):
        return "a dict with a key that isn't a text, number or tuple"
    parts = [key]
    while parts:
        part = parts.pop()
        if isinstance(part, tuple):
            parts += part
        elif isinstance(part, float) and not isfinite(part):
            return "a number that is not finite"
    try:
        compact_json(key)
    except UnicodeEncodeError:
        return "a text that UTF-8 can't encode"
    except (TypeError, ValueError):
        return "a key that JSON can't represent"
    return ""


def joined(value: object) -> Any:
    r"""Return a tuple as one text, which no other value is equal to; and anything else as it is.

    >>> joined(('shop', 'web')), joined('web')
    ('\x00["shop","web"]', 'web')
    """
    return f"\0{compact_json(value).decode()}" if isinstance(value, tuple) else value


def note(record: Record, indexes: Collection[Indexed]) -> None:
    """Store in a record the missing values of these indexes. Call it from the writer without the store's
    lock, because it calls the operator's functions.

    The values stay, even if a function would later return others.
    """
    known = record.indexed()
    if missing := {each.stored_as: each.of(record) for each in indexes if each.stored_as not in known}:
        record.fields = with_values(record.fields, {**known, **missing})


def with_values(fields: bytes, values: Mapping[str, Collection[Any]]) -> bytes:
    """Return `Record.fields` with these values of declared indexes."""
    return compact_json({**(msgspec.json.decode(fields) if fields else {}), INDEXED: values})


def _at(obj: dict[str, Any], path: Keys) -> Values:
    found = at(obj, path)
    if _is_finite(found):
        return (found,)
    leads_on = found is None and not any(
        isinstance(at(obj, path[:depth]), list) for depth in range(1, len(path))
    )
    return (
        ()
        if leads_on
        else (*{key_of(each): each for each in ends(obj, path) if _is_finite(each)}.values(), ODD)
    )


def ends(value: object, path: Keys) -> Iterator[Any]:
    """Yield the values at a path. The path leads through lists to each item."""
    if isinstance(value, list):
        for each in value:
            yield from ends(each, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping):
        yield from ends(value.get(path[0]), path[1:])


def without_value(paths: Iterable[Keys], objects: Collection[Mapping[str, Any]]) -> list[Keys]:
    """Return the paths at which no object has a value."""
    return [path for path in paths if all(value is None for obj in objects for value in ends(obj, path))]


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, bool, int, float))


def _is_finite(value: object) -> bool:
    """Return True for a plain value that JSON can hold. A number of the server may be infinite."""
    return _is_plain(value) and not (isinstance(value, float) and not isfinite(value))
