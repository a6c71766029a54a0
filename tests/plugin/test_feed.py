"""Kopf's own handlers of a kind are fed from its cache: one list, one watch, and the events of Kopf."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import _kopf
from kopf_selectcache.plugin.knowledge import Departures
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.kopf_operators import cycles, run
from tests.plugin.feeding import (
    Consumer,
    Events,
    app,
    config,
    consuming,
    feeding,
    informer_of,
    is_fed,
    labelled,
    lists_of,
    serving,
    until,
)

WEB = {"v1/configmaps": "app=web"}
HANDLED = "kopf.zalando.org/last-handled-configuration"


@pytest.fixture
def events(registry: kopf.OperatorRegistry) -> Events:
    events = Events()
    events.handle(registry)
    return events


def web(name: str, **data: str) -> dict[str, Any]:
    return labelled(name, "web", **data)


def handled(cluster: EmbeddedCluster, name: str) -> str:
    """Return what Kopf has noted that it handled of a ConfigMap."""
    return str(cluster.get(config(name))["metadata"]["annotations"][HANDLED])


def is_kopfs_watch_of_namespaces(asked: Any) -> bool:
    return asked.resource == "namespaces" and asked.verb == "watch" and "labelSelector" not in asked.query


async def test_9_present_objects_come_without_a_type_and_then_each_change_in_order(
    registry: kopf.OperatorRegistry, events: Events
) -> None:
    async with serving(config("old")) as cluster:
        refusing = cluster.faults.add(Refuse(500), verb="list", resource="configmaps")
        async with feeding(registry, cluster) as settings:
            await until(lambda: is_fed(settings))
            await refusing.hit()
            cluster.requests.clear()
            refusing.release()
            await until(lambda: events)
            cluster.create(config("new"))
            for number in range(20):
                cluster.patch(config("new"), {"data": {"number": str(number)}})
            cluster.delete(config("new"))
            await until(lambda: ("DELETED", "new") in events)
            assert events.of("old") == [None]
            assert events.of("new") == ["ADDED", *["MODIFIED"] * 20, "DELETED"], "none is joined with another"
            numbers = [body["data"]["number"] for body in events.bodies if body.get("data")]
            assert numbers == [*map(str, range(20)), "19"]
            assert lists_of(cluster, "configmaps") == ["list", "watch"]


async def test_9_without_one_watch_there_are_two(registry: kopf.OperatorRegistry, events: Events) -> None:
    def configure(settings: Any) -> None:
        settings.selectcache.one_watch = False

    async with serving(config("old")) as cluster, feeding(registry, cluster, configure=configure):
        await events.see((None, "old"))
        await until(lambda: len(lists_of(cluster, "configmaps")) == 4)


async def test_9_the_cache_has_an_event_before_its_handler_and_the_handler_waits_for_nothing(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, Any] = {}

    waits = list[Any]()

    async def wait(*given: Any, **_: Any) -> None:
        waits.append(given)

    monkeypatch.setattr("kopf_selectcache.plugin.operator.wait_until_fresh", wait)

    @kopf.on.event("configmaps", registry=registry)
    @selectcache.with_cache
    # Kopf's names.
    async def read(cache: selectcache.Cache, type: str | None, name: str, namespace: str, **_: Any) -> None:  # noqa: A002
        found[name] = type, cache.exists("configmaps", name, namespace=namespace)

    async with serving(config("old")) as cluster, feeding(registry, cluster):
        await until(lambda: found.get("old") == (None, True))
        cluster.create(config("new"))
        await until(lambda: found.get("new") == ("ADDED", True))
        cluster.delete(config("new"))
        await until(lambda: found.get("new") == ("DELETED", False))
    assert waits == []


async def test_7_each_event_is_a_dict_of_its_own(registry: kopf.OperatorRegistry, events: Events) -> None:
    async with serving(config("old", a="1")) as cluster, feeding(registry, cluster) as settings:
        await until(lambda: events)
        events.bodies[0]["data"]["a"] = "changed"
        cache = selectcache.cache_of(settings)
        assert cache.get("configmaps", "old", namespace="shop")["data"] == {"a": "1"}


async def test_15_a_deletion_has_the_object_of_its_event_and_one_in_a_gap_the_last_known(
    registry: kopf.OperatorRegistry, events: Events
) -> None:
    async with serving(config("a"), config("b")) as cluster, feeding(registry, cluster):
        await until(lambda: len(events) == 2)
        known = {body["metadata"]["name"]: body["metadata"]["resourceVersion"] for body in events.bodies}
        cluster.delete(config("a"))
        await until(lambda: events.of("a") == [None, "DELETED"])
        assert events.bodies[-1]["metadata"]["resourceVersion"] == str(cluster.version)
        cluster.stop_listening()
        cluster.delete(config("b"))
        cluster.compact()
        cluster.listen_again()
        await until(lambda: events.of("b") == [None, "DELETED"])
        assert events.bodies[-1]["metadata"]["resourceVersion"] == known["b"]
        assert events.of("a") == [None, "DELETED"]


async def test_9_a_write_of_a_handler_reaches_kopf_once_through_the_watch(
    registry: kopf.OperatorRegistry, events: Events
) -> None:
    async with serving(config("old")) as cluster, feeding(registry, cluster) as settings:
        await until(lambda: events)
        cache = selectcache.cache_of(settings)
        await cache.live.patch("configmaps", "old", {"data": {"a": "1"}}, namespace="shop")
        await cache.live.create(config("new"))
        await cache.live.delete("configmaps", "new", namespace="shop")
        await until(lambda: len(events) >= 4)
        assert events.of("old") == [None, "MODIFIED"]  # Kopf keeps the order of one object only.
        assert events.of("new") == ["ADDED", "DELETED"]


async def test_9_kopf_sees_the_version_of_its_own_patch(registry: kopf.OperatorRegistry) -> None:
    calls: list[str] = []

    @kopf.on.create("configmaps", registry=registry)
    async def create(patch: kopf.Patch, **_: Any) -> None:
        calls.append("create")
        patch.setdefault("data", {})["seen"] = "yes"

    @kopf.on.update("configmaps", field="data", registry=registry)
    async def update(**_: Any) -> None:
        calls.append("update")

    def configure(settings: Any) -> None:
        settings.persistence.consistency_timeout = 60.0

    async with serving() as cluster, feeding(registry, cluster, configure=configure):
        cluster.create(config("new"))
        await until(lambda: "update" in calls)
        assert calls == ["create", "update"]


# ---- Namespaces.


async def test_9_watchers_of_namespaces_get_the_events_of_their_own(
    registry: kopf.OperatorRegistry, events: Events
) -> None:
    def of(namespace: str, name: str) -> dict[str, Any]:
        obj = config(name)
        return obj | {"metadata": obj["metadata"] | {"namespace": namespace}}

    async with serving(config("a")) as cluster:
        cluster.namespace("bar")
        cluster.namespace("other")
        cluster.create(of("bar", "b"), of("other", "c"))
        options: dict[str, Any] = {"clusterwide": False, "namespaces": ["shop", "bar"]}
        async with feeding(registry, cluster, **options):
            await until(lambda: len(events) == 2)
            cluster.create(of("bar", "d"), of("other", "e"), config("f"))
            await until(lambda: len(events) == 4)
            assert sorted(events, key=str) == [("ADDED", "d"), ("ADDED", "f"), (None, "a"), (None, "b")]
            assert sorted(lists_of(cluster, "configmaps")) == ["list", "list", "watch", "watch"]


async def test_6_kopfs_own_watch_of_namespaces_is_not_fed(
    registry: kopf.OperatorRegistry, events: Events
) -> None:
    filters = {"v1/configmaps": "", "v1/namespaces": "team=shop"}
    options: dict[str, Any] = {"clusterwide": False, "namespaces": ["s*"]}

    def configure(settings: Any) -> None:
        settings.selectcache.selectors["v1/configmaps"] = selectcache.Selector(namespaces=["shop", "spa"])

    async with (
        serving() as cluster,
        feeding(registry, cluster, filters=filters, configure=configure, **options),
    ):
        await until(lambda: lists_of(cluster, "configmaps"))
        cluster.create(config("a"))
        await until(lambda: events.of("a"))
        # Kopf lists namespaces before it watches them, and hears of none that comes in between.
        await until(lambda: any(is_kopfs_watch_of_namespaces(each) for each in cluster.requests))
        cluster.namespace("spa")  # Without the label of the cache.
        obj = config("b")
        cluster.create(obj | {"metadata": obj["metadata"] | {"namespace": "spa"}})
        await until(lambda: events.of("b"))


# ---- Objects that leave the filter.


@pytest.fixture
def web_events(registry: kopf.OperatorRegistry) -> Events:
    events = Events()
    events.handle(registry, labels={"app": "web"})
    return events


async def test_6_an_object_that_loses_its_label_is_modified_for_kopf_and_then_forgotten(
    registry: kopf.OperatorRegistry, web_events: Events
) -> None:
    @kopf.index("configmaps", id="names", labels={"app": "web"}, registry=registry)
    def names(name: str, **_: Any) -> dict[str, str]:
        return {name: name}

    found: list[list[str]] = []

    @kopf.on.event("webapps", registry=registry)
    def look(**kwargs: Any) -> None:
        found.append(sorted(kwargs["names"]))

    async with serving(web("a"), web("b")) as cluster, feeding(registry, cluster, filters=WEB) as settings:
        await web_events.see((None, "a"), (None, "b"))
        parts = _kopf.parts_of(settings)
        assert parts is not None
        known = parts.memos._memories._items
        assert len(known) == 2
        cluster.patch(web("a"), {"metadata": {"labels": {"app": "db"}}})
        await until(lambda: len(known) == 1)
        cluster.create(app())
        await until(lambda: found)
        assert found == [["b"]]
        assert web_events == [], "it was not deleted"
        cluster.delete(web("b"))
        await web_events.see(("DELETED", "b"))
        await until(lambda: len(known) == 1)  # That of the other kind.
        cluster.patch(web("a"), {"metadata": {"labels": {"app": "web"}}})
        await web_events.see(("ADDED", "a"))


async def test_6_an_object_that_returns_before_the_answer_has_changed_only(
    registry: kopf.OperatorRegistry, web_events: Events
) -> None:
    async with serving(web("a")) as cluster, feeding(registry, cluster, filters=WEB):
        await web_events.see((None, "a"))
        refusing = cluster.faults.add(Refuse(500), verb="list", resource="configmaps")
        cluster.patch(web("a"), {"metadata": {"labels": {"app": "db"}}})
        cluster.patch(web("a"), {"metadata": {"labels": {"app": "web"}}})
        await web_events.see(("MODIFIED", "a"))
        refusing.release()
        cluster.delete(web("a"))
        await until(lambda: web_events)
        assert web_events == [("DELETED", "a")]


async def test_6_an_object_that_was_there_at_the_start_is_resumed_once_when_it_gets_the_label(
    registry: kopf.OperatorRegistry,
) -> None:
    resumed: list[str] = []

    @kopf.on.update("configmaps", labels={"app": "web"}, registry=registry)
    async def handle(**_: Any) -> None: ...

    @kopf.on.resume("configmaps", labels={"app": "web"}, registry=registry)
    async def resume(name: str, **_: Any) -> None:
        resumed.append(name)

    def known_to_kopf(obj: dict[str, Any]) -> dict[str, Any]:
        obj["metadata"]["annotations"] = {HANDLED: "{}"}
        return obj

    age = timedelta(hours=1)
    objects = known_to_kopf(web("a")), known_to_kopf(config("b"))
    async with serving(*objects, now=lambda: datetime.now(UTC) - age) as cluster:
        age = timedelta()

        async def labelled(name: str, number: str) -> None:
            """Give an object the label, and wait until Kopf has handled it."""
            cluster.patch(config(name), {"metadata": {"labels": {"app": "web"}}, "data": {"number": number}})
            await until(lambda: f'"number":"{number}"' in handled(cluster, name))

        async with feeding(registry, cluster, filters=WEB) as settings:
            await until(lambda: resumed)
            assert resumed == ["a"]
            await labelled("b", "1")
            assert resumed == ["a", "b"]
            parts = _kopf.parts_of(settings)
            assert parts is not None
            known = parts.memos._memories._items
            cluster.patch(config("b"), {"metadata": {"labels": None}})
            await until(lambda: len(known) == 1)
            await labelled("b", "2")
            cluster.create(known_to_kopf(config("c")))
            await labelled("c", "3")
            assert resumed == ["a", "b"]


async def test_9_an_object_that_moves_between_alternatives_is_modified_once(
    registry: kopf.OperatorRegistry,
) -> None:
    web_events, db_events = Events(), Events()
    web_events.handle(registry, labels={"app": "web"})
    db_events.handle(registry, labels={"app": "db"}, id="db")
    filters = {"v1/configmaps": ["app=web", "app=db"]}
    async with serving(web("a")) as cluster, feeding(registry, cluster, filters=filters):
        await until(lambda: web_events)
        cluster.requests.clear()
        for number in range(5):
            cluster.patch(web("a"), {"metadata": {"labels": {"app": ["db", "web"][number % 2]}}})
        cluster.patch(web("a"), {"data": {"last": "yes"}})
        await until(lambda: db_events.bodies and db_events.bodies[-1].get("data"))
        assert {kind for kind, _ in [*web_events[1:], *db_events]} == {"MODIFIED"}
        names = [each for each in cluster.requests if "metadata.name" in each.query.get("fieldSelector", "")]
        assert names == [], "the other watch has it"


async def test_6_many_departures_are_asked_about_together(
    registry: kopf.OperatorRegistry, web_events: Events
) -> None:
    names = [f"web-{number:02}" for number in range(40)]
    async with serving(*map(web, names)) as cluster, feeding(registry, cluster, filters=WEB) as settings:
        await until(lambda: len(web_events) == len(names))
        web_events.clear()
        refusing = cluster.faults.add(Refuse(500), verb="list", resource="configmaps")
        cluster.delete(*map(web, names[1:]))
        cluster.patch(web(names[0]), {"metadata": {"labels": {"app": "db"}}})
        await until(lambda: informer_of(settings).state.held() == 0)
        cluster.requests.clear()
        refusing.release()
        await until(lambda: len(web_events) == len(names) - 1)
        assert set(web_events) == {("DELETED", name) for name in names[1:]}
        assert len(lists_of(cluster, "configmaps", ["list"])) < 20


async def test_6_the_last_body_is_freed_if_its_object_returns_before_kopf_takes_it() -> None:
    """Of several events of an object that wait, Kopf takes the last one only."""

    class Body(dict[str, Any]):
        pass

    later: Any = {"metadata": {"uid": "one"}}
    last: Any
    memories, last = _kopf.ResourceMemories(), Body({"metadata": {"uid": "one"}})
    memos, skipped = _kopf.Memos(memories), weakref.ref(last)
    before = await memories.recall(last)
    memos.forget_with(last)
    del last
    memos.begin("one", is_listed=False)
    assert await memories.recall(later) is before
    gc.collect()
    assert skipped() is None
    assert await memories.recall(later) is before


# ---- Pauses.


async def test_15_nothing_happens_during_a_pause_and_afterwards_all_that_was_missed(
    registry: kopf.OperatorRegistry, events: Events
) -> None:
    objects = [config(name) for name in ("stays", "changes", "goes")]
    async with serving(*objects) as cluster, feeding(registry, cluster) as settings:
        await events.see(*((None, name) for name in ("stays", "changes", "goes")))
        parts = _kopf.parts_of(settings)
        assert parts is not None
        toggle = await parts.paused.make_toggle(True, name="another operator")
        cluster.create(config("comes"), config("passes"))
        cluster.patch(config("changes"), {"data": {"a": "1"}})
        cluster.delete(config("goes"), config("passes"))
        cluster.create(config("last"))
        await until(lambda: informer_of(settings).state.store.get("shop", "last")[0])
        assert events == []
        await parts.paused.drop_toggle(toggle)
        await until(lambda: len(events) == 5)
        present = [(None, name) for name in ("changes", "comes", "last", "stays")]
        assert sorted(events, key=str) == [("DELETED", "goes"), *present]
        events.clear()
        cluster.delete(config("last"))
        await until(lambda: events)
        assert events == [("DELETED", "last")]


async def test_6_an_object_that_leaves_the_filter_during_a_pause_is_not_deleted(
    registry: kopf.OperatorRegistry, web_events: Events
) -> None:
    async with serving(web("a"), web("b")) as cluster, feeding(registry, cluster, filters=WEB) as settings:
        await web_events.see((None, "a"), (None, "b"))
        parts = _kopf.parts_of(settings)
        assert parts is not None
        toggle = await parts.paused.make_toggle(True)
        cluster.patch(web("a"), {"metadata": {"labels": {"app": "db"}}})
        await until(lambda: informer_of(settings).state.held() == 1)
        await parts.paused.drop_toggle(toggle)
        await until(lambda: web_events and len(parts.memos._memories._items) == 1)
        assert web_events == [(None, "b")]


async def test_15_a_daemon_comes_back_after_a_pause(registry: kopf.OperatorRegistry) -> None:
    steps: list[str] = []

    @kopf.daemon("configmaps", registry=registry, cancellation_timeout=1.0)
    async def run(stopped: Any, **_: Any) -> None:
        steps.append("begins")
        await stopped.wait()
        steps.append("ends")

    async with serving(config("a")) as cluster, feeding(registry, cluster) as settings:
        await until(lambda: steps == ["begins"])
        parts = _kopf.parts_of(settings)
        assert parts is not None
        toggle = await parts.paused.make_toggle(True)
        await until(lambda: steps == ["begins", "ends"])
        await parts.paused.drop_toggle(toggle)
        await until(lambda: steps == ["begins", "ends", "begins"])
        cluster.delete(config("a"))
        await until(lambda: steps == ["begins", "ends"] * 2)


async def test_15_a_daemon_of_an_object_that_went_during_a_pause_or_a_gap_is_over(
    registry: kopf.OperatorRegistry,
) -> None:
    """Kopf starts daemons for any event of an object that is not being deleted, a DELETED as well."""
    steps: list[str] = []

    @kopf.daemon("configmaps", registry=registry, cancellation_timeout=1.0)
    async def run(stopped: Any, name: str, **_: Any) -> None:
        steps.append(f"{name} begins")
        await stopped.wait()
        steps.append(f"{name} ends")

    def force(name: str) -> None:
        cluster.patch(config(name), {"metadata": {"finalizers": None}})
        cluster.delete(config(name))

    async with serving(config("a"), config("b")) as cluster, feeding(registry, cluster) as settings:
        await until(lambda: sorted(steps) == ["a begins", "b begins"])
        parts = _kopf.parts_of(settings)
        assert parts is not None
        toggle = await parts.paused.make_toggle(True)
        await until(lambda: sorted(steps[2:]) == ["a ends", "b ends"])
        force("a")
        await until(lambda: informer_of(settings).state.held() == 1)
        await parts.paused.drop_toggle(toggle)
        await until(lambda: steps[4:] == ["b begins"])
        cluster.stop_listening()
        force("b")
        cluster.compact()
        cluster.listen_again()
        await until(lambda: steps[4:] == ["b begins", "b ends"])
        assert len(parts.memos._memories._items) == 0


# ---- A slow consumer.


async def heard(settings: kopf.OperatorSettings, cluster: Any) -> None:
    """Wait until the cache is as new as the cluster."""
    await until(lambda: informer_of(settings).state.version == str(cluster.version))


async def test_9_no_version_is_joined_with_another_while_kopf_is_slow(
    registry: kopf.OperatorRegistry,
) -> None:
    async with consuming(registry, config("a")) as (cluster, settings, consumer):
        for number in range(3):
            cluster.patch(config("a"), {"data": {"number": str(number)}})
        cluster.delete(config("a"))
        cluster.create(config("a"))
        await heard(settings, cluster)
        modified = [("MODIFIED", "a")] * 3
        assert await consumer.some(5) == [*modified, ("DELETED", "a"), ("ADDED", "a")]


async def test_15_a_consumer_that_is_too_slow_gets_the_differences(registry: kopf.OperatorRegistry) -> None:
    async with consuming(registry, config("a"), config("b"), most=3) as (cluster, settings, consumer):
        for number in range(5):
            cluster.patch(config("a"), {"data": {"number": str(number)}})
        cluster.delete(config("b"))
        cluster.create(config("c"), config("d"))
        cluster.delete(config("d"))
        await heard(settings, cluster)
        assert await consumer.some(3) == [("MODIFIED", "a"), ("ADDED", "c"), ("DELETED", "b")]
        cluster.delete(config("c"))
        assert await consumer.take() == ("DELETED", "c")


@pytest.mark.parametrize("is_paused", [False, True])
async def test_15_each_present_object_is_listed_once_however_many_changes_come_meanwhile(
    registry: kopf.OperatorRegistry, is_paused: bool
) -> None:
    names = [f"c{number}" for number in range(6)]
    async with serving(*map(config, names)) as cluster, feeding(registry, cluster) as settings:
        await until(lambda: operator_of(settings) is not None)
        consumer = Consumer(settings, most=3)
        async with aclosing(consumer.events):
            if is_paused:
                await consumer.some(7)
                toggle = await consumer.paused.make_toggle(True)
                begins = asyncio.create_task(consumer.take())
                await until(lambda: consumer.fed.knowledge.was_paused)
                await consumer.paused.drop_toggle(toggle)
                seen = [await begins, *await consumer.some(1)]
            else:
                seen = await consumer.some(2)
            for number in range(5):
                cluster.patch(config("c0"), {"data": {"number": str(number)}})
            await heard(settings, cluster)
            while seen[-1] is not _kopf.LISTED:
                seen += await consumer.some(1)
        told = [*((None, name) for name in names), ("MODIFIED", "c0")]  # It had been listed already.
        assert sorted(seen[:-1], key=str) == sorted(told, key=str)


async def test_6_an_answer_does_not_overtake_the_return_of_an_object(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_answered, goes_on = asyncio.Event(), asyncio.Event()
    found = Departures._found

    async def find(departures: Departures, change: Any) -> Any:
        answer = await found(departures, change)
        is_answered.set()
        await goes_on.wait()
        return answer

    monkeypatch.setattr(Departures, "_found", find)
    objects = web("a"), web("b")
    async with serving(*objects) as cluster, feeding(registry, cluster, filters=WEB) as settings:
        await until(lambda: operator_of(settings) is not None)
        consumer = Consumer(settings)
        async with aclosing(consumer.events):
            await consumer.some(3)
            following = asyncio.create_task(consumer.take())
            cluster.patch(web("a"), {"metadata": {"labels": {"app": "db"}}})
            await is_answered.wait()
            cluster.patch(web("b"), {"data": {"a": "1"}})
            assert await following == ("MODIFIED", "b")
            cluster.patch(web("a"), {"metadata": {"labels": {"app": "web"}}})
            await until(lambda: informer_of(settings).state.held() == 2)
            goes_on.set()
            await cycles()  # The answer arrives.
            assert await consumer.take() == ("MODIFIED", "a")
            cluster.delete(web("b"))
            assert await consumer.take() == ("DELETED", "b")
            assert {each.name for each in consumer.fed.knowledge.known.values()} == {"a"}


async def test_15_a_feed_that_begins_while_no_watch_is_open_waits_for_the_missed_changes(
    registry: kopf.OperatorRegistry,
) -> None:
    async with serving(config("a"), config("b")) as cluster, feeding(registry, cluster) as settings:
        await until(lambda: operator_of(settings) is not None and informer_of(settings).state.is_synced)
        informer = informer_of(settings)
        cluster.stop_listening()
        cluster.delete(config("a"))
        cluster.compact()
        await until(lambda: not informer.state.reflectors[0].is_watching)
        consumer = Consumer(settings)
        async with aclosing(consumer.events):
            following = asyncio.create_task(consumer.take())
            await cycles()
            assert not following.done()
            cluster.listen_again()
            assert await following == (None, "b")
            assert await consumer.take() is _kopf.LISTED


async def test_15_after_a_pause_kopfs_own_watch_lists_as_after_any_pause(
    registry: kopf.OperatorRegistry,
) -> None:
    async def own() -> AsyncIterator[Any]:
        for name in ("stays", "comes"):
            metadata = {"name": name, "uid": uids.get(name, name), "resourceVersion": versions.get(name, "1")}
            yield {"type": None, "object": {"metadata": metadata}}
        yield _kopf.LISTED
        await asyncio.Event().wait()

    objects = config("stays"), config("goes")
    async with consuming(registry, *objects, watch=own) as (_, settings, consumer):
        uids = {each.name: uid for uid, each in consumer.fed.knowledge.known.items()}
        versions = {each.name: each.version for each in consumer.fed.knowledge.known.values()}
        await consumer.paused.make_toggle(True)
        await selectcache.cache_of(settings).undeclare("v1/configmaps")
        taken = await consumer.some(4)
    assert taken == [(None, "stays"), (None, "comes"), _kopf.LISTED, ("DELETED", "goes")]


async def test_9_two_operators_of_a_process_are_fed_from_their_own_caches() -> None:
    registries = kopf.OperatorRegistry(), kopf.OperatorRegistry()
    events = Events(), Events()
    for noting, registry in zip(events, registries, strict=True):
        noting.handle(registry)
    async with (
        serving(config("a")) as first,
        serving(config("b")) as second,
        feeding(registries[0], first),
        feeding(registries[1], second),
    ):
        await until(lambda: all(events))
        first.create(config("c"))
        await until(lambda: len(events[0]) == 2)
        assert events == ([(None, "a"), ("ADDED", "c")], [(None, "b")])
        await until(lambda: len(lists_of(second, "configmaps")) > 1)  # Its watch comes when it comes.
        assert [lists_of(each, "configmaps") for each in (first, second)] == [["list", "watch"]] * 2


def test_9_operators_of_two_threads_are_fed() -> None:
    def operate(found: list[Any]) -> None:
        async def main() -> None:
            registry, events = kopf.OperatorRegistry(), Events()
            events.handle(registry)
            async with serving(config("a")) as cluster, feeding(registry, cluster):
                await until(lambda: events)
                cluster.create(config("b"))
                await until(lambda: len(events) == 2)
                found.extend([*events, *lists_of(cluster, "configmaps")])

        run(main())

    found = list[Any](), list[Any]()
    threads = [threading.Thread(target=operate, args=(each,)) for each in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == ([(None, "a"), ("ADDED", "b"), "list", "watch"],) * 2
