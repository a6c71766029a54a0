"""Keys without a group that two groups have: which kind the informer reads while a group does not answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from kopf_selectcache.testing.faults.injector import Planned
from tests.faults.environment import keeping, until
from tests.objects import custom_resource

FIRST, SECOND = "a.example.com", "b.example.com"


def cluster_of(group: str) -> dict[str, Any]:
    metadata = {"name": f"of-{group}", "namespace": "shop"}
    return {"apiVersion": f"{group}/v1", "kind": "Cluster", "metadata": metadata}


@asynccontextmanager
async def reading_clusters(
    code: int, times: int | None = None, *, path: str = f"/apis/{FIRST}/v1"
) -> AsyncIterator[tuple[Runtime, EmbeddedCluster, Planned]]:
    """Run an informer of `clusters`, while the server refuses to list the resources of a group."""
    cluster = EmbeddedCluster(tls=False)
    with cluster.in_thread():
        cluster.namespace("shop")
        for group in (FIRST, SECOND):
            cluster.create(custom_resource("Cluster", group=group))
            cluster.create(cluster_of(group))
        refusing = cluster.faults.add(Refuse(code), where=lambda asked: asked.path == path, times=times)
        vault = Vault({"login": kopf.ConnectionInfo(server=cluster.url, token=cluster.token)})
        async with keeping(vault, {"clusters": ""}) as (runtime, _):
            await until(lambda: runtime.informer("clusters").state.is_synced)
            yield runtime, cluster, refusing
        await vault.close()


def names(runtime: Runtime) -> list[str]:
    return [key.name for key in Cache(runtime).list("clusters").keys()]  # noqa: SIM118  # They are no keys of a dict.


@pytest.mark.parametrize("code", [429, 503])
async def test_contract_1_a_transient_refusal_of_a_group_does_not_change_the_kind_of_a_key(code: int) -> None:
    async with reading_clusters(code, 1) as (runtime, *_):
        assert names(runtime) == [f"of-{FIRST}"]


async def comes(condition: Callable[[], object]) -> bool:
    """Return True once something is so; False if it is not within a time in which it always was."""
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            await until(condition)
            return True
    return False


async def test_contract_1_a_key_means_another_kind_as_soon_as_the_group_that_refused_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with reading_clusters(503) as (runtime, cluster, refusing):
        assert names(runtime) == [f"of-{SECOND}"]
        asked = len(refusing.hits)
        assert await comes(lambda: len(refusing.hits) > asked + 2), "it asks again"
        assert len([each for each in caplog.records if each.levelno == logging.WARNING]) == 1
        unasked = cluster.faults.add(Refuse(500), where=lambda asked: asked.path == "/apis")
        await until(lambda: len(unasked.hits) > 2)
        unasked.release()
        refusing.release()
        informer = runtime.informer("clusters")
        await until(lambda: informer.state.is_of(FIRST, "clusters") and informer.state.is_synced)
        assert names(runtime) == [f"of-{FIRST}"]


async def test_a_kind_goes_on_if_the_group_that_refused_has_no_such_name() -> None:
    async with reading_clusters(403, path="/api/v1") as (runtime, _, refusing):
        informer = runtime.informer("clusters")
        reflectors = informer.state.reflectors
        refusing.release()
        await until(lambda: not informer.resolver.is_provisional)
        assert informer.state.is_of(FIRST, "clusters")
        assert informer.state.reflectors == reflectors
        assert names(runtime) == [f"of-{FIRST}"]
