"""Several watches that could hold the same objects are listed as of the version of whoever is answered
first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from kopf_selectcache import Selector
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.protocol.messages import Page, Refusal, exactly
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.informer.reach import SharedVersion, shared_versions
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse, Silence
from kopf_selectcache.testing.request_log import Asked
from tests.faults.environment import until
from tests.rows import each_row
from tests.secrets import caching, named, secret

EITHER = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["shop"])]

NEWEST: Mapping[str, str] = {}


class Server:
    """The requests of a stream, and the answers: a page of that version, the newest of which grows; or else
    the planned answer.
    """

    def __init__(self) -> None:
        self.version = 10
        self.asked: list[Mapping[str, str]] = []
        self.instead: list[Exception | Refusal | None] = []
        self.answering = asyncio.Event()
        self.answering.set()

    async def ask(self, as_of: Mapping[str, str]) -> Page | Refusal:
        self.asked.append(as_of)
        await self.answering.wait()
        self.version += 1
        match self.instead.pop(0) if self.instead else None:
            case Exception() as error:
                raise error
            case Refusal() as refusal:
                return refusal
        return Page(as_of.get("resourceVersion") or str(self.version), "", ())


def version_of(answer: Page | Refusal) -> str:
    assert isinstance(answer, Page)
    return answer.version


async def test_whoever_comes_first_asks_for_the_newest_and_the_others_for_the_same() -> None:
    shared_version, server = SharedVersion(), Server()
    server.answering.clear()
    listing = [asyncio.create_task(shared_version.page(server.ask)) for _ in range(3)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert server.asked == [NEWEST], "the others wait for the answer"
    server.answering.set()
    assert [version_of(answer) for answer in await asyncio.gather(*listing)] == ["11", "11", "11"]
    assert server.asked == [NEWEST, exactly("11"), exactly("11")]


@pytest.mark.parametrize("failure", [Refused(Refusal(403)), Refusal(410)])
async def test_where_the_first_is_refused_the_next_is_the_first(failure: Exception | Refusal) -> None:
    shared_version, server = SharedVersion(), Server()
    server.instead = [failure]
    first, second, third = await asyncio.gather(
        *(shared_version.page(server.ask) for _ in range(3)), return_exceptions=True
    )
    assert first is failure
    assert second == third == Page("12", "", ())
    assert server.asked == [NEWEST, NEWEST, exactly("12")]


async def test_where_the_first_is_not_answered_nobody_waits_for_another() -> None:
    shared_version, server = SharedVersion(), Server()
    server.instead = [Unreachable("it took too long")]
    listing = [asyncio.create_task(shared_version.page(server.ask)) for _ in range(3)]
    with pytest.raises(Unreachable):
        await listing[0]
    server.answering.clear()
    for _ in range(10):
        await asyncio.sleep(0)
    assert server.asked == [NEWEST, NEWEST, NEWEST], "both are asked for at once"
    server.answering.set()
    assert {version_of(answer) for answer in await asyncio.gather(*listing[1:])} == {"12", "13"}


async def test_where_the_first_is_given_up_the_next_is_the_first() -> None:
    shared_version, server = SharedVersion(), Server()
    server.answering.clear()
    first, second = (asyncio.create_task(shared_version.page(server.ask)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    server.answering.set()
    assert version_of(await second) == "11"
    assert server.asked == [NEWEST, NEWEST]


@each_row("code", [400, 410, 422, 504])
@each_row("as_answer", [True, False])
async def test_where_the_version_is_refused_the_newest_will_do(code: int, as_answer: bool) -> None:
    shared_version, server = SharedVersion(), Server()
    await shared_version.page(server.ask)
    server.instead = [Refusal(code) if as_answer else Refused(Refusal(code))]
    assert version_of(await shared_version.page(server.ask)) == "13"
    assert version_of(await shared_version.page(server.ask)) == "11"
    assert server.asked == [NEWEST, exactly("11"), NEWEST, exactly("11")]


async def test_where_a_server_before_1_34_has_yet_to_reach_the_version_the_newest_will_do() -> None:
    shared_version, server = SharedVersion(), Server()
    await shared_version.page(server.ask)
    server.instead = [
        Refused(Refusal(500, message="etcdserver: mvcc: required revision is a future revision"))
    ]
    assert version_of(await shared_version.page(server.ask)) == "13"
    assert server.asked == [NEWEST, exactly("11"), NEWEST]


async def test_a_server_that_asks_for_time_is_given_it() -> None:
    shared_version, server = SharedVersion(), Server()
    await shared_version.page(server.ask)
    server.instead = [Refused(Refusal(504, retry_after=7.0))]
    assert await shared_version.page(server.ask) == Refusal(504, retry_after=7.0)
    assert len(server.asked) == 2


@each_row("code", [401, 403, 404, 429, 500, 503])
async def test_a_list_refused_for_another_reason_is_not_asked_for_again(code: int) -> None:
    shared_version, server = SharedVersion(), Server()
    await shared_version.page(server.ask)
    server.instead = [Refused(Refusal(code))]
    assert await shared_version.page(server.ask) == Refusal(code)
    assert server.asked == [NEWEST, exactly("11")]


def test_only_watches_that_could_hold_the_same_share_a_version() -> None:
    shop, anywhere, infra, named = (
        Keys(namespace="shop"),
        Keys(),
        Keys(namespace="infra"),
        Keys(namespace="infra", names=frozenset({"ca"})),
    )
    one, other = shared_versions(Union([shop, infra]))
    assert one is other is None
    one, other, third = shared_versions(Union([shop, infra, named]))
    assert one is None
    assert other is third is not None
    assert len(set(shared_versions(Union([shop, anywhere, infra])))) == 1
    assert shared_versions(Union([anywhere])) == (None,)


# ---- As a cache does it.


def gold(asked: Asked) -> bool:
    """Return True for one of the two that store `EITHER`."""
    return "tier" in asked.query.get("labelSelector", "")


def web(asked: Asked) -> bool:
    return "app" in asked.query.get("labelSelector", "")


def lists_of_gold(cluster: EmbeddedCluster) -> list[tuple[str | None, str | None]]:
    """Return as of which version it was listed, each time."""
    return [
        (each.query.get("resourceVersion"), each.query.get("resourceVersionMatch"))
        for each in cluster.requests
        if each.verb == "list" and gold(each)
    ]


def refusing_gold(cluster: EmbeddedCluster) -> str:
    cluster.faults.add(Refuse(503), verb="list", resource="secrets", where=gold)
    return cluster.token


def silent_about_gold(cluster: EmbeddedCluster) -> str:
    cluster.faults.add(Silence(), verb="list", resource="secrets", where=gold)
    return cluster.token


async def test_each_of_several_watches_is_listed_as_of_one_version_so_that_none_has_to_reach_another() -> (
    None
):
    async with caching(
        EITHER, secret("a", app="web"), secret("b", tier="gold"), who=silent_about_gold
    ) as environment:
        await until(lambda: len(environment.watches()) == 1 and any(map(gold, environment.cluster.requests)))
        environment.cluster.delete(
            secret("a"), secret("b")
        )  # As clusters go on and on: another list would be newer.
        environment.cluster.faults.clear()
        await until(lambda: len(environment.watches()) == 2)
        one, other = (each.query["resourceVersion"] for each in environment.watches())
        assert one == other
        assert lists_of_gold(environment.cluster)[0] == (one, "Exact")
        await environment.cache.wait_synced()  # No bookmark comes.
        await until(
            lambda: not environment.cache.list_cached("secrets")
        )  # What has changed since, the watches tell.


async def test_a_version_of_minutes_ago_is_no_state_to_begin_with() -> None:
    async with caching(EITHER, secret("a", app="web"), who=refusing_gold) as environment:
        await until(lambda: sum(map(gold, environment.cluster.requests)) > 3)
        environment.cluster.faults.clear()
        await until(lambda: len(environment.watches()) == 2)
        assert {match for _, match in lists_of_gold(environment.cluster)[1:]} == {None}


async def test_objects_no_other_watch_could_hold_are_listed_at_any_version() -> None:
    declared = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["infra"])]
    async with caching(declared, secret("a", app="web"), held="infra") as environment:
        await until(lambda: len(environment.watches()) == 1)
        assert named(environment.cache.list("secrets", namespace="shop", labels="app=web")) == ["a"]
        assert not [
            each
            for each in environment.cluster.requests
            if each.verb == "list" and "resourceVersionMatch" in each.query
        ]


async def test_it_is_synced_when_each_watch_has_reached_the_newest_list() -> None:
    async with caching(EITHER, secret("a", app="web"), who=refusing_gold) as environment:
        await until(lambda: len(environment.watches()) == 1)
        environment.cluster.create(secret("z"))
        environment.cluster.faults.clear()
        await environment.cache.wait_synced()  # No bookmark comes.
        assert named(environment.cache.list_cached("secrets")) == ["a"]
        lists = [each for each in environment.cluster.requests if each.verb == "list" and web(each)]
        assert lists[-1].query.get("resourceVersion") == environment.informer.state.version
        assert len(lists) == 2, "one more is enough"
