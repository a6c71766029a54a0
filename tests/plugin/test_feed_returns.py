"""Kopf's own watch gives a kind back to its cache once the reason for the second watch is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import _kopf
from kopf_selectcache.plugin.knowledge import Departures
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.api.request import Request
from kopf_selectcache.testing.faults import Fault, Inserted, Refuse
from tests.kopf_operators import cycles
from tests.plugin.feeding import (
    Events,
    OwnWatch,
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

KEY = "v1/configmaps"


@pytest.fixture
def events(registry: kopf.OperatorRegistry) -> Events:
    events = Events()
    events.handle(registry)
    return events


def nudging(cluster: EmbeddedCluster, condition: Callable[[], object]) -> Callable[[], object]:
    """Return a condition that sends bookmarks while it is not met: Kopf's own watch looks at the cache with
    each of its events.
    """

    def is_met() -> bool:
        cluster.bookmark()
        return bool(condition())

    return is_met


async def test_6_a_filter_that_becomes_wide_again_feeds_handlers_again_and_repeats_and_loses_nothing(
    registry: kopf.OperatorRegistry, events: Events
) -> None:
    objects = [labelled("stays", "web"), labelled("other", "db"), labelled("goes", "db")]
    async with serving(*objects) as cluster, feeding(registry, cluster) as settings:
        await events.see((None, "stays"), (None, "other"), (None, "goes"))
        cache = selectcache.cache_of(settings)
        await cache.declare(KEY, "app=web", replace=True)
        cluster.patch(config("other"), {"data": {"a": "1"}})
        await events.see(("MODIFIED", "other"))
        assert not is_fed(settings)
        await cache.declare(KEY, "", replace=True)
        await until(nudging(cluster, lambda: is_fed(settings)))
        cluster.requests.clear()
        cluster.patch(config("other"), {"data": {"a": "2"}})
        cluster.delete(config("goes"))
        cluster.create(config("comes"))
        await until(lambda: len(events) == 3)
        assert sorted(events) == [("ADDED", "comes"), ("DELETED", "goes"), ("MODIFIED", "other")]
        assert lists_of(cluster, "configmaps", ["list"]) == []
        assert operator_of(settings).decisions.shown(KEY) == "fed from the cache"  # type: ignore[union-attr]  # It runs.


@pytest.mark.parametrize("is_there_at_the_start", [True, False])
async def test_8_handlers_are_fed_again_once_no_object_is_unreadable(
    registry: kopf.OperatorRegistry, events: Events, is_there_at_the_start: bool
) -> None:
    kopf.on.delete("configmaps", id="bye", registry=registry)(lambda **_: None)
    damage = Damaged(names=frozenset({"a"}))
    async with serving(config("a"), config("b")) as cluster:
        damaged = cluster.faults.add(damage if is_there_at_the_start else Fault())
        async with feeding(registry, cluster) as settings:
            await until(lambda: events.of("a") and events.of("b"))
            if not is_there_at_the_start:
                await until(lambda: is_fed(settings))
                damaged = cluster.faults.add(damage)
                cluster.stop_listening()
                cluster.listen_again()
            cluster.patch(config("a"), {"data": {"a": "1"}})
            await until(lambda: informer_of(settings).state.store.unreadable and not is_fed(settings))
            await until(lambda: any((body.get("data") or {}).get("a") == "1" for body in events.bodies))
            damaged.release()
            cluster.patch(config("a"), {"data": {"a": "2"}})
            await until(nudging(cluster, lambda: is_fed(settings)))
            cluster.patch(config("b"), {"data": {"a": "3"}})
            await until(lambda: any((body.get("data") or {}).get("a") == "3" for body in events.bodies))
            seen = [(each["metadata"]["name"], each["metadata"]["resourceVersion"]) for each in events.bodies]
            assert len(set(seen)) == len(seen), "nothing is repeated"
            assert "DELETED" not in {kind for kind, _ in events}


async def test_8_handlers_are_fed_again_once_the_cache_is_small_enough(
    registry: kopf.OperatorRegistry, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kopf_selectcache.informer.swap.RETRY_EVICTED_SECONDS", 0.1)
    filters = {KEY: selectcache.Cached("", max_bytes=65_536)}
    async with serving(config("a")) as cluster, feeding(registry, cluster, filters=filters) as settings:
        await until(lambda: events)
        cluster.create({**config("large"), "data": {"a": "x" * 100_000}})
        await until(lambda: events.of("large") and not is_fed(settings))
        cluster.delete(config("large"))
        await until(lambda: events.of("large") == ["ADDED", "DELETED"])
        await until(nudging(cluster, lambda: is_fed(settings)))
        cluster.patch(config("a"), {"data": {"a": "1"}})
        await until(lambda: events.of("a")[1:])
        assert events.of("a") == [None, "MODIFIED"]


class Damaged(Inserted):
    """Objects that only the caches cannot read: Kopf's own watch would end the operator."""

    def concerns(self, request: Request) -> bool:
        return request.headers.get("user-agent") == "kopf-selectcache"


async def test_4_kopfs_own_watch_goes_on_until_the_cache_is_as_new(registry: kopf.OperatorRegistry) -> None:
    Events().handle(registry)  # Without handlers, every filter would do.
    own = OwnWatch()
    async with consuming(registry, config("a"), config("b"), watch=own) as (cluster, settings, consumer):
        cache, informer = selectcache.cache_of(settings), informer_of(settings)
        await cache.declare(KEY, "app=web", replace=True)
        own.lists(cluster.get(config("a")), cluster.get(config("b")))
        assert await consumer.take() is _kopf.LISTED
        newer = cluster.get(config("a"))
        newer["metadata"]["resourceVersion"] = str(cluster.version + 1)  # It gets ahead of the cache.
        own.say("MODIFIED", newer)
        assert await consumer.take() == ("MODIFIED", "a")
        following = asyncio.create_task(consumer.take())
        await cycles()  # It waits for an event, and looks at the cache then.
        await cache.declare(KEY, "", replace=True)
        await until(lambda: informer.is_current and informer.state.version == str(cluster.version))
        own.say("BOOKMARK", config("the bookmark"))
        assert await following == ("BOOKMARK", "the bookmark"), "it goes on"
        following = asyncio.create_task(consumer.take())
        await cycles()
        cluster.patch(config("a"), {"data": {"a": "1"}})  # With this version.
        cluster.create(config("c"))
        cluster.delete(config("b"))
        await until(lambda: informer.state.version == str(cluster.version))
        own.say("ADDED", cluster.get(config("c")))
        assert await following == ("ADDED", "c")
        assert await consumer.take() == ("DELETED", "b"), "Kopf's own watch has missed it"
        cluster.delete(config("c"))
        assert await consumer.take() == ("DELETED", "c")


async def test_4_the_cache_need_not_be_as_new_as_an_event_that_it_brings_itself(
    registry: kopf.OperatorRegistry,
) -> None:
    """Of a busy kind, Kopf's own watch is ahead of a small filter with nearly each of its events."""
    Events().handle(registry)
    own = OwnWatch()
    async with consuming(registry, config("a"), watch=own) as (cluster, settings, consumer):
        cache, informer = selectcache.cache_of(settings), informer_of(settings)
        await cache.declare(KEY, "app=web", replace=True)
        own.lists(cluster.get(config("a")))
        assert await consumer.take() is _kopf.LISTED
        following = asyncio.create_task(consumer.take())
        await cycles()
        await cache.declare(KEY, "", replace=True)
        await until(lambda: informer.is_current and informer.state.version == str(cluster.version))
        newer = cluster.get(config("a"))
        newer["metadata"]["resourceVersion"] = str(cluster.version + 1)
        own.say("MODIFIED", newer)
        await cycles()
        assert not following.done(), "the cache has not brought it yet"
        cluster.patch(config("a"), {"data": {"a": "1"}})  # With this version.
        assert await following == ("MODIFIED", "a")
        cluster.create(config("b"))
        assert await consumer.take() == ("ADDED", "b"), "nothing is repeated"


async def test_6_an_object_of_kopfs_own_watch_outside_the_filter_is_forgotten_unasked(
    registry: kopf.OperatorRegistry,
) -> None:
    events = Events()
    events.handle(registry, labels={"app": "web"})
    filters = {KEY: "app=web"}
    objects = [labelled("a", "web"), labelled("b", "db")]
    async with serving(*objects) as cluster, feeding(registry, cluster, filters=filters) as settings:
        await events.see((None, "a"))
        parts = _kopf.parts_of(settings)
        assert parts is not None
        known = parts.memos._memories._items
        cache = selectcache.cache_of(settings)
        await cache.declare(KEY, "app=web,tier=x", replace=True)
        await until(lambda: len(known) == 2)
        await cache.declare(KEY, "app=web", replace=True)
        await until(nudging(cluster, lambda: is_fed(settings) and len(known) == 1))
        names = [each for each in cluster.requests if "metadata.name" in each.query.get("fieldSelector", "")]
        assert names == []
        cluster.patch(config("b"), {"metadata": {"labels": {"app": "web"}}})
        await events.see(("ADDED", "b"))


async def test_15_a_list_of_kopfs_own_watch_after_a_pause_is_passed_on_to_its_end(
    registry: kopf.OperatorRegistry,
) -> None:
    """Kopf has stopped all daemons, and starts them again with the events of the list."""
    Events().handle(registry)
    own = OwnWatch()
    async with consuming(registry, config("a"), config("b"), watch=own) as (cluster, settings, consumer):
        cache, informer = selectcache.cache_of(settings), informer_of(settings)
        await cache.declare(KEY, "app=web", replace=True)
        objects = cluster.get(config("a")), cluster.get(config("b"))
        own.lists(*objects)
        assert await consumer.take() is _kopf.LISTED
        following = asyncio.create_task(consumer.take())
        await cycles()
        await cache.declare(KEY, "", replace=True)
        await until(lambda: informer.is_current and informer.state.version == str(cluster.version))
        toggle = await consumer.paused.make_toggle(True)
        await cycles()
        await consumer.paused.drop_toggle(toggle)
        await cycles()
        own.lists(*objects)
        assert [await following, *await consumer.some(2)] == [(None, "a"), (None, "b"), _kopf.LISTED]
        cluster.create(config("c"))
        assert await consumer.take() == ("ADDED", "c"), "it is fed"


async def test_15_a_pause_before_the_first_list_of_kopfs_own_watch_is_not_forgotten(
    registry: kopf.OperatorRegistry,
) -> None:
    Events().handle(registry)
    own = OwnWatch()
    async with consuming(registry, config("a"), watch=own) as (cluster, settings, consumer):
        await selectcache.cache_of(settings).declare(KEY, "app=web", replace=True)
        following = asyncio.create_task(consumer.take())
        await cycles()
        toggle = await consumer.paused.make_toggle(True)
        await cycles()
        await consumer.paused.drop_toggle(toggle)
        await cycles()
        own.lists(cluster.get(config("a")))
        assert await following == (None, "a")


async def test_4_an_object_that_kopfs_own_list_lacks_does_not_come_back(
    registry: kopf.OperatorRegistry,
) -> None:
    Events().handle(registry)
    own = OwnWatch()
    async with consuming(registry, config("a"), config("b"), watch=own) as (cluster, settings, consumer):
        cache, informer = selectcache.cache_of(settings), informer_of(settings)
        await cache.declare(KEY, "app=web", replace=True)
        following = asyncio.create_task(consumer.take())
        await cycles()
        await cache.declare(KEY, "", replace=True)
        await until(lambda: informer.is_current and informer.state.version == str(cluster.version))
        own.lists(cluster.get(config("a")))  # It is newer than the cache, which still has the other.
        assert [await following, await consumer.take()] == [_kopf.LISTED, ("DELETED", "b")]
        own.say("BOOKMARK", config("the bookmark"))
        assert await consumer.take() == ("BOOKMARK", "the bookmark")
        following = asyncio.create_task(consumer.take())
        await cycles()
        cluster.delete(config("b"))
        await until(lambda: informer.state.held() == 1)
        own.say("BOOKMARK", config("the bookmark"))
        assert await following == ("BOOKMARK", "the bookmark")
        cluster.create(config("c"))
        assert await consumer.take() == ("ADDED", "c"), "it is fed"


@pytest.mark.parametrize("is_known", [True, False])
async def test_15_a_deletion_before_the_end_of_an_initial_stream_is_one(
    registry: kopf.OperatorRegistry, is_known: bool
) -> None:
    Events().handle(registry)
    own = OwnWatch()
    async with consuming(registry, config("a"), watch=own) as (cluster, settings, consumer):
        await selectcache.cache_of(settings).declare(KEY, "app=web", replace=True)
        cluster.create(config("x"))
        name = "a" if is_known else "x"
        own.say("DELETED", cluster.get(config(name)))
        assert await consumer.take() == ("DELETED", name)


@pytest.mark.parametrize("lacks", ["resourceVersion", "uid"])
async def test_8_an_object_without_a_required_field_is_passed_on_from_kopfs_own_watch(
    registry: kopf.OperatorRegistry, lacks: str
) -> None:
    Events().handle(registry)
    own = OwnWatch()
    async with consuming(registry, config("a"), watch=own) as (cluster, settings, consumer):
        await selectcache.cache_of(settings).declare(KEY, "app=web", replace=True)
        obj = cluster.get(config("a"))
        own.lists(obj)
        assert await consumer.take() is _kopf.LISTED
        del obj["metadata"][lacks]
        own.say("MODIFIED", obj)
        assert await consumer.take() == ("MODIFIED", "a")


async def test_6_a_departure_about_which_the_server_does_not_answer_is_asked_about_again(
    registry: kopf.OperatorRegistry,
) -> None:
    events = Events()
    events.handle(registry, labels={"app": "web"})
    async with serving(labelled("a", "web")) as cluster, feeding(registry, cluster, filters={KEY: "app=web"}):
        await events.see((None, "a"))
        refusing = cluster.faults.add(Refuse(500), verb="list", resource="configmaps")
        cluster.requests.clear()
        cluster.delete(config("a"))
        await until(lambda: lists_of(cluster, "configmaps", ["list"]))
        refusing.release()
        await events.see(("DELETED", "a"))


async def test_6_an_answer_that_shows_the_label_again_is_no_departure(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watch is yet to bring its return, and the server is asked again until then."""
    events, answers = Events(), list[Any]()
    events.handle(registry, labels={"app": "web"})
    found, goes_on = Departures._found, asyncio.Event()

    async def find(departures: Departures, change: Any) -> Any:
        if not answers:
            await goes_on.wait()
        answer = await found(departures, change)
        answers.append(answer)
        return answer

    monkeypatch.setattr(Departures, "_found", find)
    monkeypatch.setattr("kopf_selectcache.plugin.knowledge.ASK_AGAIN_SECONDS", 0.01)
    async with (
        serving(labelled("a", "web")) as cluster,
        feeding(registry, cluster, filters={KEY: "app=web"}) as settings,
    ):
        await events.see((None, "a"))
        cluster.patch(labelled("a", "web"), {"metadata": {"labels": {"app": "db"}}})
        await until(lambda: informer_of(settings).state.held() == 0)
        (reflector,) = informer_of(settings).state.reflectors
        reflector.hold()
        cluster.patch(labelled("a", "web"), {"metadata": {"labels": {"app": "web"}}})
        goes_on.set()
        await until(lambda: len(answers) >= 2)
        assert events == []
        reflector.release()
        await until(lambda: events)
        assert events == [("MODIFIED", "a")]
