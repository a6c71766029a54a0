"""Against a real server: subscribers receive each departure once, with its cause."""

from __future__ import annotations

import asyncio

from kopf._cogs.structs.credentials import Vault

from kopf_selectcache import Selector
from tests.apiserver.cluster import Cluster
from tests.faults.environment import keeping, run
from tests.informer.test_departures import Subscriber
from tests.real.inprocess import credentials, until
from tests.real.proxy import Fault, Proxy
from tests.real.test_skeleton import create, pod


def test_6_when_a_kind_under_an_or_returns_only_the_objects_that_are_gone_depart(
    api: Cluster,
) -> None:
    namespace = api.namespace()
    create(api, namespace, pod("web", app="web"))
    create(api, namespace, pod("both", app="web", tier="gold"))
    either = [Selector("app=web", namespaces=[namespace]), Selector("tier=gold", namespaces=[namespace])]

    async def main(proxy: Proxy) -> None:
        vault = Vault({"login": credentials(api, url=proxy.url)})
        async with keeping(vault, {"pods": either}) as (runtime, _):
            informer = runtime.informer("pods")
            await until(lambda: informer.state.is_synced, "both are held")
            subscriber, again = Subscriber(informer), asyncio.Event()
            informer.subscribe(lambda _: None, again.set)
            proxy.faults.append(Fault(lambda asked: asked.path.endswith("/pods"), 404))
            await asyncio.to_thread(proxy.end_streams, lambda asked: "watch" in asked.query)
            await again.wait()
            await until(
                lambda: informer.state.is_synced and informer.state.held() == 2, "both are held again"
            )
            assert subscriber.follows(informer)
            assert subscriber.causes == []

    with Proxy(api) as proxy:
        run(main(proxy))
