"""Notices when the event loop stands still, or the machine sleeps: how long, told in the log. Mends nothing
itself.

The loop is shared with Kopf and all handlers: one that blocks it stops them all, and every cache with them.
After a gap that is longer than a live connection is silent, nobody knows which connections have outlived it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

BEAT = 1.0
"""So often, in seconds, it is looked."""

NOTICED = 5.0
"""From so many seconds on, a gap is told of: shorter ones come with big answers and busy machines."""


def wall() -> float:
    """Return the seconds since some moment, those included in which the machine was asleep, where the system
    counts them.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class LoopMonitor:
    """The heartbeat of one operator's loop."""

    def __init__(
        self,
        gap: Callable[[float], None],
        *,
        logger: logging.Logger,
        clock: Callable[[], float] = wall,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.longest = 0.0
        """The longest gap so far, in seconds."""
        self._gap = gap  # Called with each gap that was noticed.
        self._logger = logger
        self._clock = clock
        self._sleep = sleep

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            before = self._clock()
            await self._sleep(BEAT)
            late = self._clock() - before - BEAT
            self.longest = max(self.longest, late)
            if late >= NOTICED:
                self._logger.warning(
                    "The operator's event loop stood still for %(seconds).0f s: a handler has blocked it, or"
                    " the machine was asleep. Meanwhile no cache was kept. Handlers that take long without"
                    " awaiting are better plain functions (def, not async def).",
                    {"seconds": late},
                )
                try:
                    self._gap(late)
                except Exception:  # Whoever is told of it must not end the heartbeat, and all caches with it.
                    self._logger.exception("Nothing was done about the gap.")
