"""How answers are read: whole ones up to a limit of bytes, and watches, paced while they are busy and with an
idle timeout while they are silent. What a read raises: `Refused` and `Unreachable`.

Events in quick succession are read together, some milliseconds later.

An event that is read alone wakes the event loop, TLS, the HTTP parser and the task that waits for it, which
together take more CPU than to decode and store it. The kernel collects the events meanwhile: until a number
of bytes has come (`SO_RCVLOWAT`), it does not report that the socket is readable.

Linux wakes a reader when that number is lowered and the bytes have come already (`tcp_set_rcvlowat`, since
4.18). Elsewhere a watch might stand still until its next event, so each event is read as it comes there.
"""

from __future__ import annotations

import asyncio
import re
import socket
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import TypeVar

import aiohttp

from kopf_selectcache.core.errors import Garbled, TooLarge
from kopf_selectcache.core.protocol.decoder import Reader, read_refusal
from kopf_selectcache.core.protocol.messages import Page, Refusal
from kopf_selectcache.core.redact import printable

BUFFER_BYTES = 256 * 1024
"""Bytes that are decompressed at a time, and that aiohttp reads before it waits for the reader."""

_ERROR_BYTES = 1024 * 1024
"""Bytes that are read of an answer that is no success."""


class Refused(Exception):
    """The server refused the request."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal

    @classmethod
    def of(cls, code: int, body: bytes, headers: Mapping[str, str]) -> Refused:
        """Return the error of an answer that is no success."""
        return cls(read_refusal(code, body, retry_after=seconds_to_wait(headers)))


class Unreachable(Exception):
    """The server did not answer, or the connection broke off."""

    def __init__(self, text: str, *, may_have_arrived: bool = True) -> None:
        super().__init__(text)
        self.may_have_arrived = may_have_arrived
        """False if the server has certainly not received the request, so that it did not execute it."""


class NoCredentials(Unreachable):
    """No request was sent, because no login gave credentials."""

    def __init__(self, text: str) -> None:
        super().__init__(text, may_have_arrived=False)


# aiohttp raises RuntimeError for a session that was closed after the vault handed it out, and ValueError for
# a request that it cannot send.
BROKEN = (aiohttp.ClientError, asyncio.TimeoutError, OSError, RuntimeError, ValueError)


# The first class that matches describes the error: few users know aiohttp's names.
_DESCRIPTIONS: tuple[tuple[type[Exception], str], ...] = (
    (TimeoutError, "no answer came in time"),
    (aiohttp.ClientSSLError, "no safe connection can be made"),
    (aiohttp.ClientProxyConnectionError, "can't connect to the proxy"),
    (aiohttp.ClientHttpProxyError, "the proxy refuses"),
    (aiohttp.ClientConnectorError, "can't connect to the server"),
    (aiohttp.ClientResponseError, "the answer can't be read"),
    (aiohttp.InvalidURL, "the request can't be sent"),
    (aiohttp.ClientError, "the connection broke off"),
    (OSError, "the connection broke off"),
    (RuntimeError, "the session was closed"),
    (ValueError, "the request can't be sent"),
)


def describe(error: Exception) -> str:
    description = next(words for kind, words in _DESCRIPTIONS if isinstance(error, kind))
    # aiohttp quotes an answer that it cannot read, which may hold a Secret. Its texts about connections are
    # safe.
    detail = (
        f": {printable(str(error), 500)}"
        if isinstance(error, aiohttp.ClientConnectorError) and str(error)
        else ""
    )
    return f"{description} ({type(error).__name__}{detail})"


async def read_whole(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return an answer. Raise TooLarge as soon as it has more than `most` bytes, decompressed.

    `response.read()` would decompress each piece as a whole: 64 KB can become 64 MB.
    """
    pieces, size = [], 0
    async with aclosing(_pieces(response)) as decompressed:
        async for piece in decompressed:
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise TooLarge(
                    f"an answer has more than {most:,} bytes (settings.selectcache.max_page_bytes)"
                )
            await asyncio.sleep(0)  # A piece that only needs decompression is ready at once.
    return b"".join(pieces)


async def decode_in_slices(reader: Reader, data: bytes) -> Page | Refusal:
    """Decode the answer to a list in slices; other tasks run after each slice. Raise Garbled."""
    answer = None
    for answer in reader.slices(data):
        if answer is None:
            await asyncio.sleep(0)
    assert answer is not None, "the last slice is the answer"
    return answer


async def _pieces(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Yield an answer in pieces, decompressed; raise Unreachable if it breaks off. aiohttp before 3.14 would
    decompress at once all that has come.
    """
    try:
        if response.headers.get("Content-Encoding", "identity").lower() not in ("gzip", "deflate"):
            async for piece in response.content.iter_any():
                yield piece
            return
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # Either of the two formats, as it begins.
        try:
            async for data in response.content.iter_any():
                while data and not inflater.eof:
                    yield inflater.decompress(data, BUFFER_BYTES)
                    data = inflater.unconsumed_tail  # The rest, for the next piece.  # noqa: PLW2901
        except zlib.error as error:
            raise aiohttp.ClientPayloadError("the answer can't be decompressed") from error
        if not inflater.eof:
            raise aiohttp.ClientPayloadError("the answer ends too early")
    except BROKEN as error:
        raise Unreachable(describe(error)) from error


async def read_refused(response: aiohttp.ClientResponse) -> bytes:
    """Read an answer that is no success, until it ends, breaks off or is too long: its status says most."""
    body = b""
    try:
        async with aclosing(_pieces(response)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > _ERROR_BYTES:
                    break
    except Unreachable:
        pass
    return body


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of the header Retry-After; None if it has none.

    A date is compared with the Date of the same answer: the clocks of the server and of the operator may
    differ.

    >>> seconds_to_wait({'Retry-After': '1.5'})
    1.5
    >>> seconds_to_wait({'Retry-After': 'Wed, 21 Oct 2026 07:28:30 GMT', 'Date': 'Wed, 21 Oct 2026 07:28:00 GMT'})
    30.0
    """  # A line of an example is not broken.  # noqa: E501
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.replace(".", "", 1).isdecimal():
        seconds = float(value)
        return seconds if isfinite(seconds) else None
    try:
        return max(
            0.0,
            (parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("Date", ""))).total_seconds(),
        )
    except (ValueError, TypeError, IndexError, OverflowError):  # No date, or only one has a time zone.
        return None


_T = TypeVar("_T")

BATCH_SECONDS = 0.01
"""Seconds for which a busy watch is not read."""

BUSY_EVENTS_PER_SECOND = 300
"""Events per second that make a watch busy. With fewer, pacing saves nothing."""

RATE_WINDOW_SECONDS = 0.05
"""Seconds in which events are counted."""

LARGE_CHUNK_BYTES = 32 * 1024
"""Bytes of a chunk that is no single event: the server sends faster than they are read."""

COLLECTED_BYTES = 64 * 1024
"""Bytes that the kernel collects at most before it reports the socket: half of its usual buffer. For a larger
number, Linux enlarges the buffer of the connection for good, up to the limit of the system (`tcp_rmem`), and
fills it while the operator is busy."""


class WatchPace:
    r"""Counts the events of a watch.

    >>> pace = WatchPace()
    >>> [pace.is_busy(b'{}\n' * 8, at) for at in (0.0, 0.01, 0.02, 5.0)]
    [False, True, True, False]
    """

    def __init__(self) -> None:
        self._begun = 0.0
        self._events = 0
        self._was_busy = False

    def is_busy(self, chunk: bytes, now: float) -> bool:
        """Count the events of a chunk; return True if more follow soon, and it is worth while to wait."""
        elapsed = now - self._begun
        if elapsed > RATE_WINDOW_SECONDS:
            self._was_busy = self._events >= BUSY_EVENTS_PER_SECOND * elapsed
            self._begun, self._events = now, 0
        self._events += chunk.count(b"\n")
        is_busy = self._was_busy or self._events >= BUSY_EVENTS_PER_SECOND * RATE_WINDOW_SECONDS
        return is_busy and len(chunk) < LARGE_CHUNK_BYTES


def is_waking(system: str, release: str) -> bool:
    """Return True if a system wakes a reader when it need not wait for more bytes any more.

    >>> is_waking('Linux', '6.1.0-9-amd64'), is_waking('Linux', '4.14.336'), is_waking('Darwin', '23.4.0')
    (True, False, False)
    """
    numbers = re.match(r"(\d+)\.(\d+)", release)
    return system == "Linux" and numbers is not None and (int(numbers[1]), int(numbers[2])) >= (4, 18)


async def paced(
    response: aiohttp.ClientResponse,
    *,
    delay: float,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a watch; raise Unreachable if it breaks off. While it is busy, the next one is read
    `delay` seconds after each.
    """
    pace = WatchPace()
    try:
        async for chunk in response.content.iter_any():
            yield chunk
            if delay and pace.is_busy(chunk, clock()) and (open_ := _socket_of(response)) is not None:
                _collect(open_, COLLECTED_BYTES)
                try:
                    await sleep(delay)
                finally:
                    _collect(open_, 1)
    except BROKEN as error:
        raise Unreachable(describe(error)) from error


def _socket_of(response: aiohttp.ClientResponse) -> socket.socket | None:
    """Return the socket of a response; None once the response or its connection has ended."""
    connection = response.connection
    transport = connection.transport if connection is not None else None
    is_open = transport is not None and not transport.is_closing()
    return transport.get_extra_info("socket") if transport is not None and is_open else None


def _collect(open_: socket.socket, most: int) -> None:
    """Have the kernel report the socket once it has this number of bytes. Some systems refuse that, and then
    each event is read as it comes.
    """
    with suppress(OSError):
        open_.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, most)


class IdleTimeout:
    """Waits for the pieces of a stream. Raises TimeoutError if the last sign of life is too long ago.

    One timer serves all pieces: an `asyncio.timeout` per piece takes a tenth of the CPU of a busy watch. When
    the timer fires, it compares the clock with the deadline of the awaited piece.
    """

    def __init__(self) -> None:
        self._waiting: asyncio.Task[object] | None = None
        self._since = 0.0  # The last sign of life.
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._over = False  # True if the timer has cancelled the waiting task.

    async def next(self, pieces: AsyncIterator[_T], *, within: float, alive: bool = True) -> _T | None:
        """Return the next piece, or None at the end. Raise TimeoutError `within` seconds after the last sign
        of life.

        With `alive`, the call itself is a sign of life: the stream was just opened, or its last piece counts.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "it is awaited"
        now = loop.time()
        if alive:
            self._since = now
        self._due = self._since + within
        if self._due <= now:
            raise TimeoutError  # The timer cannot fire between pieces that are ready at once.
        if self._timer is None or self._timer.when() > self._due:
            self._set(loop)
        cancelled = task.cancelling()  # By others.
        self._waiting, self._over = task, False
        try:
            return await anext(pieces, None)
        except BaseException as error:
            if self._over and task.uncancel() <= cancelled and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from None
            raise
        finally:
            self._waiting = None

    def end(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        self.end()
        self._timer = loop.call_at(self._due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiting is None:
            return  # The next one sets it again.
        if loop.time() < self._due:
            self._set(loop)
        else:
            self._over = True
            self._waiting.cancel()


MAX_LINE_BYTES = 16 * 1024 * 1024
"""The longest line of a watch, in bytes. etcd takes objects of 1.5 MiB; some aggregated servers ten times
that."""

_SEARCHED_BYTES = 64 * 1024
"""The number of bytes of an endless line that are searched for the object's name."""


class Lines:
    """Splits the chunks of a stream into lines. Bytes after the last newline are kept until the line is
    complete.
    """

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def rest(self) -> bytes:
        """The bytes since the last newline."""
        return b"".join(self._parts)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that this chunk completes; raise Garbled once an unfinished one is too long."""
        *complete, rest = chunk.split(b"\n")
        for end in complete:
            line = b"".join((*self._parts, end))
            self._parts, self._size = [], 0
            if line.strip():
                yield line
        self._size += len(rest)
        if self._size > self._limit:
            name = _name_in(b"".join((*self._parts, rest))[:_SEARCHED_BYTES])
            raise Garbled(
                f"a line of a watch is longer than {self._limit:,}"
                f" bytes{f'; the object is {name!r}' if name else ''}"
            )
        self._parts.append(rest)


def _name_in(start: bytes) -> str:
    """Find the object's name in the start of a line. No other value may be returned, even if its key is
    `name`: it could be secret.
    """
    # Without escaped quotes, every other piece is the contents of quotes.
    pieces = start.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    path: list[bytes] = []
    key = b""
    for marks, text in zip(pieces[::2], pieces[1:-1:2], strict=False):
        for mark in marks.decode("latin-1"):
            if mark in "{[":
                path.append(key)
            elif mark in "}]":
                del path[-1:]
        if not marks.rstrip().endswith(b":"):
            key = text
        elif key == b"name" and path == [b"", b"object", b"metadata"]:
            return text[:253].decode("utf-8", "replace")
    return ""
