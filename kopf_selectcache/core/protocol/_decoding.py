"""Decodes the parts of answers, and reads the Status of a refusal. Errors quote no value of an object."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from kopf_selectcache.core.errors import Undecodable
from kopf_selectcache.core.store.record import OUT_OF_RANGE, TOO_DEEP

from ._shapes import Answer, StatusCause
from .messages import FieldCause, Refusal

MOST_TOKEN = 64 * 1024
"""The characters of a continue token. It becomes a part of a URL, which servers take up to about 1 MB of."""

MOST_SAID = 1000
"""How many characters of what a server says are taken in: people read them, in logs, errors and the probe."""

MOST_CAUSES = 100
"""The number of causes that are read of a refusal."""

_CAUSES = msgspec.json.Decoder(list[StatusCause] | None)

_Shape = TypeVar("_Shape")

FAILURES = (msgspec.DecodeError, UnicodeError, RecursionError)
"""The errors of the decoder, and those of the encoder for keys that are not texts."""


def decode_as(data: bytes | msgspec.Raw, shape: type[_Shape], what: str) -> _Shape:
    try:
        return msgspec.json.decode(data, type=shape)
    except FAILURES as error:
        # The decoder's words name a place and a type, never a value: it may be a Secret's.
        undecodable = Undecodable(f"{what} is not what the API promises: {error}", reason_of(error))
    # Raised out here, it does not carry the decoder's error along, which may hold all of the data.
    raise undecodable


def reason_of(error: Exception) -> str:
    """Say as a clause what keeps an object from being decoded."""
    match error:
        case RecursionError():
            return TOO_DEEP
        case UnicodeError():
            return "it is not UTF-8"
        case msgspec.ValidationError():  # Without a type, all else is valid.
            return OUT_OF_RANGE
        case _:
            return f"it is no valid JSON: {str(error).removeprefix('JSON is malformed: ')}"


def refusal_of(answer: Answer) -> Refusal:
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
        _causes_of(answer),
    )


def _causes_of(answer: Answer) -> tuple[FieldCause, ...]:
    """Read the causes of a Status. Causes that are not as promised leave the rest of it readable."""
    try:
        causes = _CAUSES.decode(answer.details.causes) if answer.details is not None else None
    except FAILURES:
        return ()
    return tuple(
        FieldCause(_as_line(each.field), _as_line(each.reason), _as_line(each.message))
        for each in (causes or ())[:MOST_CAUSES]
    )


def _as_line(text: str) -> str:
    """Return what a server says as one line, of which there is an end."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text[: 2 * MOST_SAID]).split())
    return line if len(line) <= MOST_SAID and len(text) <= 2 * MOST_SAID else f"{line[:MOST_SAID]}…"
