"""The calls for one change: what counts for the time limit of a handler, and its places among others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import _kopf
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.environment import Retries
from kopf_selectcache.plugin.calls import RETRY_SECONDS, Attempts
from kopf_selectcache.plugin.changes import _ChangeCalls
from kopf_selectcache.plugin.on import change_handlers
from kopf_selectcache.reactions.engine import Worker
from kopf_selectcache.reactions.queue import Run
from kopf_selectcache.testing import FakeCache
from tests.kopf_operators import cycles

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

    def __init__(self, failures: int, delay: float = 1.0, **options: Any) -> None:
        self.seen: list[tuple[str, int]] = []
        """The version and the `retry` of each call."""
        self.times: list[float] = []
        self.now = 0.0
        self.slept: Callable[[], object] = lambda: None
        """Called during the pause between two calls."""
        self.waited = 0.0
        """The seconds that each call waits for the caches."""
        self._is_open = False
        registry = kopf.OperatorRegistry()

        @selectcache.on.change("secrets", registry=registry, **options)
        async def follow(body: Any, retry: int, **_: Any) -> None:
            self.seen.append((body.metadata["resourceVersion"], retry))
            self.times.append(self.now)
            self._is_open = False
            if len(self.seen) <= failures:
                raise kopf.TemporaryError("not yet", delay=delay)

        operator: Any = SimpleNamespace(settings=kopf.OperatorSettings(), shards=None)
        runtime = FakeCache([], {"secrets": ""})._runtime
        runtime.retries = Retries(lambda: self.now, self._sleep, lambda: 0.5)
        (handler,) = change_handlers(registry)
        self.calls = _ChangeCalls(handler, operator, runtime, SECRETS)
        self.calls._called = handler  # It takes no cache.
        self.worker = Worker(
            self.calls.queue,
            self.calls.run,
            limit=1,
            sleep=self._sleep,
            clock=lambda: self.now,
            gate=lambda: None if self._is_open else self._open(),
        )

    def add(self, change: Change) -> None:
        self.calls.pending.add(change)

    async def _open(self) -> None:
        self.now += self.waited
        self._is_open = True

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept()

    async def run(self) -> None:
        """Make all calls that are to be made."""
        working = asyncio.create_task(self.worker.run())
        await cycles()
        assert not self.calls.pending
        self.slept = lambda: None
        await self.worker.stop(deadline=0)
        await working


def run(calls: Calls) -> None:
    asyncio.run(calls.run())


def test_the_wait_for_the_caches_does_not_count_for_the_time_limit() -> None:
    calls = Calls(failures=1, timeout=10)
    calls.add(updated(1, 2))
    calls.waited = 100.0
    run(calls)
    assert calls.seen == [("2", 0), ("2", 1)]


def test_15_a_change_that_was_joined_is_not_given_up_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(failures=0, timeout=RETRY_SECONDS)
    calls.add(updated(1, 2))
    failures, execute = [RuntimeError("a bug")], _kopf.execute_handler_once

    async def failing(**given: Any) -> Any:
        if failures:
            raise failures.pop()
        return await execute(**given)

    monkeypatch.setattr(_kopf, "execute_handler_once", failing)
    calls.slept = lambda: calls.add(updated(2, 3))
    run(calls)
    assert (calls.seen, calls.times) == ([("3", 0)], [RETRY_SECONDS])


def test_a_change_whose_time_is_over_is_given_up() -> None:
    calls = Calls(failures=2, delay=10, timeout=10)
    calls.add(updated(1, 2))
    run(calls)
    assert calls.seen == [("2", 0)]
    calls.add(updated(2, 3))
    assert [change.after.version for change in calls.calls.pending.drain() if change.after] == ["3"]


@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_15_a_further_change_does_not_shorten_the_delay_after_an_error(moment: str) -> None:
    calls = Calls(failures=1)
    calls.add(updated(1, 2))
    queue, execute = calls.calls.queue, calls.calls._execute
    take = queue.take

    def take_before() -> Run | None:
        taken = take()
        if taken is not None and not calls.seen:
            calls.add(updated(2, 3))
        return taken

    async def execute_meanwhile(*given: Any) -> float | None:
        if not calls.seen:
            calls.add(updated(2, 3))
        return await execute(*given)

    if moment == "before":
        queue.take = take_before  # type: ignore[method-assign]
    elif moment == "during":
        calls.calls._execute = execute_meanwhile  # type: ignore[assignment,method-assign]
    else:
        add_once = [updated(2, 3)]
        calls.slept = lambda: calls.add(add_once.pop()) if add_once else None
    run(calls)
    assert [version for version, _ in calls.seen] == (["3", "3"] if moment == "before" else ["2", "3"])
    assert calls.times == [0.0, 1.0]


def test_a_pause_between_two_calls_takes_no_place() -> None:
    calls = Calls(failures=1)
    calls.add(updated(1, 2))
    running: list[int] = []
    calls.slept = lambda: running.append(len(calls.calls.queue.running))
    run(calls)
    assert running == [0]
    assert calls.seen == [("2", 0), ("2", 1)]


def test_no_handler_is_called_for_a_departure_unless_it_asks_for_departures() -> None:
    calls = Calls(failures=1, left=False, deleted=False)
    calls.add(updated(1, 2))
    calls.slept = lambda: calls.add(Change(record(2), None, ChangeCause.DELETED))
    run(calls)
    assert calls.seen == [("2", 0)]


def test_attempts_are_counted_as_kopf_counts_them() -> None:
    attempts = Attempts(1.0, lambda: 3.5)
    assert (attempts.awakened, attempts.runtime.total_seconds()) == (True, 2.5)
