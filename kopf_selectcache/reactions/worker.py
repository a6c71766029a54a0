"""Worker: takes keys off a queue, and runs an async function for each, a limited number at the same time."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.informer.environment import end_within, sleep_until
from kopf_selectcache.selectors.object_key import Key

from .queue import Run, WorkQueue

GRACE = 5.0
"""Seconds for the runs that were cancelled. One that resists longer is left behind."""


@dataclass(frozen=True, slots=True)
class RunAgain:
    """The result of a run that has succeeded, and is repeated after some seconds."""

    after: float


Function: TypeAlias = Callable[[Run], Awaitable[RunAgain | None]]
"""Runs a key. An exception means that it has failed: it is retried with backoff."""


class Worker:
    """Runs the keys of a queue, up to `limit` at the same time, never one key twice at once.

        worker = Worker(queue, reconcile, limit=10)
        task = asyncio.create_task(worker.run())
        ...
        await worker.stop(deadline=30)

    A worker runs once. `sleep` is that of its clock. `gate` returns what to wait for before keys may run;
    None if they may run now.
    """

    def __init__(
        self,
        queue: WorkQueue,
        function: Function,
        *,
        limit: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float],
        logger: logging.Logger | None = None,
        gate: Callable[[], Awaitable[object] | None] = lambda: None,
    ) -> None:
        if limit < 1:
            raise ValueError(f"limit= is {limit}: a worker runs at least one key at a time")
        self._queue = queue
        self._function = function
        self._limit = limit
        self._sleep, self._clock, self._gate = sleep, clock, gate
        self._logger = logger if logger is not None else logging.getLogger("kopf_selectcache")
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = 0
        self._moved = asyncio.Event()
        """Set if there may be a key to take."""
        self._finished = asyncio.Event()
        """Set once the queue is finished."""
        queue.wake = self._wake

    def _wake(self) -> None:
        self._moved.set()
        if self._queue.is_finished:
            self._finished.set()

    async def run(self) -> None:
        """Run keys until the queue is shut down and finished. Cancelled, it cancels the runs."""
        queue = self._queue
        try:
            while not self._finished.is_set():
                self._moved.clear()
                if (opened := self._gate()) is not None:
                    await self._wait_for_gate(asyncio.ensure_future(opened))
                    continue
                while self._running < self._limit and (run := queue.take()) is not None:
                    self._running += 1
                    task = asyncio.create_task(self._run(run), name=f"selectcache: {run.key.name}")
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                due = queue.next_due()
                if due is None or self._running >= self._limit:
                    await self._moved.wait()
                else:
                    await sleep_until(self._moved, self._sleep(max(0.0, due - self._clock())))
        finally:
            queue.shut_down(drain=False)
            await self._cancel()

    async def _wait_for_gate(self, opened: asyncio.Future[Any]) -> None:
        """Wait until keys may run, or the queue is finished."""
        await sleep_until(self._finished, opened)
        if not opened.cancelled():
            opened.result()

    async def stop(self, *, deadline: float = math.inf, drain: bool = False) -> frozenset[Key]:
        """Shut the queue down, and wait until the runs have ended; return the keys whose runs were cancelled.

        With `drain`, the keys that are ready run as well. Runs that take longer than `deadline` seconds are
        cancelled.
        """
        queue = self._queue
        queue.shut_down(drain=drain)
        if deadline == math.inf:
            await self._finished.wait()
        elif not queue.is_finished:
            await sleep_until(self._finished, self._sleep(deadline))
        cancelled = queue.running
        queue.shut_down(drain=False)
        await self._cancel()
        return cancelled

    async def _cancel(self) -> None:
        """Cancel the runs, and wait for their ends. One that resists is left behind."""
        for task in self._tasks:
            task.cancel()
        if await end_within(self._tasks, self._sleep(GRACE)):
            keys = ", ".join(sorted(map(_shown, self._queue.running)))
            self._logger.warning(
                "These runs have not ended, although they were cancelled: %(keys)s.", {"keys": keys}
            )

    async def _run(self, run: Run) -> None:
        queue, key = self._queue, run.key
        try:
            result = await self._function(run)
        except (Exception, asyncio.CancelledError) as error:
            # A run may be cancelled by what it awaits. The worker itself cancels after the end of the
            # queue only.
            seconds = queue.add_rate_limited(key)
            if isinstance(error, asyncio.CancelledError) and seconds is None:
                raise
            again = "it is not repeated" if seconds is None else f"it is repeated in {seconds:.3g} s"
            self._logger.exception(
                "The run of %(key)s has failed: %(again)s.", {"key": _shown(key), "again": again}
            )
        else:
            queue.forget(key)
            if result is not None:
                queue.add_after(key, result.after)
        finally:
            self._running -= 1
            queue.done(key)


def _shown(key: Key) -> str:
    return printable_name(*key.pair)
