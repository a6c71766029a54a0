"""What the server is asked about objects that one watch has let go. When it must be asked is in test_branches.py."""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec

from kopf_selectcache import Selector
from kopf_selectcache import world as kept
from kopf_selectcache.confirming import Confirming
from kopf_selectcache.core.branches import Keys
from kopf_selectcache.core.merging import Merging
from kopf_selectcache.core.record import Record
from kopf_selectcache.core.resources import Resource
from kopf_selectcache.core.wire import Refusal
from kopf_selectcache.planning import Stream
from kopf_selectcache.testing.faults import OldVersionOnDelete, Refuse
from kopf_selectcache.testing.requests import Asked
from kopf_selectcache.transport import Refused
from tests.secrets import World, caching, labelled, named, secret
from tests.test_cache.world import builtin
from tests.test_faults.world import Time, run, until

EITHER = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["shop"])]


@asynccontextmanager
async def with_a_silent_watch() -> AsyncIterator[World]:
    """Hold `a` and `b` by one watch, and let the other never say that it has not got them."""
    async with caching(EITHER, secret("a", app="web"), secret("b", app="web"), silent="tier") as world:
        await world.cache.wait_synced()
        await until(lambda: world.feed.synced and len(world.watches()) == 2)
        yield world


def reads(world: World) -> list[Asked]:
    return [asked for asked in world.cluster.requests if asked.query.get("fieldSelector") == "metadata.name=a"]


def test_a_read_that_fails_is_made_again() -> None:
    async def main() -> None:
        async with with_a_silent_watch() as world:
            refused = world.cluster.faults.add(
                Refuse(500), verb="list", resource="secrets", where=lambda asked: "fieldSelector" in asked.query, times=2)
            world.cluster.delete(secret("a"))
            await until(lambda: named(world.cache.held("secrets")) == ["b"])
            assert (len(refused.hits), len(reads(world))) == (2, 3)
    run(main())


def test_a_deletion_at_a_version_not_told_is_confirmed_by_the_newest_list_that_there_is() -> None:
    """No version is known that an answer would have to have reached."""
    async def main() -> None:
        async with with_a_silent_watch() as world:
            world.cluster.faults.add(OldVersionOnDelete(), verb="watch", resource="secrets")
            world.cluster.cut("watch", "secrets")
            await until(lambda: len(world.watches()) >= 3)
            world.cluster.delete(secret("a"))
            await until(lambda: named(world.cache.held("secrets")) == ["b"])
            read, = reads(world)
            assert not {"resourceVersion", "resourceVersionMatch"} & read.query.keys()
    run(main())


def test_a_name_that_looks_like_a_selector_is_asked_about_as_a_name() -> None:
    name = "a,metadata.namespace!=shop"

    def role(**labels: str) -> dict[str, Any]:
        return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name, "namespace": "shop", "labels": labels}}

    async def main() -> None:
        async with caching(EITHER, role(app="web"), resource="roles", silent="tier") as world:
            await world.cache.wait_synced()
            world.cluster.patch(role(), labelled(app=None, tier="gold"))
            seen = set()
            world.feed.subscribe(lambda _: seen.add(world.feed.held()))
            await until(lambda: any("fieldSelector" in asked.query for asked in world.cluster.requests if asked.code))
            for _ in range(5):   # The answer may have been taken in.
                await asyncio.sleep(0)
            assert 0 not in seen | {world.feed.held()}
            world.cluster.faults.clear()
            world.feed.resume()
            await until(lambda: named(world.cache.list("roles", namespace="shop", label="tier=gold")) == [name])
            assert 0 not in seen
    run(main())


class Question(NamedTuple):
    query: Mapping[str, str]
    at: float


class Doubting:
    """Two watches that no longer hold any of these objects, of which one may be about to; and a server that answers as told."""

    def __init__(self, *names: str, answer: Callable[[Mapping[str, str]], object]) -> None:
        self.merging = Merging([Keys("shop"), Keys("shop")])
        for branch in self.merging.branches:
            branch.begin()
        for name in names:
            self.merging.branches[0].put(self.record(name, 10))
        for branch in self.merging.branches:
            branch.commit("10")
        for number, name in enumerate(names):
            self.merging.branches[0].leave(self.record(name, 20 + number))
        self.time, self.asked = Time(), list[Question]()

        class Transport:
            @staticmethod
            async def get(_: str, query: Mapping[str, str], *, accept: str) -> bytes:
                assert "PartialObjectMetadataList" in accept
                self.asked.append(Question(query, self.time.now))
                return msgspec.json.encode(answer(query))

        world = SimpleNamespace(transport=Transport, clock=self.time.clock, sleep=self.time.sleep, chance=lambda: 1.0)
        streams = [Stream(Selector(label, namespaces=["shop"])) for label in ("app=web", "tier=gold")]
        self.confirming = Confirming(
            self.merging, streams, Resource(builtin("secrets"), "v1"), world=cast("kept.World", world), notify=lambda _: None)

    @staticmethod
    def record(name: str, version: int) -> Record:
        return Record("shop", name, f"uid-{name}", str(version), {"app": "web"}, (), b"{}")

    async def until(self, condition: Callable[[], object]) -> None:
        task = asyncio.create_task(self.confirming.run())
        await until(condition)
        task.cancel()


def page(*items: object, token: str = "") -> object:
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "50", "continue": token}, "items": items}


def test_an_empty_page_that_is_not_the_last_says_nothing() -> None:
    """The object is on the second: it is in the other watch's selector by now."""
    there = {"metadata": {"name": "a", "namespace": "shop", "uid": "uid-a", "resourceVersion": "30", "labels": {"tier": "gold"}}}
    doubting = Doubting("a", answer=lambda query: page(there) if "continue" in query else page(token="more"))
    run(doubting.until(lambda: len(doubting.asked) >= 2 or not doubting.merging.doubts))
    assert [record.name for record in doubting.merging.store.records()[0]] == ["a"]
    assert [asked.query.get("continue") for asked in doubting.asked[:2]] == [None, "more"]
    assert "resourceVersion" not in doubting.asked[1].query


def test_a_server_that_refuses_is_left_alone_for_as_long_as_it_says() -> None:
    refusal = Refusal(429, "TooManyRequests", retry_after=60.0)

    def refused(_: object) -> object:
        raise Refused(refusal)

    doubting = Doubting(*(f"s-{number}" for number in range(100)), answer=refused)
    run(doubting.until(lambda: len(doubting.asked) >= 5))
    assert all(later.at - earlier.at >= 60.0 for earlier, later in pairwise(doubting.asked))
    assert len({asked.query["fieldSelector"] for asked in doubting.asked}) == 5, "none keeps the others waiting"


def test_what_the_watches_have_said_meanwhile_is_not_asked_for() -> None:
    def answered(_: object) -> object:
        doubting.merging.branches[1].progress("40")   # All of it is gone.
        return page()

    doubting = Doubting("a", "b", "c", answer=answered)
    run(doubting.until(lambda: not doubting.merging.doubts))
    assert len(doubting.asked) == 1
