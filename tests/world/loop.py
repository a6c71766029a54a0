"""An event loop whose time the world moves: without that, whoever sleeps waits."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

from tests.hostile.virtual import InlineLoop, is_threaded

IN_FLIGHT = 0.01
"""Real seconds to wait for a thread of the product that works."""


class WorldLoop(InlineLoop):
    """The loop: `asyncio.Runner(loop_factory=WorldLoop)`."""

    def __init__(self) -> None:
        self.idle: asyncio.Future[None] | None = None
        super().__init__(_Standing)

    async def settle(self) -> None:
        """Let everything run that needs neither time nor an answer of the server."""
        self.idle = self.create_future()
        await self.idle

    async def move(self, seconds: float) -> None:
        """Let time pass, from one timer to the next."""
        end = self.now + seconds
        await self.settle()
        while (timer := self._next_timer()) is not None and timer <= end:
            self.now = max(self.now, timer)
            await self.settle()
        self.now = end
        await self.settle()

    def _next_timer(self) -> float | None:
        timers: Any = self._scheduled  # type: ignore[attr-defined]  # There is no other way to ask.
        return min((each.when() for each in timers if not each.cancelled()), default=None)


class _Standing(selectors.DefaultSelector):
    """Wakes the world when nothing else is left to do."""

    def __init__(self, loop: WorldLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        while is_threaded():
            if ready := super().select(IN_FLIGHT):
                return ready
        ready = super().select(0)
        idle, self._loop.idle = (self._loop.idle, None) if not ready else (None, self._loop.idle)
        if idle is not None:
            idle.set_result(None)
        else:
            assert ready, "the world waits for something that never happens"
        return ready
