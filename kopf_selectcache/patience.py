"""How long the next piece of a stream may take. Knows no stream, and says nothing of what to do then."""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

_T = TypeVar("_T")


class Patience:
    """Waits for one piece of a stream after the other, as if there were an `asyncio.timeout` around each.

    That would make a timer for each piece, and drop it: a tenth of the time that a busy watch takes. Here it is one for all,
    which looks, when it is due, how long the piece has taken that is waited for then.
    """

    def __init__(self) -> None:
        self._waiting: asyncio.Task[object] | None = None
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._over = False   # Whether who waits has been cancelled, since it takes too long.

    async def next(self, pieces: AsyncIterator[_T], *, within: float) -> _T | None:
        """Return the next piece, None at the end; raise TimeoutError if it takes more than so many seconds."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "it is awaited"
        self._due = loop.time() + within
        if self._timer is None or self._timer.when() > self._due:
            self._set(loop)
        cancelled = task.cancelling()   # By others.
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
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        self.end()
        self._timer = loop.call_at(self._due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiting is None:
            return   # The next one sets it again.
        if loop.time() < self._due:
            self._set(loop)
        else:
            self._over = True
            self._waiting.cancel()
