"""The awaited methods of a cache, and their twins for sync handlers, which run in threads: each waits for the
result of the operator's loop.

A thread cannot be ended from outside, and Kopf waits for the threads of its handlers. So each wait ends when
its handler is stopped, or the operator ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from functools import partial, wraps
from threading import Lock
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from kopf_selectcache._errors import ReadError, caller, for_thread, own_loop
from kopf_selectcache.informer.environment import Ending

from .declaring import with_call_site
from .misuse import explain_call, with_signature

_M = TypeVar("_M", bound=Callable[..., Any])
_S = TypeVar("_S")
_P = ParamSpec("_P")
_T = TypeVar("_T")

_logger = logging.getLogger("kopf_selectcache")

STOPPED = "its daemon is being stopped"


class ThreadWaits:
    """The present waits of the threads of one handler, or of the operator. All can be ended at once."""

    def __init__(
        self, within: ThreadWaits | None = None, *, stopped: asyncio.Event | None = None, why: str = STOPPED
    ) -> None:
        self.stopped = stopped
        """Set when the handler, or the operator, begins to stop. Waits and iterators end then."""
        self._why = why
        self._within = within
        self._lock = Lock()
        self._answers: set[Future[Any]] = set()
        self._end: str | None = None

    def end(self, why: str) -> None:
        """End all waits with an error that names the reason, and refuse new ones."""
        with self._lock:
            self._end = why
            answers = tuple(self._answers)
        for answer in answers:
            with suppress(InvalidStateError):  # The answer has just come.
                answer.set_exception(_ended(why))

    def check(self) -> None:
        """Raise the error of the end if it was reached."""
        if self._end is not None:
            raise _ended(self._end)

    def run(self, work: Callable[[], Coroutine[Any, Any, _T]], loop: asyncio.AbstractEventLoop) -> _T:
        """Run the coroutine on the loop, and wait for its result in this thread."""
        answer: Future[_T] = Future()
        self._add(answer)
        try:
            # A loop that stops now would never run the work; but the operator ends first, and ends this wait.
            try:
                loop.call_soon_threadsafe(_begin, work, answer, loop)
            except RuntimeError:
                raise _ended("the operator's event loop is closed") from None
            return answer.result()
        finally:
            self._discard(answer)

    async def limit(self, wait: Coroutine[Any, Any, _T]) -> _T:
        """Await a wait on the loop; raise ReadError once the daemon, or the operator, is stopped."""
        if not (stops := self.stops):
            return await wait
        with end_with(stops) as ending:
            return await ending.limit(wait)

    @property
    def stops(self) -> list[tuple[asyncio.Event, str]]:
        """The events that end its waits, with the reason: of a daemon, and of the operator."""
        stops = [] if self.stopped is None else [(self.stopped, self._why)]
        return stops if self._within is None else stops + self._within.stops

    def _add(self, answer: Future[Any]) -> None:
        if self._within is not None:
            self._within._add(answer)  # Of the same class.  # noqa: SLF001
        with self._lock:
            self._answers.add(answer)
            why = self._end
        if why is not None:
            self._discard(answer)
            raise _ended(why)

    def _discard(self, answer: Future[Any]) -> None:
        with self._lock:
            self._answers.discard(answer)
        if self._within is not None:
            self._within._discard(answer)  # Of the same class.  # noqa: SLF001


def _begin(
    work: Callable[[], Coroutine[Any, Any, _T]], answer: Future[_T], loop: asyncio.AbstractEventLoop
) -> None:
    """Run the coroutine on the loop, and set its result; cancel it if nobody waits any more."""
    task = loop.create_task(work())

    def give(_: asyncio.Task[_T]) -> None:
        with suppress(InvalidStateError):
            if task.cancelled():
                answer.set_exception(_ended("its task was cancelled, as all are when the operator ends"))
            elif (error := task.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

    def stop(_: Future[_T]) -> None:
        with suppress(RuntimeError):  # The loop is closed, and its tasks with it.
            loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(give)
    answer.add_done_callback(stop)


def _ended(why: str) -> ReadError:
    return ReadError(f"this wait was ended, because {why}", remedy="Let the handler end")


@contextmanager
def end_with(stops: Sequence[tuple[asyncio.Event, str]]) -> Iterator[Ending]:
    """Return an end that is reached, with its reason, when one of these events is set."""
    ending = Ending()
    for stopped, why in stops:
        if stopped.is_set():
            ending.end(partial(_ended, why))

    async def end_when(stopped: asyncio.Event, why: str) -> None:
        await stopped.wait()
        ending.end(partial(_ended, why))

    waiting = [asyncio.create_task(end_when(stopped, why)) for stopped, why in stops]
    try:
        yield ending
    finally:
        for each in waiting:
            each.cancel()


class Call(Coroutine[Any, Any, _T]):
    """The call of an awaited method. The log names its place if it is thrown away."""

    __slots__ = ("_is_used", "_method", "_place", "_work")

    def __init__(self, work: Coroutine[Any, Any, _T], method: str, place: str) -> None:
        self._work, self._method, self._place = work, method, place
        self._is_used = False

    def __await__(self) -> Generator[Any, Any, _T]:
        self._is_used = True
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        self._is_used = True
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        self._is_used = True
        return self._work.throw(*error)

    def close(self) -> None:
        self._is_used = True
        self._work.close()

    def __del__(self) -> None:
        if not self._is_used:
            _logger.warning(
                "cache.%(method)s() in %(place)s did nothing, because it was never awaited. Write: await"
                " cache.%(method)s(...)",
                {"method": self._method, "place": self._place},
            )


def awaited(method: _M) -> _M:
    """Make a read of `Cache` end with the operator, and a wait with its daemon, and refuse calls outside of
    the operator's loop.

    A sync handler would take the coroutine for the answer: it is true, and is not None.
    """
    explained = explain_call(method)

    @wraps(method)
    async def read(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._runtime.ending.check()
        work = explained(self, *args, **kwargs)
        if method.__name__ in WAITS and self._waits is not None:
            work = self._waits.limit(work)
        return await self._runtime.ending.limit(work)

    @wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = self._prefix + method.__name__
        if own_loop() is not self._runtime.loop:
            raise refuse_thread(name)
        work = read(self, *args, **kwargs)
        return work if name in FAST else Call(work, name, caller())

    return cast("_M", with_signature(call, of=method))


def refuse_thread(method: str) -> ReadError:
    """Return the error of an awaited read that is called outside of the operator's loop."""
    return ReadError(
        f"cache.{method}() can only be awaited on the operator's event loop",
        remedy=f"In a thread, write: cache.blocking.{method}(...)",
    )


class Looped(Protocol):
    """The runtime of the reads. Before it has started, its loop may not be known."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def ending(self) -> Ending: ...


FAST = ("fetch", "fetch_list")
"""Reads that the cache may answer: a `Call` would take a sixth of their time."""

WAITS = ("wait_for", "wait_deleted", "wait_synced")
"""The awaited reads that may wait for longer than a request takes."""

AWAITED, LIVE = list[str](), list[str]()
"""The awaited methods of a cache and of `cache.live`: all that `in_thread` was given."""


class Threaded(Protocol):
    """Runs awaited methods on the operator's loop, for one thread that waits for them."""

    _awaited: Any
    """The object that has these methods."""
    _prefix: str = ""

    def _run(self, method: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run the call on the operator's loop, and wait for it here."""


def in_thread(
    method: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Any, _P], _T]:
    """Return an awaited method as one that waits in its thread: with its overloads, and its docstring."""
    name = method.__name__
    (LIVE if method.__qualname__.startswith("Live.") else AWAITED).append(name)

    @wraps(method)
    def call(self: Threaded, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        awaited = self._awaited
        if name == "undeclare":  # The work has another stack.
            awaited = with_call_site(caller(), awaited)
        return self._run(f"{self._prefix}{name}", lambda: method(awaited, *args, **kwargs))

    call.__doc__ = (method.__doc__ or "").replace("await ", "")
    return call


def run_in_thread(
    runtime: Looped, waits: ThreadWaits, method: str, call: Callable[[], Coroutine[Any, Any, _T]]
) -> _T:
    """Run the call on the operator's loop, and wait for it in this thread."""
    runtime.ending.check()
    loop = runtime.loop
    if own_loop() is loop:
        what = f"cache.blocking.{method}() would block the operator's event loop"
        raise ReadError(what, remedy=f"Write: await cache.{method}(...)")
    if not loop.is_running():
        what = f"cache.blocking.{method}() needs the operator's event loop, which is not running"
        raise ReadError(what, remedy="Call it while the operator runs, for example in a handler")

    async def run() -> _T:
        with for_thread():
            work = call()  # It must be called on its loop.
            return await (waits.limit(work) if method in WAITS else work)

    return waits.run(run, loop)
