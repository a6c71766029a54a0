"""Equality of JSON values. Python takes true for 1 and false for 0; the API does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

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
