"""Makes plain JSON of what handlers give: patches, return values and writes may contain `Objects`, views, and
parts of views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from math import isfinite
from typing import Any

import msgspec

from kopf_selectcache._errors import InvalidObject
from kopf_selectcache.core.recursion import decoded, with_room
from kopf_selectcache.core.redact import clipped, printable, shown_by_type

_DEEPEST = 10_000
"""The levels that a server accepts. A value that contains itself has more."""

_GIVE = "Give texts, numbers, lists and dicts"
_UNAWAITED = "is a call that was not awaited"
_AWAIT = "Write await before the call: await cache.fetch(...)"
_TOO_DEEP = "the value is nested too deeply"


def plain(about: str, value: Any, *at: object) -> Any:
    """Return a copy of a value as JSON has it: dicts, lists, texts, numbers, booleans and None.

    Raise InvalidObject, with the path and the type, for a part that JSON cannot have. `about` begins its
    text, and the value itself is at a path.

    >>> plain('the patch', {'ready': (1, 2)})
    {'ready': [1, 2]}
    >>> plain('the patch', {'status': {'pods': [{'x': {1, 2}}]}})
    Traceback (most recent call last):
    ...
    kopf_selectcache.errors.InvalidObject: the patch: status.pods[0].x is a set, which JSON does not have.
    Give texts, numbers, lists and dicts
    """
    whole = [value]
    left: list[tuple[Any, tuple[object, ...]]] = [(whole, ())]
    while left:  # No recursion: a value may be nested as deeply as a server accepts.
        parent, path = left.pop()
        if len(path) > _DEEPEST:
            raise _refused(about, _TOO_DEEP)
        for key, each in parent.items() if isinstance(parent, dict) else enumerate(parent):
            made, why = _made(each)
            if why:
                remedy = _AWAIT if why == _UNAWAITED else _GIVE
                raise _refused(about, f"{_written((*at, *(*path, key)[1:]))} {why}", remedy)
            parent[key] = made
            if isinstance(made, dict | list):
                left.append((made, (*path, key)))
    if why := _unsendable(whole[0]):
        raise _refused(about, why)  # Not in the handler of its cause, which may show a value of a Secret.
    return whole[0]


def _made(value: Any) -> tuple[Any, str]:
    """Return a value whose members are still to be made plain, and what is wrong with it, if anything."""
    if isinstance(value, msgspec.Raw):
        value = decoded(value)
    if value is None or isinstance(value, bool):
        return value, ""
    if isinstance(value, str):
        return str.__str__(value), ""  # An enum may be one, whose own `str` is its name.
    if isinstance(value, int):
        return int(value), ""
    if isinstance(value, float):
        return float(value), "" if isfinite(value) else "is infinite or NaN, which JSON does not have"
    if isinstance(value, Mapping):
        wrong = next((each for each in value if not isinstance(each, str | int)), None)
        made = {str(key): each for key, each in value.items()}
        return made, "" if wrong is None else f"has {shown_by_type(wrong)} as a key, which JSON does not have"
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return list(value), ""
    if isawaitable(value):
        if hasattr(value, "close"):
            value.close()  # The error says it.
        return None, _UNAWAITED
    if not isinstance(value, set | frozenset):  # Its order changes from process to process.
        with suppress(TypeError, ValueError, RecursionError):
            return msgspec.to_builtins(value), ""
    return None, f"is {shown_by_type(value)}, which JSON does not have"


def _unsendable(value: Any) -> str:
    """Return what keeps plain JSON from being sent: the encoder accepts fewer texts, and fewer levels."""
    try:
        with_room(partial(msgspec.json.encode, value))
    except RecursionError:
        return _TOO_DEEP
    except ValueError as error:  # UnicodeError is one.
        return f"the value has a text that can't be sent: {type(error).__name__}"
    return ""


def _written(path: Iterable[object]) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")
    return printable(clipped(text or "the value"), 500)


def _refused(about: str, why: str, remedy: str = _GIVE) -> InvalidObject:
    return InvalidObject(f"{about}: {why}", remedy=remedy)
