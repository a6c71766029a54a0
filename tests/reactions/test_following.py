"""Sources whose kind is not known, not readable or not declared for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_selectcache import Cached, Key, NotSynced
from kopf_selectcache._errors import Cause, StateError
from kopf_selectcache.cache.snapshots import informer_of
from kopf_selectcache.core.protocol.messages import delay
from kopf_selectcache.reactions import sources
from kopf_selectcache.reactions.queue import Priority
from kopf_selectcache.reactions.sources import Kind
from kopf_selectcache.testing import FakeCache
from tests.faults.environment import until
from tests.reactions.test_sources import keys_in, pod, queue_of
from tests.secrets import caching, secret


class Sleep:
    """Sleeps until it is woken, and notes for how long it was asked to."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._woken = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._woken.wait()
        self._woken.clear()

    async def wake(self, count: int) -> None:
        """End the sleep, and wait until that of this number has begun."""
        self._woken.set()
        await until(lambda: len(self.asked) == count)


class Unknown:
    """An answer to which kind a name means, which is not there before `is_known`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_known = False
        self._find = informer_of
        monkeypatch.setattr(sources, "informer_of", self)

    def __call__(self, *args: Any) -> Any:
        if not self.is_known:
            raise NotSynced("the cluster has not answered", remedy="Wait")
        return self._find(*args)


async def test_a_kind_that_the_cluster_does_not_know_yet_is_asked_for_with_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = Unknown(monkeypatch)
    cache, queue, sleep = FakeCache([pod("web-1")], {"pods": "app=web"}), queue_of(), Sleep()
    source = Kind("pods", cache=cache, sleep=sleep, chance=lambda: 0.5)
    await source.start(queue)
    await until(lambda: sleep.asked)
    await sleep.wake(2)
    await sleep.wake(3)
    assert sleep.asked == [delay(failures, 0.5) for failures in range(3)]
    waiting = asyncio.create_task(source.wait_synced(60))
    await until(lambda: len(sleep.asked) == 4)
    assert not waiting.done()
    unknown.is_known = True
    await sleep.wake(4)
    await waiting
    assert [run.key for run in keys_in(queue)] == [Key("web-1", namespace="shop")]
    await source.stop()


async def test_a_wait_for_a_readable_kind_that_is_not_followed_yet_ends_with_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = Unknown(monkeypatch)
    source = Kind("pods", cache=FakeCache([], {"pods": "app=web"}), sleep=Sleep())
    await source.start(queue_of())
    await asyncio.sleep(0)
    unknown.is_known = True
    with pytest.raises(TimeoutError):
        await source.wait_synced(0)
    await source.stop()


async def test_a_wait_goes_on_after_an_error_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    def fail(*_: Any) -> None:
        source._synced.set()
        raise StateError("the server fails", cause=Cause(transient=True), remedy="Wait")

    source = Kind("pods", cache=FakeCache([], {"pods": "app=web"}), sleep=sleep, chance=lambda: 0.5)
    await source.start(queue_of())
    source._synced.clear()
    monkeypatch.setattr(sources, "require_readable", fail)
    await source.wait_synced(60)
    assert asked == [delay(0, 0.5)]
    await source.stop()


async def test_a_source_ends_with_the_caches() -> None:
    async with caching("app=web") as environment:
        source = Kind("secrets", cache=environment.cache)
        await source.start(queue_of())
        await source.wait_synced(60)
        (task,) = source._tasks
        environment.runtime.end()
        await until(task.done)
        assert task.exception() is None
        await source.stop()


async def test_a_resync_of_the_kind_goes_after_live_changes() -> None:
    declared = Cached("app=web", resync=100.0)  # Each sleep is over at once: the resyncs do not end.
    async with caching(declared, secret("a", app="web"), secret("b", app="web")) as environment:
        queue, source = queue_of(), Kind("secrets", cache=environment.cache)
        await source.start(queue)
        await source.wait_synced(60)
        assert len(keys_in(queue)) == 2
        await until(lambda: len(queue) == 2)
        runs = keys_in(queue)
        assert [run.priority for run in runs] == [Priority.INITIAL] * 2
        assert {cause.event for run in runs for cause in run.causes} == {"resync"}
        await source.stop()
