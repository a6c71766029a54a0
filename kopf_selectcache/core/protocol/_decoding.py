"""Decodes the parts of answers, and reads the Status of a refusal. Errors quote no value of an object.

`split_list` splits a list by a search for bytes, if it is written as API servers write it: an item is located
by its neighbours. The result is certain once the decoder has accepted both the items and the rest without
them. In all other cases it returns None, and the decoder reads the list as a whole. `without_managed` cuts
`managedFields` out of an object in the same way.

Equal labels and owners of several objects are decoded and stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from sys import intern
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from kopf_selectcache.core.errors import (
    Garbled,
    Undecodable,
)
from kopf_selectcache.core.json_text import Outline, Unscannable, outline
from kopf_selectcache.core.selection.grammar import LabelRequirement, Sent
from kopf_selectcache.core.store.record import (
    OUT_OF_RANGE,
    TOO_DEEP,
)

from .messages import FieldCause, Refusal

_NULL = msgspec.Raw(b"null")


_Undecoded: TypeAlias = msgspec.Raw | msgspec.UnsetType


class Owner(msgspec.Struct, gc=False):
    uid: str = ""


class Metadata(msgspec.Struct, gc=False, rename={"version": "resourceVersion", "owners": "ownerReferences"}):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = ""
    labels: msgspec.Raw = _NULL
    owners: msgspec.Raw = _NULL


class Object(msgspec.Struct, rename={"api_version": "apiVersion"}):
    api_version: str = ""
    kind: str = ""
    metadata: Metadata | None = None


class UsualMetadata(
    msgspec.Struct,
    gc=False,
    rename={"version": "resourceVersion", "owners": "ownerReferences", "managed": "managedFields"},
):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = ""
    labels: _Undecoded = msgspec.UNSET
    owners: _Undecoded = msgspec.UNSET
    managed: _Undecoded = msgspec.UNSET


class UsualObject(msgspec.Struct, gc=False, rename={"api_version": "apiVersion"}):
    """The kind and metadata of an object. The decoder skips the rest, which is then certainly JSON."""

    api_version: str = ""
    kind: str = ""
    metadata: UsualMetadata | None = None


class UsualPartial(
    msgspec.Struct, gc=False, forbid_unknown_fields=True, rename={"api_version": "apiVersion"}
):
    """An object of which only the metadata is received, and nothing else."""

    api_version: str = ""
    kind: str = ""
    metadata: UsualMetadata | None = None


class Marked(msgspec.Struct, rename={"version": "resourceVersion"}):
    version: str = ""
    annotations: dict[str, str] | None = None


class Mark(msgspec.Struct, rename={"api_version": "apiVersion"}):
    metadata: Marked
    api_version: str = ""
    kind: str = ""


class AnswerMetadata(msgspec.Struct, rename={"version": "resourceVersion", "token": "continue"}):
    version: str = ""
    token: str = ""


class Details(msgspec.Struct, rename={"retry_after": "retryAfterSeconds"}):
    retry_after: float | None = None
    causes: msgspec.Raw = _NULL


class StatusCause(msgspec.Struct):
    field: str = ""
    reason: str = ""
    message: str = ""


class ListOrStatus(msgspec.Struct, rename={"api_version": "apiVersion"}):
    """A list or a Status: the same request may be answered by either."""

    api_version: str = ""
    kind: str = ""
    metadata: AnswerMetadata | None = None
    items: list[msgspec.Raw] | None = None
    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


class Line(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


MOST_TOKEN = 64 * 1024
"""The most characters of a continue token. It becomes a part of a URL; servers accept up to about 1 MB."""

MOST_SAID = 1000
"""The most characters of a server's message that are used: people read it, in logs, errors and the probe."""

MOST_CAUSES = 100
"""The most causes of a refusal that are used."""

_CAUSES = msgspec.json.Decoder(list[StatusCause] | None)

_NOT_DECLARED = "field not declared in schema"

_Shape = TypeVar("_Shape")
_T = TypeVar("_T")

FAILURES = (msgspec.DecodeError, UnicodeError, RecursionError)
"""The errors of the decoder, and those of the encoder for keys that are not texts."""


def decode_as(data: bytes | msgspec.Raw, shape: type[_Shape], what: str) -> _Shape:
    try:
        return msgspec.json.decode(data, type=shape)
    except FAILURES as error:
        # The decoder's message has a path and a type, but no value, which could be secret.
        undecodable = Undecodable(f"{what} is not what the API promises: {error}", reason_of(error))
    # Raised outside of `except`, its context is not the decoder's error, which may have all of the data.
    raise undecodable


def reason_of(error: Exception) -> str:
    """Return the reason why an object cannot be decoded, as a clause."""
    match error:
        case RecursionError():
            return TOO_DEEP
        case msgspec.ValidationError():  # Without a type, all other JSON is valid.
            return OUT_OF_RANGE
        case _ if "utf-8" in str(error).lower():  # Of UnicodeError, or of msgspec since 0.23.
            return "it is not UTF-8"
        case _:
            return f"it isn't valid JSON: {str(error).removeprefix('JSON is malformed: ')}"


def refusal_of(answer: ListOrStatus) -> Refusal:
    seconds = answer.details.retry_after if answer.details is not None else None
    return Refusal(
        answer.code,
        _as_line(answer.reason),
        _as_line(answer.message),
        None if seconds is None or seconds < 0 else seconds,
        (
            answer.metadata.token
            if answer.metadata is not None and len(answer.metadata.token) <= MOST_TOKEN
            else ""
        ),
        _causes_of(answer) or _undeclared(answer),
    )


def _causes_of(answer: ListOrStatus) -> tuple[FieldCause, ...]:
    """Decode the causes of a Status. Invalid causes are left out, so that the rest can still be read."""
    try:
        causes = _CAUSES.decode(answer.details.causes) if answer.details is not None else None
    except FAILURES:
        return ()
    return tuple(
        FieldCause(_as_line(each.field), _as_line(each.reason), _as_line(each.message))
        for each in (causes or ())[:MOST_CAUSES]
    )


def _undeclared(answer: ListOrStatus) -> tuple[FieldCause, ...]:
    """Return the fields that the schema lacks. Refusing an apply, a server names them in its message only."""
    *before, _ = _as_line(answer.message).split(f": {_NOT_DECLARED}")
    words = [each.rpartition(" ")[2] for each in before]
    return tuple(
        FieldCause(word[1:], "FieldNotDeclared", _NOT_DECLARED) for word in words if word.startswith(".")
    )


def _as_line(text: str) -> str:
    """Return a server's text as one line of limited length."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text[: 2 * MOST_SAID]).split())
    return line if len(line) <= MOST_SAID and len(text) <= 2 * MOST_SAID else f"{line[:MOST_SAID]}…"


def line_of(data: bytes) -> tuple[Line, Outline | None]:
    """Decode the type of an event, with its object as bytes. Return the outline of the object as well if the
    line was scanned.
    """
    try:
        return decode_as(data, Line, "a line of a watch"), None
    except Undecodable as error:
        undecodable = error
    with suppress(KeyError, Unscannable, Undecodable):
        found = outline(data, "object", "metadata")
        return (
            Line(
                decode_as(found.members["type"], str, "the type of an event"),
                msgspec.Raw(found.members["object"]),
            ),
            found.below,
        )
    raise undecodable


_ITEMS = b'"items":['


class Parts(NamedTuple):
    """The envelope of a list, and its items."""

    envelope: bytes
    """The list without its items. The caller must check that its list of items is empty."""
    items: Iterator[bytes]
    """The items, provided that each can be decoded. They are produced one by one."""


def split_list(data: bytes, starts: Sequence[bytes]) -> Parts | None:
    """Split a list whose items all begin with the same one of these byte strings; None if it is written in
    another way.

    >>> parts = split_list(b'{"kind":"PodList","items":[{"metadata":{}},{"metadata":{}}],"metadata":{}}', [b'{"metadata":{'])
    >>> parts.envelope, list(parts.items)
    (b'{"kind":"PodList","items":[],"metadata":{}}', [b'{"metadata":{}}', b'{"metadata":{}}'])
    """  # The call in the example has to be on one line.  # noqa: E501
    first, end = data.find(_ITEMS) + len(_ITEMS), data.rfind(b"]")
    if not len(_ITEMS) <= first <= end:
        return None
    head, tail = data[:first], data[end:]
    start = next((each for each in starts if data.startswith(each, first)), None)
    # With an escaped key, or a second key of this name, the position of the items would be uncertain.
    if b"\\" in head + tail or _ITEMS[:-2] in tail or (start is None and first < end):
        return None
    return Parts(head + tail, _items(data, first, end, b"," + start) if start is not None else iter(()))


def _items(data: bytes, first: int, end: int, start: bytes) -> Iterator[bytes]:
    while (after := data.find(start, first, end)) >= 0:
        yield data[first:after]
        first = after + 1
    yield data[first:end]


MOST_VERSION = 1024
"""The characters of a resourceVersion. Those of API servers are numbers of at most 20 digits."""


def too_long(what: str) -> Garbled:
    return Garbled(f"{what} came with a resourceVersion of more than {MOST_VERSION:,} characters")


def named(metadata: Metadata | UsualMetadata | None) -> str:
    """Return the name of the object for a message, so that it can be found and corrected."""
    if metadata is None or not metadata.name:
        return ""
    within = f"{metadata.namespace[:63]}/" if metadata.namespace else ""
    return f", {within}{metadata.name[:253]},"


# ---- The metadata of objects.

MOST_RECURRING = 4096
"""The number of values that are remembered while most of them recur."""

MOST_SINGLE = 1024
"""The number of values that are remembered while few recur. A small number is enough because servers list
objects by name, so that objects with equal values are close together."""

_NONE = b"null"

_LABELS = msgspec.json.Decoder(dict[str, str] | None)


_OWNERS = msgspec.json.Decoder(list[Owner] | None)


class Sharing(Generic[_T]):
    """Returns the identical value for equal input. Callers must not change the value.

    >>> sharing = Sharing(lambda text: text.decode().split(','))
    >>> sharing.of(b'a,b') is sharing.of(b'a,b')
    True
    """

    def __init__(self, make: Callable[[Any], _T]) -> None:
        self._make = make
        self._known: dict[Hashable, _T] = {}
        # The number of hits since the last reset.
        self._found = 0

    def of(self, given: Hashable) -> _T:
        """Return the value of this input. Exceptions of the function that makes it pass through."""
        try:
            value = self._known[given]
        except KeyError:
            value = self._make(given)
            # Records that share a forgotten value still share it.
            if len(self._known) >= (MOST_RECURRING if self._found > len(self._known) else MOST_SINGLE):
                self._known, self._found = {}, 0
            self._known[given] = value
        else:
            self._found += 1
        return value


class SharedMetadata:
    """The labels and owners of the objects of one request. Each method raises the errors of the decoder."""

    def __init__(self, sent: Sent) -> None:
        self._labels: Sharing[dict[str, str] | LabelRequirement] = Sharing(_sharing(sent))
        self._owners: Sharing[tuple[str, ...]] = Sharing(_uids)

    def labels(self, data: _Undecoded) -> dict[str, str] | LabelRequirement:
        """Return the labels; or the requirement that they fail, if the selector does not select them."""
        return self._labels.of(_NONE if data is msgspec.UNSET else bytes(data))

    def owners(self, data: _Undecoded) -> tuple[str, ...]:
        """Return the uids of the owners."""
        return () if data is msgspec.UNSET else self._owners.of(bytes(data))


def labels_alone(data: _Undecoded) -> dict[str, str]:
    """Return labels that nothing else shares."""
    return {} if data is msgspec.UNSET else _LABELS.decode(data) or {}


def _sharing(sent: Sent) -> Callable[[bytes], dict[str, str] | LabelRequirement]:
    """Return a function that decodes labels. It shares keys and values, of which many are repeated.

    For labels that the selector does not select, the function returns the requirement that they fail, so that
    equal labels of many objects are compared with the selector once.
    """
    values: Sharing[str] = Sharing(str)

    def made(data: bytes) -> dict[str, str] | LabelRequirement:
        labels = {intern(key): values.of(value) for key, value in (_LABELS.decode(data) or {}).items()}
        return sent.failing_label(labels) or labels

    return made


def _uids(data: bytes) -> tuple[str, ...]:
    """Return the uids of the owners in this JSON."""
    return tuple([owner.uid for owner in _OWNERS.decode(data) or ()])


_DOTS = frozenset({".", ".."})


def can_be_named(namespace: str, name: str) -> bool:
    """Return True if requests can name the object: in a path (`core.selection.kinds`), and in a field
    selector.
    """
    return not (
        "/" in name
        or "%" in name
        or "\0" in name
        or name in _DOTS
        or "/" in namespace
        or "%" in namespace
        or "\0" in namespace
        or namespace in _DOTS
    )


_MANAGED = b',"managedFields":[{'

_skip = msgspec.json.Decoder(msgspec.Raw).decode


def without_managed(data: bytes, metadata: int) -> bytes | None:
    """Return an object without the `managedFields` of its metadata, which begins at this position; None if
    they are written in an unusual way.

    The result is correct only if it can be decoded. It may still have `managedFields` that were not found.

    >>> without_managed(b'{"metadata":{"name":"a","managedFields":[{"manager":"b"}]},"spec":{}}', 12)
    b'{"metadata":{"name":"a"},"spec":{}}'
    """
    start = data.find(_MANAGED, metadata)
    if start < 0:
        return data
    if data[start - 1] == ord("{"):
        return None  # A comma before the first member is invalid JSON, and the cut would hide it.
    value = start + len(_MANAGED) - 2
    end = data.find(b"]", value) + 1  # It has no lists inside; a bracket in a text is rare.
    try:
        # The metadata before the key is complete, so this is a key of the metadata and not of a nested value;
        # and the cut is a whole value.
        _skip(data[metadata:start] + b"}")
        _skip(memoryview(data)[value:end])
    except (msgspec.DecodeError, RecursionError):
        return None
    return data[:start] + data[end:]
