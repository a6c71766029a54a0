"""Decodes the parts of answers, and reads the Status of a refusal. Errors quote no value of an object."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

import msgspec

from kopf_selectcache.core.errors import Undecodable
from kopf_selectcache.core.scanner import Outline, Unscannable, outline
from kopf_selectcache.core.store.record import OUT_OF_RANGE, TOO_DEEP

from ._shapes import Line, ListOrStatus, StatusCause
from .messages import FieldCause, Refusal

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


_DOTS = frozenset({".", ".."})


def can_be_named(namespace: str, name: str) -> bool:
    """Return True if requests can name the object: in a path (`core.selection.resource`), and in a field
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
