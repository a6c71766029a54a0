"""A change of an object while its range moves reaches the new owner, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.cache.freshness import ServerVersion
from kopf_selectcache.core.assignment.replica import Stage
from kopf_selectcache.plugin.operator import Operator, operator_of
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.sharding.replica import Replica
from kopf_selectcache.sharding.shards import Shards
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import BufferingProxy, Silence
from tests.faults.environment import reached, run
from tests.plugin.reconciling import APPS, CRD, app, operated

from .processes import configmap
from .test_handlers import NAMESPACES, Movable

SPACE = "team-0"
KEY = selectcache.Key("x", namespace=SPACE)


class Moved:
    """An operator whose ranges a test gives and takes."""

    def __init__(self, cluster: EmbeddedCluster, operator: Operator) -> None:
        self.cluster, self.operator = cluster, operator
        assert operator.shards is not None
        self.shards: Shards = operator.shards
        self.movable = Movable()

    def take(self) -> None:
        """Take all ranges from the operator. They stay warm."""
        self.movable.terms.clear()
        self.shards.ownership = self.movable

    def give(self) -> None:
        self.movable.give(range(64))
        self.shards.start(range(64))

    def names(self) -> set[str]:
        records = self.operator.runtime.informer("v1/configmaps").state.store.records()[0]
        return {each.name for each in records}

    async def rest(self) -> None:
        for _ in range(100):  # The keys of the changes are taken, and kept or dropped.
            await asyncio.sleep(0)

    async def delete(self, name: str) -> None:
        self.cluster.delete(configmap(SPACE, name, 0))
        assert await reached(lambda: name not in self.names())
        await self.rest()


@asynccontextmanager
async def moved(
    registry: kopf.OperatorRegistry,
    *names: str,
    objects: Sequence[dict[str, Any]] = (),
    filters: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[Moved]:
    def configure(settings: kopf.OperatorSettings) -> None:
        settings_of(settings).sharding = selectcache.Sharding(static=(0, 1))
        settings.queueing.exit_timeout = 1.0

    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace(SPACE)
        cluster.create(*objects, *(configmap(SPACE, name, 0) for name in names))
        given = {"v1/configmaps": "fleet=yes", **filters}
        async with operated(registry, cluster, filters=given, configure=configure) as settings:
            assert await reached(lambda: (found := operator_of(settings)) is not None and found.replica)
            operator = operator_of(settings)
            assert operator is not None
            yield Moved(cluster, operator)


def told(*, initial: bool = True) -> tuple[kopf.OperatorRegistry, list[str]]:
    """Return handlers that note what they are told."""
    registry, lines = kopf.OperatorRegistry(), list[str]()

    @selectcache.reconcile("configmaps", deleted=True, registry=registry)
    async def reconcile(name: str, deleted: bool, **_: object) -> None:
        lines.append(f"reconcile {name}{' deleted' * deleted}")

    @selectcache.on.change("configmaps", initial=initial, registry=registry)
    async def change(name: str, cause: str, **_: object) -> None:
        lines.append(f"change {name} {cause}")

    return registry, lines


async def test_a_new_owner_learns_of_an_object_that_departed_while_its_range_was_warm() -> None:
    registry, lines = told()
    async with moved(registry, "x", "y") as replica:
        assert await reached(lambda: len(lines) == 4)
        replica.take()
        lines.clear()
        await replica.delete("x")
        assert lines == []
        replica.give()
        assert await reached(lambda: len(lines) == 4)
        await replica.rest()
        assert sorted(lines) == [
            "change x left",
            "change y entered",
            "reconcile x deleted",
            "reconcile y",
        ]


async def test_a_departure_while_a_range_is_warm_is_forgotten_once_it_is_cooled() -> None:
    registry, lines = told()
    async with moved(registry, "x", "y") as replica:
        assert await reached(lambda: len(lines) == 4)
        replica.take()
        lines.clear()
        await replica.delete("x")
        range_ = replica.shards.range_of((SPACE, ""))
        replica.shards.cool({range_})
        await replica.rest()
        await replica.shards.warm(range_)
        replica.give()
        assert await reached(lambda: len(lines) >= 2)
        await replica.rest()
        assert sorted(lines) == ["change y entered", "reconcile y"]


async def test_a_change_of_a_warm_range_reaches_a_handler_that_skips_existing_objects() -> None:
    registry, lines = told(initial=False)
    async with moved(registry, "x", "y") as replica:
        assert await reached(lambda: len(lines) == 2)
        replica.take()
        lines.clear()
        replica.cluster.patch(configmap(SPACE, "x", 0), {"data": {"number": "1"}})
        store = replica.operator.runtime.informer("v1/configmaps").state.store
        assert await reached(lambda: any(b'"1"' in each.data for each in store.records()[0]))
        await replica.rest()
        replica.give()
        assert await reached(lambda: len(lines) == 3)
        await replica.rest()
        assert sorted(lines) == ["change x updated", "reconcile x", "reconcile y"]


async def test_a_range_is_run_although_the_names_of_kinds_are_not_known() -> None:
    registry, lines = kopf.OperatorRegistry(), list[str]()

    @selectcache.reconcile("webapps", registry=registry)
    async def reconcile(name: str, **_: object) -> None:
        lines.append(name)

    web = app("web") | {"metadata": {"name": "web", "namespace": SPACE}}
    async with moved(registry, objects=[CRD, web], filters={APPS: selectcache.EVERYTHING}) as replica:
        assert await reached(lambda: lines == ["web"])
        replica.take()
        lines.clear()
        add = replica.cluster.faults.add
        silence = add(Silence(), where=lambda asked: asked.path.startswith("/apis/other.io"))
        cache = selectcache.Cache(replica.operator.runtime)
        declaring = asyncio.create_task(cache.declare("other.io/v1/things", selectcache.EVERYTHING))
        assert await reached(lambda: silence.hits)
        with pytest.raises(selectcache.NotSynced):
            replica.operator.runtime.informer("webapps")
        replica.give()
        silence.release()
        declaring.cancel()
        assert await reached(lambda: lines == ["web"])


async def test_the_state_of_an_object_is_dropped_with_its_range() -> None:
    registry, memos, lines = kopf.OperatorRegistry(), list[Any](), list[str]()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(memo: Any, **_: object) -> None:
        memos.append(memo)
        raise kopf.TemporaryError("again", delay=3600)

    @selectcache.on.change("configmaps", registry=registry)
    async def change(name: str, **_: object) -> None:
        lines.append(name)
        raise kopf.TemporaryError("again", delay=3600)

    async with moved(registry, "x") as replica:
        assert await reached(lambda: memos and lines)
        await replica.rest()
        handling = [each for each in replica.shards._handling if hasattr(each, "known")]
        assert [[*each.known()] for each in handling] == 2 * [[KEY]]
        replica.take()
        replica.give()
        assert await reached(lambda: len(memos) == 2 and len(lines) == 2)
        await replica.rest()
        assert memos[0] is not memos[1], "another replica may have handled it meanwhile"
        (kept,) = [each._memos._memories._items for each in handling if hasattr(each, "_memos")]
        assert len(kept) == 1
        replica.take()
        replica.shards.cool({replica.shards.range_of((SPACE, ""))})
        assert not kept
        assert await reached(lambda: [[*each.known()] for each in handling] == 2 * [[]])


def test_a_new_owner_sees_the_writes_of_the_previous_one_before_it_writes() -> None:
    handled = list[str]()

    def replica(name: str) -> tuple[kopf.OperatorRegistry, Callable[[kopf.OperatorSettings], None]]:
        registry = kopf.OperatorRegistry()

        @selectcache.reconcile("configmaps", registry=registry)
        async def reconcile(namespace: str, cache: selectcache.Cache, **_: object) -> None:
            if not cache.list("secrets", namespace=namespace):
                metadata = {"generateName": "child-", "namespace": namespace}
                await cache.live.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
            handled.append(name)

        def configure(settings: kopf.OperatorSettings) -> None:
            settings_of(settings).sharding = selectcache.Sharding(
                name="fleet", namespace="operators", pod=name, lease=20
            )
            settings.queueing.exit_timeout = 1.0

        return registry, configure

    def replica_of(settings: kopf.OperatorSettings) -> Replica:
        operator = operator_of(settings)
        assert operator is not None
        assert operator.replica is not None
        return operator.replica

    def handles(settings: kopf.OperatorSettings) -> set[str]:
        operator = operator_of(settings)
        if operator is None or operator.shards is None:
            return set()
        return {each for each in NAMESPACES if operator.shards.handles((each, ""))}

    async def main() -> None:
        (registry, configure), (others, configure_other) = map(replica, "ab")
        filters = {"v1/configmaps": "fleet=yes", "v1/secrets": selectcache.EVERYTHING}
        async with EmbeddedCluster(tls=False) as cluster:
            for namespace in ("operators", *NAMESPACES):
                cluster.namespace(namespace)
            async with operated(registry, cluster, filters=filters, configure=configure) as first:
                assert await reached(lambda: len(handles(first)) == len(NAMESPACES))
                proxy = cluster.faults.add(BufferingProxy(1 << 30), verb="watch", resource="secrets")
                async with operated(others, cluster, filters=filters, configure=configure_other) as second:
                    assert await reached(lambda: len(handles(second)) > 1)
                    assert await reached(
                        lambda: len(handles(first)) + len(handles(second)) == len(NAMESPACES)
                    )
                    cluster.create(configmap(min(handles(first)), "x", 0))
                    assert await reached(lambda: handled == ["a"] and proxy.hits)
                    replica_of(first).leave()
                    coordinator = replica_of(second).coordinator
                    assert coordinator is not None
                    assert await reached(
                        lambda: sum(each.stage is Stage.ACTING for each in coordinator.state.holds) == 64
                    )
                    for _ in range(1000):
                        await asyncio.sleep(0)
                    proxy.release()
                    assert await reached(lambda: handled == ["a", "b"])
                    asked = [(each.verb, each.resource) for each in cluster.requests]
                    assert asked.count(("create", "secrets")) == 1

    run(main())


async def test_the_end_of_the_caches_ends_the_wait_of_a_range_without_an_error() -> None:
    registry, lines = told()
    async with moved(registry, "x") as replica:
        assert await reached(lambda: len(lines) == 2)
        reaching = asyncio.create_task(replica.shards.reach(str(10**9)))
        informer = replica.operator.runtime.informer("v1/configmaps")
        assert await reached(lambda: informer.waiting_handlers)
    await reaching
    assert str(ServerVersion("7")) == "the ranges of this replica"


async def test_a_replica_without_a_lease_keeps_no_departures() -> None:
    registry, lines = told()
    async with moved(registry, "x", "y") as replica:
        assert await reached(lambda: len(lines) == 4)
        replica.take()
        replica.movable.is_member = False
        lines.clear()
        await replica.delete("x")
        replica.movable.is_member = True
        replica.give()
        assert await reached(lambda: len(lines) >= 2)
        await replica.rest()
        assert sorted(lines) == ["change y entered", "reconcile y"]


async def test_a_cache_that_is_removed_meanwhile_keeps_no_range_waiting() -> None:
    registry, lines = told()
    async with moved(registry, "x", filters={"v1/secrets": selectcache.EVERYTHING}) as replica:
        assert await reached(lambda: len(lines) == 2)
        proxy = replica.cluster.faults.add(Silence(), verb="list", resource="secrets")
        informer = replica.operator.runtime.informer("v1/secrets")
        reaching = asyncio.create_task(replica.shards.reach(str(replica.cluster.version + 1)))
        assert await reached(lambda: informer.waiting_handlers and proxy.hits)
        await selectcache.Cache(replica.operator.runtime).undeclare("secrets")
        replica.cluster.create(configmap(SPACE, "y", 0))
        await reaching


async def test_objects_that_come_and_go_with_a_range_have_not_changed() -> None:
    registry, lines = told(initial=False)
    async with moved(registry, "x") as replica:
        assert await reached(lambda: lines == ["reconcile x"])
        replica.take()
        lines.clear()
        range_ = replica.shards.range_of((SPACE, ""))
        replica.shards.cool({range_})
        assert await reached(lambda: not replica.names())
        await replica.shards.warm(range_)
        await replica.rest()
        replica.give()
        assert await reached(lambda: lines)
        await replica.rest()
        assert lines == ["reconcile x"]


async def test_a_message_of_a_channel_for_a_key_of_another_replica_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="kopf_selectcache")
    registry, lines = kopf.OperatorRegistry(), list[str]()
    pushes = selectcache.sources.Channel("pushes")

    @selectcache.reconcile("configmaps", watches=[selectcache.Watch(pushes)], registry=registry)
    async def reconcile(name: str, **_: object) -> None:
        lines.append(name)

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if "is dropped" in each.getMessage()]

    async with moved(registry, "x") as replica:
        assert await reached(lambda: lines == ["x"])
        replica.take()
        for name in ("x", "y"):
            await pushes.send({"metadata": {"name": name, "namespace": SPACE}})
        assert await reached(told)
        await replica.rest()
        (line,) = told()
        assert line == (
            "What pushes sends here for keys of other replicas is dropped, such as team-0/x, which"
            " replica other handles. Send it in each replica."
        )
        assert lines == ["x"]


async def test_a_finalizer_that_one_replica_has_put_on_is_taken_off_by_the_next_one() -> None:
    registry, lines = kopf.OperatorRegistry(), list[str]()

    @selectcache.reconcile("configmaps", finalizer="example.com/clean-up", registry=registry)
    async def reconcile(name: str, deleting: bool, **_: object) -> None:
        lines.append(f"{name}{' deleting' * deleting}")

    everything = {"v1/configmaps": selectcache.Selector()}
    async with moved(registry, "x", filters=everything) as replica:
        assert await reached(lambda: lines)
        found = replica.cluster.get(configmap(SPACE, "x", 0))
        assert found["metadata"]["finalizers"] == ["example.com/clean-up"]
        replica.take()
        lines.clear()
        replica.cluster.delete(configmap(SPACE, "x", 0))
        await replica.rest()
        assert lines == []
        replica.give()
        assert await reached(lambda: "x" not in replica.names())
    assert lines == ["x deleting"]
