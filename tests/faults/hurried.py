"""An event loop whose time passes only when nothing else is left to do, and then at once: timeouts keep their
true lengths.

The sockets are real. It is for clients and servers that share the loop: what others send would come hours
late."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class HurriedLoop(asyncio.SelectorEventLoop):
    """The loop: `asyncio.Runner(loop_factory=HurriedLoop)`."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Skipping(self))

    def time(self) -> float:
        return self.now


class _Skipping(selectors.DefaultSelector):
    """Does not wait for a timer, but puts the loop's clock forward."""

    def __init__(self, loop: HurriedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)  # Between two sockets of one process nothing is ever on its way.
        if not ready:
            self._loop.now += timeout
        return ready
