"""Where a cache cannot feed Kopf's handlers, they wait, or Kopf's own watch takes over."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import _kopf
from kopf_selectcache.plugin.feed import NAMING_SECONDS
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.testing.api.request import Request
from kopf_selectcache.testing.faults import Inserted, Refuse
from tests.plugin.feeding import (
    CONFIGMAPS,
    Events,
    app,
    config,
    feeding,
    informer_of,
    is_fed,
    labelled,
    lists_of,
    serving,
    until,
)
from tests.plugin.virtual import Times

KEY, APPS = "v1/configmaps", "example.com/v1/webapps"


@pytest.fixture
def events(registry: kopf.OperatorRegistry) -> Events:
    events = Events()
    events.handle(registry)
    return events


def shown(settings: kopf.OperatorSettings) -> str:
    """Return what the operator says of the feed of ConfigMaps."""
    operator = operator_of(settings)
    assert operator is not None
    return operator.decisions.shown(KEY)


async def test_8_handlers_of_a_forbidden_kind_wait_and_the_operator_lives(
    registry: kopf.OperatorRegistry, events: Events, times: Times
) -> None:
    async with serving(config("a")) as cluster:
        refusing = cluster.faults.add(Refuse(403), verb="list", resource="configmaps")
        async with feeding(registry, cluster) as settings:
            await refusing.hit()
            operator = operator_of(settings)
            assert operator is not None
            await times.until(lambda: operator.report()[KEY]["health"] == "forbidden", within=60)
            assert (events, lists_of(cluster, "configmaps", ["watch"])) == ([], [])
            refusing.release()
            await times.until(lambda: events, within=120)
            assert events == [(None, "a")]


class RefusedCaches(Refuse):
    """Refuses to tell the caches of a group, and not Kopf."""

    def concerns(self, request: Request) -> bool:
        return (
            request.path == "/apis/example.com/v1" and request.headers.get("user-agent") == "kopf-selectcache"
        )


async def test_2_handlers_of_a_kind_wait_until_its_key_is_resolved_and_are_fed_then(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    events = Events()
    events.handle(registry, "webapps")
    async with serving(app("a")) as cluster:
        refusing = cluster.faults.add(RefusedCaches(500))
        async with feeding(registry, cluster, filters={"webapps": ""}) as settings:
            await refusing.hit()
            operator = operator_of(settings)
            assert operator is not None
            await times.until(lambda: cluster.requests.where("watch", "customresourcedefinitions"), within=60)
            assert (events, operator.decisions.shown("webapps")) == ([], "")
            refusing.release()
            await times.until(lambda: events, within=300)
            assert events == [(None, "a")]
            assert operator.decisions.shown("webapps") == "fed from the cache"


async def test_20_an_indexed_kind_that_is_waited_for_is_named_in_log_and_probe(
    registry: kopf.OperatorRegistry, events: Events, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    @kopf.index("webapps", registry=registry)
    def names(name: str, **_: Any) -> dict[str, str]:
        return {name: name}

    def is_named(settings: kopf.OperatorSettings, key: str) -> bool:
        operator = operator_of(settings)
        assert operator is not None
        return "handlers" in operator.report()[key]

    async with serving(config("a"), app()) as cluster:
        refusing = cluster.faults.add(Refuse(403), verb="list", resource="webapps")
        async with feeding(registry, cluster, filters={KEY: "", APPS: ""}) as settings:
            await refusing.hit()
            await times.until(lambda: is_named(settings, APPS), within=20)
            assert events == []
            assert not is_named(settings, KEY)
            refusing.release()
            await times.until(lambda: events, within=120)
            assert not is_named(settings, APPS)
    said = "Kopf calls no handler before the cache of webapps.example.com is synced, because it is indexed."
    assert any(said in each for each in caplog.messages)


async def test_6_kopfs_own_watch_takes_over_before_a_filter_becomes_too_narrow(
    registry: kopf.OperatorRegistry, events: Events
) -> None:
    objects = [labelled("a", "web"), labelled("b", "db")]
    async with serving(*objects) as cluster, feeding(registry, cluster) as settings:
        await events.see((None, "a"), (None, "b"))
        cache = selectcache.cache_of(settings)
        await cache.declare(KEY, "app=web", replace=True)
        await until(lambda: lists_of(cluster, "configmaps", ["watch"])[2:])
        cluster.patch(config("b"), {"data": {"a": "1"}})
        await until(lambda: events)
        assert events == [("MODIFIED", "b")]
        operator = operator_of(settings)
        assert operator is not None
        assert not operator.fed.has(CONFIGMAPS, "shop")


async def test_16_a_feed_that_has_ended_frees_the_objects_of_a_former_filter(
    registry: kopf.OperatorRegistry, events: Events
) -> None:
    objects, filters = [labelled("a", "web"), labelled("b", "db")], {KEY: "app"}
    async with serving(*objects) as cluster, feeding(registry, cluster, filters=filters) as settings:
        await events.see((None, "a"), (None, "b"))
        cache = selectcache.cache_of(settings)
        assert not is_fed(settings)
        former = weakref.ref(informer_of(settings).state.union)
        await cache.declare(KEY, "app,!legacy", replace=True)
        await until(lambda: gc.collect() >= 0 and former() is None)


async def test_6_an_object_that_leaves_by_a_safe_filter_change_is_not_deleted_for_kopf(
    registry: kopf.OperatorRegistry,
) -> None:
    events = Events()
    events.handle(registry, labels={"app": "web"})
    objects = [labelled("a", "web"), labelled("b", "db")]
    async with serving(*objects) as cluster, feeding(registry, cluster) as settings:
        await events.see((None, "a"))
        cache = selectcache.cache_of(settings)
        parts = _kopf.parts_of(settings)
        assert parts is not None
        known = parts.memos._memories._items
        await until(lambda: len(known) == 2)
        await cache.declare(KEY, "app=web", replace=True)
        await until(lambda: len(known) == 1)
        cluster.patch(config("a"), {"data": {"a": "1"}})
        await events.see(("MODIFIED", "a"))
        cluster.patch(config("b"), {"metadata": {"labels": {"app": "web"}}})
        await events.see(("ADDED", "b"))
        assert len(known) == 2


async def test_6_nothing_is_repeated_and_nothing_is_missed_where_kopfs_own_watch_takes_over(
    registry: kopf.OperatorRegistry, events: Events
) -> None:
    names = ["changes", "goes", "stays"]
    async with serving(*map(config, names)) as cluster, feeding(registry, cluster) as settings:
        await events.see(*((None, name) for name in names))
        refusing = cluster.faults.add(Refuse(500), verb="list", resource="configmaps")
        await selectcache.cache_of(settings).undeclare(KEY)
        cluster.patch(config("changes"), {"data": {"a": "1"}})
        cluster.delete(config("goes"))
        cluster.create(config("comes"))
        await refusing.hit()
        refusing.release()
        await until(lambda: len(events) == 3)
        assert sorted(events) == [("ADDED", "comes"), ("DELETED", "goes"), ("MODIFIED", "changes")]
        events.clear()
        cluster.delete(config("stays"))
        await until(lambda: events)
        assert events == [("DELETED", "stays")]


async def test_8_kopfs_own_watch_takes_over_from_a_cache_that_is_too_large(
    registry: kopf.OperatorRegistry, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    filters = {KEY: selectcache.Cached("", max_bytes=65_536)}
    async with serving(config("a"), config("b")) as cluster, feeding(registry, cluster, filters=filters):
        await events.see((None, "a"), (None, "b"))
        cluster.create({**config("large"), "data": {"a": "x" * 100_000}})
        await until(lambda: events.of("large"))
        cluster.delete(config("a"))
        await until(lambda: events.of("a"))
        assert events.of("a") == ["DELETED"]
        assert events.of("b") == []
        assert events.of("large") == ["ADDED"]
    said = "a second watch, because the cache is oversized. To feed them from the cache, fix what"
    assert any(said in each for each in caplog.messages)


async def test_8_kopf_watches_a_kind_whose_filter_the_server_rejects(registry: kopf.OperatorRegistry) -> None:
    events = Events()
    events.handle(registry, "webapps")
    filters = {APPS: selectcache.Selector(fields={"spec.size": "3"})}
    async with serving(app("a")) as cluster, feeding(registry, cluster, filters=filters):
        await events.see((None, "a"))


async def test_6_an_object_that_becomes_unreadable_during_a_pause_is_not_deleted(
    registry: kopf.OperatorRegistry, events: Events
) -> None:
    async with serving(config("a"), config("b")) as cluster, feeding(registry, cluster) as settings:
        await events.see((None, "a"), (None, "b"))
        parts, operator = _kopf.parts_of(settings), operator_of(settings)
        assert parts is not None
        assert operator is not None
        toggle = await parts.paused.make_toggle(True)
        cluster.faults.add(Inserted(names=frozenset({"a"})))
        cluster.stop_listening()
        cluster.patch(config("a"), {"data": {"a": "1"}})
        cluster.listen_again()
        await until(lambda: operator.runtime.informer(KEY).state.store.unreadable)
        await parts.paused.drop_toggle(toggle)
        await until(lambda: events.of("b"))
        cluster.create(config("c"))
        await until(lambda: events.of("c"))
        assert events == [(None, "b"), ("ADDED", "c")]


async def test_15_a_feed_ends_with_its_watcher(registry: kopf.OperatorRegistry, events: Events) -> None:
    options: dict[str, Any] = {"clusterwide": False, "namespaces": ["*"]}

    def configure(settings: Any) -> None:
        settings.selectcache.selectors[KEY] = selectcache.Selector(namespaces=["shop", "bar"])

    async with serving(config("a")) as cluster:
        cluster.namespace("bar")
        async with feeding(registry, cluster, configure=configure, **options) as settings:
            await events.see((None, "a"))
            operator = operator_of(settings)
            assert operator is not None
            await until(lambda: all(operator.fed.has(CONFIGMAPS, each) for each in ("shop", "bar")))
            subscribers = operator.runtime.informer(KEY)._subscribers._subscribers
            count = len(subscribers)
            await until(lambda: cluster.requests.where("watch", "namespaces"))  # Kopf lists them before.
            cluster.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bar"}})
            await until(lambda: len(subscribers) == count - 1)
            assert not operator.fed.has(CONFIGMAPS, "bar")
            assert operator.fed.has(CONFIGMAPS, "shop")
            cluster.create(config("b"))
            await events.see(("ADDED", "b"))


async def test_20_a_bug_in_the_feed_is_logged_and_kopfs_own_watch_takes_over(
    registry: kopf.OperatorRegistry,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(config("a")) as cluster, feeding(registry, cluster) as settings:
        await events.see((None, "a"))
        monkeypatch.setattr("kopf_selectcache.plugin.feed.Feed._event_of", lambda *_: 1 / 0)
        cluster.patch(config("a"), {"data": {"a": "1"}})
        await events.see(("MODIFIED", "a"))
        assert "the feed failed because of a bug" in shown(settings)
    assert any("because of a bug in kopf_selectcache" in each for each in caplog.messages)


async def test_20_a_bug_beside_the_feed_is_logged_and_kopfs_own_watch_takes_over(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    events.handle(registry, labels={"app": "web"})
    monkeypatch.setattr("kopf_selectcache.plugin.knowledge.Departures._ask", lambda _: 1 / 0)
    objects = labelled("a", "web"), labelled("b", "web")
    filters = {KEY: "app=web"}
    async with serving(*objects) as cluster, feeding(registry, cluster, filters=filters) as settings:
        await events.see((None, "a"), (None, "b"))
        cluster.delete(config("a"))
        await events.see(("DELETED", "a"))
        assert "the feed failed because of a bug" in shown(settings)
    assert any("because of a bug in kopf_selectcache" in each for each in caplog.messages)


async def test_20_a_standby_says_nothing_of_a_wait_for_an_index(
    registry: kopf.OperatorRegistry, events: Events, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    kopf.index("configmaps", registry=registry)(lambda **_: None)
    async with serving(config("a")) as cluster, feeding(registry, cluster) as settings:
        await times.until(lambda: events, within=20)
        parts, operator = _kopf.parts_of(settings), operator_of(settings)
        assert parts is not None
        assert operator is not None
        toggle = await parts.paused.make_toggle(True)
        await asyncio.sleep(3 * NAMING_SECONDS)  # In virtual time.
        assert "handlers" not in operator.report()[KEY]
        await parts.paused.drop_toggle(toggle)
    assert not any("because it is indexed" in each for each in caplog.messages)
