"""Objects as `msgspec.Struct`s: only the fields of the struct are decoded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, TypeGuard, get_args

import msgspec

from kopf_selectcache.core.recursion import on_empty_stack
from kopf_selectcache.core.store.projection import Keys
from kopf_selectcache.core.store.record import Record

_WHERE = re.compile(r" - at `(?P<path>[^`]*)`$")
_LACKS = re.compile(r"Object missing required field `(?P<field>[^`]*)`")


def is_struct(given: object) -> TypeGuard[type[msgspec.Struct]]:
    """Return True if this is a subclass of `msgspec.Struct`."""
    return isinstance(given, type) and issubclass(given, msgspec.Struct)


@lru_cache(256)
def reader(wanted: type[msgspec.Struct]) -> Callable[[Record], Any]:
    """Return the function that decodes a record as such a struct. It raises what msgspec raises."""
    decode = msgspec.json.Decoder(wanted).decode

    def read(record: Record) -> Any:
        try:
            return decode(record.data)
        except RecursionError:
            return on_empty_stack(partial(decode, record.data))

    return read


@lru_cache(256)
def paths(wanted: type[msgspec.Struct]) -> tuple[Keys, ...]:
    """Return the path of each field of a struct, including those of nested structs and lists of them.

    >>> Spec = msgspec.defstruct('Spec', [('node_name', str)], rename='camel')
    >>> paths(msgspec.defstruct('Pod', [('metadata', dict), ('spec', Spec | None)]))
    (('metadata',), ('spec', 'nodeName'))
    """
    return tuple(_paths(wanted, (), (wanted,)))


def _paths(wanted: type[msgspec.Struct], within: Keys, seen: tuple[type, ...]) -> Iterator[Keys]:
    for field in msgspec.structs.fields(wanted):
        path = (*within, field.encode_name)
        inner = [each for each in _classes(field.type) if is_struct(each)]
        if not inner or any(each in seen for each in inner):  # A recursive struct would have no end.
            yield path
        else:
            for each in inner:
                yield from _paths(each, path, (*seen, each))


def _classes(of: Any) -> Iterator[Any]:
    """Yield the type and its type arguments, recursively: for `list[Port] | None`, Port as well."""
    yield of
    for each in get_args(of):
        yield from _classes(each)


def wrong(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the place of an error in an object, and the missing field or an empty text. Values are not
    returned: they may be those of a Secret.

    >>> try: msgspec.convert({'spec': {}}, msgspec.defstruct('Pod', [('spec', msgspec.defstruct('Spec', [('node', str)]))]))
    ... except msgspec.ValidationError as error: wrong(error)
    ('$.spec', 'node')
    """  # A line of an example is not broken.  # noqa: E501
    if error.__cause__ is not None:
        return "$", ""  # The struct itself raised it, with any text.
    path, lacks = _WHERE.search(str(error)), _LACKS.match(str(error))
    return path["path"] if path is not None else "$", lacks["field"] if lacks is not None else ""
