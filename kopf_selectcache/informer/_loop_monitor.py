"""Loop monitor: detects that the event loop was blocked or the machine slept, logs the gap and reports it.

Kopf and all handlers share the loop: a handler that blocks it stops every cache as well. A connection may be
dead after a gap that is longer than a live connection is ever silent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

BEAT = 1.0
"""Seconds between two checks."""

NOTICED = 5.0
"""Gaps of at least this many seconds are reported. Large answers and busy machines cause shorter ones."""


def wall() -> float:
    """Return a monotonic time in seconds. It includes the machine's sleep if the system counts that."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class LoopMonitor:
    """Measures the gaps of one operator's event loop."""

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
        """Measure until cancelled."""
        while True:
            before = self._clock()
            await self._sleep(BEAT)
            late = self._clock() - before - BEAT
            self.longest = max(self.longest, late)
            if late >= NOTICED:
                self._logger.warning(
                    "The operator's event loop stood still for %(seconds).0f s, and no cache was updated."
                    " Either a"
                    " handler blocked it, or the machine was asleep. Write handlers that take long without"
                    " awaiting as plain functions (def, not async def).",
                    {"seconds": late},
                )
                try:
                    self._gap(late)
                except Exception:  # A failing callback must not end the task group of all informers.
                    self._logger.exception(
                        "The caches could not be refreshed after the pause. The next audit refreshes them."
                    )
