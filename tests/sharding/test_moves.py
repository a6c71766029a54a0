"""What happens to an object while its range moves is told to the new owner, and to nobody who isn't."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.plugin.operator import Operator, operator_of
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.sharding.shards import Shards
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Silence
from tests.faults.environment import reached, run
from tests.plugin.reconciling import APPS, CRD, app, operated

from .processes import configmap
from .test_handlers import Movable

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
    registry: kopf.OperatorRegistry, *names: str, objects: Sequence[dict[str, Any]] = (), **filters: Any
) -> AsyncIterator[Moved]:
    def configure(settings: kopf.OperatorSettings) -> None:
        settings_of(settings).sharding = selectcache.Sharding(static=(0, 1))
        settings.queueing.exit_timeout = 1.0

    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace(SPACE)
        cluster.create(*objects, *(configmap(SPACE, name, 0) for name in names))
        given = {"v1/configmaps": "fleet=yes"} | filters
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


def test_an_object_that_departs_while_its_range_is_warm_is_told_to_the_new_owner() -> None:
    registry, lines = told()

    async def main() -> None:
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

    run(main())


def test_what_departs_while_a_range_is_warm_is_forgotten_once_it_is_cooled() -> None:
    registry, lines = told()

    async def main() -> None:
        async with moved(registry, "x", "y") as replica:
            assert await reached(lambda: len(lines) == 4)
            replica.take()
            lines.clear()
            await replica.delete("x")
            range_ = replica.shards.range_of((SPACE, ""))
            replica.shards.cool(range_)
            await replica.rest()
            await replica.shards.warm(range_)
            replica.give()
            assert await reached(lambda: len(lines) >= 2)
            await replica.rest()
            assert sorted(lines) == ["change y entered", "reconcile y"]

    run(main())


def test_a_change_of_a_warm_range_is_told_to_a_handler_that_is_not_told_of_what_is_there() -> None:
    registry, lines = told(initial=False)

    async def main() -> None:
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

    run(main())


def test_a_range_is_run_although_the_names_of_kinds_are_not_known() -> None:
    registry, lines = kopf.OperatorRegistry(), list[str]()

    @selectcache.reconcile("webapps", registry=registry)
    async def reconcile(name: str, **_: object) -> None:
        lines.append(name)

    async def main() -> None:
        web = app("web") | {"metadata": {"name": "web", "namespace": SPACE}}
        async with moved(registry, objects=[CRD, web], **{APPS: selectcache.EVERYTHING}) as replica:
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

    run(main())


def test_what_is_kept_of_an_object_is_dropped_with_its_range() -> None:
    registry, memos, lines = kopf.OperatorRegistry(), list[Any](), list[str]()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(memo: Any, **_: object) -> None:
        memos.append(memo)
        raise kopf.TemporaryError("again", delay=3600)

    @selectcache.on.change("configmaps", registry=registry)
    async def change(name: str, **_: object) -> None:
        lines.append(name)
        raise kopf.TemporaryError("again", delay=3600)

    async def main() -> None:
        async with moved(registry, "x") as replica:
            assert await reached(lambda: memos and lines)
            await replica.rest()
            handling = [each._calls for each in replica.shards._handling]  # type: ignore[attr-defined]
            assert [[*each.known()] for each in handling] == 2 * [[KEY]]
            replica.take()
            replica.give()
            assert await reached(lambda: len(memos) == 2 and len(lines) == 2)
            await replica.rest()
            assert memos[0] is not memos[1], "another replica may have handled it meanwhile"
            (kept,) = [each._memos._memories._items for each in handling if hasattr(each, "_memos")]
            assert len(kept) == 1
            replica.take()
            replica.shards.cool(replica.shards.range_of((SPACE, "")))
            assert not kept
            assert await reached(lambda: [[*each.known()] for each in handling] == 2 * [[]])

    run(main())
