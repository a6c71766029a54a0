"""The calls for one change: what counts for the time limit of a handler, and its places among others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import kopf

import kopf_selectcache as selectcache
from kopf_selectcache.cache.blocking import Waits
from kopf_selectcache.core.selection.kinds import find
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.change import Change, ChangeCause
from kopf_selectcache.core.store.change_queue import ChangeQueue
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.retries import Retries
from kopf_selectcache.plugin._calls import Attempts
from kopf_selectcache.plugin.changes import _Delivery
from kopf_selectcache.plugin.on import change_handlers
from kopf_selectcache.testing import FakeCache

KIND = find("secrets")
assert KIND is not None
SECRETS = Resource(KIND, "v1")


def record(version: int) -> Record:
    stored = b'{"metadata":{"resourceVersion":"%d"}}' % version
    return Record("shop", "a", "one", str(version), {}, (), stored)


def updated(before: int, after: int) -> Change:
    return Change(record(before), record(after), ChangeCause.UPDATED)


class Calls:
    """One handler that fails at first, on a clock of its own."""

    def __init__(self, failures: int, **options: Any) -> None:
        self.seen: list[tuple[str, int]] = []
        """The version and the `retry` of each call."""
        self.now = 0.0
        self.slept: Callable[[], None] = lambda: None
        """Called during the pause between two calls."""
        self.waited = 0.0
        """The seconds that a call waits for the caches."""
        self.synced = asyncio.Event()
        self.synced.set()
        self.queue = ChangeQueue()
        registry = kopf.OperatorRegistry()

        @selectcache.on.change("secrets", registry=registry, **options)
        async def follow(body: Any, retry: int, **_: Any) -> None:
            self.seen.append((body.metadata["resourceVersion"], retry))
            if len(self.seen) <= failures:
                raise kopf.TemporaryError("not yet", delay=1.0)

        async def gate(*_: Any, **__: Any) -> None:
            self.now += self.waited
            await self.synced.wait()
            operator.has_settled = True

        async def sleep(seconds: float) -> None:
            self.now += seconds
            operator.has_settled = False
            self.slept()

        operator: Any = SimpleNamespace(
            settings=kopf.OperatorSettings(), waits=Waits(), gate=gate, recorder=None, has_settled=False
        )
        runtime = FakeCache([], {"secrets": ""})._runtime
        runtime.retries = Retries(lambda: self.now, sleep, lambda: 0.5)
        (handler,) = change_handlers(registry)
        self.delivery = _Delivery(handler, operator, runtime, None, cast("Any", lambda: None))

    async def begin(self) -> asyncio.Task[None]:
        """Begin the calls for the next change as the dispatcher does."""
        await self.delivery._enter()
        subscription: Any = SimpleNamespace(queue=self.queue, news=asyncio.Event())
        informer: Any = SimpleNamespace(resource=SECRETS, state=SimpleNamespace(plan=None))
        return self.delivery._begin(self.queue.take(), subscription, informer)


def run(calls: Calls) -> None:
    async def main() -> None:
        await (await calls.begin())

    asyncio.run(main())


def test_the_wait_for_the_caches_does_not_count_for_the_time_limit() -> None:
    calls = Calls(failures=1, timeout=10)
    calls.queue.add(updated(1, 2))
    calls.waited = 100.0
    run(calls)
    assert calls.seen == [("2", 0), ("2", 1)]


def test_15_a_change_that_was_joined_is_not_given_up_without_a_call() -> None:
    calls = Calls(failures=1, timeout=10)
    calls.queue.add(updated(1, 2))

    def sleep_too_long() -> None:
        calls.now += 10.0
        calls.queue.add(updated(2, 3))

    calls.slept = sleep_too_long
    run(calls)
    assert calls.seen == [("2", 0), ("3", 0)]


def test_15_no_handler_is_called_before_the_caches_are_synced() -> None:
    calls = Calls(failures=0)
    calls.queue.add(updated(1, 2))
    calls.synced.clear()

    async def main() -> None:
        call = asyncio.create_task(calls.begin())
        for _ in range(20):
            await asyncio.sleep(0)
        assert calls.queue, "the change is pending"
        calls.synced.set()
        await (await call)
        assert calls.seen == [("2", 0)]

    asyncio.run(main())


def test_a_change_that_is_joined_in_time_continues_the_attempts() -> None:
    calls = Calls(failures=1, timeout=10)
    calls.queue.add(updated(1, 2))
    calls.slept = lambda: calls.queue.add(updated(2, 3))
    run(calls)
    assert calls.seen == [("2", 0), ("3", 1)]


def test_a_change_whose_time_is_over_is_given_up() -> None:
    calls = Calls(failures=2, timeout=10)
    calls.queue.add(updated(1, 2))

    def sleep_too_long() -> None:
        calls.now += 10.0

    calls.slept = sleep_too_long
    run(calls)
    assert calls.seen == [("2", 0)]
    calls.queue.add(updated(2, 3))
    assert [change.after.version for change in calls.queue.drain() if change.after] == ["3"]


def test_15_a_call_that_is_cancelled_before_it_begins_gives_back_its_place() -> None:
    calls = Calls(failures=0)
    calls.queue.add(updated(1, 2))
    places = calls.delivery._limit._value

    async def main() -> None:
        call = await calls.begin()
        assert calls.delivery._limit._value == places - 1
        call.cancel()
        await asyncio.wait({call})
        await asyncio.sleep(0)  # Callbacks of the end.
        assert calls.delivery._limit._value == places
        assert calls.seen == []

    asyncio.run(main())


def test_a_pause_between_two_calls_takes_no_place() -> None:
    calls = Calls(failures=1)
    calls.queue.add(updated(1, 2))
    places = calls.delivery._limit._value
    free: list[int] = []
    calls.slept = lambda: free.append(calls.delivery._limit._value)
    run(calls)
    assert free == [places]
    assert calls.seen == [("2", 0), ("2", 1)]


def test_nobody_is_called_for_an_object_that_departs_unless_departures_are_wanted() -> None:
    calls = Calls(failures=1)
    calls.queue = ChangeQueue(causes={ChangeCause.ENTERED, ChangeCause.UPDATED})
    calls.queue.add(updated(1, 2))
    calls.slept = lambda: calls.queue.add(Change(record(2), None, ChangeCause.DELETED))
    run(calls)
    assert calls.seen == [("2", 0)]


def test_a_handler_that_turns_its_end_into_an_error_is_not_called_again() -> None:
    calls = Calls(failures=1)
    calls.queue.add(updated(1, 2))
    calls.delivery._is_ending = True
    run(calls)
    assert calls.seen == [("2", 0)]


def test_attempts_are_counted_as_kopf_counts_them() -> None:
    attempts = Attempts(datetime.now(UTC), 1.0, lambda: 3.5)
    assert (attempts.awakened, attempts.runtime.total_seconds()) == (True, 2.5)
