"""Objects that writes are given, of any client: made plain dicts, and answers made objects of their class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from kopf_selectcache._errors import InvalidObject, UnknownKind
from kopf_selectcache.core.json_text import decoded, with_room
from kopf_selectcache.core.redact import clipped, printable, shown, shown_by_type
from kopf_selectcache.core.selection.kinds import find, parse_key
from kopf_selectcache.selectors.kind_keys import AnyKey, is_pykube, key_of_class, to_dict

from .partial import whole_class

_MOST_LEVELS = 10_000
"""The levels that a server accepts. A value that contains itself has more."""

_PLAIN = frozenset({str, int, bool, type(None)})
"""The types of most values, which JSON has as they are."""

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
        if len(path) > _MOST_LEVELS:
            raise _refused(about, _TOO_DEEP)
        for key, each in parent.items() if isinstance(parent, dict) else enumerate(parent):
            if type(each) in _PLAIN:
                continue
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


class Given(NamedTuple):
    """An object that a write is given."""

    obj: dict[str, Any]
    """As a dict of its own."""
    source: object
    """As it was given."""

    @property
    def metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = self.obj["metadata"]
        return metadata

    @property
    def name(self) -> str:
        """The name; empty if the server makes it."""
        return str(self.metadata.get("name") or "")

    @property
    def namespace(self) -> str | None:
        """The namespace; None if there is none."""
        return self.metadata.get("namespace") or None

    @property
    def uid(self) -> str:
        return str(self.metadata.get("uid") or "")

    @property
    def version(self) -> str:
        return str(self.metadata.get("resourceVersion") or "")

    @property
    def key(self) -> AnyKey:
        """The kind, as a key: the group, the version and the name of the kind."""
        return f"{self.obj['apiVersion']}/{self.obj['kind']}"

    @property
    def client_class(self) -> type | None:
        """The class of another client, if it is of one: answers become objects of it."""
        return None if isinstance(self.source, Mapping) else whole_class(type(self.source))

    def connect(self, made: Any) -> None:
        """Give an answer of pykube's class the client of the object that was given."""
        source: Any = self.source
        is_alike = type(made) is self.client_class
        if is_pykube(type(source)) and is_alike:
            made.api = source.api

    def __str__(self) -> str:
        name = self.name or f"{self.metadata.get('generateName')}*"
        place = f"{self.namespace}/{name}" if self.namespace else name
        return f"{self.obj['kind']} {place}"


def given_object(verb: str, source: object, *, is_named: bool = True) -> Given:
    """Read an object that a write is given; raise InvalidObject if it lacks a name, or `generateName`."""
    call = f"cache.{verb}()"
    obj = as_dict(source)
    if obj is None:
        raise InvalidObject(
            f"{call}: the object is {shown(source)}",
            remedy="Give a dict, a body, or an object of kubernetes or pykube",
        )
    metadata = obj.get("metadata")
    obj["metadata"] = dict(metadata) if isinstance(metadata, Mapping) else {}
    for part in ("apiVersion", "kind"):
        if not isinstance(obj.get(part), str) or not obj[part]:
            raise InvalidObject(f"{call}: the object has no {part!r}", remedy=f"Add it: {part!r}: ...")
    named = ("name",) if is_named else ("name", "generateName")
    if not any(isinstance(obj["metadata"].get(part), str) and obj["metadata"][part] for part in named):
        either = " and no metadata.generateName" if not is_named else ""
        raise InvalidObject(
            f"{call}: the {clipped(obj['kind'], 100)} has no metadata.name{either}", remedy="Give it a name"
        )
    return Given(plain(f"{call}: the {clipped(obj['kind'], 100)}", obj), source)


def as_dict(source: object) -> dict[str, Any] | None:
    """Return an object as a dict with its kind; None if it is none."""
    if isinstance(source, Mapping):
        return dict(source)
    obj = to_dict(source)
    if obj is not None:
        _fill_kind(obj, source)
    return obj


def _fill_kind(obj: dict[str, Any], source: object) -> None:
    """Name the kind of an object whose class stands for it: models are often made without."""
    version, kind = getattr(source, "version", None), getattr(source, "kind", None)
    if is_pykube(type(source)) and isinstance(version, str) and isinstance(kind, str):
        obj.setdefault("apiVersion", version)
        obj.setdefault("kind", kind)
        return
    with suppress(UnknownKind):
        group, version, _ = parse_key(key := key_of_class(type(source)))
        if (known := find(key)) is not None:
            obj.setdefault("apiVersion", f"{group}/{version}" if group else version)
            obj.setdefault("kind", known.kind)
