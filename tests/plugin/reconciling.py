"""Operators with reconcilers of a custom resource, on an embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import kopf
from kopf._cogs.structs.credentials import Vault

import kopf_selectcache as selectcache
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster

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


@asynccontextmanager
async def serving(*objects: dict[str, Any], **options: Any) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(tls=False, **options) as cluster:
        cluster.namespace("shop")
        cluster.create(CRD, *objects)
        yield cluster


class Reachable(Protocol):
    """A server, as an operator must know it."""

    @property
    def url(self) -> str: ...

    @property
    def token(self) -> str | None: ...


@asynccontextmanager
async def operated(
    registry: kopf.OperatorRegistry,
    cluster: Reachable,
    *,
    filters: Any = None,
    configure: Callable[[kopf.OperatorSettings], object] = lambda _: None,
    **options: Any,
) -> AsyncIterator[kopf.OperatorSettings]:
    settings, stop = kopf.OperatorSettings(), asyncio.Event()
    settings.posting.enabled = False
    settings_of(settings).selectors.update(
        {APPS: selectcache.EVERYTHING, "v1/configmaps": selectcache.EVERYTHING}
        if filters is None
        else filters
    )
    configure(settings)
    vault = Vault({"login": kopf.ConnectionInfo(server=cluster.url, token=cluster.token)})
    given = {"standalone": True, "clusterwide": True} | options
    running = asyncio.create_task(
        kopf.operator(registry=registry, settings=settings, vault=vault, stop_flag=stop, **given)
    )
    running.add_done_callback(lambda _: stop.set())
    try:
        yield settings
    finally:
        stop.set()
        await running
