"""The options of a cache change with its filter; and changes that fail, or meet another event, leave nothing
behind."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from typing import Any
from weakref import ref

import pytest

from kopf_selectcache import Cached, Forbidden, NotSynced, Selector
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.core.store.claims import OwnWrite
from kopf_selectcache.errors import Missing, Oversized
from kopf_selectcache.informer.health import Health
from kopf_selectcache.testing.faults import NotServed, Refuse, Silence
from tests.faults.environment import until
from tests.informer.test_filter_change import Follower, begin_change, change, names
from tests.secrets import Environment, caching, named, secret

WEB, GOLD = secret("web", app="web"), secret("gold", tier="gold")
BOTH = secret("both", app="web", tier="gold")
EITHER = [Selector("app=web"), Selector("tier=gold")]
HERE = Selector("app=web", namespaces=["shop"])
AND_THERE = [HERE, Selector("tier=gold", namespaces=["infra"])]
"""With a second group of streams: no object moves between the two."""


def large(name: str, **labels: str) -> dict[str, Any]:
    return {**secret(name, **labels), "data": {"key": "A" * 100_000}}


def nothing_is_left(environment: Environment, tasks: set[asyncio.Task[Any]]) -> None:
    informer = environment.informer
    assert asyncio.all_tasks() == tasks
    assert informer.filter_change.prepared is None
    for each in informer.state.reflectors:
        assert each._held is None
    if informer.swapper.share.tally is not None:
        holders = Counter(record for store in informer.state.union.stores for record in store.records()[0])
        assert {record: record.holders for record in holders} == holders


OPTIONS: dict[str, dict[str, Any]] = {
    "keep": {"keep": ["metadata.annotations"]},
    "drop": {"drop": ["data"]},
    "storage": {"storage": "packed"},
    "transform": {"transform": lambda obj: {**obj, "seen": True}},
    "index": {"index": {"app": "metadata.labels.app"}},
    "max_bytes": {"max_bytes": "1Mi"},
}


@pytest.mark.parametrize("filter_", [AND_THERE, HERE], ids=["several streams", "one stream"])
@pytest.mark.parametrize("option", OPTIONS)
async def test_16_an_option_changes_with_the_filter(option: str, filter_: Any) -> None:
    async with caching(HERE, WEB, GOLD, BOTH) as environment:
        informer, cache = environment.informer, environment.cache
        await until(lambda: informer.state.is_synced)
        kept = informer.state.reflectors[0]
        await change(informer, filter_, **OPTIONS[option])
        assert (kept in informer.state.reflectors) == (option in ("index", "max_bytes"))
        found = cache.get("secrets", "web", namespace="shop", as_=dict)
        match option:
            case "keep" | "drop":
                assert informer.state.projection.partial
            case "storage":
                assert informer.swapper.packing is not None
            case "transform":
                assert found["seen"] is True
            case "index":
                assert named(cache.list_cached("secrets", index={"app": "web"})) == ["both", "web"]
            case _:
                assert informer.swapper.share.bytes > 0
        environment.cluster.create(secret("later", app="web"))
        await until(lambda: "later" in names(environment))


async def test_16_a_limit_holds_for_the_next_filter_as_a_whole() -> None:
    objects = [large("web", app="web"), large("gold", tier="gold")]
    async with caching("app=web", *objects) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        with pytest.raises(Oversized):
            await change(informer, EITHER, max_bytes="128Ki")
        assert names(environment) == {"web"}
        with pytest.raises(Oversized):  # It lists nothing, and holds too much.
            await change(informer, "app=web", max_bytes="64Ki")
        assert names(environment) == {"web"}
        await change(informer, "tier=gold", max_bytes="256Ki")
        assert informer.swapper.share.bytes < 130 * 1024


async def test_16_growth_of_the_present_store_does_not_count_for_the_next_limit() -> None:
    async with caching(Cached("app=web", max_bytes="1Mi"), WEB, GOLD) as environment:
        informer, cluster = environment.informer, environment.cluster
        await until(lambda: informer.state.is_synced)
        both = Cached([Selector("tier=gold"), Selector("silver=yes")], max_bytes="128Ki")
        cluster.faults.add(Silence(), verb="list", where=lambda asked: "silver" in str(asked.query))
        changing = asyncio.create_task(informer.filter_change.change(both, timeout=3600.0))
        await until(lambda: informer.filter_change.prepared is not None)
        following = informer.filter_change.prepared
        assert following is not None
        store = following.state.union.store
        await until(lambda: following.state.reflectors[0].is_watching)
        cluster.create(large("web-1", app="web"), large("web-2", app="web"))
        await until(lambda: names(environment) == {"web", "web-1", "web-2"})
        cluster.create(secret("more", tier="gold"))
        await until(lambda: store.get("shop", "more")[0] is not None or changing.done())
        assert not changing.done()
        cluster.create(large("gold-1", tier="gold"), large("gold-2", tier="gold"))
        with pytest.raises(Oversized):
            await changing


async def test_16_while_a_kind_is_missing_a_change_fails_and_the_former_filter_is_used_later() -> None:
    async with caching("app=web", WEB, GOLD) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        fault = environment.cluster.faults.add(NotServed(), resource="secrets")
        environment.cluster.cut("watch", "secrets")
        await until(lambda: informer.state.health is Health.MISSING and informer.state.is_resolving)
        former = informer.declared
        with pytest.raises((Missing, NotSynced)):
            await change(informer, "tier=gold", timeout=1.0)
        assert informer.declared is former
        fault.release()
        await until(lambda: informer.state.is_synced)
        assert names(environment) == {"web"}


async def test_16_a_change_survives_that_the_informer_starts_again() -> None:
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer, faults = environment.informer, environment.cluster.faults
        await until(lambda: informer.state.is_synced)
        changing, _, silence = await begin_change(environment, EITHER)
        missing = faults.add(NotServed(), resource="secrets")
        informer.state.reflectors[0].relist(MetricReason.AUDIT)
        await until(lambda: informer.state.is_resolving)
        silence.release()
        missing.release()
        (failure,) = await asyncio.gather(changing, return_exceptions=True)
        assert failure is None or isinstance(failure, Missing)
        await until(lambda: informer.state.is_synced)
        present = {"web", "both"} if failure else {"web", "gold", "both"}
        await until(lambda: names(environment) == present)


@pytest.mark.usefixtures("unhurried")
async def test_16_own_writes_from_before_are_shown_by_the_next_filter() -> None:
    async with caching(EITHER, WEB, GOLD, BOTH) as environment:
        informer, follower = environment.informer, Follower(environment.informer)
        await until(lambda: informer.state.is_synced)
        record = informer.state.store.get("shop", "both")[0]
        assert record is not None
        ahead = str(int(informer.state.store.version) + 10_000)
        written = type(record)("shop", "both", record.uid, ahead, {"app": "web"}, (), record.stored)
        outside = type(record)("shop", "gold", "uid", ahead, {"tier": "gold"}, (), record.stored)
        for each in (written, outside):
            write = OwnWrite(each.key, each.uid, each.version, each, 0.0)
            informer.pending_writes.add(write, informer.state)
        # Several streams share the version of a list, which may be older than a write.
        await change(informer, [Selector("app=web"), Selector("app=db")])
        assert [write.record for write in informer.state.own_writes if write.record] == [written]
        await change(informer, "app=web", drop=["data"])
        assert not informer.state.own_writes, "the lists are newer"
        assert {each.name for each in follower.view.values()} == names(environment)


async def test_16_the_objects_of_the_former_filter_are_freed() -> None:
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        for filter_, dropped in (("app=web", ["data"]), (EITHER, ["data"]), ("tier=gold", ["data"])):
            former: list[ref[Any]] = [ref(each) for each in informer.state.union.substores]
            former.append(ref(informer.state.union))
            await change(informer, filter_, drop=dropped)

            for _ in range(1000):  # The streams of the former filter end.
                await asyncio.sleep(0)
            gc.collect()
            assert not any(each() for each in former), "the former objects are in memory"


async def test_16_a_reused_stream_is_compared_with_the_server_as_before() -> None:
    async with caching(HERE, WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        (reflector,) = informer.state.reflectors
        await until(lambda: reflector.comparison.is_open)
        await change(informer, AND_THERE)
        assert reflector in informer.state.reflectors
        assert reflector.comparison.is_open, "the watch goes on"
        assert await reflector.comparison.wait(informer.state.version)


async def test_16_a_stream_that_fails_for_a_while_is_waited_for() -> None:
    async with caching("app=web", WEB, GOLD, BOTH) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        environment.cluster.faults.add(Refuse(503), verb="list", times=3)
        await change(informer, EITHER)
        assert names(environment) == {"web", "gold", "both"}
        environment.cluster.faults.add(Refuse(403), verb="list")
        with pytest.raises(Forbidden):
            await change(informer, "app=db")


@pytest.mark.parametrize(
    "index", ["data.key", lambda secret: secret["data"]["key"]], ids=["path", "function"]
)
async def test_16_an_index_of_a_field_that_is_not_stored_has_the_values_of_all_objects(index: Any) -> None:
    web = {**WEB, "data": {"key": "Zm9v"}}
    async with caching(Cached("app=web", keep=["metadata.annotations"]), web) as environment:
        cache = environment.cache
        await until(lambda: environment.informer.state.is_synced)
        await cache.declare("secrets", "app=web", index={"key": index}, replace=True)
        assert named(cache.list_cached("secrets", index={"key": "Zm9v"})) == ["web"]


async def test_16_a_change_of_a_kind_that_was_never_found_fails() -> None:
    async with caching("app=web", resource="example.com/v1/webapps") as environment:
        informer = environment.informer
        await until(lambda: informer.state.health is Health.MISSING)
        former = informer.declared
        with pytest.raises((Missing, NotSynced)):
            await change(informer, "tier=gold", timeout=1.0)
        assert informer.declared is former
