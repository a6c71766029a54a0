"""A proxy in front of a real server strips the selectors of requests: no object outside of them is
answered."""

from __future__ import annotations

import asyncio

import pytest
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache import Selector
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.errors import Rejected
from kopf_selectcache.informer.health import Health
from tests.apiserver.cluster import Cluster
from tests.faults.environment import keeping, run
from tests.real.inprocess import credentials, until
from tests.real.proxy import Proxy
from tests.real.test_skeleton import create, pod


@pytest.mark.parametrize(
    ("stripped", "declared"), [("labelSelector", "app=web"), ("fieldSelector", "")], ids=["labels", "fields"]
)
def test_contract_1_behind_a_proxy_that_strips_selectors_nothing_outside_of_them_is_answered(
    api: Cluster, stripped: str, declared: str
) -> None:
    namespace = api.namespace()
    field = "spec.restartPolicy=Never" if not declared else None
    create(api, namespace, pod("web", app="web") | {"spec": pod("web")["spec"] | {"restartPolicy": "Never"}})
    create(api, namespace, pod("db", app="db"))

    async def main(proxy: Proxy) -> None:
        vault = Vault({"login": credentials(api, url=proxy.url)})
        async with keeping(
            vault, {"pods": Selector(declared or None, fields=field, namespaces=[namespace])}
        ) as (runtime, _):
            informer = runtime.informer("pods")
            await until(lambda: informer.state.health is Health.REJECTED, "the first list is refused")
            assert f"{namespace}/db' came" in informer.state.message
            assert informer.state.store.version == ""
            proxy.ignored = frozenset()
            await until(lambda: informer.state.is_synced, "a list fits")
            assert [record.name for record in informer.state.store.records()[0]] == ["web"]
            proxy.ignored = frozenset({stripped})
            await asyncio.to_thread(proxy.end_streams, lambda asked: "watch" in asked.query)
            await until(lambda: informer.counts.watches > 1, "the next watch is open")
            await asyncio.to_thread(create, api, namespace, pod("late", app="db"))
            await until(lambda: informer.state.health is Health.REJECTED, "the event is refused")
            with pytest.raises(Rejected, match=r"/(late|db)' came"):
                Cache(runtime).list_cached("pods")
            proxy.ignored = frozenset()
            await until(lambda: informer.state.is_synced, "a list fits again")
            assert [record.name for record in informer.state.store.records()[0]] == ["web"]

    with Proxy(api, ignored=frozenset({stripped})) as proxy:
        run(main(proxy))
