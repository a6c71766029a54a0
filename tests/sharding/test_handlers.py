"""Reconcilers and handlers of changes run for the keys of their replica, and write for no others."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Literal

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError, Sharding
from kopf_selectcache.core.assignment.replica import Term
from kopf_selectcache.plugin.division import check_sharding
from kopf_selectcache.plugin.operator import Operator, operator_of
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.sharding.shards import Shards, Static
from kopf_selectcache.testing import EmbeddedCluster
from tests.faults.environment import reached, until
from tests.plugin.reconciling import operated

from .processes import configmap

NAMESPACES = [f"team-{number}" for number in range(8)]
KEYS = {(namespace, name) for namespace in NAMESPACES for name in ("x", "y")}
CONFIGMAPS = {"v1/configmaps": "fleet=yes"}


class Movable:
    """Ranges that a test gives and takes."""

    def __init__(self) -> None:
        self.terms: dict[int, Term] = {}
        self.owner = "other"
        self.is_member = True

    def give(self, ranges: range) -> None:
        for range_ in ranges:
            self.terms[range_] = Term("test", self.terms[range_].epoch + 1 if range_ in self.terms else 1)

    def term_of(self, range_: int) -> Term | None:
        return self.terms.get(range_)

    def time_left(self, range_: int, term: Term) -> float:
        return inf if self.terms.get(range_) == term else 0.0

    def owner_of(self, range_: int) -> str:
        return "me" if range_ in self.terms else self.owner


def populated(cluster: EmbeddedCluster) -> None:
    for namespace in NAMESPACES:
        cluster.namespace(namespace)
    cluster.create(*(configmap(*key, 0) for key in KEYS))


def sharded(sharding: Sharding) -> Any:
    def configure(settings: kopf.OperatorSettings) -> None:
        settings_of(settings).sharding = sharding
        settings.queueing.exit_timeout = 1.0

    return configure


def operated_by(settings: kopf.OperatorSettings) -> Operator:
    operator = operator_of(settings)
    assert operator is not None
    return operator


def shards_of(settings: kopf.OperatorSettings) -> Shards:
    shards = operated_by(settings).shards
    assert shards is not None
    return shards


@pytest.mark.parametrize("by", ["namespace", "object"])
async def test_each_key_is_handled_by_one_of_two_static_replicas(by: Literal["namespace", "object"]) -> None:
    handled: dict[str, set[tuple[str, str]]] = defaultdict(set)

    def registry_of(replica: int) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @selectcache.reconcile("configmaps", registry=registry)
        async def reconcile(name: str, namespace: str, **_: object) -> None:
            handled[f"reconcile {replica}"].add((namespace, name))

        @selectcache.on.change("configmaps", registry=registry)
        async def change(name: str, namespace: str, **_: object) -> None:
            handled[f"change {replica}"].add((namespace, name))

        return registry

    async with EmbeddedCluster(tls=False) as cluster:
        populated(cluster)
        first = operated(
            registry_of(0), cluster, filters=CONFIGMAPS, configure=sharded(Sharding(by=by, static=(0, 2)))
        )
        second = operated(
            registry_of(1), cluster, filters=CONFIGMAPS, configure=sharded(Sharding(by=by, static=(1, 2)))
        )
        async with first as one, second:
            assert await reached(lambda: sum(map(len, handled.values())) == 2 * len(KEYS))
            shards = shards_of(one)
            mine = {key for key in KEYS if shards.handles(key)}
    are_together = {namespace for namespace, _ in mine}.isdisjoint(namespace for namespace, _ in KEYS - mine)
    assert are_together is (by == "namespace")
    assert handled["reconcile 0"] == handled["change 0"] == mine
    assert handled["reconcile 1"] == handled["change 1"] == KEYS - mine
    assert 0 < len(mine) < len(KEYS)


async def test_a_range_that_comes_has_all_of_its_keys_run_and_one_that_goes_none() -> None:
    handled: list[tuple[str, str, str]] = []
    registry, movable = kopf.OperatorRegistry(), Movable()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(name: str, namespace: str, **_: object) -> None:
        handled.append(("reconcile", namespace, name))

    @selectcache.on.change("configmaps", registry=registry)
    async def change(name: str, namespace: str, **_: object) -> None:
        handled.append(("change", namespace, name))

    async with EmbeddedCluster(tls=False) as cluster:
        populated(cluster)
        async with operated(
            registry, cluster, filters=CONFIGMAPS, configure=sharded(Sharding(static=(0, 1)))
        ) as settings:
            assert await reached(lambda: len(handled) == 2 * len(KEYS))
            shards = shards_of(settings)
            shards.ownership = movable
            handled.clear()
            for key in KEYS:
                cluster.patch(configmap(*key, 0), {"data": {"number": "1"}})
            store = operated_by(settings).runtime.informer("v1/configmaps").state.store
            assert await reached(lambda: all(b'"1"' in each.data for each in store.records()[0]))
            for _ in range(100):  # The keys of the changes are taken, and dropped.
                await asyncio.sleep(0)
            assert handled == []
            movable.give(even := range(0, 64, 2))
            shards.start(even)
            mine = {key for key in KEYS if shards.handles(key)}
            assert 0 < len(mine) < len(KEYS)
            assert await reached(lambda: len(handled) == 2 * len(mine))
            assert {each[1:] for each in handled} == mine


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_run_that_outlives_its_range_writes_nothing(*, in_thread: bool) -> None:
    registry, movable = kopf.OperatorRegistry(), Movable()
    begun, go_on, errors = threading.Event(), threading.Event(), list[str]()

    @contextmanager
    def noting() -> Iterator[None]:
        try:
            yield
        except selectcache.ReadError as error:
            errors.append(str(error))
            raise

    async def reconcile(name: str, namespace: str, cache: selectcache.Cache, **_: object) -> None:
        begun.set()
        await until(go_on.is_set)
        with noting():
            await cache.live.patch("configmaps", name, namespace=namespace, changes={"data": {"late": "yes"}})

    def reconcile_in_thread(name: str, namespace: str, cache: selectcache.SyncCache, **_: object) -> None:
        begun.set()
        go_on.wait(60)
        with noting():
            cache.live.patch("configmaps", name, namespace=namespace, changes={"data": {"late": "yes"}})

    function: Any = reconcile_in_thread if in_thread else reconcile
    selectcache.reconcile("configmaps", registry=registry)(function)
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("team-0")
        obj = configmap("team-0", "x", 0)
        cluster.create(obj)
        async with operated(
            registry, cluster, filters=CONFIGMAPS, configure=sharded(Sharding(static=(0, 1)))
        ) as settings:
            assert await reached(begun.is_set)
            shards_of(settings).ownership = movable
            go_on.set()
            assert await reached(lambda: errors)
            assert "late" not in cluster.get(obj)["data"]
            movable.give(range(64))
            shards_of(settings).start(range(64))
            assert await reached(lambda: "late" in cluster.get(obj)["data"])
    assert "this replica does not handle its object any more, so nothing was sent" in errors[0]


async def test_runs_of_a_range_that_goes_may_end_and_are_cancelled_after_their_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    registry, movable = kopf.OperatorRegistry(), Movable()
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(**_: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("team-0")
        cluster.create(configmap("team-0", "x", 0))
        async with operated(
            registry, cluster, filters=CONFIGMAPS, configure=sharded(Sharding(static=(0, 1)))
        ) as settings:
            await begun.wait()
            shards, passed = shards_of(settings), asyncio.Event()

            async def sleep(_: float) -> None:
                await passed.wait()

            shards._sleep = sleep
            range_ = shards.range_of(("team-0", "x"))
            shards.ownership = movable
            draining = asyncio.create_task(shards.drain(range_))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not cancelled.is_set()
            passed.set()
            await draining
            assert cancelled.is_set()
            assert await reached(
                lambda: "was cancelled: this replica does not handle it any more" in caplog.text
            )


@pytest.mark.parametrize(
    ("sharding", "wanted"),
    [(Sharding(), "POD_NAME isn't set"), (Sharding(pod="web-1", name="web"), "a namespace for its Leases")],
)
def test_half_a_configuration_is_refused(
    sharding: Sharding, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POD_NAME", raising=False)
    with pytest.raises(DeclarationError, match=wanted):
        sharding.found()


@pytest.mark.parametrize("given", [{}, {"priority": 100}, {"name": "ours", "mandatory": True}])
def test_peering_is_refused_since_it_pauses_all_replicas_but_one(given: dict[str, Any]) -> None:
    settings = kopf.OperatorSettings()
    for name, value in given.items():
        setattr(settings.peering, name, value)
    settings.peering.standalone = False
    with pytest.raises(DeclarationError, match="Kopf's peering must be off") as caught:
        check_sharding(settings, None)
    assert "Run it with --standalone" in str(caught.value.remedy)


def test_mandatory_peering_is_refused_since_it_waits_for_peers_that_nobody_reads() -> None:
    settings = kopf.OperatorSettings()
    settings.peering.standalone = settings.peering.mandatory = True
    with pytest.raises(DeclarationError, match="Kopf would call no handler") as caught:
        check_sharding(settings, None)
    assert "Leave out --peering" in str(caught.value.remedy)


def test_static_replicas_share_all_ranges() -> None:
    replicas = [Static(index, 3) for index in range(3)]
    for range_ in range(64):
        owners = [each for each in replicas if each.term_of(range_) is not None]
        assert len(owners) == 1
        assert replicas[0].owner_of(range_) == str(replicas.index(owners[0]))
