"""Each departure is delivered to each subscriber once, whatever happens to the cache meanwhile: enumerated
against the history of the server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import pytest

from kopf_selectcache import Cached, LabelSelector, Selector
from kopf_selectcache.cache.changes import BufferedChanges
from kopf_selectcache.cache.request import Request
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.informer.health import Health
from kopf_selectcache.testing.faults import Inserted, NotServed, Refuse, Silence
from tests.faults.environment import reached, until
from tests.informer.test_namespaces_by_label import namespace
from tests.secrets import Environment, caching, labelled, secret

FILTERS: dict[str, Any] = {
    "one stream": Selector("app in (web,db)", namespaces=["shop"]),
    "two streams": [
        Selector("app in (web,db)", namespaces=["shop"]),
        Selector("tier=gold", namespaces=["shop"]),
    ],
}
A = secret("a", app="web", tier="gold")
STAYS = secret("stays", app="web", tier="gold")
LARGE = secret("large", app="db") | {"data": {"large": "eHh4" * 50_000}}


class Received:
    """The changes that one subscriber has received. A slow one takes nothing before the end."""

    def __init__(self, environment: Environment, label: str | None) -> None:
        informer = environment.informer
        request = Request(verb="changes", kind="secrets", selector=Selector(label), where=None, is_plain=True)
        self.reader = BufferedChanges(informer, request if label else None, initial=True, size=1000)
        self._environment = environment
        self._label = label
        self.view: dict[str, tuple[str, str]] = {}
        """The uid and version of each object that has entered and not departed."""
        self.departures: Counter[tuple[str, str]] = Counter()
        """How often each name and uid has departed."""

    def drain(self) -> None:
        for change in self.reader.pending.drain():
            self._receive(change)

    async def follow(self) -> None:
        while True:
            await self.reader.news.wait()
            self.reader.news.clear()
            self.drain()

    def _receive(self, change: Change) -> None:
        before, after = change.before, change.after
        if after is None:
            assert before is not None
            known = self.view.pop(before.name, None)
            assert known is None or known[0] == before.uid
            self.departures[before.name, before.uid] += 1
        else:
            known = self.view.get(after.name)
            assert (known is None) == (str(change.cause) == "entered")
            assert known is None or known[0] == after.uid
            self.view[after.name] = after.uid, after.version

    def expected(self) -> dict[str, tuple[str, str]]:
        records = self._environment.informer.state.store.records()[0]
        label = None if self._label is None else self._label.partition("=")
        return {
            each.name: (each.uid, each.version)
            for each in records
            if each.stored and (label is None or each.labels.get(label[0]) == label[2])
        }


Act = Callable[[Environment], None]


def delete(environment: Environment) -> None:
    environment.cluster.delete(A)


def create_again(environment: Environment) -> None:
    environment.cluster.delete(A)
    environment.cluster.create(A)


def leave(environment: Environment) -> None:
    environment.cluster.patch(A, labelled(app="other", tier=None))


def leave_and_return(environment: Environment) -> None:
    environment.cluster.patch(A, labelled(app="other", tier=None))
    environment.cluster.patch(A, labelled(app="web"))


def relabel(environment: Environment) -> None:
    environment.cluster.patch(A, labelled(app="db"))


def move(environment: Environment) -> None:
    environment.cluster.patch(A, labelled(app="db", tier=None))


def spoil(environment: Environment) -> None:
    environment.cluster.faults.add(Inserted(names=frozenset({"a"})))
    environment.cluster.patch(A, labelled(zone="east"))


ACTS: dict[str, Act] = {
    each.__name__: each for each in (delete, create_again, leave, leave_and_return, relabel, move, spoil)
}
GONE = {"delete": 1, "create_again": 1, "leave": 1, "relabel": 0, "move": 0, "spoil": 0}
"""How many departures of the first object the history has, for who wants all of them."""
NARROWED = GONE | {"relabel": 1, "move": 1}


async def relist(environment: Environment, act: Act) -> None:
    cluster = environment.cluster
    refused = cluster.faults.add(Refuse(503), resource="secrets")
    cluster.cut("watch", "secrets")
    await refused.hit()
    act(environment)
    cluster.compact()
    refused.release()


async def restart(environment: Environment, act: Act) -> None:
    unknown = environment.cluster.faults.add(NotServed(), resource="secrets")
    environment.cluster.cut("watch", "secrets")
    await unknown.hit()
    await until(
        lambda: not environment.informer.is_complete or not environment.informer.state.has_several_streams
    )
    act(environment)
    unknown.release()


async def evict(environment: Environment, act: Act) -> None:
    environment.cluster.create(LARGE)
    await until(lambda: environment.informer.state.health is Health.OVERSIZED)
    act(environment)
    environment.cluster.delete(LARGE)


async def watch(environment: Environment, act: Act) -> None:
    act(environment)


@asynccontextmanager
async def subscribed(filter_: str) -> AsyncIterator[tuple[Environment, dict[str, Received]]]:
    declared = Cached(FILTERS[filter_], max_bytes="128Ki")
    async with caching(declared, A, STAYS) as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced)
        received = {
            "fast": Received(environment, None),
            "slow": Received(environment, None),
            "narrowed": Received(environment, "app=web"),
            "slow and narrowed": Received(environment, "app=web"),
        }
        tasks = [asyncio.create_task(received[each].follow()) for each in ("fast", "narrowed")]
        for each in received.values():
            each.drain()
        try:
            yield environment, received
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in results} == {asyncio.CancelledError}


async def settled(environment: Environment) -> None:
    """Wait until a change that comes after all others is seen."""
    last = environment.cluster.create(secret("last", app="web", tier="gold"))[0]["metadata"]
    environment.cluster.patch(STAYS, labelled(seen="yes"))
    informer = environment.informer
    await until(
        lambda: (
            informer.state.is_synced
            and informer.is_complete
            and informer.state.store.get("shop", "last")[0] is not None
            and "large" not in {each.name for each in informer.state.store.records()[0]}
            and not informer.state.union.unconfirmed
            and all(
                int(each.substore.version or 0) >= int(last["resourceVersion"])
                for each in informer.state.reflectors
            )
        )
    )


async def test_15_a_departure_has_an_old_object_after_an_eviction() -> None:
    async with subscribed("one stream") as (environment, _):
        changes = environment.cache.changes("secrets", labels="app=web")
        assert [(await anext(changes)).name for _ in range(2)] == ["a", "stays"]
        await evict(environment, delete)
        change = await anext(changes)
        assert change.old is not None
        assert (change.name, change.cause, change.new) == ("a", "left", None)
        assert change.old.metadata.labels == A["metadata"]["labels"]
        assert "creationTimestamp" not in change.old.metadata


def scenes(acts: Iterable[str], *disturbances: Any) -> list[Any]:
    """Return each act with each disturbance and one of the filters in turn; the other one under soak."""
    found = []
    for number, (act, disturb) in enumerate(product(acts, disturbances)):
        for filter_ in FILTERS:
            is_due = (number + number // len(disturbances)) % 2 == [*FILTERS].index(filter_)
            marks = () if is_due else (pytest.mark.soak,)
            name = f"{act}-{disturb.__name__}-{filter_}"
            found.append(pytest.param(filter_, disturb, act, marks=marks, id=name))
    return found


@pytest.mark.parametrize(("filter_", "disturb", "act"), scenes(ACTS, watch, relist, restart, evict))
async def test_15_each_departure_is_delivered_once(filter_: str, disturb: Any, act: str) -> None:
    async with subscribed(filter_) as (environment, received):
        uid = environment.cluster.get(A)["metadata"]["uid"]
        await disturb(environment, ACTS[act])
        await settled(environment)
        for who, each in received.items():
            each.drain()
            expected = each.expected()
            if act == "spoil":
                expected["a"] = each.view["a"]
            assert each.view == expected, who
            departures = each.departures.pop(("a", uid), 0)
            if act == "leave_and_return":
                assert departures <= 1, who
            else:
                assert departures == (NARROWED if "narrowed" in who else GONE)[act], who
            each.departures = Counter(
                {key: times for key, times in each.departures.items() if key[0] != "large"}
            )
            assert not each.departures, who
        if act == "spoil":
            environment.cluster.delete(A)
            await until(lambda: environment.informer.state.store.get("shop", "a")[0] is None)
            for who, each in received.items():
                each.drain()
                assert each.departures == {("a", uid): 1}, who


async def test_the_end_of_an_object_is_waited_for_although_it_is_evicted() -> None:
    async with caching(Cached(FILTERS["one stream"], max_bytes="128Ki"), A) as environment:
        await environment.cache.wait_synced()
        waiting = asyncio.create_task(environment.cache.wait_deleted("secrets", "a", namespace="shop"))
        for _ in range(20):
            await asyncio.sleep(0)
        environment.cluster.create(LARGE)
        await until(lambda: environment.informer.state.health is Health.OVERSIZED)
        environment.cluster.faults.add(Silence(), verb="list", resource="secrets")
        assert not waiting.done()
        environment.cluster.delete(A)
        assert await reached(waiting.done)
        await waiting


@pytest.mark.parametrize("filter_", FILTERS)
async def test_15_an_object_that_a_restored_server_has_lost_departs_once(filter_: str) -> None:
    async with subscribed(filter_) as (environment, received):
        cluster, informer = environment.cluster, environment.informer
        backup = cluster.backup()
        cluster.patch(A, labelled(app="db"))
        lost = cluster.create(secret("lost", app="web"))[0]["metadata"]["uid"]
        await until(lambda: informer.state.store.get("shop", "lost")[0] is not None)
        received["slow"].drain()
        cluster.restore(backup)
        informer.state.reflectors[0].relist(MetricReason.AUDIT)
        await until(lambda: informer.state.store.get("shop", "lost")[0] is None and informer.state.is_synced)
        await until(
            lambda: (
                all(each.substore.epoch == 1 for each in informer.state.reflectors)
                or not informer.state.has_several_streams
            )
        )
        for who, each in received.items():
            each.drain()
            assert each.view == each.expected(), who
            assert each.departures["lost", lost] == 1, who


@pytest.mark.parametrize(
    ("filter_", "disturb", "act"), scenes([each for each in ACTS if each != "spoil"], watch, relist, restart)
)
@pytest.mark.parametrize("tenant", ["shop", "infra"])
async def test_15_each_departure_is_delivered_once_while_the_filter_changes_to_namespaces_by_label(
    tenant: str, filter_: str, disturb: Any, act: str
) -> None:
    """The objects stay in the cache if their namespace has the label, and depart once if it has not."""
    by_label = Selector("app in (web,db)", namespaces=LabelSelector.parse("tenant=yes"))
    async with subscribed(filter_) as (environment, received):
        cluster, informer, calls = environment.cluster, environment.informer, list[asyncio.Task[None]]()
        cluster.patch(namespace(tenant), labelled(tenant="yes"))
        uids = {each: cluster.get(secret(each))["metadata"]["uid"] for each in ("a", "stays")}

        def act_and_change(environment: Environment) -> None:
            ACTS[act](environment)
            calls.append(asyncio.create_task(environment.cache.declare("secrets", by_label, replace=True)))

        await disturb(environment, act_and_change)
        while not calls[0].done():
            cluster.bookmark()
            for _ in range(20):
                await asyncio.sleep(0)
        await calls[0]
        if tenant == "shop":
            await settled(environment)
        await until(lambda: informer.state.ready and informer.is_complete)
        for who, each in received.items():
            each.drain()
            assert each.view == each.expected(), who
            departures = each.departures.pop(("a", uids["a"]), 0)
            expected = 1 if tenant == "infra" else (NARROWED if "narrowed" in who else GONE).get(act, 0)
            if act == "leave_and_return":
                assert expected <= departures <= expected + 1, who
            else:
                assert departures == expected, who
            assert each.departures.pop(("stays", uids["stays"]), 0) == (tenant == "infra"), who
            again = {each for each in each.departures if each[0] == "a"} if act == "create_again" else set()
            assert each.departures.keys() == again, who  # The new object of the name.
            assert each.departures.total() <= 1, who
