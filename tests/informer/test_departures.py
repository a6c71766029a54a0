"""Subscribers receive each departure once, with its cause and the last known record, also when an informer
restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_selectcache import Cached, Selector
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.faults import NotServed
from tests.faults.environment import operating, until
from tests.faults.server import Script, Server, error, event, held, listed, pod, streamed
from tests.rows import each_row
from tests.secrets import caching, labelled, named, secret

OVERLAPPING = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["shop"])]
LARGE = 40_000


class Subscriber:
    """Follows one informer, and checks that each change continues the one before."""

    def __init__(self, informer: Informer) -> None:
        self.causes: list[tuple[str, str]] = []
        """The name and the cause of each change."""
        self.shown = {record.key: record for record in informer.state.store.records()[0]}
        """The objects that the changes add up to."""
        informer.subscribe(self._receive)

    def _receive(self, change: Change | None) -> None:
        if change is None:
            return
        record = change.after or change.before
        assert record is not None
        assert identity(self.shown.get(record.key)) == identity(change.before), "each departure comes once"
        self.causes.append((record.name, str(change.cause)))
        if change.after is None:
            del self.shown[record.key]
        else:
            self.shown[record.key] = change.after

    def follows(self, informer: Informer) -> bool:
        return {key: identity(record) for key, record in self.shown.items()} == {
            record.key: identity(record) for record in informer.state.store.records()[0]
        }


def identity(record: Record | None) -> tuple[str, str] | None:
    return None if record is None else (record.uid, record.version)


def large(name: str, version: str = "90") -> dict[str, Any]:
    return pod(name, version) | {"spec": {"padding": "x" * LARGE}}


@pytest.mark.parametrize("streams", [1, 2])
async def test_6_when_max_bytes_evicts_a_cache_an_object_that_is_gone_departs_once(streams: int) -> None:
    grown, again = asyncio.Event(), asyncio.Event()
    small = [pod(f"p{number}", "90") for number in range(73)]
    lists = [listed("100", *small), held(again, listed("200", *small[:50]))]
    watches = [
        streamed(grown, *(event("ADDED", large(f"large{each}", str(101 + each))) for each in range(4)))
    ]
    filters: Any = [Selector("app=web", namespaces=["shop"]), Selector(names=["ca"], namespaces=["infra"])]
    declared = Cached(filters[:streams], max_bytes="128Ki")
    async with Server() as server:
        server.scripts["/api/v1/namespaces/shop/pods"] = Script(lists, watches)
        server.scripts["/api/v1/namespaces/infra/pods"] = Script([listed("100"), listed("200")])
        async with operating(server, selectors={"pods": declared}) as environment:
            await environment.synced()
            subscriber = Subscriber(environment.informer)
            grown.set()
            await until(lambda: environment.informer.state.health is Health.OVERSIZED)
            grew = [name for name, cause in subscriber.causes if cause == "entered"]
            assert subscriber.causes == [(name, "entered") for name in grew]
            assert environment.informer.state.held() == 0
            subscriber.causes.clear()
            again.set()
            await environment.synced()
            gone = [f"p{number}" for number in range(50, 73)] + grew
            assert sorted(subscriber.causes) == sorted((name, "left") for name in gone)
            assert subscriber.follows(environment.informer)


async def test_6_when_a_kind_under_an_or_returns_only_the_objects_that_are_gone_depart() -> None:
    objects = [secret("both", app="web", tier="gold"), secret("web", app="web"), secret("gold", tier="gold")]
    async with caching(OVERLAPPING, *objects) as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
        subscriber = Subscriber(environment.informer)
        gone = environment.cluster.faults.add(NotServed(), resource="secrets")
        environment.cluster.cut("watch", "secrets")
        await gone.hit()
        environment.cluster.delete(secret("gold"))
        gone.release()
        await until(
            lambda: (
                environment.informer.state.is_synced
                and len(environment.watches()) >= 4
                and environment.informer.state.held() == 2
            )
        )
        await until(lambda: environment.informer.is_complete)
        assert subscriber.causes == [("gold", "left")]
        assert subscriber.follows(environment.informer)


@pytest.mark.parametrize("streams", [1, 2])
async def test_6_a_relist_that_finds_another_object_of_the_name_proves_that_the_first_is_gone(
    streams: int,
) -> None:
    other, third = pod("a", "150"), pod("b", "95")
    other["metadata"]["uid"] = "another"
    lists = [listed("100", pod("a", "90"), third), listed("200", other, third)]
    again = asyncio.Event()
    filters = [Selector("app=web", namespaces=["shop"]), Selector(names=["ca"], namespaces=["infra"])]
    async with Server() as server:
        scripts = Script(lists, [streamed(again, error(410, "Expired"))])
        server.scripts["/api/v1/namespaces/shop/pods"] = scripts
        server.scripts["/api/v1/namespaces/infra/pods"] = Script([listed("100")])
        async with operating(server, selectors={"pods": filters[:streams]}) as environment:
            await environment.synced()
            subscriber = Subscriber(environment.informer)
            again.set()
            await until(lambda: subscriber.causes)
            assert subscriber.causes == [("a", "deleted"), ("a", "entered")]
            assert subscriber.follows(environment.informer)


def test_6_of_two_overlapping_branches_the_last_one_makes_an_object_depart_once() -> None:
    cache = FakeCache([secret("a", app="web", tier="gold")], {"secrets": OVERLAPPING})
    assert named(cache.list_cached("secrets")) == ["a"]
    subscriber = Subscriber(cache._runtime.informer("secrets"))
    cache.cluster.patch(secret("a"), labelled(app=None))
    assert named(cache.list_cached("secrets")) == ["a"]
    assert subscriber.causes == [("a", "updated")]
    cache.cluster.patch(secret("a"), labelled(tier=None))
    assert named(cache.list_cached("secrets")) == []
    assert subscriber.causes == [("a", "updated"), ("a", "left")]


@each_row(
    ("declared", "cause"),
    [
        ("app=web", "left"),
        (Selector(namespaces=["shop"]), "deleted"),
        (Selector(names=["a"], namespaces=["shop"]), "deleted"),
        ([Selector(names=["a"]), Selector("app=web")], "deleted"),
        (OVERLAPPING, "left"),
    ],
)
def test_6_a_departure_is_called_gone_only_if_a_stream_selects_by_nothing_but_names(
    declared: Any, cause: str
) -> None:
    cache = FakeCache([secret("a", app="web"), secret("b", app="web")], {"secrets": declared})
    subscriber = Subscriber(cache._runtime.informer("secrets"))
    cache.cluster.delete(secret("a"))
    cache.list_cached("secrets")
    assert subscriber.causes == [("a", cause)]
