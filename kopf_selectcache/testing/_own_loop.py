"""The event loop of a fake cache's operator. It runs only inside calls, in the thread that makes them, until
nothing is left to do. A `sleep` ends once all else is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import Any, TypeAlias, TypeVar, TypeVarTuple

_A = TypeVar("_A")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_Place: TypeAlias = tuple[asyncio.AbstractEventLoop | None, asyncio.Task[Any] | None]
"""A running loop, and its current task."""

SLEEPS = 10
"""The sleeps that may end in one call, one after another. Whatever fails goes on failing after it."""

THREAD_SECONDS = 0.005
"""Seconds between two looks whether a thread of a cache, such as one that trains a dictionary, still runs."""

WORKER = "selectcache"
"""The name of such threads."""

HOME_SECONDS = 1.0
"""Seconds that the test's loop has to settle this one, if a change comes from another thread."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs in this thread; None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _swap(loop: asyncio.AbstractEventLoop | None, task: asyncio.Task[Any] | None) -> _Place:
    """Have another loop run here, or none; return what was before. asyncio documents these functions, for
    authors of loops.
    """
    former = running_loop()
    current = None if former is None else asyncio.current_task(former)
    if former is not None and current is not None:
        asyncio._leave_task(former, current)  # It is documented.  # noqa: SLF001
    asyncio._set_running_loop(loop)  # It is documented.  # noqa: SLF001
    if loop is not None and task is not None:
        asyncio._enter_task(loop, task)  # It is documented.  # noqa: SLF001
    return former, current


class OwnLoop(asyncio.BaseEventLoop):
    """An event loop inside of the test's own, or without any other. It has no files to wait for, so it is its
    own selector.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_debug(False)  # The steps that it would report as slow are not the test's.
        self._selector = self
        self._sleeping: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._slept = 0.0
        self._turn = threading.RLock()
        self._outer: _Place = (None, None)
        self._called = threading.Event()
        self._is_done: Callable[[], bool] = lambda: True
        self._sleeps_left = 0
        self.home: asyncio.AbstractEventLoop | None = None
        """The loop of the test, on which reads may wait."""

    def __del__(self) -> None:
        """Close nothing: there are no files."""

    # ---- Methods for the test kit.

    @property
    def is_current(self) -> bool:
        """True if the code runs on this loop."""
        return running_loop() is self

    def clock(self) -> float:
        """Return the seconds of a clock that each sleep moves forward."""
        return monotonic() + self._slept

    async def sleep(self, seconds: float) -> None:
        """Sleep until all else is done; on any other loop not at all."""
        if not self.is_current:
            self._slept += seconds
            await asyncio.sleep(0)
            return
        end = self.create_future()
        heappush(self._sleeping, (self.clock() + seconds, next(self._numbers), end))
        await end

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine to its end, which must need nobody else; return its result, or raise its error."""
        with self._turn:
            return self.finish(self.create_task(work))

    def start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run a coroutine up to its first wait."""
        with self._turn:
            task = self.create_task(work)
            self.call_soon(self.stop)
            self._run(task.done)
        return task

    def finish(self, task: asyncio.Task[_T]) -> _T:
        """Run until a task has ended, as `run` does."""
        self._run(task.done)
        assert task.done(), f"{task} waits for something that never comes"
        return task.result()

    def settle(self, is_at_rest: Callable[[], bool]) -> None:
        """Run until nothing is left to do, and nothing is expected that only a sleep or a thread can bring.
        Who waits in a running loop of the test is woken in its thread.
        """
        home = self.home
        if home is not None and home is not running_loop() and home.is_running():
            done: Future[None] = Future()

            def settle() -> None:
                self._run(is_at_rest)
                done.set_result(None)

            with suppress(RuntimeError, TimeoutError):  # It has just been closed, or it is busy.
                home.call_soon_threadsafe(settle)
                done.result(HOME_SECONDS)
        self._run(is_at_rest)

    def outside(self, function: Callable[[_A], object]) -> Callable[[_A], object]:
        """Return a function of the test, which sees the loop of the test whoever calls it."""

        def call(argument: _A) -> object:
            if not self.is_current:
                return function(argument)
            inner = _swap(*self._outer)
            try:
                return function(argument)
            finally:
                _swap(*inner)

        return call

    def _run(self, is_done: Callable[[], bool]) -> None:
        with self._turn:
            if self.is_running():
                return  # It is called from what it runs.
            self._is_done, self._sleeps_left = is_done, SLEEPS
            self._outer = _swap(None, None)
            try:
                self.run_forever()
            finally:
                _swap(*self._outer)
                self._outer = None, None

    def _wait_for_threads(self) -> bool:
        """Return True once a thread has brought its result; False if none is at work."""
        others = {each for each in threading.enumerate() if each is not threading.current_thread()}
        while any(each.name == WORKER and each.is_alive() for each in others):
            if self._called.wait(THREAD_SECONDS):
                break
        self._called.clear()
        return bool(self._ready)  # type: ignore[attr-defined]  # All event loops of asyncio have it.

    # ---- Methods of a loop, for the product and for asyncio.

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Have a call, and do what it leads to: nobody else would run this loop."""
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        if threading.current_thread().name != WORKER and not self.is_running():
            self.settle(lambda: True)
        return handle

    def select(self, timeout: float | None) -> Sequence[Any]:
        """End a sleep if nothing is ready, or stop. No timer needs to be waited for."""
        if timeout != 0 and not self._wait_for_threads():
            while self._sleeping and self._sleeping[0][2].done():
                heappop(self._sleeping)
            if self._sleeping and self._sleeps_left and not self._is_done():
                self._sleeps_left -= 1
                end, _, sleep = heappop(self._sleeping)
                self._slept += max(0.0, end - self.clock())
                sleep.set_result(None)
            else:
                self.stop()
        return ()

    def _process_events(self, _: Sequence[Any]) -> None:
        """Do nothing: there are none."""

    def _write_to_self(self) -> None:
        """Wake it: a thread has called."""
        self._called.set()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raise the error where the loop is settled."""
        if (error := context.get("exception")) is not None:
            raise error
