"""Free memory is returned to the system once more, when the connections of the start are closed."""

from __future__ import annotations

import asyncio

import pytest

from kopf_selectcache import NotDeclared
from kopf_selectcache.informer import informers
from kopf_selectcache.informer.informers import KEEP_ALIVE_SECONDS
from tests.faults.environment import until
from tests.gated import gated, settle


async def test_it_is_returned_once_when_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    async with gated("app=web") as environment:
        clock = environment.clock
        monkeypatch.setattr(informers, "trim_heap", lambda: asked.append(clock.now))
        began = clock.now
        await clock.move(KEEP_ALIVE_SECONDS - 0.5)
        assert not asked
        await clock.move(0.5)
        await until(lambda: asked)
        assert asked == [began + KEEP_ALIVE_SECONDS]
        await clock.move(600)
        assert len(asked) == 1


async def test_it_is_returned_again_when_ranges_of_a_replica_have_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    async with gated("app=web") as environment:
        clock, runtime = environment.clock, environment.operator.runtime
        monkeypatch.setattr(informers, "trim_heap", lambda: asked.append(clock.now))
        await clock.move(KEEP_ALIVE_SECONDS)
        await until(lambda: len(asked) == 1)
        for _ in range(3):  # Ranges move one after the other.
            runtime.look_at_division()
            await clock.move(1.0)
        await clock.move(KEEP_ALIVE_SECONDS - 3.0)
        await until(lambda: len(asked) == 2)
        await settle()
        runtime.look_at_division()
        await clock.move(KEEP_ALIVE_SECONDS)
        await until(lambda: len(asked) == 3)
    runtime.look_at_division()  # A replica gives its ranges away after its caches have ended.
    assert not runtime._looking


async def test_a_removed_cache_is_not_waited_for() -> None:
    async with gated("app=web") as environment:
        runtime, informer = environment.operator.runtime, environment.informer
        await runtime._settle("none")
        informer.swapper.begin(informer.state.plan)  # type: ignore[arg-type]  # It has one.
        waiting = asyncio.create_task(runtime._settle(environment.kind))
        await settle()
        assert not waiting.done()
        informer.ending.end(lambda: NotDeclared("it is removed", remedy=""))
        await waiting
