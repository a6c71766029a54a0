"""Objects as `msgspec.Struct`s of the fields that are wanted: what is not wanted is never made. Knows no
cache.
"""

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
    """Whether this is a class of msgspec's, which says itself how it is decoded."""
    return isinstance(given, type) and issubclass(given, msgspec.Struct)


@lru_cache(256)
def reader(wanted: type[msgspec.Struct]) -> Callable[[Record], Any]:
    """Return what makes such a struct of an object. It raises what msgspec raises."""
    decode = msgspec.json.Decoder(wanted).decode

    def read(record: Record) -> Any:
        try:
            return decode(record.data)
        except RecursionError:
            return on_empty_stack(partial(decode, record.data))

    return read


@lru_cache(256)
def paths(wanted: type[msgspec.Struct]) -> tuple[Keys, ...]:
    """Return the path of each field that is wanted, through structs in structs, and in lists of them.

    >>> Spec = msgspec.defstruct('Spec', [('node_name', str)], rename='camel')
    >>> paths(msgspec.defstruct('Pod', [('metadata', dict), ('spec', Spec | None)]))
    (('metadata',), ('spec', 'nodeName'))
    """
    return tuple(_paths(wanted, (), (wanted,)))


def _paths(wanted: type[msgspec.Struct], within: Keys, seen: tuple[type, ...]) -> Iterator[Keys]:
    for field in msgspec.structs.fields(wanted):
        path = (*within, field.encode_name)
        inner = [each for each in _classes(field.type) if is_struct(each)]
        if not inner or any(each in seen for each in inner):  # One that contains itself would have no end.
            yield path
        else:
            for each in inner:
                yield from _paths(each, path, (*seen, each))


def _classes(of: Any) -> Iterator[Any]:
    """Yield the type, and those that it is made of: of `list[Port] | None`, Port as well."""
    yield of
    for each in get_args(of):
        yield from _classes(each)


def wrong(error: msgspec.ValidationError) -> tuple[str, str]:
    """Say where in an object something is wrong, and which field is missing there, if one is; never what is
    there: it may be a Secret's.

    >>> try: msgspec.convert({'spec': {}}, msgspec.defstruct('Pod', [('spec', msgspec.defstruct('Spec', [('node', str)]))]))
    ... except msgspec.ValidationError as error: wrong(error)
    ('$.spec', 'node')
    """  # noqa: E501
    if error.__cause__ is not None:
        return "$", ""  # It is the class's own, whose words may be anything.
    path, lacks = _WHERE.search(str(error)), _LACKS.match(str(error))
    return path["path"] if path is not None else "$", lacks["field"] if lacks is not None else ""
