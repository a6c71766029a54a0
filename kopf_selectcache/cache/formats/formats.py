"""In which form reads return objects: `as_=`, and kinds named by classes. Decides no read, and keeps no
object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from functools import lru_cache, partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple, Never, TypeAlias, get_origin

import msgspec

from kopf_selectcache._errors import ReadError
from kopf_selectcache.cache.matcher import Obj
from kopf_selectcache.core.redact import clipped, shown_with_type
from kopf_selectcache.core.store.projection import MANAGED, Keys
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.selectors.client_classes import is_of_client, made

from .structs import is_struct, paths, reader, wrong
from .views import BodyView

if TYPE_CHECKING:  # Defaults of type variables are newer than the Python that we run on.
    from typing_extensions import TypeVar

    Named = TypeVar("Named")
    """The class that names a kind."""
    Made = TypeVar("Made")
    """What `as_=` makes."""
    Default = TypeVar("Default", default=Never)
    """What `default=` is; without it, nothing."""
    As: TypeAlias = type[Made] | Callable[[Obj], Made]
    """What `as_=` can be, but for `'view'`."""

_WANTED = (
    "'view', bytes, a msgspec.Struct, a class of kubernetes or pykube, or a function of an object; for dicts"
    " leave it out"
)


class Form(NamedTuple):
    """What is made of each object, where that is not a dict."""

    given: object
    """What it was asked for by; None where that is the class that names the kind."""
    make: Callable[[Record, Obj | None], Any]
    """Given the object itself as well, if it has been decoded already."""
    of_client: type | None = None
    """The class of another client, whose objects are written back as wholes."""
    paths: tuple[Keys, ...] = ()
    """What it is made of, where that is known."""


def _data(record: Record, _: Obj | None = None) -> bytes:
    return record.data


def _view(record: Record, _: Obj | None) -> BodyView:
    return BodyView(record)


def _as_client(wanted: type, record: Record, obj: Obj | None) -> Any:
    try:
        return made(wanted, _decoded(record, obj))
    except Exception as error:  # It is the client's, and may show a Secret.  # noqa: BLE001
        why = f"{type(error).__name__}{_where(error)}"
    # Out here it does not carry the error along.
    raise ReadError(
        f"{'/'.join(filter(None, record.key))} cannot be made a {wanted.__name__}: the client raised {why}",
        remedy="Read it as a dict, without as_=; or use a version of the client that fits the cluster",
    )


def _as_function(call: str, function: Callable[[Obj], Any], record: Record, obj: Obj | None) -> Any:
    answer = function(_decoded(record, obj))
    if isinstance(
        answer, Coroutine
    ):  # No other awaitable: objects of kr8s can be awaited, and are objects all the same.
        answer.close()
        raise _async_function(call)
    return answer


def _as_struct(name: str, read: Callable[[Record], Any], record: Record, _: Obj | None) -> Any:
    try:
        return read(record)
    except msgspec.ValidationError as error:
        where, lacks = wrong(error)
    place = clipped(where.removeprefix("$").removeprefix("."), 200) or "the object"
    raise ReadError(  # Out here, as above. A value may be that of a Secret.
        f"{'/'.join(filter(None, record.key))} is no {name}:"
        + (f" there is no {lacks!r} in {place}" if lacks else f" {place} is of another type"),
        remedy="Give the field a default, or the name that objects have: rename='camel'"
        if lacks
        else f"Correct that field of {name}",
    )


def _async_function(call: str) -> ReadError:
    return ReadError(f"{call}: the function of as_= is async", remedy="Give a plain function of an object")


def _unusable(call: str, as_: object) -> ReadError:
    return ReadError(f"{call}: as_ is {shown_with_type(as_)}", remedy=f"Give {_WANTED}")


def _where(error: Any) -> str:
    """Say where pydantic found something wrong, and never what is there."""
    if not callable(getattr(error, "errors", None)):
        return ""
    return (
        f" for {error.title}:"
        f" {', '.join('.'.join(map(str, each['loc'])) + ' ' + each['type'] for each in error.errors())}"
    )


def _decoded(record: Record, obj: Obj | None) -> Obj:
    return obj if obj is not None else record.decode()


def form_of(call: str, as_: Any) -> Form:
    """Return the form that is asked for. Raise ReadError for what can be none."""
    if as_ == "view" or as_ is BodyView:
        return Form("view", _view)
    if as_ is Any or as_ is msgspec.Struct:  # They are classes, of which nobody has objects.
        raise _unusable(call, as_)
    if as_ is bytes:
        return Form(as_, _data)
    if is_struct(as_):
        try:
            return Form(as_, partial(_as_struct, as_.__name__, reader(as_)), paths=paths(as_))
        except (
            NameError,
            TypeError,
        ) as error:  # Its types are names that are not to be found, or are nothing that JSON has.
            raise ReadError(
                f"{call}: as_ is {as_.__name__}, whose fields make no sense to msgspec: {error}",
                remedy=(
                    "Define it, and what it is made of, at the top of a module, and of types that msgspec"
                    " decodes"
                ),
            ) from None
    if isinstance(origin := get_origin(as_), type) and issubclass(origin, (Collection, msgspec.Struct)):
        raise ReadError(
            f"{call}: as_ is {clipped(as_, 100)}, and each object is made one by itself",
            remedy=f"Give {_WANTED}",
        )
    if is_of_client(as_):
        return Form(as_, partial(_as_client, as_), as_)
    if not callable(as_):
        raise _unusable(call, as_)
    if iscoroutinefunction(as_) or iscoroutinefunction(type(as_).__call__):
        raise _async_function(call)
    return Form(as_, partial(_as_function, call, as_))


def quick(as_: object) -> Callable[[Record], Any] | None:
    """Return a function that makes this form of a whole object; None if the form has to be checked first."""
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
    # That is never kept unless it is said, by a part of each object.
    return (
        (lambda record: form.make(record, None))
        if not any(path[:2] == MANAGED for path in form.paths)
        else None
    )
