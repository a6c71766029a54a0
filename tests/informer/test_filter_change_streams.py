"""Streams, waiters and memory across a change of the filter: a kept stream loses nothing, and others leave
nothing."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from typing import Any

import pytest

from kopf_selectcache import Cached, Forbidden, ReadError, Selector
from kopf_selectcache.core.protocol.machine import Known, Waiting
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.claims import OwnWrites, Row
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.reflector import Reflector
from kopf_selectcache.informer.state import Relist, split_streams
from kopf_selectcache.testing.faults import Refuse
from tests.faults.environment import until
from tests.gated import settle
from tests.informer.test_filter_change import Follower, begin_change, change, names
from tests.informer.test_filter_change_ends import web
from tests.informer.test_filter_change_options import AND_THERE, BOTH, EITHER, GOLD, HERE, WEB, large
from tests.secrets import caching, secret


async def test_16_waiters_for_a_stream_that_ends_wait_for_the_next_filter() -> None:
    silent = Selector("app=web", namespaces=["shop"])
    async with caching(silent, WEB, secret("db", "infra", app="db"), held="shop") as environment:
        informer = environment.informer
        await until(lambda: informer.state.reflectors and not informer.state.is_resolving)
        waiting = asyncio.create_task(informer.wait_until_settled())
        await settle()
        await change(informer, Selector("app=db", namespaces=["infra"]))
        await settle()
        assert waiting.done()
        assert informer.state.is_synced


async def test_16_the_former_store_is_released_while_streams_of_the_next_filter_run() -> None:
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        former = weakref.ref(informer.state.union)
        await change(informer, EITHER)
        await settle()
        gc.collect()
        assert former() is None


async def test_16_a_reused_stream_that_has_caught_up_need_not_catch_up_again() -> None:
    async with caching(HERE, WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        (kept,) = informer.state.reflectors
        comparison = kept.comparison
        await until(lambda: comparison.is_open)
        environment.cluster.bookmark()
        await until(lambda: comparison.has_caught_up)
        await change(informer, AND_THERE)
        assert kept in informer.state.reflectors
        assert kept.comparison.is_open
        assert kept.comparison.has_caught_up


async def test_16_a_wait_for_a_reused_stream_to_catch_up_goes_on_across_the_change() -> None:
    async with caching(HERE, WEB, GOLD, BOTH) as environment:
        informer, cluster = environment.informer, environment.cluster
        await until(lambda: informer.state.is_synced)
        (kept,) = informer.state.reflectors
        await until(lambda: kept.comparison.is_open)
        ahead = str(cluster.version + 10_000)
        waiting = kept.comparison.wait(ahead)  # No list is as new, so the comparison does not end.
        await change(informer, AND_THERE)
        assert not waiting.done()
        waiting.cancel()
        waiting = kept.comparison.wait(str(cluster.version))
        await until(waiting.done)
        assert waiting.result()


async def test_9_a_wait_ends_once_all_departures_up_to_its_version_are_known() -> None:
    async with caching(EITHER, WEB) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        informer.state.union.unconfirmed["shop", "web"] = Row("9", since="9")
        earlier, later = informer.awaited.wait("8"), informer.awaited.wait("10")
        informer.apply_changes(())
        assert (earlier.done(), later.done()) == (True, False)
        informer.state.union.unconfirmed.clear()
        informer.apply_changes(())
        assert later.done()


async def test_16_a_change_during_the_end_of_the_streams_starts_each_stream_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed, run_on = asyncio.Event(), Reflector.run

    async def close_slowly(reflector: Reflector) -> None:
        try:
            await run_on(reflector)
        finally:
            if "app=web" in str(reflector.filter):
                await closed.wait()

    monkeypatch.setattr(Reflector, "run", close_slowly)
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        changing, following, silence = await begin_change(environment, "tier=gold")
        informer.swapper.tasks.end()
        await settle()
        silence.release()
        await until(lambda: informer.filter_change.prepared is not following)
        await settle()
        closed.set()
        await changing
        await until(lambda: informer.state.is_synced)
        assert names(environment) == {"gold", "both"}
        running = [task.get_name() for task in asyncio.all_tasks() if "tier=gold" in task.get_name()]
        assert len(running) == 1


async def test_16_a_stream_that_is_between_two_watches_is_reused() -> None:
    async with caching(HERE, WEB, GOLD, BOTH) as environment:
        informer, cluster = environment.informer, environment.cluster
        await until(lambda: informer.state.is_synced)
        (reflector,) = informer.state.reflectors
        refused = cluster.faults.add(Refuse(503), verb="watch", where=web)
        planned = informer.resolver.plan(Cached(AND_THERE), reflector.resource)
        cluster.cut("watch", "secrets")
        await until(lambda: not reflector.is_watching)
        split = split_streams(informer.state, informer.declared, Cached(AND_THERE), planned)
        assert list(split.kept.values()) == [reflector]
        refused.release()
        await change(informer, AND_THERE)
        assert reflector in informer.state.reflectors
        cluster.create(secret("later", app="web"))
        await until(lambda: "later" in names(environment))


async def test_16_a_stream_that_must_be_listed_again_is_not_reused() -> None:
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        (reflector,) = informer.state.reflectors
        reflector.writer.state, planned = Waiting(Known()), informer.state.plan
        assert planned is not None
        split = split_streams(informer.state, informer.declared, informer.declared, planned)
        assert split.opened == {reflector.stream: Relist.INCOMPLETE}


async def test_16_own_writes_are_inherited_under_the_locks_of_both_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inherit, free = OwnWrites.inherit, list[bool]()

    def note_if_free(own_writes: OwnWrites) -> None:
        free.append(own_writes.lock.acquire(blocking=False))
        if free[-1]:
            own_writes.lock.release()

    def check(own_writes: OwnWrites, present: OwnWrites, selects: Any) -> None:
        for each in (own_writes, present):
            thread = threading.Thread(target=note_if_free, args=(each,))
            thread.start()
            thread.join()
        inherit(own_writes, present, selects)

    monkeypatch.setattr(OwnWrites, "inherit", check)
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        await until(lambda: environment.informer.state.is_synced)
        await change(environment.informer, EITHER)
    assert free == [False, False]


async def test_16_objects_of_a_refused_filter_are_not_read_as_those_of_the_former_one() -> None:
    objects = [WEB, *(large(f"web-{number}", app="web") for number in range(5))]
    later = [Selector("tier=gold", namespaces=["shop"]), Selector("tier=gold", namespaces=["infra"])]
    async with caching(Cached("app=web", max_bytes="128Ki"), *objects, GOLD) as environment:
        informer, cluster = environment.informer, environment.cluster
        await until(lambda: informer.state.health is Health.OVERSIZED and informer.state.is_resolving)
        follower, former = Follower(informer), informer.declared
        refused = cluster.faults.add(Refuse(403), verb="list", namespace="infra")
        with pytest.raises(Forbidden):
            await change(informer, later)
        assert informer.declared is former
        with pytest.raises(ReadError):
            environment.cache.list_cached("secrets")
        assert names(environment) == set()
        refused.release()
        cluster.delete(*objects[1:])
        await until(lambda: informer.state.is_synced)
        assert names(environment) == {"web"}
        assert {record.name for record in follower.view.values()} == {"web"}


async def test_16_records_that_both_filters_hold_are_not_held_twice() -> None:
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        record = informer.state.store.get("shop", "both")[0]
        await change(informer, "tier=gold")
        assert informer.state.store.get("shop", "both")[0] is record


async def test_16_failures_of_new_streams_are_logged_and_reported_after_the_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer, cluster = environment.informer, environment.cluster
        await until(lambda: informer.state.is_synced)
        await change(informer, "tier=gold")
        heard: list[Change | None] = []
        informer.subscribe(heard.append)
        caplog.clear()
        cluster.faults.add(Refuse(403), verb="watch")
        cluster.cut("watch", "secrets")
        await until(lambda: informer.state.health is Health.FORBIDDEN)
        assert None in heard
    assert [record for record in caplog.records if record.levelno >= logging.WARNING]
