"""The base classes of faults: data that describes how a request, its response or its watch changes. Pure: the
HTTP shell executes them.
"""

from __future__ import annotations

import base64
import enum
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from kopf_selectcache.testing.api.options import is_true
from kopf_selectcache.testing.api.request import Answer, Request


class End(enum.Enum):
    """The end of a response or a stream."""

    END = "in good order"
    CLOSE = "the connection is closed, and the answer was not complete"
    RESET = "the connection is reset: the client sees ECONNRESET"
    SILENCE = "the connection stays, and not a byte comes until the fault is released"
    ENDLESS = "bytes without a newline, for ever"


Piece: TypeAlias = bytes | End
"""A piece of a stream: a line, a part of one, or its end."""


VersionBefore: TypeAlias = Callable[[int], int | None]
"""Returns the version that an object had before the write of this version; None if the server has forgotten
it.
"""


class Filter(Protocol):
    """A filter of the pieces of one stream. It has the position in the stream."""

    def __call__(self, pieces: list[Piece], *, released: bool) -> list[Piece]:
        """Return the pieces that pass. It is called once before the first piece, for all further pieces, and
        at the release.
        """


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a request. This class changes nothing; each fault overrides one step."""

    def concerns(self, request: Request) -> bool:
        """Return True if the fault can happen to this request; others are not counted."""
        del request
        return True

    def asked(self, request: Request) -> Request:
        """Return the request that the server sees instead."""
        return request

    def instead(self, request: Request) -> Answer | None:
        """Return a response without asking the server."""
        del request
        return None

    def answered(self, request: Request, answer: Answer) -> Answer:
        """Return the response that the client gets instead."""
        del request
        return answer

    def written(self, body: bytes) -> tuple[bytes | None, End]:
        """Return the part of the response body that is written (None: not even the head), and what follows
        it.
        """
        return body, End.END

    def filter(self) -> Filter | None:
        """Return a new filter for the lines of one watch."""
        return None

    def filter_of(self, version_before: VersionBefore) -> Filter | None:
        """Return a new filter for the lines of one watch, which may look up data that is not in the lines."""
        del version_before
        return self.filter()

    @property
    def delay(self) -> float:
        """Return the seconds for which the response, or the start of a watch, is delayed."""
        return 0.0

    @property
    def idle(self) -> float | None:
        """Return the seconds without a byte after which a watch is cut."""
        return None

    @property
    def encoding(self) -> str:
        """Return the encoding of a watch, if the client accepts it."""
        return ""

    @property
    def seen(self) -> int | None:
        """Return the last version that the answering replica has seen."""
        return None


@dataclass(frozen=True, slots=True)
class WatchFault(Fault):
    """A fault of watches only."""

    def concerns(self, request: Request) -> bool:
        return is_true(request.query.get("watch"))


def texts_of(argument: str, given: object) -> frozenset[str]:
    """Return the texts of a collection; raise TypeError for a single text, whose letters would be taken, and
    for items that are no texts.
    """
    if isinstance(given, str):
        raise TypeError(f"{argument}= is {given!r}, not a list: write {argument}=[{given!r}]")
    if (
        not isinstance(given, Collection)
        or isinstance(given, (bytes, Mapping))
        or not all(isinstance(each, str) for each in given)
    ):
        raise TypeError(f"{argument}= is {given!r}, not a list of texts")
    return frozenset(given)


def dumped(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def line_of(kind: str, body: object) -> bytes:
    """Return a line of a watch."""
    return dumped({"type": kind, "object": body}) + b"\n"


def continue_token(version: int, start: str) -> str:
    """Return a token by which a list continues after this key, in the format of servers: clients should not
    read it.
    """
    return (
        base64.urlsafe_b64encode(dumped({"v": "meta.k8s.io/v1", "rv": version, "start": start}))
        .rstrip(b"=")
        .decode()
    )


def start_of(token: str) -> str:
    """Return the key after which a token continues."""
    start: str = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))["start"]
    return start


def parsed(line: bytes) -> dict[str, Any] | None:
    """Read a line or a body; return None if another fault has damaged its JSON."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def each_line(change: Callable[[bytes], list[Piece]]) -> Filter:
    """Make a filter that changes line by line, and leaves the end."""

    def changed(pieces: list[Piece], **_: bool) -> list[Piece]:
        return [new for piece in pieces for new in ([piece] if isinstance(piece, End) else change(piece))]

    return changed


def once_after(events: int, then: Callable[[], list[Piece]], *, goes_on: bool = False) -> Filter:
    """Make a filter that lets this number of lines pass, then inserts a line; then the rest, if
    it continues.
    """
    left, said = events, False

    def passed(pieces: list[Piece], **_: bool) -> list[Piece]:
        nonlocal left, said
        if said:
            return pieces if goes_on else []
        here = 0
        while left and here < len(pieces):
            left -= isinstance(pieces[here], bytes)
            here += 1
        if left:
            return pieces
        said = True
        return [*pieces[:here], *then(), *(pieces[here:] if goes_on else [])]

    return passed
