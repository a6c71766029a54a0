"""An event loop for a victim and a server in one process: its time passes only when neither has anything to
do, and then at once."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

_T = TypeVar("_T")

IN_FLIGHT = 0.05
"""Real seconds that bytes may take from one socket to another of this machine: as long as a delayed
acknowledgement."""


class InlineLoop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own, in which no thread of an executor runs."""

    def __init__(self, selector: Callable[[Self], selectors.BaseSelector]) -> None:
        self.now = 1000.0
        super().__init__(selector(self))

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: object, func: Callable[..., _T], *args: Any) -> asyncio.Future[_T]:  # type: ignore[override]  # There is none.
        """Run it here and now: time must not pass while a thread works, and each run has the same order."""
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # It is raised where the future is awaited.  # noqa: BLE001
            future.set_exception(error)
        return future


class VirtualLoop(InlineLoop):
    """The loop: `asyncio.Runner(loop_factory=VirtualLoop)`."""

    def __init__(self) -> None:
        super().__init__(_Skipping)


def is_threaded() -> bool:
    """Return True if a thread of the package works."""
    return any(thread.name == "selectcache" for thread in threading.enumerate())


class _Skipping(selectors.DefaultSelector):
    """Puts the loop's clock forward instead of waiting for a timer."""

    def __init__(self, loop: InlineLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(IN_FLIGHT if self._is_busy() else 0)
        if not ready:
            self._loop.now += timeout
        return ready

    def _is_busy(self) -> bool:
        """Return True if a thread of the package works, or a socket waits until its peer has read."""
        return is_threaded() or any(key.events & selectors.EVENT_WRITE for key in self.get_map().values())
