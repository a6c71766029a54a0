"""An operator that caches the secrets of an embedded cluster, run on a clock that goes as fast as it is
slept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import kopf
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Silence
from kopf_selectcache.testing.request_log import Asked
from tests.faults.environment import Time, keeping


def secret(name: str, namespace: str = "shop", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
    }


def named(objects: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(each["metadata"]["name"] for each in objects)


def labelled(**labels: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


class Environment:
    """An operator that caches secrets of an embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster, runtime: Runtime, time: Time, resource: str) -> None:
        self.cluster = cluster
        self.time = time
        self.runtime = runtime
        self.cache = Cache(runtime)
        self.informer: Informer = runtime.informer(resource)

    def watches(self) -> list[Asked]:
        return [
            asked for asked in self.cluster.requests if asked.verb == "watch" and asked.resource == "secrets"
        ]

    def probes(self) -> int:
        """Return how often the watch with `tier` in its selector was listed after its first list."""
        return -1 + sum(
            asked.verb == "list" and "tier" in asked.query.get("labelSelector", "")
            for asked in self.cluster.requests
        )


@asynccontextmanager
async def caching(
    declared: Any,
    *objects: Mapping[str, Any],
    who: Callable[[EmbeddedCluster], str] = lambda cluster: cluster.token,
    silent: str = "",
    held: str = "",
    resource: str = "secrets",
    **options: Any,
) -> AsyncIterator[Environment]:
    """Keep secrets of a cluster with these objects; the watch with `silent` in its selector, and lists of the
    namespace `held`, come only when released."""
    cluster = EmbeddedCluster(tls=False, garbage_collection=False)
    with cluster.in_thread():
        for namespace in ("shop", "infra"):
            cluster.namespace(namespace)
        cluster.create(*objects)
        if silent:
            cluster.faults.add(
                Silence(),
                verb="watch",
                resource=resource,
                where=lambda asked: silent in asked.query.get("labelSelector", ""),
            )
        if held:
            cluster.faults.add(Silence(), verb="list", resource=resource, namespace=held)
        vault = Vault({"login": kopf.ConnectionInfo(server=cluster.url, token=who(cluster))})
        async with keeping(vault, {resource: declared}, **options) as (runtime, time):
            yield Environment(cluster, runtime, time, resource)
