"""Faults of streams: they end, break or stall; events are lost, doubled, reordered or late."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from kopf_selectcache.testing.api.options import is_true
from kopf_selectcache.testing.api.request import Request

from .fault import (
    End,
    Fault,
    Filter,
    Piece,
    VersionBefore,
    WatchFault,
    each_line,
    line_of,
    once_after,
    parsed,
    texts_of,
)

END_OF_INITIAL_EVENTS = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class _Break(Fault):
    """Breaks a watch after a number of events, or a watch or a response after a number of bytes."""

    after_events: int = 0
    after_bytes: int | None = None
    mid_line: bool = field(default=False, kw_only=True)
    """Half of the next event is sent, too."""

    how: ClassVar[End]

    def written(self, body: bytes) -> tuple[bytes | None, End]:
        return (None if self.after_bytes is None else body[: self.after_bytes]), self.how

    def filter(self) -> Filter | None:
        if self.after_bytes is not None:
            return _cut_bytes(self.after_bytes, self.how)
        if self.mid_line:
            return _cut_line(self.after_events, self.how)
        return once_after(self.after_events, lambda: [self.how])


@dataclass(frozen=True, slots=True)
class EndStream(_Break):
    """The server ends the stream of a watch: cleanly, or in the middle of a line."""

    how = End.END

    def concerns(self, request: Request) -> bool:
        return is_true(request.query.get("watch"))


@dataclass(frozen=True, slots=True)
class Disconnect(_Break):
    """The connection is closed before the response is complete."""

    how = End.CLOSE


@dataclass(frozen=True, slots=True)
class Reset(_Break):
    """The connection is reset (RST), in the middle of a chunk if bytes have been sent."""

    how = End.RESET


@dataclass(frozen=True, slots=True)
class Silence(Fault):
    """Half-open: the connection stays, and after a number of events or bytes nothing is sent any more, until
    `release()`.

    Of a response: not even its head, unless a number of bytes is given. The request itself is executed.
    """

    after_events: int = 0
    after_bytes: int | None = None

    def written(self, body: bytes) -> tuple[bytes | None, End]:
        return (None if self.after_bytes is None else body[: self.after_bytes]), End.SILENCE

    def filter(self) -> Filter | None:
        return _held(self.after_events, self.after_bytes)


@dataclass(frozen=True, slots=True)
class Delay(Fault):
    """The response, or the start of a watch, is late by a number of seconds. To decide when it comes, use
    `Silence`.
    """

    seconds: float

    @property
    def delay(self) -> float:
        return self.seconds


@dataclass(frozen=True, slots=True)
class IdleCut(WatchFault):
    """A proxy closes the connection of a watch after a number of seconds without a byte."""

    seconds: float

    @property
    def idle(self) -> float | None:
        return self.seconds


@dataclass(frozen=True, slots=True)
class BufferingProxy(WatchFault):
    """A proxy buffers the bytes of a watch until it has a number of them, or the stream ends,
    or `release()`.
    """

    size: int = 64 * 1024

    def filter(self) -> Filter | None:
        held: list[Piece] = []

        def buffered(pieces: list[Piece], *, released: bool) -> list[Piece]:
            held.extend(pieces)
            full = sum(len(piece) for piece in held if isinstance(piece, bytes)) >= self.size
            if not (full or released or any(isinstance(piece, End) for piece in held)):
                return []
            out = held.copy()
            held.clear()
            return out

        return buffered


@dataclass(frozen=True, slots=True)
class GzipWatch(WatchFault):
    """A watch is compressed if the client accepts gzip: its events are late, many at once, or
    with its end.
    """

    @property
    def encoding(self) -> str:
        return "gzip"


@dataclass(frozen=True, slots=True)
class EndlessLine(WatchFault):
    """After a number of events a line begins that never ends."""

    after_events: int = 0

    def filter(self) -> Filter | None:
        start = b'{"type":"MODIFIED","object":{"metadata":{"name":"endless"},"data":{"a":"'
        return once_after(self.after_events, lambda: [start, End.ENDLESS])


@dataclass(frozen=True, slots=True)
class Lag(Fault):
    """A lagging replica answers, which has seen nothing after this version: lists and watches are stale until
    `release()`.

    Reads of the present state are not affected, for which a real server asks etcd, or waits: lists without a
    resourceVersion, those of an exact version, and the initial events of a watch that asks for them without a
    version.
    """

    version: int

    @property
    def seen(self) -> int | None:
        return self.version


@dataclass(frozen=True, slots=True)
class DropEvents(WatchFault):
    """Events of these types and names are silently lost: `count` of them, after `skip` that are sent."""

    types: Collection[str] = ("ADDED", "MODIFIED", "DELETED")
    names: Collection[str] | None = None
    skip: int = 0
    count: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", texts_of("types", self.types))  # The dataclass is frozen.
        if self.names is not None:
            object.__setattr__(self, "names", texts_of("names", self.names))

    def filter(self) -> Filter | None:
        met = 0

        def dropped(line: bytes) -> list[Piece]:
            nonlocal met
            event = parsed(line)
            if (
                event is None
                or event.get("type") not in self.types
                or (self.names is not None and _name_of(event) not in self.names)
            ):
                return [line]
            met += 1
            return [] if met > self.skip and (self.count is None or met <= self.skip + self.count) else [line]

        return each_line(dropped)


@dataclass(frozen=True, slots=True)
class DuplicateEvents(WatchFault):
    """Every event is sent twice."""

    def filter(self) -> Filter | None:
        return each_line(lambda line: [line, line])


@dataclass(frozen=True, slots=True)
class ReplayEvents(WatchFault):
    """After a number of events, all of them are sent again, unchanged."""

    after_events: int = 1

    def filter(self) -> Filter | None:
        past: list[Piece] = []
        replay = once_after(self.after_events, lambda: past[: self.after_events], goes_on=True)

        def replayed(pieces: list[Piece], *, released: bool) -> list[Piece]:
            if len(past) < self.after_events:
                past.extend(piece for piece in pieces if isinstance(piece, bytes))
            return replay(pieces, released=released)

        return replayed


@dataclass(frozen=True, slots=True)
class ReorderInitialEvents(WatchFault):
    """The initial events of a WatchList are sent in another order: backwards by default."""

    order: Callable[[list[bytes]], list[bytes]] = lambda lines: lines[::-1]

    def filter(self) -> Filter | None:
        held: list[bytes] = []
        over = False

        def reordered(pieces: list[Piece], **_: bool) -> list[Piece]:
            nonlocal over
            out: list[Piece] = []
            for piece in pieces:
                if over:
                    out.append(piece)
                elif isinstance(piece, bytes) and not _ends_initial_events(piece):
                    held.append(piece)
                else:
                    over = True
                    out += [*self.order(held), piece]
            return out

        return reordered


@dataclass(frozen=True, slots=True)
class NoBookmarks(WatchFault):
    """The server sends no bookmarks, except the one that ends the initial events."""

    def filter(self) -> Filter | None:
        return each_line(lambda line: [] if _is_bookmark(line) and not _ends_initial_events(line) else [line])


@dataclass(frozen=True, slots=True)
class NoEndBookmark(WatchFault):
    """The bookmark that ends the initial events is never sent."""

    def filter(self) -> Filter | None:
        return each_line(lambda line: [] if _ends_initial_events(line) else [line])


@dataclass(frozen=True, slots=True)
class EarlyBookmark(WatchFault):
    """A plain bookmark is sent among the initial events, after a number of them, with the version of the last
    one.
    """

    after_events: int = 1

    def filter(self) -> Filter | None:
        last: dict[str, Any] = {}
        left = self.after_events

        def bookmark() -> list[Piece]:
            about: dict[str, Any] = {key: last[key] for key in ("kind", "apiVersion") if key in last}
            version = last.get("metadata", {}).get("resourceVersion", "1")
            return [line_of("BOOKMARK", {**about, "metadata": {"resourceVersion": version}})]

        bookmarked = once_after(self.after_events, bookmark, goes_on=True)

        def followed(pieces: list[Piece], *, released: bool) -> list[Piece]:
            nonlocal left
            for piece in pieces:
                if left and isinstance(piece, bytes):
                    left -= 1  # Objects after the bookmark have a version that it must not promise.
                    if (event := parsed(piece)) is not None:
                        last.clear()
                        last.update(event["object"])
            return bookmarked(pieces, released=released)

        return followed


@dataclass(frozen=True, slots=True)
class OldVersionOnDelete(WatchFault):
    """DELETED events have the version that the object had before it was deleted, or left, as from old
    servers.
    """

    def filter_of(self, version_before: VersionBefore) -> Filter | None:
        def aged(line: bytes) -> list[Piece]:
            event = parsed(line)
            if event is None or event.get("type") != "DELETED":
                return [line]
            metadata = event["object"]["metadata"]
            before = version_before(int(metadata["resourceVersion"]))
            if before is None:
                return [line]
            metadata["resourceVersion"] = str(before)
            return [line_of("DELETED", event["object"])]

        return each_line(aged)


@dataclass(frozen=True, slots=True)
class RecreatedAsModified(WatchFault):
    """The deletion of an object and the creation of another of its name become one MODIFIED with another uid.

    A DELETED event is therefore delayed until another event follows.
    """

    def filter(self) -> Filter | None:
        kept: list[tuple[tuple[str, str], bytes]] = []

        def flushed() -> list[Piece]:
            lines: list[Piece] = [line for _, line in kept]
            kept.clear()
            return lines

        def merged(line: bytes) -> list[Piece]:
            event = parsed(line)
            if event is None:
                return [line]
            key = _key_of(event) if event.get("type") in ("DELETED", "ADDED", "MODIFIED") else None
            if key is not None and event["type"] == "ADDED" and key in dict(kept):
                kept.clear()
                return [line_of("MODIFIED", event["object"])]
            # A bookmark promises that everything before it has been sent: then nothing may be delayed any
            # longer.
            before = flushed()
            if key is None or event["type"] != "DELETED":
                return [*before, line]
            kept.append((key, line))
            return before

        each = each_line(merged)

        def changed(pieces: list[Piece], *, released: bool) -> list[Piece]:
            changed = each(pieces, released=released)
            return [*changed, *flushed()] if released else changed

        return changed


@dataclass(frozen=True, slots=True)
class IgnoredLimit(Fault):
    """The server ignores `limit`, and sends everything in one response."""

    def concerns(self, request: Request) -> bool:
        return "limit" in request.query

    def asked(self, request: Request) -> Request:
        return replace(request, query={key: value for key, value in request.query.items() if key != "limit"})


@dataclass(frozen=True, slots=True)
class IgnoreSelectors(Fault):
    """The server ignores `labelSelector` and `fieldSelector` of lists and watches, or one of them: it sends
    all objects.
    """

    labels: bool = True
    fields: bool = True

    def concerns(self, request: Request) -> bool:
        return not self._ignored.isdisjoint(request.query)

    def asked(self, request: Request) -> Request:
        return replace(
            request, query={key: value for key, value in request.query.items() if key not in self._ignored}
        )

    @property
    def _ignored(self) -> frozenset[str]:
        return frozenset(
            key
            for key, ignored in (("labelSelector", self.labels), ("fieldSelector", self.fields))
            if ignored
        )


@dataclass(frozen=True, slots=True)
class IgnoredInitialEvents(Fault):
    """The server ignores the request for initial events: the events follow, and no end bookmark is sent."""

    def concerns(self, request: Request) -> bool:
        return "sendInitialEvents" in request.query

    def asked(self, request: Request) -> Request:
        dropped = ("sendInitialEvents", "resourceVersionMatch")
        return replace(
            request, query={key: value for key, value in request.query.items() if key not in dropped}
        )

    def filter(self) -> Filter | None:
        return NoEndBookmark().filter()  # A server that knows them sends it to old clients, too.


def _cut_bytes(count: int, how: End) -> Filter:
    left = count

    def cut(pieces: list[Piece], **_: bool) -> list[Piece]:
        nonlocal left
        out: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, End):
                return [*out, piece]
            out.append(piece[:left])
            left -= len(piece)
            if left <= 0:
                break
        return [*out, how] if left <= 0 else out

    return cut


def _cut_line(events: int, how: End) -> Filter:
    left = events

    def cut(pieces: list[Piece], **_: bool) -> list[Piece]:
        nonlocal left
        out: list[Piece] = []
        for piece in pieces:
            if left == 0 and isinstance(piece, bytes):
                return [*out, piece[: len(piece) // 2], how]
            out.append(piece)
            left -= 1
        return out

    return cut


def _held(events: int, count: int | None) -> Filter:
    """Let a number of events, or bytes, pass; delay the rest until the release."""
    held: list[Piece] = []
    left = events if count is None else count

    def hold(pieces: list[Piece], *, released: bool) -> list[Piece]:
        nonlocal left
        out: list[Piece] = []
        for piece in pieces:
            size = len(piece) if count is not None and isinstance(piece, bytes) else 1
            if left <= 0:
                held.append(piece)
            elif size <= left or isinstance(piece, End):
                out.append(piece)
            else:
                out.append(piece[:left])
                held.append(piece[left:])
            left -= size
        if released:
            out += held
            held.clear()
            left = 1 << 62
        return out

    return hold


def _is_bookmark(line: bytes) -> bool:
    event = parsed(line)
    return event is not None and event.get("type") == "BOOKMARK"


def _ends_initial_events(line: bytes) -> bool:
    event = parsed(line) if END_OF_INITIAL_EVENTS.encode() in line else None
    if event is None or event.get("type") != "BOOKMARK":
        return False
    return END_OF_INITIAL_EVENTS in event["object"]["metadata"].get("annotations", {})


def _name_of(event: dict[str, Any]) -> str:
    return _key_of(event)[1]


def _key_of(event: dict[str, Any]) -> tuple[str, str]:
    metadata = event["object"].get("metadata", {})
    return metadata.get("namespace", ""), metadata.get("name", "")
