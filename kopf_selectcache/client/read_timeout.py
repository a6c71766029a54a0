"""Idle timeout of a stream: the time since its last sign of life. The caller decides which pieces count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

_T = TypeVar("_T")


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
