"""What a declared index is by: a path, or the operator's own function. Reads values off objects; finds no
object by them.

The values are read off an object as it comes, before anything of it is dropped, and are kept beside it. An
index that is added later reads them off what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from kopf_selectcache.core.errors import BadIndex, Undecodable

from .projection import Keys, as_written, at, repeated, where_of
from .record import INDEXED, Record, kept_json

Value: TypeAlias = str | bool | int | float

Function: TypeAlias = Callable[[dict[str, Any]], str | Collection[str] | None]

ODD: Final = None
"""Among the values at a path: there is more, or something else, than one value."""

Values: TypeAlias = tuple[Value | None, ...]

Failing: TypeAlias = Callable[[tuple[str, str], str], object]
"""Told the namespace and name of an object, and why an index has no value of it. It may be called in any
thread."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """One declared index: its name, and what it is by."""

    name: str
    path: Keys | None = None
    function: Function | None = None
    late: bool = False
    """Whether it was added to what is kept: then it is by that, of objects that come later as well."""
    failing: Failing | None = field(default=None, repr=False, compare=False)
    """Told of what comes later, and of which an added one has no value since its function fails."""

    def __str__(self) -> str:
        """Write it as it is declared."""
        by = (
            repr(as_written(self.path))
            if self.path is not None
            else getattr(self.function, "__name__", type(self.function).__name__)
        )
        return f"{self.name!r}: {by}"

    def is_like(self, other: Indexed) -> bool:
        """Whether both are by the same path or function, declared or added."""
        return (self.path, self.function) == (other.path, other.function)

    def known(self, record: Record) -> Values | None:
        """Return the values that were read when a record came, or noted since; None if none were."""
        known = record.indexed().get(self.name)
        return None if known is None else tuple(known)

    def of(self, record: Record) -> Values:
        """Return the values of a record: those that are known, or else what is read off what is kept. None if
        its function fails, or the object is unreadable.
        """
        if (known := self.known(record)) is not None:
            return known
        try:
            return self.come(record.key, record.decode())
        except (BadIndex, Undecodable):
            return ()

    def come(self, key: tuple[str, str], obj: dict[str, Any]) -> Values:
        """Return the values of an object that has come; raise what `values` raises, if it was declared.

        One that was added is left without a value of that object: nobody who declared the cache has reckoned
        with it.
        """
        try:
            return self.values(obj)
        except (BadIndex, Undecodable) as bad:
            if not self.late:
                raise
            if self.failing is not None:
                self.failing(key, str(bad))
            return ()

    def values(self, obj: dict[str, Any]) -> Values:
        """Return the values of an object; raise BadIndex if its function fails, or returns what can be none,
        and Undecodable if it recurses too deeply.

        What the function does is told without its words, which may be a Secret's.
        """
        return _at(obj, self.path) if self.path is not None else self._made(obj)

    def _made(self, obj: dict[str, Any]) -> Values:
        assert self.function is not None, "an index is by a path or a function"
        call = partial(self.function, obj)
        try:
            # The second call gets the same object. The function is to read it, and not to change it.
            made = repeated(call, call, f"index function {self.name!r}")
            if made is None or isinstance(made, str):
                return () if made is None else (str.__str__(made),)
            if isinstance(made, Collection) and not isinstance(made, (Mapping, bytes, bytearray)):
                each = tuple(dict.fromkeys(made))
                if all(isinstance(value, str) for value in each):
                    return tuple(map(str.__str__, each))
        except Undecodable:
            raise
        except Exception as error:  # It is anybody's code.  # noqa: BLE001
            why = f"raised {type(error).__name__}{where_of(error)}"
        else:
            why = (
                "returned"
                f" {'a list with something else than texts in it' if isinstance(made, (list, tuple, set, frozenset)) else f'something of the type {type(made).__name__}'}"  # noqa: E501
            )
        raise BadIndex(
            self.name, why
        )  # Out here it does not carry the error along, which may hold the object.


def note(record: Record, indexes: Collection[Indexed]) -> None:
    """Keep beside a record those values of these indexes that are not known yet. The writer's, and under no
    lock: functions are called.

    They are its values from now on, whatever a function would make of it later.
    """
    known = record.indexed()
    if missing := {each.name: each.of(record) for each in indexes if each.name not in known}:
        record.fields = with_values(record.fields, {**known, **missing})


def with_values(fields: bytes, values: Mapping[str, Collection[Any]]) -> bytes:
    """Return what is kept beside an object, with these values of declared indexes."""
    return kept_json({**(msgspec.json.decode(fields) if fields else {}), INDEXED: values})


def _at(obj: dict[str, Any], path: Keys) -> Values:
    found = at(obj, path)
    if _is_plain(found):
        return (found,)
    leads_on = found is None and not any(
        isinstance(at(obj, path[:depth]), list) for depth in range(1, len(path))
    )
    return () if leads_on else (*dict.fromkeys(filter(_is_plain, ends(obj, path))), ODD)


def ends(value: object, path: Keys) -> Iterator[Any]:
    """Yield what is at the path, through lists to each item."""
    if isinstance(value, list):
        for each in value:
            yield from ends(each, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping):
        yield from ends(value.get(path[0]), path[1:])


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, bool, int, float))
