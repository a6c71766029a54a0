"""Resyncs: subscribers receive each stored object again, once per period, without a request."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from kopf_selectcache import Cached, DeclarationError
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.informer.environment import Environment
from kopf_selectcache.informer.subscribers import PAUSE_SECONDS, SLICE_OBJECTS, Resyncer
from kopf_selectcache.settings.options import SelectCacheSettings
from tests.cache.environment import PODS, FakeInformer, Obj, pod
from tests.faults.environment import until
from tests.rows import each_row
from tests.secrets import caching, labelled, secret

PERIOD = 1000.0


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleeps: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        self._sleeps.append((self.now + seconds, over))
        await over.wait()

    async def pass_to(self, now: float) -> None:
        self.now = now
        for due, over in self._sleeps:
            if due <= now:
                over.set()
        for _ in range(200):
            await asyncio.sleep(0)


class Resynced:
    """A resyncer of pods, and the changes that subscribers receive."""

    def __init__(self, *objects: Obj, period: float = PERIOD, chance: float = 0.5) -> None:
        self.clock = Clock()
        self.informer = FakeInformer(cast("Any", "app=web"), PODS, "pods").hold(*objects)
        self.is_synced = True
        self.changes: list[Change] = []
        environment = Environment(
            SelectCacheSettings(),
            cast("Transport", None),
            logging.getLogger(__name__),
            lambda: chance,
            lambda: self.clock.now,
            self.clock.sleep,
        )
        self.resyncer = Resyncer(
            period,
            environment,
            store=lambda: self.informer.state.store,
            is_synced=lambda: self.is_synced,
            notify=self.receive,
        )

    def receive(self, change: Change) -> None:
        self.changes.append(change)

    def seen(self) -> list[str]:
        """Return the names and versions of what came since the last call."""
        changes, self.changes = self.changes, []
        assert all(each.before is each.after and each.cause == "resync" for each in changes)
        return [f"{each.after.name}@{each.after.version}" for each in changes if each.after is not None]


async def running(resynced: Resynced, *times: float) -> list[list[str]]:
    """Run the resyncer; return what has come at each of the times."""
    task = asyncio.create_task(resynced.resyncer.run())
    seen = []
    try:
        await resynced.clock.pass_to(resynced.clock.now)
        for now in times:
            await resynced.clock.pass_to(now)
            seen.append(resynced.seen())
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return seen


@pytest.mark.parametrize(("chance", "period"), [(0.0, 900.0), (0.5, 1000.0), (1.0, 1100.0)])
def test_each_object_comes_once_per_period_with_a_jitter_of_ten_percent(chance: float, period: float) -> None:
    resynced = Resynced(pod("web-1"), pod("web-2"), chance=chance)
    both = ["web-1@5", "web-2@5"]
    seen = asyncio.run(running(resynced, period - 1, period, 2 * period - 1, 2 * period))
    assert seen == [[], both, [], both]


async def test_without_a_period_nothing_comes_until_there_is_one() -> None:
    resynced = Resynced(pod("web-1"), period=0.0)
    assert await running(resynced, 10 * PERIOD) == [[]]
    task = asyncio.create_task(resynced.resyncer.run())
    await resynced.clock.pass_to(10 * PERIOD)
    resynced.resyncer.set_period(10.0)
    await resynced.clock.pass_to(10 * PERIOD)
    assert resynced.seen() == []
    await resynced.clock.pass_to(10 * PERIOD + 10)
    assert resynced.seen() == ["web-1@5"]
    task.cancel()
    resynced.resyncer.set_period(None)
    assert await running(resynced, 20 * PERIOD) == [[]]


async def test_a_longer_period_counts_from_its_declaration_and_an_equal_one_changes_nothing() -> None:
    resynced = Resynced(pod("web-1"))
    task = asyncio.create_task(resynced.resyncer.run())
    await resynced.clock.pass_to(0.0)
    await resynced.clock.pass_to(900.0)
    resynced.resyncer.set_period(PERIOD)
    await resynced.clock.pass_to(PERIOD)
    assert resynced.seen() == ["web-1@5"]
    await resynced.clock.pass_to(1900.0)
    resynced.resyncer.set_period(2 * PERIOD)
    await resynced.clock.pass_to(1901.0)
    await resynced.clock.pass_to(3899.0)
    assert resynced.seen() == []
    await resynced.clock.pass_to(3901.0)
    assert resynced.seen() == ["web-1@5"]
    task.cancel()


def test_other_tasks_run_between_slices_and_objects_come_in_their_present_state() -> None:
    class FilterChange(Resynced):
        def receive(self, change: Change) -> None:
            super().receive(change)
            if len(self.changes) == 1:
                asyncio.get_running_loop().call_soon(self.interfere)

        def interfere(self) -> None:
            assert len(self.changes) == SLICE_OBJECTS
            self.informer.put(pod(f"web-{SLICE_OBJECTS + 1:03}", version="6"))
            self.informer.leave(pod(f"web-{SLICE_OBJECTS + 2:03}", version="7"))
            self.informer.put(pod("web-new", version="8"))

    resynced = FilterChange(*(pod(f"web-{number:03}") for number in range(3 * SLICE_OBJECTS)))
    (seen,) = asyncio.run(running(resynced, PERIOD))
    names = [f"web-{number:03}@5" for number in range(3 * SLICE_OBJECTS)]
    names[SLICE_OBJECTS + 1] = f"web-{SLICE_OBJECTS + 1:03}@6"
    del names[SLICE_OBJECTS + 2]
    assert seen == names


async def test_nothing_comes_from_a_cache_that_is_not_synced() -> None:
    class Breaking(Resynced):
        def receive(self, change: Change) -> None:
            super().receive(change)
            self.is_synced = False

    resynced = Breaking(*(pod(f"web-{number:03}") for number in range(SLICE_OBJECTS + 1)))
    resynced.is_synced = False
    assert await running(resynced, PERIOD) == [[]]
    # Another task, as after a restart of the streams.
    resynced.is_synced = True
    (first,) = await running(resynced, 2 * PERIOD)
    assert len(first) == SLICE_OBJECTS
    resynced.is_synced = True
    seen = await running(resynced, 2 * PERIOD + 1, 2 * PERIOD + 2 + PAUSE_SECONDS, 3 * PERIOD - 1)
    assert [each for some in seen for each in some] == [f"web-{SLICE_OBJECTS:03}@5"]


async def test_a_period_that_ends_while_the_cache_is_not_synced_ends_the_resync() -> None:
    resynced = Resynced(pod("web-1"))
    resynced.is_synced = False
    task = asyncio.create_task(resynced.resyncer.run())
    await resynced.clock.pass_to(0.0)
    await resynced.clock.pass_to(PERIOD)
    resynced.resyncer.set_period(0)
    resynced.is_synced = True
    await resynced.clock.pass_to(2 * PERIOD)
    assert resynced.seen() == []
    task.cancel()


async def test_an_informer_resyncs_without_a_request_until_that_is_changed() -> None:
    declared = Cached("app=web", resync=600)
    async with caching(declared, secret("a", app="web"), secret("b", app="web")) as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced)
        causes, changes = list[str](), environment.cache.changes("secrets", labels="tier=gold")
        environment.cluster.patch(secret("a"), labelled(tier="gold"))
        change = await anext(changes)
        while len(causes) < 3:
            causes.append((change := await anext(changes)).cause)
            assert change.old is change.new is change.body
            assert change.name == "a"
        assert causes == ["resync"] * 3
        assert {asked.verb for asked in environment.cluster.requests if asked.resource == "secrets"} == {
            "list",
            "watch",
        }
        assert sum(asked.verb == "list" for asked in environment.cluster.requests) == 1
        await environment.cache.declare("secrets", "app=web", resync=0, replace=True)
        assert environment.informer.declared.resync == 0
        await environment.cache.declare("secrets", "app", replace=True)
        assert environment.informer.declared.resync == 0


@each_row("period", [0.5, -1, True, None, "10h", 10**7])
def test_a_period_is_a_number_of_seconds(period: Any) -> None:
    with pytest.raises(DeclarationError):
        Cached("app=web", resync=period)
