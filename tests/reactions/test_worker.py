"""The worker: keys off a queue, a function for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self

import pytest

from kopf_selectcache import Key
from kopf_selectcache.reactions.engine import RunAgain, Worker
from kopf_selectcache.reactions.queue import Cause, Run, WorkQueue
from tests.faults.environment import reached, until
from tests.kopf_operators import cycles

A, B, C = (Key(name) for name in "abc")


class Time:
    """A clock whose sleeps end when it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeping: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self.sleeping.append((self.now + seconds, woken))
        await woken.wait()

    def move(self, seconds: float) -> None:
        self.now += seconds
        for due, woken in self.sleeping:
            if due <= self.now:
                woken.set()


class Works:
    """A worker, and a function whose runs end when they are released."""

    def __init__(self, limit: int = 2) -> None:
        self.time = Time()
        self.opened: asyncio.Future[None] | None = None
        self.queue = WorkQueue(clock=lambda: self.time.now, chance=lambda: 0.0)
        self.begun: list[Key] = []
        self.causes: list[str] = []
        self.going: dict[Key, asyncio.Event] = {}
        self.ends: Callable[[Run], Awaitable[RunAgain | None]] | None = None
        self.worker = Worker(
            self.queue,
            self._function,
            limit=limit,
            sleep=self.time.sleep,
            clock=lambda: self.time.now,
            gate=lambda: self.opened,
        )

    async def _function(self, run: Run) -> RunAgain | None:
        assert run.key not in self.going
        self.begun.append(run.key)
        self.causes += [each.event for each in run.causes]
        self.going[run.key] = asyncio.Event()
        try:
            await self.going[run.key].wait()
            return await self.ends(run) if self.ends else None
        finally:
            del self.going[run.key]

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.worker.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def test_a_limited_number_of_keys_runs_at_once_and_none_twice() -> None:
    async with Works() as works:
        for key in (A, B, C, A):
            works.queue.add(key)
        await until(lambda: works.begun == [A, B])
        works.queue.add(A)
        works.going[B].set()
        await until(lambda: works.begun == [A, B, C])
        works.going[A].set()
        await until(lambda: works.begun == [A, B, C, A])


async def test_failed_runs_are_repeated_with_backoff_and_succeeded_ones_when_they_ask(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(run: Run) -> RunAgain | None:
        if run.failures < 2:
            raise ValueError("no")
        if run.failures == 2:
            raise asyncio.CancelledError  # Of something that it awaits.
        return RunAgain(7.0)

    async with Works() as works:
        works.ends = fail
        works.queue.add(A)
        for count in range(1, 5):
            await until(lambda count=count: len(works.begun) == count and A in works.going)  # type: ignore[misc]  # mypy knows no lambda with defaults.
            works.going[A].set()
            await until(lambda: not works.queue.running)
            due = works.queue.next_due()
            assert due is not None
            works.time.move(due - works.time.now)
            assert works.queue.failures(A) == (count if count < 4 else 0)
        assert works.time.now == pytest.approx(0.005 + 0.010 + 0.020 + 7.0)
        await until(lambda: len(works.begun) == 5)
        assert works.causes == ["added", "retry", "retry", "retry", "requeue"]
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        f"The run of a has failed: it is repeated in {seconds} s." for seconds in ("0.005", "0.01", "0.02")
    ]


async def test_a_worker_that_waits_for_a_delay_stops_at_once() -> None:
    async with Works() as works:
        works.queue.add_after(A, 5.0)
        await until(lambda: [due for due, _ in works.time.sleeping] == [5.0])
        assert await works.worker.stop(deadline=30.0) == frozenset()
        await works.task
        assert works.begun == []


async def test_a_stop_cancels_calls_that_run_after_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    async with Works() as works:
        for key in (A, B, C):
            works.queue.add(key)
        await until(lambda: len(works.going) == 2)
        stopping = asyncio.create_task(works.worker.stop(deadline=30.0))
        await until(lambda: works.queue.is_shut_down)
        works.going[A].set()
        await until(lambda: A not in works.going)
        assert not stopping.done()
        works.time.move(30.0)
        assert await stopping == {B}
        await works.task
        assert works.begun == [A, B]
    assert not caplog.records


async def test_a_run_that_resists_its_cancellation_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    async def resist(_: Run) -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    time = Time()
    queue = WorkQueue(clock=lambda: time.now, chance=lambda: 0.0)
    worker = Worker(queue, resist, limit=1, sleep=time.sleep, clock=lambda: time.now)
    task = asyncio.create_task(worker.run())
    queue.add(A)
    await until(lambda: bool(queue.running))
    stopping = asyncio.create_task(worker.stop(deadline=0.0))
    for _ in range(2):
        await until(lambda: bool(time.sleeping) and not time.sleeping[-1][1].is_set())
        time.move(10.0)
    assert await stopping == {A}
    release.set()
    await asyncio.wait({task})
    assert "These runs have not ended, although they were cancelled: a." in caplog.messages


async def test_a_failure_during_the_stop_is_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: Run) -> None:
        raise ValueError("no")

    async with Works() as works:
        works.ends = fail
        works.queue.add(A, cause=Cause("sent"))
        await until(lambda: A in works.going)
        stopping = asyncio.create_task(works.worker.stop(deadline=30.0))
        await until(lambda: works.queue.is_shut_down)
        works.going[A].set()
        assert await stopping == frozenset()
    assert caplog.messages == ["The run of a has failed: it is not repeated."]


async def test_nothing_runs_before_the_gate_opens() -> None:
    async with Works() as works:
        works.opened = opened = asyncio.get_running_loop().create_future()
        works.queue.add(A)
        await cycles()
        assert works.begun == []
        works.opened = None
        opened.set_result(None)
        await until(lambda: works.begun == [A])
        works.going[A].set()


async def test_a_worker_stops_before_its_gate_opens() -> None:
    async with Works() as works:
        works.opened = asyncio.get_running_loop().create_future()
        works.queue.add(A)
        await cycles()
        assert await works.worker.stop() == frozenset()
    assert works.opened.cancelled()


async def test_a_worker_ends_with_the_error_of_its_gate() -> None:
    works = Works()
    works.opened = asyncio.get_running_loop().create_future()
    works.opened.set_exception(RuntimeError("it never opens"))
    with pytest.raises(RuntimeError, match="never opens"):
        await works.worker.run()


async def test_a_run_that_is_cancelled_before_it_begins_leaves_its_place_to_others() -> None:
    async with Works(limit=1) as works:
        take = works.queue.take

        def cancel() -> None:
            for task in works.worker.running(lambda key: key == A.pair):
                task.cancel()

        def take_and_cancel() -> Run | None:
            asyncio.get_running_loop().call_soon(cancel)  # Before the first step of the run.
            return take()

        works.queue.take = take_and_cancel  # type: ignore[method-assign]
        works.queue.add(A)
        works.queue.add(B)
        assert await reached(lambda: works.begun)
        assert works.begun == [B]
        works.queue.take = take  # type: ignore[method-assign]
        works.queue.add(A)
        works.going[B].set()
        await until(lambda: works.begun == [B, A])


def test_a_worker_runs_at_least_one_key_at_a_time() -> None:
    with pytest.raises(ValueError):
        Works(limit=0)
