"""A custom resource that is nested 1,500 levels, which a real server accepts: operators that start, and those
that run, miss nothing else."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache import Cached, Selector
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.core.json_text import decoded
from kopf_selectcache.errors import Unreadable
from kopf_selectcache.testing.faults.refusals import nested
from tests.apiserver.cluster import Cluster
from tests.faults.environment import keeping, run
from tests.real.inprocess import credentials, until

DEEP = nested(1_500)


def is_readable() -> bool:
    """True if this Python decodes it: CPython 3.13 does, 3.11 and 3.12 do not."""
    with suppress(RecursionError):
        decoded(DEEP)
        return True
    return False


@pytest.mark.parametrize("initial", ["pages", "stream"])
def test_contract_8_an_object_of_1500_levels_costs_itself_alone(real_api: Cluster, initial: str) -> None:
    api = real_api
    namespace = api.namespace(prefix="deep")
    group = f"{namespace}.example.com"
    api.create_crd(group, "v1", "Widget", "widgets")
    kind, path = f"widgets.v1.{group}", f"/apis/{group}/v1/namespaces/{namespace}/widgets"

    def write(method: str, path: str, **options: Any) -> None:
        with suppress(
            RecursionError
        ):  # The answer is the object, or metadata with managedFields that are as deep.
            api.request(method, path, **options)

    def create(name: str, value: bytes = b"{}", **labels: str) -> None:
        labelled = ",".join(f'"{key}":"{each}"' for key, each in labels.items())
        body = (
            b'{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"%s","labels":{%s}},"spec":{"color":"red","deep":%s}}'
            % (group.encode(), name.encode(), labelled.encode(), value)
        )
        write("POST", path, body=body)

    def patch(name: str, **labels: str) -> None:
        write("PATCH", f"{path}/{name}", body={"metadata": {"labels": labels}})

    def names(cache: Cache, **request: Any) -> list[str]:
        return sorted(
            key.name
            for key in cache.list_cached(kind, namespace=namespace, **request).keys()  # It is no dict.  # noqa: SIM118
        )

    async def holds(cache: Cache, readable: list[str], unreadable: list[str]) -> None:
        """Wait until the cache holds these objects."""
        expected = (sorted(readable + unreadable), []) if is_readable() else (readable, unreadable)
        await until(
            lambda: (
                (names(cache), sorted(key.name for key in cache.list_cached(kind).unreadable)) == expected
            ),
            f"the cache holds {expected}",
        )
        for name in unreadable:
            if not is_readable():
                with pytest.raises(Unreadable):
                    cache.get(kind, name, namespace=namespace)
                with pytest.raises(Unreadable):
                    await cache.fetch_list(kind, namespace=namespace)
        assert sorted(
            key.name
            for key in cache.list(kind, namespace=namespace, labels="app=web").keys()  # It is no dict.  # noqa: SIM118
        ) == [name for name in readable if name != "db"]

    async def main() -> None:
        create("web-1", app="web")
        create("db", app="db")
        create("deep-1", DEEP, app="deep")
        keep = {kind: Selector(namespaces=[namespace])}
        async with keeping(Vault({"login": credentials(api)}), keep, initial=initial) as (fresh, _):
            cache = Cache(fresh)
            await cache.wait_synced()
            await holds(cache, ["db", "web-1"], ["deep-1"])
            # The operator runs by now: what comes next is an event.
            await asyncio.to_thread(create, "deep-2", DEEP, app="deep")
            await asyncio.to_thread(create, "web-2", app="web")
            await holds(cache, ["db", "web-1", "web-2"], ["deep-1", "deep-2"])
            await asyncio.to_thread(patch, "deep-1", tier="gold")
            await asyncio.to_thread(write, "DELETE", f"{path}/deep-2")
            await asyncio.to_thread(patch, "web-1", app="web", tier="gold")
            await holds(cache, ["db", "web-1", "web-2"], ["deep-1"])
            await until(
                lambda: names(cache, labels="app=web,tier=gold") == ["web-1"], "the last change has come"
            )
            informer = fresh.informer(kind)
            assert not informer.counts.relists
            assert await cache.audit(kind)
            assert cache.exists(kind, "deep-1", namespace=namespace)
            assert not await cache.is_deleted(kind, "deep-1", namespace=namespace)
            informer.state.reflectors[0].relist(MetricReason.AUDIT)
            await until(lambda: informer.state.reflectors[0].writer.commits == 2, "it is listed anew")
            await holds(cache, ["db", "web-1", "web-2"], ["deep-1"])
        async with keeping(
            Vault({"login": credentials(api)}),
            {kind: Cached(Selector(namespaces=[namespace]), drop=["spec.deep"])},
            initial=initial,
        ) as (cut, _):
            cache = Cache(cut)
            await cache.wait_synced()
            assert names(cache) == ["db", "deep-1", "web-1", "web-2"]
            assert cache.get(kind, "deep-1", namespace=namespace)["spec"] == {"color": "red"}

    run(main())
