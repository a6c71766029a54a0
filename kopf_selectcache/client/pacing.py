"""When a stream is read: pacing of a busy watch, and the idle timeout of a silent one.

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
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import aiohttp

_T = TypeVar("_T")

BATCH_DELAY = 0.01
"""Seconds for which a busy watch is not read."""

RATE = 300
"""Events per second that make a watch busy. With fewer, pacing saves nothing."""

WINDOW = 0.05
"""Seconds in which events are counted."""

LARGE = 32 * 1024
"""Bytes of a chunk that is no single event: the server sends faster than they are read."""

ENOUGH = 64 * 1024
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
        if elapsed > WINDOW:
            self._was_busy = self._events >= RATE * elapsed
            self._begun, self._events = now, 0
        self._events += chunk.count(b"\n")
        return (self._was_busy or self._events >= RATE * WINDOW) and len(chunk) < LARGE


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
    """Yield the chunks of a watch. While it is busy, the next one is read `delay` seconds after each."""
    pace = WatchPace()
    async for chunk in response.content.iter_any():
        yield chunk
        if delay and pace.is_busy(chunk, clock()) and (open_ := _socket_of(response)) is not None:
            _collect(open_, ENOUGH)
            try:
                await sleep(delay)
            finally:
                _collect(open_, 1)


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

    async def all(self, pieces: AsyncIterator[_T], *, within: float) -> AsyncGenerator[_T, None]:
        """Yield all pieces of a stream. Raise TimeoutError if it does not end within this many seconds."""
        piece = await self.next(pieces, within=within)
        while piece is not None:
            yield piece
            piece = await self.next(pieces, within=within, alive=False)

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
