"""Caches that replicas divide: each has the objects of its own namespaces, and says who has the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import EVERYTHING, Cached, LabelSelector, OutsideFilter, Selector, Sharding
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.plugin.operator import Operator, operator_of
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.sharding.shards import Shards
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse, Silence
from tests.faults.environment import until
from tests.plugin.reconciling import APPS, CRD, operated

from .processes import configmap

NAMESPACES = [f"team-{number}" for number in range(8)]
CONFIGMAPS = "v1/configmaps"
Handled = list[tuple[str, str]]


def registry_of(handled: Handled | None = None) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(name: str, namespace: str, **_: object) -> None:
        if handled is not None:
            handled.append((namespace, name))

    @selectcache.on.change("configmaps", registry=registry)
    async def change(cause: str, name: str, namespace: str, **_: object) -> None:
        if handled is not None:
            handled.append((namespace, f"{name} {cause}"))

    return registry


class Replica:
    def __init__(self, cluster: EmbeddedCluster, operator: Operator) -> None:
        self.cluster, self.operator = cluster, operator
        self.cache = Cache(operator.runtime)
        assert operator.shards is not None
        self.shards: Shards = operator.shards

    @property
    def informer(self) -> Informer:
        return self.operator.runtime.informer(CONFIGMAPS)

    def range_of(self, namespace: str) -> int:
        return self.shards.range_of((namespace, ""))

    def cached(self, kind: str = "configmaps") -> set[str]:
        """Return the namespaces of the objects that reads find."""
        found = self.cache.list_cached(kind).keys()
        return {key.namespace or "" for key in found}

    async def has(self, *namespaces: str) -> None:
        await until(lambda: self.informer.state.ready is not None and self.cached() == {*namespaces})


@asynccontextmanager
async def replica(
    cluster: EmbeddedCluster,
    static: tuple[int, int] = (0, 1),
    *,
    declared: Any = "fleet=yes",
    registry: kopf.OperatorRegistry | None = None,
    filters: Any = None,
    is_synced: bool = True,
    **options: Any,
) -> AsyncIterator[Replica]:
    def configure(settings: kopf.OperatorSettings) -> None:
        settings_of(settings).sharding = Sharding(static=static)

    async with operated(
        registry or registry_of(),
        cluster,
        filters={CONFIGMAPS: declared, **(filters or {})},
        configure=configure,
        **options,
    ) as settings:
        await until(lambda: (found := operator_of(settings)) is not None and found._runtime.done())
        operator = operator_of(settings)
        assert operator is not None
        found = Replica(cluster, operator)
        if is_synced:
            await found.cache.wait_synced(timeout=60)
        yield found


@asynccontextmanager
async def populated(**options: Any) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(tls=False, garbage_collection=False, **options) as cluster:
        for namespace in NAMESPACES:
            cluster.namespace(namespace)
        cluster.create(*(configmap(namespace, "x", 0) for namespace in NAMESPACES))
        yield cluster


async def test_each_static_replica_caches_its_namespaces_and_names_the_owner_of_the_others() -> None:
    async with populated() as cluster, replica(cluster, (0, 2)) as one, replica(cluster, (1, 2)) as two:
        mine = {each for each in NAMESPACES if one.shards.handles((each, ""))}
        assert 0 < len(mine) < len(NAMESPACES)
        assert (one.cached(), two.cached()) == (mine, {*NAMESPACES} - mine)
        theirs = min({*NAMESPACES} - mine)
        for read in (
            lambda: one.cache.get("configmaps", "x", namespace=theirs),
            lambda: one.cache.get("configmaps", "x", namespace=theirs, default=None),
            lambda: one.cache.list("configmaps", namespace=theirs, labels="fleet=yes"),
            lambda: one.cache.list_cached("configmaps", namespace=theirs),
            lambda: one.cache.count("configmaps", namespace=[theirs, min(mine)], labels="fleet=yes"),
        ):
            with pytest.raises(OutsideFilter) as caught:
                read()
            error = caught.value
            assert (error.reason, error.owner) == ("shard", "1")
            assert f"replica 1 handles the namespace {theirs!r}" in str(error)
            assert error.witness is not None
            assert error.witness.namespace == theirs
            assert "fetch" in error.remedy
            assert "Cached(..., sharded=False)" in error.remedy
        explained = str(one.cache.explain("configmaps"))
        assert "\nEach replica caches its own namespaces: reconciler '" in explained
        explained = str(one.cache.explain("configmaps", namespace=theirs, labels="fleet=yes"))
        assert f"can't be in the cache: replica 1 handles the namespace {theirs!r}.\n" in explained
        assert "is not covered by" not in explained
        explained = str(one.cache.explain("configmaps", namespace=min(mine), labels="other=yes"))
        assert "is not covered by" in explained
        found = await one.cache.fetch("configmaps", "x", namespace=theirs)
        assert found["metadata"]["namespace"] == theirs
        assert len(await one.cache.fetch_list("configmaps", labels="fleet=yes")) == len(NAMESPACES)


async def test_a_custom_kind_without_namespaces_is_not_called_divided() -> None:
    """Its caches were declared before the cluster has said that it is cluster-scoped."""
    registry = kopf.OperatorRegistry()

    @selectcache.reconcile(APPS, registry=registry)
    async def reconcile(**_: object) -> None: ...

    async with populated() as cluster:
        cluster.create({**CRD, "spec": CRD["spec"] | {"scope": "Cluster"}})
        async with replica(cluster, (0, 2), registry=registry, filters={APPS: EVERYTHING}) as one:
            assert "Each replica caches its own" not in str(one.cache.explain(APPS))


async def test_a_list_of_all_namespaces_is_not_complete_and_a_witness_says_so() -> None:
    async with populated() as cluster, replica(cluster, (0, 2)) as one:
        with pytest.raises(OutsideFilter) as caught:
            one.cache.list("configmaps", labels="fleet=yes")
        error = caught.value
        assert error.reason == "shard"
        assert error.witness is not None
        assert not one.shards.handles((error.witness.namespace, ""))
        assert error.witness.namespace in {*NAMESPACES, "default", "kube-public", "operators"}
        assert "only has the namespaces of this replica, so this list may be incomplete" in str(error)
        mine = {each for each in NAMESPACES if one.shards.handles((each, ""))}
        assert len(one.cache.list("configmaps", namespace=sorted(mine), labels="fleet=yes")) == len(mine)
        with pytest.raises(OutsideFilter) as caught:  # The filter lacks it in each replica.
            one.cache.list("configmaps", namespace=min(mine), labels="other=yes")
        assert caught.value.reason != "shard"


async def test_a_range_that_goes_is_lost_in_the_same_step_and_nothing_is_run_or_asked_for_it() -> None:
    handled: Handled = []
    async with populated() as cluster, replica(cluster, registry=registry_of(handled)) as one:
        await until(lambda: len(handled) == 2 * len(NAMESPACES))
        handled.clear()
        gone = NAMESPACES[3]
        others = [each for each in NAMESPACES if one.range_of(each) != one.range_of(gone)]
        ownership = one.shards.ownership
        one.shards.ownership = _Without(ownership, one.range_of(gone))
        before = len(cluster.requests)
        one.shards.cool({one.range_of(gone)})
        with pytest.raises(OutsideFilter) as caught:
            one.cache.get("configmaps", "x", namespace=gone)
        assert caught.value.reason == "shard"
        assert one.cached() == {*others}
        await until(lambda: gone not in {each.stream.namespace for each in one.informer.state.reflectors})
        await until(lambda: one.informer.filter_change.is_idle)
        cluster.patch(configmap(others[0], "x", 0), {"data": {"number": "1"}})
        await until(lambda: len(handled) == 2)
        assert {namespace for namespace, _ in handled} == {others[0]}, "nothing has left or was deleted"
        assert [asked for asked in [*cluster.requests][before:] if asked.verb in ("get", "list")] == []


class _Without:
    """The ranges of a replica, but one."""

    is_member = True

    def __init__(self, ownership: Any, range_: int) -> None:
        self._ownership, self._range = ownership, range_

    def term_of(self, range_: int) -> Any:
        return None if range_ == self._range else self._ownership.term_of(range_)

    def time_left(self, range_: int, term: Any) -> float:
        return 0.0 if range_ == self._range else float(self._ownership.time_left(range_, term))

    def owner_of(self, range_: int) -> str:
        return "other" if range_ == self._range else str(self._ownership.owner_of(range_))


async def test_a_range_is_warm_once_all_of_its_namespaces_are_synced() -> None:
    filters = {"v1/namespaces": EVERYTHING}
    async with populated() as cluster, replica(cluster, filters=filters) as one:
        moving = NAMESPACES[3]
        range_ = one.range_of(moving)
        one.shards.cool({range_})
        await until(lambda: one.informer.filter_change.is_idle and not one.informer.state.lost)
        silence = cluster.faults.add(Silence(), verb="list", resource="configmaps", namespace=moving)
        warming = asyncio.create_task(one.shards.warm(range_))
        await until(lambda: silence.hits)
        assert not warming.done()
        with pytest.raises(selectcache.NotSynced):
            one.cache.get("configmaps", "x", namespace=moving)
        silence.release()
        await warming
        assert one.cache.get("configmaps", "x", namespace=moving)
        names = [each["metadata"]["name"] for each in one.cache.list("namespaces")]
        used = {*map(one.range_of, names)}
        await one.shards.warm(next(each for each in range(64) if each not in used))


async def test_a_namespace_that_appears_is_cached_by_the_replica_of_its_range() -> None:
    handled: Handled = []
    async with populated() as cluster, replica(cluster, (0, 2), registry=registry_of(handled)) as one:
        new = [f"new-{number}" for number in range(6)]
        mine = {each for each in new if one.shards.handles((each, ""))}
        assert 0 < len(mine) < len(new)
        for each in new:
            cluster.namespace(each)
            cluster.create(configmap(each, "y", 0))
        await until(lambda: {namespace for namespace, name in handled if name == "y"} == mine)
        assert one.cached() & {*new} == mine


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [
        ("fleet=yes", NAMESPACES),
        (Selector(namespaces=["team-1", "team-2", "absent"]), ["team-1", "team-2"]),
        (Selector(namespaces=LabelSelector.parse("tenant=yes")), ["team-3", "team-4"]),
        (Selector(fields="metadata.namespace!=team-5"), [each for each in NAMESPACES if each != "team-5"]),
        ([Selector("fleet=yes", namespaces=["team-1"]), Selector(names=["x"], namespaces=["team-6"])], None),
        (Cached("fleet=yes", outside="metadata"), NAMESPACES),
    ],
    ids=lambda given: str(given)[:40],
)
async def test_two_replicas_together_have_all_the_filter_selects_and_nothing_twice(
    declared: Any, wanted: list[str] | None
) -> None:
    async with populated() as cluster:
        for each in ("team-3", "team-4"):
            cluster.patch(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}},
                {"metadata": {"labels": {"tenant": "yes"}}},
            )
        expected = {*(wanted or ["team-1", "team-6"])}
        async with (
            replica(cluster, (0, 2), declared=declared) as one,
            replica(cluster, (1, 2), declared=declared) as two,
        ):
            mine = {each for each in expected if one.shards.handles((each, ""))}
            await one.has(*mine)
            await two.has(*expected - mine)
            await until(lambda: one.informer.filter_change.is_idle and not one.informer.chosen.is_outdated)


async def test_a_kind_that_is_declared_later_is_divided_and_can_be_made_whole() -> None:
    async with populated() as cluster, replica(cluster, (0, 2)) as one:
        mine = {each for each in NAMESPACES if one.shards.handles((each, ""))}
        cluster.create(
            *(
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": each}}
                for each in NAMESPACES
            )
        )
        await one.cache.declare("secrets", Cached(EVERYTHING, sharded=True))
        await until(lambda: one.cached("secrets") == mine)
        await one.cache.declare("secrets", Cached(EVERYTHING, sharded=True))
        with pytest.raises(selectcache.DeclarationError, match="another sharded="):
            await one.cache.declare("secrets", Cached(EVERYTHING))
        await one.cache.declare("secrets", Cached(EVERYTHING, sharded=False), replace=True)
        assert one.cached("secrets") == {*NAMESPACES}
        assert len(one.cache.list("secrets")) == len(NAMESPACES)
        await one.cache.declare("secrets", Cached(EVERYTHING, sharded=True), replace=True)
        assert one.cached("secrets") == mine


async def test_an_operator_of_some_namespaces_divides_these() -> None:
    spaces = NAMESPACES[:5]
    async with (
        populated() as cluster,
        replica(cluster, (0, 2), namespaces=spaces, clusterwide=False) as one,
        replica(cluster, (1, 2), namespaces=spaces, clusterwide=False) as two,
    ):
        mine = {each for each in spaces if one.shards.handles((each, ""))}
        assert 0 < len(mine) < len(spaces)
        await one.has(*mine)
        await two.has(*{*spaces} - mine)
        with pytest.raises(OutsideFilter) as caught:  # No replica has it.
            one.cache.get("configmaps", "x", namespace=NAMESPACES[7])
        assert caught.value.reason == "excluded"


async def test_a_replica_without_ranges_has_nothing_and_reads_of_its_cache_say_so() -> None:
    async with populated() as cluster, replica(cluster) as one:
        one.shards.cool(range(64))
        assert one.cached() == set()
        with pytest.raises(OutsideFilter) as caught:
            one.cache.list("configmaps", labels="fleet=yes")
        assert caught.value.reason == "shard"
        with pytest.raises(OutsideFilter):  # The filter lacks it, whoever has which namespaces.
            one.cache.list_cached("configmaps", labels="!fleet")
        await until(lambda: not one.informer.state.reflectors and one.informer.filter_change.is_idle)
        await asyncio.gather(*map(one.shards.warm, range(64)))
        assert one.cached() == {*NAMESPACES}


async def test_a_namespace_that_does_not_exist_is_reported_as_absent() -> None:
    async with populated() as cluster, replica(cluster) as one:
        with pytest.raises(OutsideFilter, match="there is no namespace 'absent'"):
            one.cache.get("configmaps", "x", namespace="absent")


async def test_plans_explanations_and_infos_have_the_namespaces_of_this_replica() -> None:
    async with populated() as cluster, replica(cluster, (0, 2)) as one:
        mine = {each for each in NAMESPACES if one.shards.handles((each, ""))}
        theirs = min({*NAMESPACES} - mine)
        (branch,) = one.cache.info("configmaps").filter.branches
        assert {*(branch.namespaces or ())} & {*NAMESPACES} == mine
        assert "(those of this replica)" in str(branch)
        for kind in ("configmaps", "secrets"):
            plan = await one.cache.plan(kind, Cached("tier=gold", sharded=True))
            (branch,) = plan.filter.branches
            assert {*(branch.namespaces or ())} & {*NAMESPACES} == mine
        plan = await one.cache.plan("configmaps", Cached("fleet=yes", sharded=False))
        assert plan.filter == Selector("fleet=yes")
        why = await one.cache.why("configmaps", "x", namespace=theirs)
        assert "the namespaces of this replica" in str(why)


async def test_a_replica_that_may_not_list_namespaces_is_not_warm_and_says_why() -> None:
    async with populated() as cluster:
        cluster.faults.add(Refuse(403), verb="list", resource="namespaces")
        running = asyncio.create_task(_refused(cluster))
        assert "namespaces" in await running


async def _refused(cluster: EmbeddedCluster) -> str:
    async with replica(cluster, is_synced=False) as one:
        warming = asyncio.create_task(one.shards.warm(0))
        await until(lambda: one.informer.state.part().error is not None)
        assert not warming.done()
        warming.cancel()
        with pytest.raises(selectcache.Forbidden) as caught:
            one.cache.get("configmaps", "x", namespace="team-1")
        return str(caught.value)
