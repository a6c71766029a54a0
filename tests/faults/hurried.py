"""An event loop whose time passes only when nothing else is left to do, and then at once: timeouts keep their
true lengths.

The sockets are real. It is for clients and servers that share the loop: what others send would come hours
late."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Coroutine
from typing import Any


class HurriedLoop(asyncio.SelectorEventLoop):
    """The loop: `asyncio.Runner(loop_factory=HurriedLoop)`.

    After `idle_turns` without news from a socket, who takes further ones only waits, as `until` does.

    With `awaits_threads`, no time passes while one works: else it would be hours late. It must not wait for
    a time itself."""

    def __init__(self, *, idle_turns: float = math.inf, awaits_threads: bool = False) -> None:
        self.now = 0.0
        self._awaits_threads = awaits_threads
        self._threads = set[asyncio.Future[Any]]()
        super().__init__(_Skipping(self, idle_turns))

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]  # Any future.
        future = super().run_in_executor(executor, func, *args)
        if self._awaits_threads:
            self._threads.add(future)
            future.add_done_callback(self._threads.discard)
        return future

    @property
    def must_wait(self) -> bool:
        """True if a thread works for which time must not pass."""
        return bool(self._threads)


class _Skipping(selectors.DefaultSelector):
    """Does not wait for a timer, but puts the loop's clock forward."""

    def __init__(self, loop: HurriedLoop, idle_turns: float) -> None:
        super().__init__()
        self._loop = loop
        self._idle_turns = idle_turns
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        if timeout is None or self._loop.must_wait:
            return super().select(timeout)
        ready = super().select(0)  # Between two sockets of one process nothing is ever on its way.
        self._turns = 0 if ready or timeout > 0 else self._turns + 1
        if not ready and timeout > 0:
            self._loop.now += timeout
        elif self._turns > self._idle_turns and (scheduled := self._loop._scheduled):  # type: ignore[attr-defined]
            self._turns = 0
            self._loop.now = max(self._loop.now, scheduled[0]._when)
        return ready


class VirtualTime:
    """A fixture that returns one has its test, if that is a coroutine, run on a loop that hurries."""

    def make_loop(self) -> HurriedLoop:
        return HurriedLoop()

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=self.make_loop) as runner:
            runner.run(test)
