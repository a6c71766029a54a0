"""The events of Kopf's own watch, in a replica whose ranges come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import kopf
import pytest

from kopf_selectcache import Sharding, _kopf
from kopf_selectcache.plugin.feed import Feed
from kopf_selectcache.plugin.operator import launch
from kopf_selectcache.settings.options import settings_of
from tests.faults.environment import reached
from tests.kopf_operators import context, cycles, declaring
from tests.plugin.feeding import CONFIGMAPS, OwnWatch

from .processes import configmap
from .test_handlers import operated_by
from .test_kopf_handlers import SPACE, Moved, moved


class Watch(OwnWatch):
    """Kopf's own watch, which a test writes."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        """How often it was opened."""

    async def __call__(self) -> Any:
        self.opened += 1
        while (event := await self.events.get()) is not None:
            if isinstance(event, Exception):
                raise event
            yield event


class Taken:
    """The events that Kopf has taken: their types and names, or `listed`."""

    def __init__(self, replica: Moved, watch: Watch) -> None:
        self.lines: list[Any] = []
        paused = _kopf.ToggleSet(any)
        watcher = _kopf.Watcher(replica.settings, CONFIGMAPS, None, paused, watch)
        self.feed = Feed(watcher, operated_by(replica.settings))

    async def take(self) -> None:
        async with aclosing(self.feed.events()) as events:
            async for event in events:
                if event is _kopf.LISTED:
                    self.lines.append("listed")
                else:
                    self.lines.append((event["type"], event["object"]["metadata"]["name"]))

    async def are(self, *lines: Any) -> bool:
        """Wait for events, and forget them."""
        await reached(lambda: self.lines == [*lines])
        assert self.lines == [*lines]
        self.lines.clear()
        return True


def obj(name: str, version: int = 1, namespace: str = SPACE) -> dict[str, Any]:
    body = configmap(namespace, name, 0)
    body["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": str(version)}
    return body


@asynccontextmanager
async def taking() -> AsyncIterator[tuple[Moved, Watch, Taken, asyncio.Task[None]]]:
    async with moved(kopf.OperatorRegistry(), "no selectors") as replica:
        watch = Watch()
        taken = Taken(replica, watch)
        task = asyncio.create_task(taken.take())
        yield replica, watch, taken, task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_ranges_that_come_together_cost_one_list() -> None:
    async with taking() as (replica, watch, taken, _):
        watch.lists(obj("x"))
        assert await taken.are((None, "x"), "listed")
        await replica.drain()
        watch.say("MODIFIED", obj("x", 2))
        watch.say("DELETED", obj("y", 3))
        watch.say("BOOKMARK", obj("mark", 3))
        assert await taken.are(("BOOKMARK", "mark"))
        for range_ in range(64):
            replica.movable.give(range(range_, range_ + 1))
            replica.shards.start({range_})
        watch.lists(obj("x", 2))
        assert await taken.are((None, "x"), "listed")
        assert watch.opened == 2
        watch.say("MODIFIED", obj("x", 4))
        assert await taken.are(("MODIFIED", "x"))


async def test_a_new_range_is_listed_and_of_the_others_only_changes_arrive() -> None:
    async with taking() as (replica, watch, taken, _):
        spaces = {SPACE, "other"}
        watch.lists(obj("x"), obj("a", 1, "other"), obj("b", 1, "other"), obj("c", 1, "other"))
        assert await taken.are((None, "x"), (None, "a"), (None, "b"), (None, "c"), "listed")
        mine = replica.shards.range_of((SPACE, ""))
        assert {replica.shards.range_of((each, "")) for each in spaces} > {mine}
        replica.movable.give(range(64))
        replica.shards.ownership = replica.movable
        del replica.movable.terms[mine]
        replica.movable.give(range(mine, mine + 1))
        replica.shards.start({mine})
        watch.lists(obj("x"), obj("a", 1, "other"), obj("b", 2, "other"), obj("d", 3, "other"))
        assert await taken.are((None, "x"), ("MODIFIED", "b"), ("ADDED", "d"), "listed", ("DELETED", "c"))


async def test_a_range_that_comes_during_a_list_is_listed_after_it() -> None:
    async with taking() as (replica, watch, taken, _):
        await replica.drain()
        watch.say(None, obj("x"))
        await replica.rest()
        await replica.give()
        await replica.rest()
        watch.lists(obj("y"))
        assert await taken.are((None, "y"), "listed")
        watch.lists(obj("x"), obj("y"))
        assert await taken.are((None, "x"), "listed")
        assert watch.opened == 2


async def test_a_range_that_goes_during_a_list_is_not_taken_for_deleted() -> None:
    async with taking() as (replica, watch, taken, _):
        watch.lists(obj("x"))
        assert await taken.are((None, "x"), "listed")
        await replica.give()  # It lists again.
        assert await reached(lambda: watch.opened == 2)
        watch.lists(obj("x"))
        assert await taken.are((None, "x"), "listed")
        other = replica.shards.range_of(("other", ""))
        replica.shards.start({other})
        assert await reached(lambda: watch.opened == 3)
        replica.take()
        watch.lists()
        assert await taken.are("listed")


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_events_that_wait_for_kopf_when_their_range_goes_are_dropped(*, is_deleted: bool) -> None:
    async with moved(kopf.OperatorRegistry(), "fed", "x") as replica:
        taken = Taken(replica, Watch())
        async with aclosing(taken.feed.events()) as events:
            assert (await anext(events))["object"]["metadata"]["name"] == "x"
            assert await anext(events) is _kopf.LISTED
            mine = replica.shards.range_of((SPACE, ""))
            replica.movable.give(range(64))
            if is_deleted:
                replica.cluster.delete(configmap(SPACE, "x", 0))
            else:
                replica.cluster.patch(configmap(SPACE, "x", 0), {"data": {"number": "1"}})
            replica.cluster.create(configmap("other", "y", 0))
            assert await reached(lambda: "y" in replica.names())
            await replica.rest()
            del replica.movable.terms[mine]
            replica.shards.ownership = replica.movable
            assert (await anext(events))["object"]["metadata"]["name"] == "y"
            replica.shards.start({replica.shards.range_of(("other", ""))})  # It looks at all objects.
            again = await anext(events)
            assert (again["type"], again["object"]["metadata"]["name"]) == (None, "y")
            replica.cluster.create(configmap("other", "z", 0))
            assert (await anext(events))["object"]["metadata"]["name"] == "z"


async def test_an_event_that_comes_with_a_range_is_left_to_the_list() -> None:
    async with taking() as (replica, watch, taken, _):
        watch.lists(obj("x"))
        assert await taken.are((None, "x"), "listed")
        await replica.rest()
        watch.say("MODIFIED", obj("x", 2))
        replica.movable.give(range(64))
        replica.shards.ownership = replica.movable
        replica.shards.start(range(64))
        watch.lists(obj("x", 3))
        assert await taken.are((None, "x"), "listed")


async def test_kopf_takes_objects_that_lack_required_fields() -> None:
    async with taking() as (_, watch, taken, _task):
        watch.lists(obj("x"))
        assert await taken.are((None, "x"), "listed")
        watch.say("MODIFIED", {"metadata": {"name": "broken"}})
        assert await taken.are(("MODIFIED", "broken"))
        assert taken.feed.knowledge.known


@pytest.mark.parametrize("end", [None, TimeoutError("of Kopf")])
async def test_an_end_of_kopfs_own_watch_is_the_end_of_the_events(end: Exception | None) -> None:
    async with taking() as (_, watch, taken, task):
        watch.lists(obj("x"))
        assert await taken.are((None, "x"), "listed")
        watch.events.put_nowait(end)
        assert await reached(task.done)
        assert task.exception() is end


async def test_without_caches_other_replicas_are_unknown_and_kopf_gets_no_events() -> None:
    def broken(*_: object, **__: object) -> Any:
        raise ZeroDivisionError

    settings = declaring()
    settings_of(settings).sharding = Sharding(static=(0, 2))
    with context(settings):
        operator, watch = launch(settings, make_runtime=broken), Watch()
        watcher = _kopf.Watcher(settings, CONFIGMAPS, None, _kopf.ToggleSet(any), watch)
        events = Feed(watcher, operator).events()
        taking = asyncio.create_task(anext(events))
        await cycles()
        assert not taking.done()
        assert watch.opened == 0
        for task in (taking, operator.task):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_objects_that_are_listed_when_their_range_goes_are_not_delivered() -> None:
    async with moved(kopf.OperatorRegistry(), "fed", "x", "y") as replica:
        taken = Taken(replica, Watch())
        async with aclosing(taken.feed.events()) as events:
            assert (await anext(events))["type"] is None
            replica.shards.ownership = replica.movable
            assert await anext(events) is _kopf.LISTED
