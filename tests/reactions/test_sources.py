"""Sources: every change reaches the queue, whatever happens to the cache meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from kopf_selectcache import Cached, Forbidden, Key, NotDeclared, NotSynced
from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.cache.access import of_class
from kopf_selectcache.cache.cache import Cache, SyncCache
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.reactions import engine
from kopf_selectcache.reactions.engine import Deliveries
from kopf_selectcache.reactions.mapping import ITSELF, Owner
from kopf_selectcache.reactions.predicates import (
    Predicate,
    annotations_changed,
    deleted,
    entered,
    labels_changed,
    left,
    updated,
)
from kopf_selectcache.reactions.queue import Priority, Run, WorkQueue
from kopf_selectcache.reactions.sources import Informer, Kind, Source
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.faults import Silence
from tests.faults.environment import until
from tests.informer import test_change_departures as departures
from tests.secrets import Environment, caching, secret


def in_shop(name: str) -> Key:
    return Key(name, namespace="shop")


TARGET = {"data": {"target": "dHdv"}}
A = departures.A | TARGET
STAYS = departures.STAYS | TARGET


_now = [0.0]


def queue_of() -> WorkQueue:
    return WorkQueue(clock=lambda: _now[0], chance=lambda: 0.0)


def keys_in(queue: WorkQueue) -> list[Run]:
    """Take and finish all keys."""
    runs = []
    while (run := queue.take()) is not None:
        runs.append(run)
        queue.done(run.key)
    return runs


async def sleep_briefly(seconds: float) -> None:
    """Let the clock of the queues go on, and other tasks run meanwhile."""
    for _ in range(10):
        await asyncio.sleep(0)
    _now[0] += seconds


def create_again(environment: Environment) -> None:
    environment.cluster.delete(A)
    environment.cluster.create(A)


ACTS = departures.ACTS | {"create_again": create_again}


class Followed:
    """A source of secrets, the events that it has seen, and the keys of all runs."""

    def __init__(self, mapping: Any) -> None:
        self.events: list[Change] = []
        self.queue = queue_of()
        self.keys: Counter[Key] = Counter()
        self.source = Kind(
            "secrets", map=mapping, predicates=[self._see], sleep=sleep_briefly, chance=lambda: 0.5
        )
        self.entered: Counter[str] = Counter()
        self.departures: Counter[str] = Counter()
        """The objects that have entered or departed, by their uids."""

    def _see(self, old: Any, new: Any) -> bool:
        if new is None:
            self.departures[old["metadata"]["uid"]] += 1
        elif old is None:
            self.entered[new["metadata"]["uid"]] += 1
        return True

    def drain(self) -> Counter[Key]:
        keys = Counter(run.key for run in keys_in(self.queue))
        self.keys += keys
        return keys


def by_target(obj: Any) -> list[Key]:
    """Read what is not in the metadata. Other objects than this one have none of it."""
    if obj["metadata"]["name"] != "a":
        return []
    return [Key(f"{obj['metadata']['name']}-{obj['data']['target']}")]


async def by_target_async(obj: Any) -> list[Key]:
    await asyncio.sleep(0)
    return by_target(obj)


class Failing:
    """A mapping that fails once for each version of an object."""

    def __init__(self) -> None:
        self.failed: set[str] = set()

    def __call__(self, obj: Any) -> list[Key]:
        version = obj["metadata"]["resourceVersion"]
        if version not in self.failed:
            self.failed.add(version)
            raise ValueError("it fails")
        return by_target(obj)


MAPPINGS: dict[str, Callable[[], Any]] = {
    "itself": lambda: ITSELF,
    "function": lambda: by_target,
    "async": lambda: by_target_async,
    "failing": Failing,
}


@pytest.mark.parametrize("act", ["delete", "create_again", "leave", "move"])
@pytest.mark.parametrize(
    "disturb",
    [departures.watch, departures.relist, departures.restart, departures.evict],
    ids=lambda each: each.__name__,
)
async def test_each_departure_reaches_the_queue_once(disturb: Any, act: str) -> None:
    declared = Cached(departures.FILTERS["two streams"], max_bytes="128Ki")
    async with caching(declared, A, STAYS) as environment:
        followed = {name: Followed(make()) for name, make in MAPPINGS.items()}
        for each in followed.values():
            each.source.bind(environment.cache)
            await each.source.start(each.queue)
            await each.source.wait_synced(60)
        await until(lambda: environment.informer.state.is_synced)
        expected = {name: (in_shop("a") if name == "itself" else Key("a-dHdv")) for name in followed}
        uid = environment.cluster.get(A)["metadata"]["uid"]
        for name, each in followed.items():
            await until(lambda each=each, name=name: expected[name] in each.drain())  # type: ignore[misc]  # mypy knows no lambda with defaults.
        await disturb(environment, ACTS[act])
        await departures.settled(environment)
        for name, each in followed.items():
            assert each.departures[uid] == departures.GONE.get(act, 0), name
            await until(lambda each=each, name=name: expected[name] in each.drain())  # type: ignore[misc]  # mypy knows no lambda with defaults.
            await each.source.stop()


async def test_an_object_that_is_mapped_otherwise_than_before_has_both_run() -> None:
    cache = FakeCache([pod("web-1", "one")], {"pods": "app=web"})
    queue, source = queue_of(), Kind("pods", map=Owner("example.com", "WebApp"), cache=cache)
    await source.start(queue)
    assert [run.key for run in keys_in(queue)] == [in_shop("one")]
    own_by(cache, "two")
    assert [run.key for run in keys_in(queue)] == [
        in_shop("one"),
        in_shop("two"),
    ]
    cache.cluster.delete(pod("web-1"))
    runs = keys_in(queue)
    assert [run.key for run in runs] == [in_shop("two")]
    assert str(runs[-1].causes[-1]) == "left: pods shop/web-1"
    await source.stop()


def pod(name: str, owner: str = "one", **labels: str) -> dict[str, Any]:
    owners = [
        {"apiVersion": "example.com/v1", "kind": "WebApp", "name": owner, "uid": owner, "controller": True}
    ]
    metadata = {
        "name": name,
        "namespace": "shop",
        "labels": labels or {"app": "web"},
        "ownerReferences": owners,
    }
    containers = [{"name": "main", "image": "nginx"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def own_by(cache: FakeCache, owner: str, name: str = "web-1") -> None:
    cache.cluster.patch(
        pod(name), {"metadata": {"ownerReferences": pod(name, owner)["metadata"]["ownerReferences"]}}
    )


async def test_the_states_between_two_async_mappings_are_joined_and_no_key_is_lost() -> None:
    release = asyncio.Event()
    mapped: list[str] = []

    async def slow(obj: Any) -> list[Key]:
        owner = obj["metadata"]["ownerReferences"][0]["name"]
        mapped.append(owner)
        await release.wait()
        return [in_shop(owner)]

    cache = FakeCache([pod("web-1", "one")], {"pods": "app=web"})
    queue, source = queue_of(), Kind("pods", map=slow, cache=cache)
    await source.start(queue)
    await until(lambda: mapped == ["one"])
    for owner in ("two", "three", "four"):
        own_by(cache, owner)
    cache.cluster.delete(pod("web-1"))
    release.set()
    found: set[Key] = set()

    def collect() -> bool:
        found.update(run.key for run in keys_in(queue))
        return len(found) == 2

    await until(collect)
    assert found == {in_shop("one"), in_shop("four")}
    assert mapped == ["one", "one", "four"]
    await source.stop()


@pytest.mark.parametrize("bad", ["one", "two"])
async def test_a_state_that_cannot_be_mapped_holds_back_no_keys_of_the_other(bad: str) -> None:
    calls = 0
    failing = {bad}

    def mapping(obj: Any) -> list[Key]:
        nonlocal calls
        owner = obj["metadata"]["ownerReferences"][0]["name"]
        if owner in failing:
            calls += 1
            raise ValueError("it fails")
        return [in_shop(owner)]

    cache = FakeCache([pod("web-1", "one")], {"pods": "app=web"})
    queue, source = queue_of(), Kind("pods", map=mapping, cache=cache, sleep=sleep_briefly)
    await source.start(queue)
    own_by(cache, "two")
    await until(lambda: calls > 5)
    good = {"one": "two", "two": "one"}[bad]
    assert in_shop(good) in {run.key for run in keys_in(queue)}
    before = calls
    own_by(cache, "three")
    await until(lambda: calls > before + 5)
    keys = {run.key for run in keys_in(queue)}
    assert keys == ({in_shop("two"), in_shop("three")} if bad == "one" else {in_shop("three")})
    failing.clear()
    await until(lambda: len(queue) == 1)
    assert keys_in(queue)[0].key == in_shop(bad)
    await source.stop()


async def test_departed_objects_whose_mapping_has_not_ended_are_limited(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "MOST_DEPARTED", 2)
    release = asyncio.Event()

    async def slow(obj: Any) -> list[Key]:
        await release.wait()
        return [in_shop(obj["metadata"]["name"])]

    names = [f"web-{number}" for number in range(5)]
    cache = FakeCache([pod(name) for name in names], {"pods": "app=web"})
    queue = queue_of()
    source = Kind("pods", map=slow, cache=cache, predicates=[lambda _, new: new is None])
    await source.start(queue)
    for name in names:
        cache.cluster.delete(pod(name))
    cache.cluster.create(pod("web-0"))
    cache.cluster.delete(pod("web-0"))
    release.set()
    await until(lambda: len(cast("Any", source)._deliveries) == 0)
    assert {run.key.name for run in keys_in(queue)} == {"web-0", "web-1"}
    await source.stop()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "The source pods has lost departures of objects, because its map= is too slow or fails."
    ]


async def test_a_departure_that_is_lost_takes_the_pending_states_of_its_object_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "MOST_DEPARTED", 1)
    release = asyncio.Event()
    mapped: list[str] = []

    async def slow(obj: Any) -> list[Key]:
        mapped.append(obj["metadata"]["name"])
        await release.wait()
        return []

    cache = FakeCache([pod("web-1"), pod("web-2")], {"pods": "app=web"})
    source = Kind("pods", map=slow, cache=cache)
    await source.start(queue_of())
    await until(lambda: len(mapped) == 2)
    for name in ("web-1", "web-2"):
        own_by(cache, "two", name)
        cache.cluster.delete(pod(name))
    release.set()
    await until(lambda: len(cast("Any", source)._deliveries) == 0)
    assert Counter(mapped) == {"web-1": 3, "web-2": 1}
    await source.stop()


async def test_each_departure_reaches_the_queue_once_while_the_filter_changes() -> None:
    async with caching("app in (web,db)", A, STAYS) as environment:
        followed = {name: Followed(make()) for name, make in MAPPINGS.items()}
        for each in followed.values():
            each.source.bind(environment.cache)
            await each.source.start(each.queue)
            await each.source.wait_synced(60)
        uids = {name: environment.cluster.get(secret(name))["metadata"]["uid"] for name in ("a", "stays")}
        held = environment.cluster.faults.add(Silence(), verb="list", resource="secrets")
        changing = asyncio.create_task(environment.cache.declare("secrets", "app=db", replace=True))
        await held.hit()
        environment.cluster.delete(A)
        held.release()
        await changing
        for name, each in followed.items():
            await until(lambda each=each: len(each.departures) == 2)  # type: ignore[misc]  # mypy knows no lambda with defaults.
            assert each.departures == dict.fromkeys(uids.values(), 1), name
            key = in_shop("a") if name == "itself" else Key("a-dHdv")
            await until(lambda each=each, key=key: key in each.drain())  # type: ignore[misc]  # mypy knows no lambda with defaults.
            await each.source.stop()


async def test_objects_that_depart_while_their_kind_is_not_declared_are_not_reported() -> None:
    async with caching("app=web", A, STAYS) as environment:
        each = Followed(by_target)
        each.source.bind(environment.cache)
        await each.source.start(each.queue)
        await each.source.wait_synced(60)
        await environment.cache.undeclare("secrets")
        environment.cluster.delete(A)
        await environment.cache.declare("secrets", "app=web")
        environment.cluster.create(A)
        again = environment.cluster.get(A)["metadata"]["uid"]
        await until(lambda: each.entered[again])
        environment.cluster.delete(A)
        await until(lambda: each.departures[again])
        environment.cluster.delete(STAYS)
        await until(lambda: len(each.departures) == 2)
        assert set(each.departures.values()) == {1}
        assert Key("a-dHdv") in each.drain()
        await each.source.stop()


async def test_objects_that_a_cache_has_already_go_after_changes() -> None:
    cache = FakeCache([pod("web-1")], {"pods": "app=web"})
    initial = dict[str, bool]()

    class Noting(Predicate):
        def admits(self, change: Change) -> bool:
            initial[change.name] = change.initial
            return True

    queue, source = queue_of(), Kind("pods", cache=cache, predicates=[Noting()])
    assert len(cache.list_cached("pods")) == 1
    await source.start(queue)
    cache.cluster.create(pod("web-2"))
    assert [(run.key.name, run.priority) for run in keys_in(queue)] == [
        ("web-2", Priority.LIVE),
        ("web-1", Priority.INITIAL),
    ]
    assert initial == {"web-1": True, "web-2": False}
    await source.stop()


async def test_predicates_of_all_sources_and_of_one_are_combined_with_and() -> None:
    cache = FakeCache([pod("web-1"), pod("web-2")], {"pods": "app=web"})
    queue = queue_of()
    source = Kind("pods", cache=cache, predicates=[entered | left, lambda _, new: new is None])
    await source.start(queue, [~deleted, lambda old, new: (old or new or {})["metadata"]["name"] == "web-2"])
    cache.cluster.delete(pod("web-1"))
    cache.cluster.delete(pod("web-2"))
    assert [run.key for run in keys_in(queue)] == [in_shop("web-2")]
    assert cache.list_cached("pods").keys() == []
    await source.stop()


async def test_predicates_compare_the_object_before_a_change_with_the_one_after_it() -> None:
    cache = FakeCache([pod("web-1", tier="a"), pod("web-2", tier="a")], {"pods": "tier"})
    queue, source = queue_of(), Kind("pods", cache=cache, predicates=[updated & labels_changed])
    await source.start(queue)
    cache.cluster.patch(pod("web-1"), {"metadata": {"labels": {"tier": "b"}}})
    cache.cluster.patch(pod("web-2"), {"metadata": {"annotations": {"note": "b"}}})
    assert [run.key for run in keys_in(queue)] == [in_shop("web-1")]
    await source.stop()


async def test_a_function_that_returns_an_awaitable_is_called_again_until_it_does_not() -> None:
    answers: list[Any] = [by_target_async, asyncio.Future, lambda _: [in_shop("found")]]

    def mapping(obj: Any) -> Any:
        answer = answers.pop(0)
        return answer() if answer is asyncio.Future else answer(obj)

    cache = FakeCache([pod("web-1")], {"pods": "app=web"})
    queue, source = queue_of(), Kind("pods", cache=cache, map=mapping, sleep=sleep_briefly)
    await source.start(queue)
    await until(lambda: len(queue) == 1)
    assert [run.key for run in keys_in(queue)] == [in_shop("found")]
    await source.stop()


async def test_a_function_gets_the_caches_of_the_operator() -> None:
    own, other = FakeCache([], {"pods": "app=web"}), FakeCache([pod("web-1")], {"pods": "app=web"})

    def mapping(obj: Any, *, cache: SyncCache) -> list[Key]:
        assert of_class(cache, Cache) is own
        return [in_shop(obj["metadata"]["name"])]

    queue, source = queue_of(), Kind("pods", cache=other, map=mapping)
    with pytest.raises(DeclarationError, match="needs a cache"):
        await source.start(queue)
    source.bind(own)
    await source.start(queue)
    assert [run.key for run in keys_in(queue)] == [in_shop("web-1")]
    await source.stop()


async def test_a_source_is_started_once() -> None:
    cache = FakeCache([pod("web-1")], {"pods": "app=web"})
    source = Kind("pods")
    with pytest.raises(DeclarationError, match="needs a cache"):
        await source.start(queue_of())
    with pytest.raises(DeclarationError, match="was not started"):
        await source.wait_synced()
    await source.stop()
    source.bind(cache)
    await source.start(queue_of())
    with pytest.raises(DeclarationError, match="was started already"):
        await source.start(queue_of())
    await source.wait_synced()
    await source.stop()
    with pytest.raises(DeclarationError, match="was started already"):
        await source.start(queue_of())


async def test_a_kind_that_nobody_has_declared_is_an_error_at_the_start() -> None:
    cache = FakeCache([], {"pods": "app=web"})
    with pytest.raises(NotDeclared):
        await Kind("secrets", cache=cache).start(queue_of())
    with pytest.raises(DeclarationError, match="cache"):
        Kind("pods", cache=cast("Any", "pods"))
    with pytest.raises(DeclarationError, match="informer"):
        Informer(cast("Any", "pods"))


async def test_the_fields_a_source_reads_must_be_stored() -> None:
    cache = FakeCache([], {"pods": Cached("app=web", keep=["spec"])})
    with pytest.raises(DeclarationError, match="which the cache does not store"):
        await Kind("pods", cache=cache, predicates=[annotations_changed]).start(queue_of())


async def test_a_kind_that_is_removed_and_declared_again_is_followed_again() -> None:
    async with caching("app=web", secret("a", app="web")) as environment:
        cache = environment.cache
        queue, source = queue_of(), Kind("secrets", cache=cache, predicates=[annotations_changed])
        await source.start(queue)
        await source.wait_synced()
        assert len(keys_in(queue)) == 1
        await cache.undeclare("secrets")
        await until(lambda: source._subscription is None)
        source._synced.clear()
        with pytest.raises(NotDeclared):
            await source.wait_synced()
        await cache.declare("secrets", "app=web", drop=["metadata.annotations"])
        await cache.undeclare("secrets")
        await cache.declare("secrets", "app=web")
        await until(lambda: len(queue) == 1)
        environment.runtime.end()
        await source.stop()


async def test_a_cache_that_cannot_be_read_fails_the_wait() -> None:
    async with caching("app=web", who=lambda cluster: cluster.user("nobody")) as environment:
        source = Kind("secrets", cache=environment.cache)
        await source.start(queue_of())
        with pytest.raises(Forbidden):
            await source.wait_synced(60)
        await source.stop()


async def test_a_cache_that_is_not_synced_in_time_fails_the_wait_with_the_reason() -> None:
    async with caching("app=web", held="shop", namespaces=["shop"]) as environment:
        source = Kind("secrets", cache=environment.cache)
        await source.start(queue_of())
        with pytest.raises(NotSynced):
            await source.wait_synced(0)
        await source.stop()


async def test_an_informer_is_followed_without_a_wait_until_the_source_stops() -> None:
    async with caching("app=web", secret("a", app="web"), secret("b", app="web")) as environment:
        await until(lambda: environment.informer.state.is_synced)
        queue, source = queue_of(), Informer(environment.informer)
        await source.start(queue)
        assert [run.key.name for run in keys_in(queue)] == ["a", "b"]
        assert str(source) == "secrets"
        await source.stop()
        environment.cluster.delete(secret("a"))
        await until(lambda: environment.informer.state.held() == 1)
        assert len(queue) == 0


class Once(Source):
    """A source of users."""

    async def follow(self, deliveries: Deliveries) -> None:
        deliveries.deliver(Change.of("sent", None, {"metadata": {"name": "all"}}), "all")


async def test_users_write_their_own_sources() -> None:
    queue, source = queue_of(), Once()
    await source.start(queue)
    assert [(run.key, str(run.causes[0])) for run in keys_in(queue)] == [(Key("all"), "sent: Once all")]
    await source.stop()
