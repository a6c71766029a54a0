"""Environment: the injected dependencies of informers, which tests substitute: settings, transport, logger,
random source, clock and sleep.

`Retries` repeats transient failures only, with backoff, until the caller's timeout. `Ending` is the end of an
operator, or of one of its caches: reads raise from then on, and waiting reads are ended. `Extensions` and
`Memo` keep objects of higher layers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Protocol, TypeAlias, TypeVar, cast
from weakref import WeakSet

from kopf_selectcache._errors import WRITTEN, ReadError, StateError
from kopf_selectcache.client.fence import FENCE
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.core.errors import Garbled, let_exit
from kopf_selectcache.core.protocol.messages import delay
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import SelectCacheSettings

_T = TypeVar("_T")


def context_of_loop() -> Context:
    """Return the context of a task that goes on after the call that starts it: perhaps one of a thread, or of
    a run for another key.
    """
    context = copy_context()
    context.run(WRITTEN.set, "")
    context.run(FENCE.set, None)
    return context


class Unsettling:
    """Counts the events after which a cache of the operator may not be settled any more."""

    def __init__(self) -> None:
        self.count = 0
        self.is_settled = False
        """True if all were settled, and still are. The operator finds that out."""

    def note(self) -> None:
        """Note that a stream begins to list, or that the cluster is asked again what a key means."""
        self.count += 1
        self.is_settled = False


@dataclass(frozen=True, slots=True)
class Environment:
    """The dependencies of the informers of one operator."""

    settings: SelectCacheSettings
    transport: Transport
    logger: logging.Logger
    chance: Callable[[], float]
    """Returns a number from 0 to 1."""
    clock: Callable[[], float]
    """Returns monotonic seconds. It is called in any thread."""
    sleep: Callable[[float], Awaitable[None]]
    unsettling: Unsettling = field(default_factory=Unsettling)
    """Shared by all informers of the operator."""

    def of_kind(self, cached: Cached) -> Environment:
        """Return the environment of one informer, whose kind may have options of its own."""
        return replace(self, settings=self.settings.of_kind(cached))

    async def rest(self) -> None:
        """Sleep about half a minute, after a mistake of ours."""
        await self.sleep(delay(6, self.chance()))

    async def answer_to(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Ask until the server answers, and wait longer after each failure. Raise Refused if a permission is
        missing.
        """
        failures = 0
        while True:
            try:
                return await ask()
            except (Refused, Unreachable, Garbled) as error:
                if isinstance(error, Refused) and error.refusal.code == 403:
                    raise
            await self.sleep(delay(failures, self.chance(), slow=True))
            failures += 1


def let_end(error: BaseException) -> None:
    """Raise an exception again if it ends the process, the running coroutine or the running task. Any other
    exception from a function of the operator's author is an error of that function. That includes a
    CancelledError if only a task was cancelled that the function awaits.
    """
    let_exit(error)
    task = asyncio.current_task()
    if isinstance(error, GeneratorExit) or (task is not None and task.cancelling()):
        raise error


async def end_within(tasks: set[asyncio.Task[Any]], sleep: Awaitable[object]) -> set[asyncio.Task[Any]]:
    """Wait until tasks have ended, but not beyond a sleep; return those that have not."""
    running, timer = set(tasks), asyncio.ensure_future(sleep)
    try:
        while running and not timer.done():
            ended, _ = await asyncio.wait({*running, timer}, return_when=asyncio.FIRST_COMPLETED)
            running -= ended
    finally:
        timer.cancel()
    return running


async def sleep_until(event: asyncio.Event, sleep: Awaitable[object]) -> None:
    """Sleep, but not beyond the time that the event is set."""
    tasks = [asyncio.ensure_future(sleep), asyncio.create_task(event.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Work: TypeAlias = Callable[[], Awaitable[None]]


async def run_again(
    work: Work, environment: Environment, resource: object, context: Callable[[], dict[str, str]]
) -> None:
    """Run endless work. If it fails, log that, and start it again half a minute later.

    `str(resource)` is the name of the resource. `context` returns the attributes of log records.
    """
    while True:
        try:
            await work()
        except Exception:
            environment.logger.exception(
                "A background task of the cache of %(resource)s failed because of a bug in kopf_selectcache,"
                " and starts again.",
                {"resource": str(resource)},
                extra=context(),
            )
            await environment.rest()


MOST_DOUBLED = 3
"""The wait doubles this many times, to at most 4 seconds: a longer wait would waste the caller's time."""


class Unanswered(Exception):
    """The timeout expired before the first attempt ended."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The clock, sleep and randomness of retries. Used on the operator's event loop only."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    chance: Callable[[], float]

    async def run(self, attempt: Callable[[], Awaitable[_T]], seconds: float) -> _T:
        """Return the result of the first attempt that succeeds within `seconds`.

        Raise a failure that is not transient at once; after the timeout raise the last failure, or
        Unanswered. Raise at once as well if the next attempt would begin after the timeout, because the
        server asks for a longer wait.
        """
        end, failures = self.clock() + seconds, 0
        last: Exception = Unanswered()
        while True:
            limit = asyncio.timeout(end - self.clock())
            try:
                async with limit:
                    return await attempt()
            except StateError as error:
                pause = delay(min(failures, MOST_DOUBLED), self.chance(), at_least=error.retry_after or 0.0)
                if not error.transient or pause >= end - self.clock():
                    raise
                last = error
            except TimeoutError:
                if not limit.expired():
                    raise  # A function of the caller raised it, such as as_=.
                break
            failures += 1
            await self.sleep(pause)
        raise last


def ended() -> ReadError:
    """Return the error of a read after the end."""
    return ReadError(
        "the operator that this cache belongs to has ended",
        remedy="End the task or thread that reads it",
    )


class Ending:
    """The end of one operator or cache, and the reads that must end with it."""

    def __init__(self) -> None:
        self.reached = False
        """True after the end. Reads in any thread check it."""
        self.error: Callable[[], ReadError] = ended
        """Returns the error of a read after the end."""
        self._limits: set[asyncio.Timeout] = set()
        # Each call of `cache_of` may make one, which must not live as long as the operator.
        self._followers: WeakSet[Ending] = WeakSet()

    def end(self, error: Callable[[], ReadError] = ended) -> None:
        """Cancel all reads that wait; they raise this error. Call it, and the methods below, on the
        operator's loop only.
        """
        self.error = error
        self.reached = True
        for limit in self._limits:
            limit.reschedule(0.0)  # A time that has passed.
        for follower in tuple(self._followers):
            follower.end()

    def include(self, follower: Ending) -> None:
        """End the follower as well."""
        self._followers.add(follower)
        if self.reached:
            follower.end()

    def check(self) -> None:
        """Raise the error if the end was reached."""
        if self.reached:
            raise self.error()

    async def limit(self, read: Coroutine[Any, Any, _T]) -> _T:
        """Await a read; raise the error if the end was reached, or is reached meanwhile. A read with a
        coroutine among its arguments is made after `check`: Python warns of one that never starts.
        """
        if self.reached:
            read.close()
            raise self.error()
        limit = asyncio.timeout(None)  # No task of its own: the read stays in the task that awaits it.
        try:
            async with limit:
                self._limits.add(limit)
                return await read
        except TimeoutError:
            if limit.expired():
                raise self.error() from None
            raise  # The read itself raised it.
        finally:
            self._limits.discard(limit)


class Extension(Protocol):
    """An object that belongs to one operator."""

    def close(self) -> None:
        """End what it does. Called on the operator's loop."""


_E = TypeVar("_E", bound=Extension)


class Extensions:
    """The objects that belong to one operator, such as the states of its recorders, by their classes. They
    live as long as the operator.
    """

    def __init__(self, runtime: object) -> None:
        self._runtime = runtime
        self._made: dict[type[Extension], Extension] = {}
        self._lock = Lock()

    def get(self, make: type[_E]) -> _E:
        """Return the object of a class; make it of the runtime of the operator at the first call, in any
        thread.
        """
        with self._lock:
            if make not in self._made:
                self._made[make] = cast("Callable[[Any], _E]", make)(self._runtime)
            return cast("_E", self._made[make])

    def close(self) -> None:
        """Close all objects."""
        with self._lock:
            made = list(self._made.values())
        for each in made:
            each.close()


class Memo:
    """One object for each factory. It lives as long as its informer, and reading threads share it."""

    def __init__(self) -> None:
        self._made: dict[Callable[[], Any], Any] = {}

    def of(self, make: Callable[[], _T]) -> _T:
        """Return the object of this factory; make it at the first call."""
        found: _T | None = self._made.get(make)
        return found if found is not None else self._made.setdefault(make, make())
