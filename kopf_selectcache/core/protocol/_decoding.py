"""Decodes the parts of answers, and reads the Status of a refusal. Errors quote no value of an object.

`split_list` splits a list by a search for bytes, if it is written as API servers write it: an item is located
by its neighbours. The result is certain once the decoder has accepted both the items and the rest without
them. In all other cases it returns None, and the decoder reads the list as a whole.

"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from kopf_selectcache.core.errors import (
    Garbled,
    Undecodable,
)
from kopf_selectcache.core.scanner import Outline, Unscannable, outline
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
        case UnicodeError():
            return "it is not UTF-8"
        case msgspec.ValidationError():  # Without a type, all other JSON is valid.
            return OUT_OF_RANGE
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
