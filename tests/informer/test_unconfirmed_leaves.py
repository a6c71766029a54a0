"""Two watches keep one cache, and one of them is quiet: leaves that the other tells become visible soon, and
`gone` does not believe them before."""

from __future__ import annotations

from kopf_selectcache import Selector
from kopf_selectcache.testing.faults import Silence
from tests.faults.environment import until
from tests.secrets import Environment, caching, labelled, named, secret

EITHER = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["shop"])]


async def deleting_200(environment: Environment, names: list[str]) -> None:
    """Delete these objects, and let no question be answered before their leaves are all known."""
    held = environment.cluster.faults.add(Silence(), verb="list", resource="secrets")
    before = len(environment.cluster.requests)
    environment.cluster.delete(*map(secret, names))
    await until(
        lambda: (
            len(environment.informer.state.union.unconfirmed) == len(names)
            and len(environment.cluster.requests) > before
        )
    )
    held.release()


async def test_200_deletions_are_shown_after_a_handful_of_requests_though_the_other_stream_is_quiet() -> None:
    names = [f"s-{number:03}" for number in range(200)]
    async with caching(
        EITHER, *(secret(name, app="web") for name in names), secret("gold", tier="gold"), silent="tier"
    ) as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
        before = len(environment.cluster.requests)
        await deleting_200(environment, names)
        await until(lambda: named(environment.cache.list_cached("secrets")) == ["gold"])
        lists = [asked for asked in list(environment.cluster.requests)[before:] if asked.verb == "list"]
        # The first list may have begun before the last leave was known.
        assert 1 <= len(lists) <= 3
        assert {asked.query["resourceVersionMatch"] for asked in lists} == {"Exact"}
        assert {asked.query["labelSelector"] for asked in lists} == {"tier=gold"}
        assert named(environment.cache.list("secrets", namespace="shop", labels="tier=gold")) == ["gold"]


async def test_while_a_leave_is_unconfirmed_gone_asks_the_server() -> None:
    async with caching(
        EITHER, secret("a", app="web"), secret("b", app="web"), secret("c", app="web"), silent="tier"
    ) as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
        uids = {
            each["metadata"]["name"]: each["metadata"]["uid"]
            for each in environment.cache.list_cached("secrets")
        }
        environment.cluster.faults.add(Silence(), verb="list", resource="secrets")
        environment.cluster.delete(secret("a"))
        environment.cluster.patch(secret("b"), labelled(app=None))
        await until(lambda: len(environment.informer.state.union.unconfirmed) == 2)
        before = len(environment.cluster.requests)
        assert named(environment.cache.list_cached("secrets")) == ["a", "b", "c"], (
            "they are shown until it is known what became of them"
        )
        assert {
            name: await environment.cache.is_deleted("secrets", name, namespace="shop", uid=uid)
            for name, uid in uids.items()
        } == {"a": True, "b": False, "c": False}
        assert {
            name: await environment.cache.is_deleted("secrets", name, namespace="shop") for name in uids
        } == {"a": True, "b": False, "c": False}
        got = [asked.name for asked in list(environment.cluster.requests)[before:] if asked.verb == "get"]
        assert got == ["a", "b", "a", "b"], "what is held for certain is not asked for"


async def test_gone_asks_while_another_stream_holds_an_object_that_one_has_dropped() -> None:
    """The object was in both selectors, and the second stream has not heard of its deletion."""
    async with caching(EITHER, secret("a", app="web", tier="gold"), silent="tier") as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
        uid = environment.cache.get("secrets", "a", namespace="shop")["metadata"]["uid"]
        assert not await environment.cache.is_deleted("secrets", "a", namespace="shop", uid=uid)
        environment.cluster.delete(secret("a"))
        await until(lambda: not environment.informer.state.reflectors[0].writer.held())
        assert named(environment.cache.list_cached("secrets")) == ["a"]
        assert await environment.cache.is_deleted("secrets", "a", namespace="shop", uid=uid)
