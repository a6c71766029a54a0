"""The event loop of a fake cache's operator. It runs only inside of `settle`, in the thread that calls it,
until nothing is left to do. Its timers never ring, and a `sleep` ends once all else is done.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from heapq import heappop, heappush
from itertools import count
from math import inf
from time import monotonic
from typing import Any, TypeAlias, TypeVar, cast

_A = TypeVar("_A")
_T = TypeVar("_T")
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


class OwnLoop:
    """An event loop inside of the test's own, or without any other. It has what asyncio's tasks and waits
    need, which is far from all of `asyncio.AbstractEventLoop`.
    """

    def __init__(self) -> None:
        self._ready = deque[tuple[asyncio.Handle, Context, Callable[..., object], tuple[Any, ...]]]()
        self._sleeping: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._slept = 0.0
        self._turn = threading.RLock()
        self._is_settling = False
        self._outer: _Place = (None, None)
        self._called = threading.Event()
        self.is_at_rest: Callable[[], bool] = lambda: True
        """Returns True if nothing is expected that only a sleep or a thread can bring."""
        self.home: asyncio.AbstractEventLoop | None = None
        """The loop of the test, on which reads may wait."""

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return cast("asyncio.AbstractEventLoop", self)

    # ---- Methods for the test kit.

    @property
    def is_current(self) -> bool:
        """True if the code runs on this loop."""
        return running_loop() is self._loop

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

    def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine to its end, which must need nobody else."""

        async def run() -> _T:
            return await work()

        task: asyncio.Task[_T] = self.create_task(run())
        return self.finish(task)

    def start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run a coroutine up to its first wait."""
        task: asyncio.Task[_T] = self.create_task(work)
        with self._turn, self._as_running():
            self._run_ready(len(self._ready))
        return task

    def finish(self, task: asyncio.Task[_T]) -> _T:
        """Run until a task has ended, which must need nobody else; return its result, or raise its error."""
        self._settle(task.done)
        assert task.done(), f"{task} waits for something that never comes"
        return task.result()

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function on this loop, and settle it."""

        async def call() -> _T:
            return function()

        made = self.run(call)
        self.settle()
        return made

    def settle(self) -> None:
        """Run until nothing is left to do. Who waits in a running loop of the test is woken in its thread."""
        home = self.home
        if home is None or home is running_loop() or not home.is_running():
            self._settle(self.is_at_rest)
            return
        done: Future[None] = Future()

        def settle() -> None:
            self._settle(self.is_at_rest)
            done.set_result(None)

        with suppress(RuntimeError):  # It has just been closed.
            home.call_soon_threadsafe(settle)
        with suppress(TimeoutError):
            done.result(HOME_SECONDS)
        self._settle(self.is_at_rest)

    def end(self, task: asyncio.Task[None]) -> None:
        """Cancel a task, and all that it has begun. The garbage collector may call it, in any thread."""
        task.cancel()
        with self._turn, self._as_running():
            self._run_ready()

    def _settle(self, is_done: Callable[[], bool]) -> None:
        with self._turn:
            if self._is_settling:
                return  # It is called from what it runs.
            self._is_settling = True
            try:
                with self._as_running():
                    self._run_until(is_done)
            finally:
                self._is_settling = False

    def _run_until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(SLEEPS):
            self._run_ready()
            while self._is_called():
                self._run_ready()
            if is_done():
                return
            # Nothing comes by itself.
            while self._sleeping and self._sleeping[0][2].done():
                heappop(self._sleeping)
            if self._sleeping:
                end, _, sleep = heappop(self._sleeping)
                self._slept += max(0.0, end - self.clock())
                sleep.set_result(None)

    def _run_ready(self, most: float = inf) -> None:
        done = 0
        while self._ready and done < most:
            done += 1
            handle, context, callback, arguments = self._ready.popleft()
            if not handle.cancelled():
                context.run(callback, *arguments)

    def _is_called(self) -> bool:
        """Return True once a thread has brought its result; False if none is at work."""
        others = {each for each in threading.enumerate() if each is not threading.current_thread()}
        while any(each.name == WORKER and each.is_alive() for each in others):
            if self._called.wait(THREAD_SECONDS):
                break
        self._called.clear()
        return bool(self._ready)

    @contextmanager
    def _as_running(self) -> Iterator[None]:
        self._outer, hooks = _swap(self._loop, None), sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=lambda _: None, finalizer=self._finalize)
        try:
            yield
        finally:
            sys.set_asyncgen_hooks(*hooks)
            _swap(*self._outer)
            self._outer = None, None

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

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        self.create_task(generator.aclose())

    # ---- Methods of a loop, for asyncio.

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._loop, context)
        self._ready.append((handle, copy_context() if context is None else context, callback, args))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = self.call_soon(callback, *args, context=context)
        self._called.set()
        if threading.current_thread().name != WORKER and not self._is_settling:
            self.settle()
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Ring now if the time has passed, and otherwise never."""
        timer = asyncio.TimerHandle(when, callback, args, self._loop, context)
        if when <= self.time():
            self._ready.append((timer, copy_context() if context is None else context, callback, args))
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Forget nothing: it is in no list."""

    def time(self) -> float:
        return monotonic()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._loop)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self._loop, **options)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raise the error where the loop is settled."""
        if (error := context.get("exception")) is not None:
            raise error

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_settling

    def is_closed(self) -> bool:
        return False
