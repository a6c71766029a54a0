"""Contracts 3 and 11: `cache.snapshot` reads one generation of each kind, and keeps it until it ends."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kopf_selectcache import Cache, Key, NotDeclared, NotFound, NotSynced, ReadError, Stale
from kopf_selectcache.cache.freshness import version_reached
from kopf_selectcache.cache.reads import LOG_AFTER_SECONDS, OpenSnapshots, PinnedReads
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.informer.state import InformerState
from kopf_selectcache.testing import FakeCache
from tests.cache.environment import NODES, Environment
from tests.cache.test_freshness import WEB
from tests.faults.environment import until
from tests.gated import gated, settle
from tests.objects import pod

OWNER = {"metadata": {"uid": "o-1", "namespace": "shop"}}


def fake() -> FakeCache:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": WEB}}
    owned = pod("b", **WEB)
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o-1", "controller": True}
    ]
    return FakeCache([pod("a", **WEB), owned, node], {"v1/pods": "", "nodes": "app=web"})


def contents(reads: Any) -> list[Any]:
    return [
        sorted(reads.list("pods").keys()),
        reads.list("pods", labels="app=web", sort_by="metadata.name")[:],
        reads.list_cached("nodes"),
        reads.get("pods", "a", namespace="shop"),
        reads.get("pods", "c", namespace="shop", default=None),
        reads.exists("pods", "b", namespace="shop"),
        reads.count("pods"),
        reads.list_cached("pods", owner=OWNER),
        reads.list("pods").version,
    ]


def test_3_reads_of_a_snapshot_are_of_one_generation_of_each_kind() -> None:
    cache = fake()
    before = contents(cache)
    with cache.snapshot("pods", "nodes") as now:
        versions = dict(now.versions)
        assert contents(now) == before
        cache.cluster.create(pod("c", **WEB))
        cache.cluster.patch(pod("a"), {"metadata": {"labels": {"app": "db"}}})
        cache.cluster.delete(pod("b"), grace_period=0)
        cache.cluster.patch(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}},
            {"metadata": {"labels": {"new": "1"}}},
        )
        assert contents(now) == before != contents(cache)
        assert now.versions == versions == {"pods": before[-1], "nodes": now.list_cached("nodes").version}
        kept = now.list("pods", labels="app=web")
        with pytest.raises(NotFound):
            now.get("pods", "c", namespace="shop")
    assert len(kept) == 2, "a list outlives its snapshot"


def test_3_a_relist_does_not_reach_a_snapshot() -> None:
    cache = fake()
    store = cache._runtime.informer("pods").state.store
    before = contents(cache)
    with cache.snapshot("pods", "nodes") as now:
        store.begin()
        store.commit("999999")
        assert (len(cache.list_cached("pods")), contents(now)) == (0, before)


async def test_3_a_snapshot_shows_the_own_writes_from_before_it() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        await environment.cut()
        cache = environment.cache
        b, c = environment.cluster.create(pod("b", **WEB), pod("c", **WEB))
        cache.remember(b)
        with cache.snapshot("pods") as now:
            cache.remember(c)
            cache.forget(b)
            assert sorted(now.list_cached("pods").keys()) == [
                Key("a", namespace="shop"),
                Key("b", namespace="shop"),
            ]
            assert sorted(cache.list_cached("pods").keys()) == [
                Key("a", namespace="shop"),
                Key("c", namespace="shop"),
            ]


def test_3_a_snapshot_shows_the_handlers_own_object_as_it_was() -> None:
    body = copy.deepcopy(fake().get("pods", "a", namespace="shop"))
    body["metadata"] |= {"resourceVersion": "9000", "labels": {"tier": "gold"}}
    with Cache(fake()._runtime, own=body).snapshot("pods") as now:
        body["metadata"] = {**body["metadata"], "resourceVersion": "9001", "labels": {"app": "db"}}
        assert now.get("pods", "a", namespace="shop")["metadata"]["labels"] == {"tier": "gold"}


def test_3_a_change_of_the_filter_meanwhile_opens_the_snapshot_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = fake()
    informer = cache._runtime.informer("pods")
    opened: list[object] = []

    def age(_: InformerState, request: object = None) -> float:
        opened.append(request)
        if len(opened) == 1:
            informer.state = replace(informer.state)
        return 0.0

    monkeypatch.setattr(InformerState, "age", age)
    with cache.snapshot("pods") as now:
        assert (len(now.list("pods")), len(opened)) == (2, 2)


def test_11_reads_before_and_after_the_with_and_of_other_kinds_raise() -> None:
    cache = fake()
    now = cache.snapshot("pods")
    assert repr(now) == "<PinnedReads: pods not open>"
    for _ in range(2):  # It can be opened again.
        with pytest.raises(ReadError):
            now.list("pods")
        with now:
            assert len(now.list("pods")) == 2
            assert repr(now) == f"<PinnedReads: pods {now.versions['pods']}>"
            with pytest.raises(ReadError):
                now.list_cached("nodes")
    with pytest.raises(ReadError):
        now.get("pods", "a", namespace="shop")
    with pytest.raises(ReadError):
        cache.snapshot()
    with pytest.raises(NotDeclared), cache.snapshot("pods", "configmaps"):
        pass
    environment = Environment()
    environment.declare("app=web", NODES, "nodes")
    with pytest.raises(NotSynced), environment.cache().snapshot("nodes"):
        pass


def test_a_read_that_a_snapshot_does_not_have_is_answered_with_the_one_to_use() -> None:
    with fake().snapshot("pods") as now:
        for name in ("fetch", "info", "explain", "live", "patch", "lst"):
            with pytest.raises(AttributeError):
                getattr(now, name)
        assert not hasattr(now, "fetch")
        assert not hasattr(now, "_unknown")


def test_11_a_snapshot_keeps_no_object_after_its_end() -> None:
    cache = fake()
    with cache.snapshot("pods") as now:
        pins = now._access.pins
        assert pins is not None
        (pin,) = pins.values()
        kept = weakref.ref(pin.snapshot.store)
        del pins, pin
        assert kept() is not None
    gc.collect()
    assert kept() is None


async def test_11_a_snapshot_grows_old() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        with environment.cache.snapshot("pods") as now:
            version = now.versions["pods"]
            assert now.list_cached("pods", max_age=10).version == version
            assert now.count("pods", labels="app=web", at_least=version) == 1
            (b,) = environment.cluster.create(pod("b", **WEB))
            await until(lambda: len(environment.cache.list_cached("pods")) == 2)
            with pytest.raises(Stale):
                now.list_cached("pods", at_least=b)
            await environment.clock.move(11)
            with pytest.raises(Stale):
                now.list_cached("pods", max_age=10)


async def test_11_a_snapshot_is_as_new_as_its_cache_was_known_to_be() -> None:
    """No event of a watch reaches the version of an object outside of the filter: a comparison shows it."""
    async with gated("app=web", pod("a", **WEB)) as environment:
        cache = environment.cache
        (outside,) = environment.cluster.create(pod("db", app="db"))
        call = asyncio.create_task(cache.fetch_list("pods", labels="app=web", at_least=outside))
        await environment.clock.move_until(call.done)
        assert (await call).version, "the cache has answered"
        with cache.snapshot("pods") as now:
            assert [each["metadata"]["name"] for each in now.list_cached("pods", at_least=outside)] == ["a"]
            (later,) = environment.cluster.create(pod("later", app="db"))
            with pytest.raises(Stale):
                now.list_cached("pods", at_least=later)


def test_11_unconfirmed_leaves_are_no_proof_of_a_newer_version() -> None:
    doubts: list[str] = []
    streams = [SimpleNamespace(goal=lambda goal: goal, version=version) for version in ("15", "13")]
    state = SimpleNamespace(
        store=SimpleNamespace(version="12"),
        streams_for=lambda: streams,
        has_several_streams=True,
        has_unconfirmed_up_to=lambda version, **_: version in doubts,
    )
    informer: Any = SimpleNamespace(state=state)
    assert version_reached(informer) == "13", "one of the streams has reached no more"
    doubts.append("13")
    assert version_reached(informer) == "12"
    doubts.clear()
    streams[1].version = "one"
    assert version_reached(informer) == "12", "it has no order"


async def test_11_a_snapshot_shows_an_own_write_that_is_as_new() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        cache = environment.cache
        silence = await environment.cut()
        written = await cache.live.create(pod("b", **WEB))
        with cache.snapshot("pods") as now:
            assert now.get("pods", "b", namespace="shop", at_least=written) == written
            with pytest.raises(Stale):
                now.get("pods", "a", namespace="shop", at_least=written)
        silence.release()


async def test_11_a_comparison_from_before_a_restore_proves_nothing() -> None:
    """The server is restored to a version from before a comparison, and has newer ones again since."""
    async with gated("app=web", pod("a", **WEB)) as environment:
        cache, cluster = environment.cache, environment.cluster
        backup = cluster.backup()
        *_, outside = cluster.create(*(pod(f"db-{n}", app="db") for n in range(30)))
        call = asyncio.create_task(cache.fetch_list("pods", labels="app=web", at_least=outside))
        await environment.clock.move_until(call.done)
        await call
        with cache.snapshot("pods") as now:
            assert now.list_cached("pods", at_least=outside)
            cluster.restore(backup)
            (b,) = cluster.create(pod("b", **WEB))
            environment.informer.state.reflectors[0].relist(MetricReason.AUDIT)
            await environment.clock.move_until(lambda: len(cache.list_cached("pods")) == 2)
            cluster.create(*(pod(f"web-{n}", **WEB) for n in range(50)))
            await until(lambda: len(cache.list_cached("pods")) == 52)
            assert int(environment.informer.state.version) > int(now.versions["pods"]), "it tells nothing"
            with pytest.raises(Stale):
                now.list_cached("pods", at_least=b)


async def test_11_a_snapshot_from_before_a_restore_is_not_as_new_as_a_version() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        cache, cluster = environment.cache, environment.cluster
        backup = cluster.backup()
        cluster.create(*(pod(f"lost-{n}", **WEB) for n in range(9)))
        await until(lambda: len(cache.list_cached("pods")) == 10)
        with cache.snapshot("pods") as now:
            cluster.restore(backup)
            (b,) = cluster.create(pod("b", **WEB))
            environment.informer.state.reflectors[0].relist(MetricReason.AUDIT)
            await environment.clock.move_until(lambda: len(cache.list_cached("pods")) == 2)
            assert len(now.list_cached("pods")) == 10
            with pytest.raises(Stale):
                now.list_cached("pods", at_least=b)


async def test_11_the_log_names_no_snapshot_that_was_dropped_without_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with gated("app=web", pod("a", **WEB)) as environment:
        dropped = environment.cache.snapshot("pods").__enter__()
        await environment.clock.move(LOG_AFTER_SECONDS / 2)
        with environment.cache.snapshot("pods"):
            del dropped
            gc.collect()
            await environment.clock.move(LOG_AFTER_SECONDS / 2 + 1)
            assert [each for each in caplog.records if "snapshot" in each.getMessage()] == []


async def test_11_the_log_names_a_snapshot_that_is_held_for_minutes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    def logged() -> list[str]:
        return [each.getMessage() for each in caplog.records if "snapshot" in each.getMessage()]

    def in_thread(cache: Cache) -> PinnedReads:
        return cache.snapshot("pods").__enter__()

    async with gated("app=web", pod("a", **WEB)) as environment:
        ended = environment.cache.snapshot("pods")
        with ended:
            await environment.clock.move(LOG_AFTER_SECONDS - 1)
        await environment.clock.move(LOG_AFTER_SECONDS)
        assert logged() == []
        kept = await asyncio.to_thread(in_thread, environment.cache)
        with environment.cache.snapshot("pods"):
            await environment.clock.move(LOG_AFTER_SECONDS + 1)
        kept.__exit__(None, None, None)
        assert len(logged()) == 2
        assert "pods" in logged()[0]
        assert "test_pinned.py:" in logged()[0]
        await environment.clock.move(2 * LOG_AFTER_SECONDS)
        assert len(logged()) == 2
        with environment.cache.snapshot("pods"):
            await settle()  # The operator ends first.


def test_11_a_snapshot_is_opened_though_the_loop_is_closed() -> None:
    cache = fake()
    loop = asyncio.new_event_loop()
    loop.close()
    opened = OpenSnapshots(cast("Any", SimpleNamespace(loop=loop)))
    opened.add(cast("Any", cache.snapshot("pods")))
    opened.close()
