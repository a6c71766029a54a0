"""Reconcilers in whole operators: their arguments, patches, retries, pauses, and ends."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.credentials import Vault

import kopf_selectcache as selectcache
from kopf_selectcache.plugin.reconcile import NAMES
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster
from tests.faults.environment import run, until

APPS = "example.com/v1/webapps"
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "webapps.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "WebApp", "plural": "webapps", "singular": "webapp"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            "status": {
                                "type": "object",
                                "properties": {
                                    "count": {"type": "integer"},
                                    "other": {"type": "integer"},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}


def app(name: str = "web", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "labels": labels}
    return {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": metadata, "spec": {}}


def config(name: str, owner: dict[str, Any] | None = None, **data: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "shop"}
    if owner is not None:
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        metadata["ownerReferences"] = [reference | {"controller": True}]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return kopf.OperatorRegistry()


@asynccontextmanager
async def serving(*objects: dict[str, Any]) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        cluster.create(CRD, *objects)
        yield cluster


@asynccontextmanager
async def operated(
    registry: kopf.OperatorRegistry,
    cluster: EmbeddedCluster,
    *,
    filters: Any = None,
    configure: Callable[[kopf.OperatorSettings], object] = lambda _: None,
    **options: Any,
) -> AsyncIterator[kopf.OperatorSettings]:
    settings, stop = kopf.OperatorSettings(), asyncio.Event()
    settings.posting.enabled = False
    settings_of(settings).selectors.update(
        {APPS: selectcache.EVERYTHING, "v1/configmaps": selectcache.EVERYTHING} if filters is None else filters
    )
    configure(settings)
    vault = Vault({"login": kopf.ConnectionInfo(server=cluster.url, token=cluster.token)})
    given = {"standalone": True} | options
    running = asyncio.create_task(
        kopf.operator(
            registry=registry, settings=settings, vault=vault, clusterwide=True, stop_flag=stop, **given
        )
    )
    running.add_done_callback(lambda _: stop.set())
    try:
        yield settings
    finally:
        stop.set()
        await running


@pytest.mark.parametrize("is_async", [True, False])
def test_a_reconciler_gets_the_object_as_it_is_and_writes_by_its_patch(
    registry: kopf.OperatorRegistry, is_async: bool
) -> None:
    calls: list[dict[str, Any]] = []
    threads: list[bool] = []

    def note(**given: Any) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        calls.append(given)
        given["memo"]["count"] = given["memo"].get("count", 0) + 1
        given["patch"].status["count"] = len(given["cache"].owned(given["body"], "configmaps"))

    async def note_async(**given: Any) -> None:
        note(**given)

    async def main() -> None:
        fn = note_async if is_async else note
        selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, param=7)(fn)
        async with serving(app()) as cluster, operated(registry, cluster):
            web = app()
            await until(lambda: cluster.get(web).get("status") == {"count": 0})
            cluster.create(config("one", cluster.get(web)))
            await until(lambda: cluster.get(web).get("status") == {"count": 1})
            cluster.delete(config("one"))
            await until(lambda: cluster.get(web).get("status") == {"count": 0})
        assert len(calls) == 3
        assert calls[0].keys() == NAMES
        assert {(each["name"], each["namespace"], each["param"], each["retry"]) for each in calls} == {
            ("web", "shop", 7, 0)
        }
        assert calls[0]["memo"] == {"count": 3}
        assert [str(each["causes"][-1]) for each in calls] == [
            "entered: example.com/v1/webapps shop/web",
            "entered: configmaps shop/one",
            "left: configmaps shop/one",
        ]
        assert set(threads) == {is_async}

    run(main())
