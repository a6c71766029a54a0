"""Forms of the objects that reads return: `as_=`, and kinds named by classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Iterator
from functools import lru_cache, partial
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Never,
    TypeAlias,
    TypeGuard,
    TypeVar,
    get_args,
    get_origin,
)

import msgspec

from kopf_selectcache._errors import NotKept, ReadError
from kopf_selectcache.cache.matcher import Obj
from kopf_selectcache.core.json_text import on_empty_stack
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.store.projection import MANAGED, Keys
from kopf_selectcache.core.store.record import PartialRecord, Record
from kopf_selectcache.selectors.kind_keys import is_of_client, made
from kopf_selectcache.selectors.signatures import is_async

from .partial import made_of_part, object_of
from .views import BodyView

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


C = TypeVar("C")
"""The class that names a kind."""

Made = TypeVar("Made")
"""The type of the objects with `as_=`."""

Given = TypeVar("Given")
"""The class of an object that a write is given."""

Else = TypeVar("Else")
"""The type of `default=`; Never without it, which is the type of RAISE."""

As: TypeAlias = type[Made] | Callable[[Obj], Made]
"""The values of `as_=`, except `'view'`."""

AsView: TypeAlias = Literal["view"]


class _Raise:
    """The type of RAISE, as it is shown in signatures."""

    def __repr__(self) -> str:
        return "..."


RAISE: Never
"""Stands for a `default=` that was not given."""


if not TYPE_CHECKING:
    RAISE = _Raise()

_WANTED = "dict, 'view', bytes, a msgspec.Struct, a class of kubernetes or pykube, or a function of an object"


class Form(NamedTuple):
    """The form of requested objects, if it is not a dict."""

    given: object
    """The value of `as_=`; None if a class names the kind."""
    make: Callable[[Record, Obj | None], Any]
    """Converts a record. Receives the object as well if it is decoded already."""
    of_client: type | None = None
    """The class of another client, which stands for a kind."""
    paths: tuple[Keys, ...] = ()
    """The paths that it needs; empty if they are unknown."""


def _data(record: Record, _: Obj | None = None) -> bytes:
    return record.data


def _view(record: Record, _: Obj | None) -> BodyView:
    return BodyView(record)


def _as_client(wanted: type, record: Record, obj: Obj | None) -> Any:
    try:
        if isinstance(record, PartialRecord):
            return made_of_part(wanted, record)
        return made(wanted, _decoded(record, obj))
    except NotKept:  # A class of the user's own looks at a member that is not stored.
        raise
    except Exception as error:  # The client raised it, and its text may show a Secret.  # noqa: BLE001
        why = f"{type(error).__name__}{_where(error)}"
    # Raised outside of the handler, so that the client's exception is not its context.
    name = "/".join(filter(None, record.key))
    what = f"{name} can't be read as {wanted.__name__}: the client raised {why}"
    raise ReadError(what, remedy="Read it as a dict\nUse a version of the client that fits the cluster")


def _as_function(call: str, function: Callable[[Obj], Any], record: Record, obj: Obj | None) -> Any:
    answer = function(_decoded(record, obj))
    if isinstance(answer, Coroutine):  # Other awaitables are valid: objects of kr8s can be awaited.
        answer.close()
        raise _async_function(call)
    return answer


def _as_struct(name: str, read: Callable[[Record], Any], record: Record, _: Obj | None) -> Any:
    try:
        return read(record)
    except msgspec.ValidationError as error:
        where, lacks = wrong(error)
    place = clipped(where.removeprefix("$").removeprefix("."), 200) or "the object"
    # Raised outside of the handler, as above: the exception may show a value of a Secret.
    reason, remedy = f"{place} has another type", f"Correct that field of {name}"
    if lacks:
        reason = f"{place} has no {lacks!r}"
        remedy = "Give the field a default\nFor camelCase names as in the object: rename='camel'"
    raise ReadError(f"{'/'.join(filter(None, record.key))} doesn't fit {name}: {reason}", remedy=remedy)


def _async_function(call: str) -> ReadError:
    return ReadError(
        f"{call}: the function of as_= is async, and can't be awaited", remedy="Give a plain function"
    )


def _unusable(call: str, as_: object) -> ReadError:
    return ReadError(f"{call}: as_ is {shown(as_)}", remedy=f"Give {_WANTED}")


def _where(error: Any) -> str:
    """Return the places of pydantic's errors, without values: they may be those of a Secret."""
    if not callable(getattr(error, "errors", None)):
        return ""
    return (
        f" for {error.title}:"
        f" {', '.join('.'.join(map(str, each['loc'])) + ' ' + each['type'] for each in error.errors())}"
    )


def _decoded(record: Record, obj: Obj | None) -> Obj:
    return obj if obj is not None else object_of(record)


def form_of(call: str, as_: Any) -> Form:
    """Return the form for a value of `as_=`; raise ReadError if it is invalid."""
    if as_ == "view" or as_ is BodyView:
        return Form("view", _view)
    if as_ is Any or as_ is msgspec.Struct:  # Both are classes without a form.
        raise _unusable(call, as_)
    if as_ is bytes:
        return Form(as_, _data)
    if as_ is dict:
        return Form(as_, _decoded)
    if is_struct(as_):
        try:
            return Form(as_, partial(_as_struct, as_.__name__, reader(as_)), paths=paths(as_))
        except (NameError, TypeError) as error:  # A type is undefined, or has no form in JSON.
            what = f"{call}: as_ is {as_.__name__}, whose fields msgspec can't decode: {error}"
            remedy = "Define it at the top of a module, with types that msgspec decodes"
            raise ReadError(what, remedy=remedy) from None
    if isinstance(origin := get_origin(as_), type) and issubclass(origin, (Collection, msgspec.Struct)):
        raise ReadError(f"{call}: as_ is {clipped(as_, 100)}, of several objects", remedy=f"Give {_WANTED}")
    if is_of_client(as_):
        return Form(as_, partial(_as_client, as_), as_)
    if not callable(as_):
        raise _unusable(call, as_)
    if is_async(as_):
        raise _async_function(call)
    return Form(as_, partial(_as_function, call, as_))


def quick(as_: object) -> Callable[[Record], Any] | None:
    """Return a function that converts a whole object to this form; None if the form must be checked first."""
    if as_ == "view":
        return BodyView
    if as_ is bytes:
        return _data
    return _quick_struct(as_) if is_struct(as_) else None


@lru_cache(256)
def _quick_struct(as_: type[msgspec.Struct]) -> Callable[[Record], Any] | None:
    try:
        form = form_of("", as_)
    except ReadError:
        return None
    # `managedFields` is stored only if a projection keeps it.
    return (
        (lambda record: form.make(record, None))
        if not any(path[:2] == MANAGED for path in form.paths)
        else None
    )
