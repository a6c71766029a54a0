"""The memory of an operator while objects come and go: it depends on what there is, and not on what there
was.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.testing import EmbeddedCluster
from tests import retained
from tests.plugin.reconciling import APPS, app, config, operated, serving
from tests.plugin.virtual import Times

LIFETIMES = 20
"""The objects of each kind that come and go in a round."""

FEW = 10
"""Open connections keep some objects of the call that has opened each of them."""

LONG = 2.5 * 3600.0
"""Seconds after which nothing is remembered of them."""

FILTERS = {APPS: selectcache.EVERYTHING, "v1/configmaps": "app"}


def counts() -> Counter[str]:
    """Return the number of objects of the package's classes, and of the entries of their containers."""
    objects = retained.tracked()
    return retained.counts_of(objects) + retained.entries_of(objects)


def labelled(name: str, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    made = config(name, owner, size="1")
    return made | {"metadata": made["metadata"] | {"labels": {"app": name, f"of-{name}": "yes"}}}


def test_17_memory_does_not_grow_with_the_objects_that_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry, times, departed = kopf.OperatorRegistry(), Times(monkeypatch), set[str]()
    recorder = selectcache.Recorder("webapps", remembered=LIFETIMES // 2)
    calls = Counter[str]()

    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, deleted=True)
    async def reconcile(
        cache: selectcache.Cache, name: str, body: Any, deleted: bool, patch: Any, **_: Any
    ) -> None:
        calls[name] += 1
        if deleted:
            departed.add(name)
            return
        with suppress(selectcache.NotFound):  # Its owner is deleted, so the server deletes it.
            await cache.live.ensure(labelled(f"{name}-child", dict(body)))
            await cache.live.patch("configmaps", f"{name}-child", {"data": {"size": "2"}}, namespace="shop")
        patch.status["count"] = len(cache.list_cached("configmaps", owner=body))

    @selectcache.on.change("configmaps", registry=registry)
    async def follow(name: str, cause: str, body: Any, **_: Any) -> None:
        if cause == "entered":
            recorder.record(body, "Normal", "Seen", f"{name} was seen.")
        elif cause != "updated":
            departed.add(name)

    @kopf.on.event("configmaps", registry=registry)
    @selectcache.with_cache
    async def see(cache: selectcache.Cache, name: str, **_: Any) -> None:
        await cache.fetch("configmaps", name, namespace="shop", default=None)
        await cache.fetch("configmaps", f"{name}-other", namespace="shop", default=None)

    async def play(cluster: EmbeddedCluster, cache: selectcache.Cache, number: int) -> Counter[str]:
        names = [f"app-{number}-{each}" for each in range(LIFETIMES)]
        for name in names:
            cluster.create(app(name))
        children = {f"{name}-child" for name in names}
        await times.until(
            lambda: all(cluster.get(app(name)).get("status") == {"count": 1} for name in names), within=60
        )
        await cache.declare("configmaps", "app,other!=" + names[0], replace=True)
        for name in names:
            cluster.patch(config(f"{name}-child"), {"data": {"more": name}})
        for name in names:
            cluster.delete(app(name))
        await times.until(lambda: departed >= {*names, *children}, within=60)
        departed.clear()
        await asyncio.sleep(LONG)
        for each in range(LIFETIMES):  # Some things are forgotten at the next call.
            cluster.patch(app("stays"), {"spec": {"size": f"{number}-{each}"}})
            seen = calls["stays"]
            await times.until(lambda: calls["stays"] > seen, within=60)  # noqa: B023  # It is called here.
        await asyncio.sleep(LONG)
        return counts()

    async def main() -> None:
        async with serving(app("stays")) as cluster, operated(registry, cluster, filters=FILTERS) as settings:
            await times.until(lambda: operator_of(settings), within=10)
            found = operator_of(settings)
            assert found is not None
            cache = selectcache.cache_of(settings)
            await play(cluster, cache, 0)
            one, two = [await play(cluster, cache, number) for number in (1, 2)]
            assert {kind: grown for kind, grown in (two - one).items() if grown > FEW} == {}

    times.run(main())


def test_17_nothing_is_remembered_of_objects_that_depart_while_their_kind_is_not_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # pytest keeps what is logged, errors and their tracebacks included.
    monkeypatch.setattr(logging.getLogger("kopf_selectcache"), "disabled", True)
    registry, times, calls = kopf.OperatorRegistry(), Times(monkeypatch), Counter[str]()

    @selectcache.reconcile(APPS, registry=registry, deleted=True)
    async def reconcile(name: str, memo: kopf.Memo, **_: Any) -> None:
        calls[name] += 1
        memo["calls"] = calls[name]

    @selectcache.on.change(APPS, registry=registry)
    async def follow(**_: Any) -> None:
        pass

    async def play(cluster: EmbeddedCluster, cache: selectcache.Cache, number: int) -> Counter[str]:
        names = [f"app-{number}-{each}" for each in range(LIFETIMES)]
        for name in names:
            cluster.create(app(name))
        await times.until(lambda: all(calls[name] for name in names), within=60)
        await cache.undeclare(APPS)
        for name in names:
            cluster.delete(app(name))
        await cache.declare(APPS, selectcache.EVERYTHING)
        await asyncio.sleep(LONG)
        objects = retained.tracked()
        return counts() + retained.entries_of(objects, "kopf")

    async def main() -> None:
        filters = {APPS: selectcache.EVERYTHING}
        async with serving() as cluster, operated(registry, cluster, filters=filters) as settings:
            await times.until(lambda: operator_of(settings), within=10)
            cache = selectcache.cache_of(settings)
            await play(cluster, cache, 0)
            one, two = [await play(cluster, cache, number) for number in (1, 2)]
            assert {kind: grown for kind, grown in (two - one).items() if grown > FEW} == {}

    times.run(main())
