"""What the server is asked about objects that one watch has let go. When it must be asked is in
test_branches.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from msgspec.structs import replace

from kopf_selectcache import Selector
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.own_writes import OwnWrites
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.informer import environment as injected
from kopf_selectcache.informer._confirmer import FEW, Confirmer
from kopf_selectcache.settings.planner import Stream
from kopf_selectcache.testing.faults import OldVersionOnDelete, Refuse
from kopf_selectcache.testing.request_log import Asked
from tests.cache.environment import builtin
from tests.core.writers import writers
from tests.faults.environment import Time, run, until
from tests.secrets import Environment, caching, labelled, named, secret

EITHER = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["shop"])]


@asynccontextmanager
async def with_a_silent_watch() -> AsyncIterator[Environment]:
    """Hold `a` and `b` by one watch, and let the other never say that it has not got them."""
    async with caching(EITHER, secret("a", app="web"), secret("b", app="web"), silent="tier") as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.synced and len(environment.watches()) == 2)
        yield environment


def reads(environment: Environment) -> list[Asked]:
    return [
        asked
        for asked in environment.cluster.requests
        if asked.query.get("fieldSelector") == "metadata.name=a"
    ]


def test_a_read_that_fails_is_made_again() -> None:
    async def main() -> None:
        async with with_a_silent_watch() as environment:
            refused = environment.cluster.faults.add(
                Refuse(500),
                verb="list",
                resource="secrets",
                where=lambda asked: "fieldSelector" in asked.query,
                times=2,
            )
            environment.cluster.delete(secret("a"))
            await until(lambda: named(environment.cache.list_cached("secrets")) == ["b"])
            assert (len(refused.hits), len(reads(environment))) == (2, 3)

    run(main())


def test_a_deletion_at_a_version_not_told_is_confirmed_by_the_newest_list_that_there_is() -> None:
    """No version is known that an answer would have to have reached."""

    async def main() -> None:
        async with with_a_silent_watch() as environment:
            environment.cluster.faults.add(OldVersionOnDelete(), verb="watch", resource="secrets")
            environment.cluster.cut("watch", "secrets")
            await until(lambda: len(environment.watches()) >= 3)
            environment.cluster.delete(secret("a"))
            await until(lambda: named(environment.cache.list_cached("secrets")) == ["b"])
            (read,) = reads(environment)
            assert not {"resourceVersion", "resourceVersionMatch"} & read.query.keys()

    run(main())


def test_a_name_that_looks_like_a_selector_is_asked_about_as_a_name() -> None:
    name = "a,metadata.namespace!=shop"

    def role(**labels: str) -> dict[str, Any]:
        return {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": name, "namespace": "shop", "labels": labels},
        }

    async def main() -> None:
        async with caching(EITHER, role(app="web"), resource="roles", silent="tier") as environment:
            await environment.cache.wait_synced()
            environment.cluster.patch(role(), labelled(app=None, tier="gold"))
            seen = set()
            environment.informer.subscribe(lambda _: seen.add(environment.informer.held()))
            await until(
                lambda: any(
                    "fieldSelector" in asked.query for asked in environment.cluster.requests if asked.code
                )
            )
            for _ in range(5):  # The answer may have been taken in.
                await asyncio.sleep(0)
            assert 0 not in seen | {environment.informer.held()}
            environment.cluster.faults.clear()
            environment.informer.resume()
            await until(
                lambda: named(environment.cache.list("roles", namespace="shop", labels="tier=gold")) == [name]
            )
            assert 0 not in seen

    run(main())


class Question(NamedTuple):
    query: Mapping[str, str]
    at: float

    @property
    def is_joined(self) -> bool:
        """Whether it is a joined list, of all objects of a stream."""
        return self.query.get("resourceVersionMatch") == "Exact"


def names(count: int) -> list[str]:
    return [f"s-{number:03}" for number in range(count)]


class Doubting:
    """Watches that no longer hold any of these objects, and all but the first of which are quiet; and a
    server that answers as told."""

    def __init__(
        self,
        *names: str,
        answer: Callable[[Mapping[str, str]], object],
        selectors: Sequence[Selector] = (
            Selector("app=web", namespaces=["shop"]),
            Selector("tier=gold", namespaces=["shop"]),
        ),
    ) -> None:
        streams = [Stream(selector) for selector in selectors]
        self.union = Union([stream.keys for stream in streams])
        for branch in writers(self.union):
            branch.begin()
        for name in names:
            writers(self.union)[0].put(self.record(name, 10))
        for branch in writers(self.union):
            branch.commit("10")
        self.leave(*names)
        self.time, self.asked = Time(), list[Question]()

        class Transport:
            @staticmethod
            async def get(
                _: str,
                query: Mapping[str, str],
                *,
                accept: str,
                most: int | None,
            ) -> bytes:  # As transports are called.
                assert "PartialObjectMetadataList" in accept
                self.asked.append(Question(query, self.time.now))
                return msgspec.json.encode(answer(query))

        environment = SimpleNamespace(
            transport=Transport,
            clock=self.time.clock,
            sleep=self.time.sleep,
            chance=lambda: 1.0,
            settings=SimpleNamespace(page_limit=500, sync_timeout=120.0),
        )
        self.confirming = Confirmer(
            self.union,
            streams,
            Resource(builtin("secrets"), "v1"),
            environment=cast("injected.Environment", environment),
            own_writes=OwnWrites(),
            notify=lambda _: None,
        )

    @staticmethod
    def record(name: str, version: int) -> Record:
        return Record("shop", name, f"uid-{name}", str(version), {"app": "web"}, (), b"{}")

    def leave(self, *names: str) -> None:
        """Let the first watch tell that these objects have left."""
        branch = writers(self.union)[0]
        version = max(int(branch.version), 19)
        for number, name in enumerate(names):
            branch.leave(self.record(name, version + 1 + number))

    def come(self, *names: str) -> None:
        branch = writers(self.union)[0]
        for name in names:
            version = int(branch.version) + 1
            branch.put(self.record(name, version))
            branch.progress(str(version))

    @property
    def shown(self) -> list[str]:
        return sorted(record.name for record in self.union.store.records()[0])

    @property
    def joined(self) -> list[Question]:
        return [asked for asked in self.asked if asked.is_joined]

    async def until(self, condition: Callable[[], object]) -> None:
        task = asyncio.create_task(self.confirming.run())
        await until(condition)
        task.cancel()


def page(*items: object, token: str = "", version: str = "50") -> object:
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadataList",
        "metadata": {"resourceVersion": version, "continue": token},
        "items": items,
    }


def metadata(name: str, **labels: str) -> object:
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": "15",
            "labels": labels,
        }
    }


def of_version(query: Mapping[str, str]) -> str:
    """Return the version of the answer: the one that is asked for, or else a newer one."""
    return query["resourceVersion"] if query.get("resourceVersionMatch") == "Exact" else "500"


# ---- A few leaves, one by one.


def test_an_empty_page_that_is_not_the_last_says_nothing() -> None:
    """The object is on the second: it is in the other watch's selector by now."""
    doubting = Doubting(
        "a",
        answer=lambda query: page(metadata("a", tier="gold")) if "continue" in query else page(token="more"),
    )
    run(doubting.until(lambda: len(doubting.asked) >= 2 or not doubting.union.unconfirmed))
    assert doubting.shown == ["a"]
    assert [asked.query.get("continue") for asked in doubting.asked[:2]] == [None, "more"]
    assert "resourceVersion" not in doubting.asked[1].query


def test_a_server_that_ignores_the_name_confirms_nothing_by_an_object_of_another_name() -> None:
    """`a` is in the selector of the other watch by now."""
    doubting = Doubting(
        "a",
        answer=lambda _: page(metadata("other", tier="gold"), metadata("a", tier="gold"), metadata("third")),
    )
    run(doubting.until(lambda: len(doubting.asked) >= 2 or not doubting.union.unconfirmed))
    assert doubting.shown == ["a"]


def test_a_server_that_refuses_is_left_alone_for_as_long_as_it_says() -> None:
    refusal = Refusal(429, "TooManyRequests", retry_after=60.0)

    def refused(_: object) -> object:
        raise Refused(refusal)

    doubting = Doubting(*names(100), answer=refused)
    run(doubting.until(lambda: len(doubting.asked) >= 8))
    assert all(later.at - earlier.at >= 60.0 for earlier, later in pairwise(doubting.asked))
    one_by_one = [asked.query["fieldSelector"] for asked in doubting.asked if not asked.is_joined]
    assert len(one_by_one) == len({*one_by_one}) >= 4, "none keeps the others waiting"


def test_what_the_watches_have_said_meanwhile_is_not_asked_for() -> None:
    def answered(_: object) -> object:
        writers(doubting.union)[1].progress("40")  # All of it is gone.
        return page()

    doubting = Doubting("a", "b", "c", answer=answered)
    run(doubting.until(lambda: not doubting.union.unconfirmed))
    assert len(doubting.asked) == 1


@pytest.mark.parametrize(("count", "asked", "joined"), [(FEW, FEW, 0), (FEW + 1, 1, 1)])
def test_up_to_ten_leaves_are_confirmed_by_name_and_one_more_takes_a_list(
    count: int, asked: int, joined: int
) -> None:
    doubting = Doubting(*names(count), answer=lambda query: page(version=of_version(query)))
    run(doubting.until(lambda: not doubting.union.unconfirmed))
    assert (len(doubting.asked), len(doubting.joined)) == (asked, joined)


# ---- Many leaves, by joined lists.


def test_200_leaves_are_confirmed_by_one_list_of_the_quiet_stream() -> None:
    doubting = Doubting(*names(200), answer=lambda query: page(version=of_version(query)))
    began = doubting.time.now
    run(doubting.until(lambda: not doubting.union.unconfirmed))
    assert doubting.shown == []
    assert [dict(asked.query) for asked in doubting.asked] == [
        {
            "labelSelector": "tier=gold",
            "limit": "500",
            "resourceVersion": "219",
            "resourceVersionMatch": "Exact",
        }
    ]
    assert doubting.time.now - began <= 2.0


def test_an_object_that_the_quiet_stream_has_stays_and_is_asked_about_less_and_less() -> None:
    moved = "s-007"
    doubting = Doubting(
        *names(200), answer=lambda query: page(metadata(moved, tier="gold"), version=of_version(query))
    )
    run(doubting.until(lambda: doubting.time.now >= 1100.0))
    assert doubting.shown == [moved]
    assert len(doubting.joined) == 1
    assert 3 <= len(doubting.asked) <= 8


def test_if_several_streams_are_quiet_the_list_of_each_is_needed() -> None:
    selectors = [Selector(label, namespaces=["shop"]) for label in ("app=web", "tier=gold", "size=big")]
    doubting = Doubting(
        *names(200),
        selectors=selectors,
        answer=lambda query: page(
            *([metadata("s-000", size="big")] if query.get("labelSelector") != "tier=gold" else []),
            version=of_version(query),
        ),
    )
    run(doubting.until(lambda: len(doubting.union.unconfirmed) < 200))
    assert doubting.shown == ["s-000"]
    assert [asked.query.get("labelSelector") for asked in doubting.asked] == ["tier=gold", "size=big"]


def test_streams_of_a_namespace_with_few_leaves_are_not_listed_for_many_in_another() -> None:
    selectors = [
        Selector(label, namespaces=[namespace])
        for namespace in ("shop", "infra")
        for label in ("app=web", "tier=gold")
    ]
    doubting = Doubting(*names(30), selectors=selectors, answer=lambda query: page(version=of_version(query)))
    infra, record = (
        writers(doubting.union)[2],
        Record("infra", "ca", "uid-ca", "11", {"app": "web"}, (), b"{}"),
    )
    infra.put(record)
    infra.leave(replace(record, version="12"))
    run(doubting.until(lambda: not doubting.union.unconfirmed))
    assert [
        (asked.query.get("labelSelector"), asked.query.get("fieldSelector")) for asked in doubting.asked
    ] == [("tier=gold", None), (None, "metadata.name=ca")]


def test_a_list_that_breaks_off_after_its_first_page_settles_nothing() -> None:
    moved = "s-150"  # It is on the second page.

    def answered(query: Mapping[str, str]) -> object:
        if "continue" not in query:
            return page(
                metadata("s-149", tier="gold"),
                version=of_version(query) if "fieldSelector" not in query else "500",
                token="more",
            )
        if len(doubting.asked) == 2:
            shown.append(len(doubting.shown))
            raise Unreachable("cut")
        return page(metadata(moved, tier="gold"), version="219")

    shown: list[int] = []
    doubting = Doubting(*names(200), answer=answered)
    run(doubting.until(lambda: len(doubting.asked) >= 3))
    assert shown == [200]
    assert len(doubting.shown) == 200
    doubting = Doubting(*names(200), answer=answered)
    run(doubting.until(lambda: len(doubting.union.unconfirmed) < 200))
    assert doubting.shown == ["s-149", moved]


def test_a_list_of_another_version_settles_nothing() -> None:
    """What it says is true, but of another time than what the other streams say."""
    shown: list[list[str]] = []

    def answered(query: Mapping[str, str]) -> object:
        shown.append(doubting.shown)
        return page(version="250" if "labelSelector" in query else "500")

    doubting = Doubting(*names(200), answer=answered)
    run(doubting.until(lambda: len(shown) >= 2 or not doubting.union.unconfirmed))
    assert doubting.asked[0].is_joined
    assert [*shown[1:], doubting.shown][0] == names(200)


def test_leaves_that_come_while_a_list_is_under_way_wait_for_the_next() -> None:
    late = [f"t-{number:03}" for number in range(50)]

    def answered(query: Mapping[str, str]) -> object:
        if len(doubting.asked) == 1:
            doubting.come(*late)
            doubting.leave(*late)
        else:
            shown.append(doubting.shown)
        return page(version=of_version(query))

    shown: list[list[str]] = []
    doubting = Doubting(*names(200), answer=answered)
    run(doubting.until(lambda: not doubting.union.unconfirmed))
    assert shown == [late]
    assert [asked.query["resourceVersion"] for asked in doubting.asked] == ["219", "319"]


def test_the_next_list_comes_no_sooner_than_after_ten_times_the_duration_of_the_last() -> None:
    ends: list[tuple[float, float]] = []

    def answered(query: Mapping[str, str]) -> object:
        # Leaves come all along: as many as are confirmed.
        more = [f"{len(doubting.asked)}-{number}" for number in range(30 if "labelSelector" in query else 1)]
        doubting.come(*more)
        doubting.leave(*more)
        if "labelSelector" in query:
            began, doubting.time.now = doubting.time.now, doubting.time.now + 3.0
            ends.append((began, doubting.time.now))
        return page(version=of_version(query))

    doubting = Doubting(*names(200), answer=answered)
    run(doubting.until(lambda: len(ends) >= 3))
    assert all(later - end >= 30.0 for (_, end), (later, _) in pairwise(ends))
    assert all(later - end < 40.0 for (_, end), (later, _) in pairwise(ends)), "nor much later"
    between = [asked for asked in doubting.asked if not asked.is_joined]
    assert len(between) <= 2 * 31 * FEW, "a few a second, meanwhile"


def test_where_the_server_has_no_list_as_of_a_version_leaves_are_confirmed_one_by_one() -> None:
    def answered(query: Mapping[str, str]) -> object:
        if "labelSelector" in query:
            raise Refused(Refusal(400, "BadRequest"))
        return page()

    doubting = Doubting(*names(30), answer=answered)
    run(doubting.until(lambda: not doubting.union.unconfirmed))
    assert doubting.shown == []
    assert 1 <= len(doubting.joined) <= 6


def test_what_metadata_cannot_decide_is_decided_by_the_list_of_the_quiet_stream() -> None:
    """The object left by a field, and still has the labels of the stream that let it go."""
    selectors = [
        Selector("app=web", fields="type=Opaque", namespaces=["shop"]),
        Selector("tier=gold", namespaces=["shop"]),
    ]
    doubting = Doubting(
        "a",
        selectors=selectors,
        answer=lambda query: page(
            *([metadata("a", app="web")] if "fieldSelector" in query else []), version=of_version(query)
        ),
    )
    run(doubting.until(lambda: not doubting.union.unconfirmed))
    assert doubting.shown == []
    assert [
        (asked.query.get("fieldSelector"), asked.query.get("labelSelector")) for asked in doubting.asked
    ] == [("metadata.name=a", None), (None, "tier=gold")]


def test_a_leave_of_which_a_stream_past_it_was_not_told_is_confirmed_by_name_and_the_others_by_a_list() -> (
    None
):
    """That stream holds an older version of the object: a list of the third, quiet one says nothing of it."""
    selectors = [Selector(label, namespaces=["shop"]) for label in ("app=web", "tier=gold", "size=big")]
    doubting = Doubting(*names(30), selectors=selectors, answer=lambda query: page(version=of_version(query)))
    one, other, quiet = writers(doubting.union)
    other.put(doubting.record("missed", 11))
    other.progress("12")
    one.put(doubting.record("missed", 60))
    one.leave(doubting.record("missed", 61))
    for stream in (other, quiet):
        stream.progress("61")
    doubting.come(*names(30))
    doubting.leave(*names(30))
    other.progress(one.version)
    run(doubting.until(lambda: not doubting.union.unconfirmed))
    assert [
        (asked.query.get("labelSelector"), asked.query.get("fieldSelector")) for asked in doubting.asked
    ] == [("size=big", None), (None, "metadata.name=missed")]
    assert doubting.shown == []
