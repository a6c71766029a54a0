"""How changes of a filter end: held streams, own writes, interruptions, timeouts, and newer changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_selectcache import Cached, Key, NotSynced, Selector
from kopf_selectcache._errors import Superseded
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.core.store.claims import OwnWrite
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.reach import Prober
from kopf_selectcache.informer.reflector import Reflector
from kopf_selectcache.informer.swap import PreparedState
from kopf_selectcache.testing.faults import NotServed, Refuse, Silence
from tests.faults.environment import until
from tests.informer.test_filter_change import Follower, begin_change, change, names
from tests.informer.test_filter_change_options import AND_THERE, BOTH, EITHER, GOLD, HERE, WEB, large
from tests.secrets import caching, labelled, secret


async def test_16_streams_are_held_again_until_the_next_ones_are_as_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[bool] = []
    holds: list[bool] = []
    hold = Reflector.hold

    def count(reflector: Reflector) -> None:
        holds.append(True)
        hold(reflector)

    monkeypatch.setattr(Reflector, "hold", count)
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        (ended,) = informer.state.reflectors

        def is_late(following: PreparedState) -> bool:
            held.append(ended._held is not None)
            return len(held) > 2 and following.swap.has_reached(following.swap.seen)

        monkeypatch.setattr(PreparedState, "is_new_enough", property(is_late))
        await change(informer, "tier=gold")
        assert held
        assert all(held)
        assert names(environment) == {"gold", "both"}
        assert len(holds) > 2


@pytest.mark.usefixtures("unhurried")
async def test_16_an_own_write_outside_of_the_former_filter_is_shown_by_the_next_one() -> None:
    async with caching("app=web", WEB, GOLD) as environment:
        informer, cache = environment.informer, environment.cache
        await until(lambda: informer.state.is_synced)
        ahead = str(int(informer.state.store.version) + 10_000)
        written = secret("gold", tier="gold")
        written["metadata"] |= {"uid": "its-uid", "resourceVersion": ahead}
        cache.remember(written)
        assert cache.list_cached("secrets").keys() == [Key("web", namespace="shop")]
        size = informer.state.own_writes.size
        await change(informer, EITHER)
        gold = cache.list_cached("secrets", labels="tier=gold")
        assert [each["metadata"]["resourceVersion"] for each in gold] == [ahead]
        assert informer.state.own_writes.size == size > 0
        await change(informer, "app=web")
        assert cache.list_cached("secrets").keys() == [Key("web", namespace="shop")]


@pytest.mark.usefixtures("unhurried")
async def test_16_an_object_that_is_written_during_a_change_is_shown_by_the_next_filter() -> None:
    async with caching("app=web", WEB, GOLD) as environment:
        informer, cache = environment.informer, environment.cache
        await until(lambda: informer.state.is_synced)
        changing, _, silence = await begin_change(environment, EITHER)
        ahead = str(int(informer.state.store.version) + 10_000)
        written = secret("gold", tier="gold")
        written["metadata"] |= {"uid": "its-uid", "resourceVersion": ahead}
        cache.remember(written)
        silence.release()
        await changing
        assert cache.get("secrets", "gold", namespace="shop")["metadata"]["resourceVersion"] == ahead


async def test_16_a_change_without_a_present_state_is_overtaken_at_once() -> None:
    objects = [WEB, *(large(f"gold-{number}", tier="gold") for number in range(5))]
    async with caching(Cached(EITHER, max_bytes="128Ki"), *objects) as environment:
        informer, faults = environment.informer, environment.cluster.faults
        await until(lambda: informer.state.health is Health.OVERSIZED and informer.state.is_resolving)
        former, silence = informer.declared, faults.add(Silence(), verb="list")
        first = asyncio.create_task(change(informer, "app=db"))
        await until(lambda: informer.declared is not former)
        second = asyncio.create_task(change(informer, "app=web"))
        with pytest.raises(Superseded):
            await first
        silence.release()
        await second
        assert names(environment) == {"web"}


async def test_16_equal_changes_share_one_result() -> None:
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        first, following, silence = await begin_change(environment, EITHER)
        second = asyncio.create_task(change(informer, EITHER))
        third = asyncio.create_task(change(informer, EITHER))
        with pytest.raises(NotSynced):
            await change(informer, EITHER, timeout=0.05)
        first.cancel()
        await asyncio.wait({first})
        assert informer.filter_change.prepared is following
        silence.release()
        await asyncio.gather(second, third)
        assert informer.state.union is following.state.union


def web(asked: Any) -> bool:
    return "app=web" in asked.query.get("labelSelector", "")


async def test_16_an_error_of_a_stream_of_both_filters_is_not_one_of_the_change() -> None:
    async with caching(HERE, WEB, GOLD) as environment:
        informer, cluster = environment.informer, environment.cluster
        await until(lambda: informer.state.is_synced)
        changing, _, silence = await begin_change(environment, AND_THERE)
        cluster.faults.add(Refuse(403), verb="watch", where=web)
        cluster.cut("watch", "secrets")
        await until(lambda: informer.state.health is Health.FORBIDDEN)
        with pytest.raises(NotSynced):
            await change(informer, AND_THERE, timeout=0.05)
        silence.release()
        await changing
        assert names(environment) == {"web"}


async def test_16_a_mistake_of_the_prober_of_the_next_filter_is_logged_and_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs, run_on = [], Prober.run

    async def mistaken(prober: Prober) -> None:
        runs.append(prober)
        if len(runs) == 1:
            raise ZeroDivisionError
        await run_on(prober)

    monkeypatch.setattr(Prober, "run", mistaken)
    async with caching("app=web", WEB, GOLD) as environment:
        await until(lambda: environment.informer.state.is_synced)
        changing, following, silence = await begin_change(environment, EITHER)
        await until(lambda: len(runs) == 2)
        assert following.prober in runs
        silence.release()
        await changing
    assert any(record.exc_info for record in caplog.records)


async def test_16_while_a_kind_is_missing_a_change_may_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with caching("app=web", WEB, GOLD) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        missing = environment.cluster.faults.add(NotServed(), resource="secrets")
        environment.cluster.cut("watch", "secrets")
        await until(lambda: informer.state.health is Health.MISSING and informer.state.is_resolving)
        former, waited = informer.declared, asyncio.Event()
        with monkeypatch.context() as patched:
            patched.setattr(informer, "wait_until_settled", waited.wait)
            changing = asyncio.create_task(change(informer, "tier=gold"))
            await until(lambda: informer.declared is not former)
            changing.cancel()
            await asyncio.wait({changing})
        assert informer.declared is former
        missing.release()
        await until(lambda: informer.state.is_synced)
        assert names(environment) == {"web"}


async def test_16_a_relist_of_a_stream_of_both_filters_reaches_both() -> None:
    async with caching(HERE, WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        changing, _, silence = await begin_change(environment, AND_THERE)
        (reflector,) = informer.state.reflectors
        environment.cluster.patch(WEB, labelled(app="db"))
        await until(lambda: "web" not in names(environment))
        commits = reflector.writer.commits
        reflector.relist(MetricReason.AUDIT)
        await until(lambda: reflector.writer.commits > commits)
        silence.release()
        await changing  # There is no bookmark.
        assert reflector in informer.state.reflectors
        assert names(environment) == {"both"}


async def test_16_a_server_that_was_restored_ends_the_own_writes_of_both_filters() -> None:
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        cluster, informer = environment.cluster, environment.informer
        await until(lambda: informer.state.is_synced)
        backup = cluster.backup()
        cluster.patch(WEB, labelled(seen="yes"))
        await until(lambda: informer.state.store.version == str(cluster.version))
        changing, following, silence = await begin_change(environment, EITHER)
        record = informer.state.store.get("shop", "both")[0]
        assert record is not None
        ahead = str(int(informer.state.store.version) + 10_000)
        written = type(record)("shop", "both", record.uid, ahead, record.labels, (), record.stored)
        for state in informer.states:
            informer.pending_writes.add(OwnWrite(written.key, written.uid, ahead, written, 0.0), state)
        assert [len(state.own_writes) for state in informer.states] == [1, 1]
        cluster.restore(backup)
        (reflector,) = informer.state.reflectors
        reflector.relist(MetricReason.AUDIT)
        await until(lambda: informer.filter_change.prepared not in (None, following))
        assert [len(state.own_writes) for state in informer.states] == [0, 0]
        silence.release()
        changing.cancel()
        await asyncio.wait({changing})


async def test_16_a_stream_of_the_next_filter_that_has_missed_a_change_lists_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        changing, following, silence = await begin_change(environment, EITHER)
        union, reflector = following.state.union, following.new[0]
        await until(lambda: reflector.is_watching)
        outdated = {union.substores[0]: MetricReason.MISSED}
        commits = reflector.writer.commits
        with monkeypatch.context() as patched:
            patched.setattr(union, "pop_streams_to_relist", lambda: outdated)
            following.notify()
        await until(lambda: reflector.writer.commits > commits)
        silence.release()
        changing.cancel()
        await asyncio.wait({changing})


async def test_16_a_filter_that_begins_anew_is_not_answered_by_the_objects_of_the_former_one() -> None:
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        follower = Follower(informer)
        informer.mark_resolving()  # As when its resource is found in another version.
        changing = asyncio.create_task(change(informer, "tier=gold"))
        await until(lambda: informer.declared.filter == Selector("tier=gold"))
        assert informer.state.ready is None
        assert informer.state.held() == 0
        await changing
        assert names(environment) == {"gold", "both"}
        assert {record.name for record in follower.view.values()} == {"gold", "both"}
