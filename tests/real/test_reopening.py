"""A watch that the server ends by itself: the next one starts at once, at the version where the last one
ended."""

from __future__ import annotations

import asyncio
from functools import partial

from kopf._cogs.structs.credentials import Vault

from kopf_selectcache import Selector
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.reflector import LASTED
from tests.apiserver.cluster import Cluster
from tests.faults.environment import Time, keeping, run
from tests.real.inprocess import credentials, until
from tests.real.proxy import Proxy
from tests.real.test_skeleton import create, pod

WATCHES = 4


async def pass_quickly(time: Time) -> None:
    """Let the clock of the caches go so fast that each watch lasts, although the server ends it after a
    second."""
    while True:
        time.now += LASTED
        await asyncio.sleep(0.01)


def ended_since(informer: Informer, watches: int) -> bool:
    return informer.counts.watches > watches


def test_after_a_watch_that_the_server_ended_the_next_one_starts_without_a_wait(api: Cluster) -> None:
    namespace = api.namespace()

    async def main(proxy: Proxy) -> None:
        selectors = {"pods": Selector("app=web", namespaces=[namespace])}
        vault = Vault({"login": credentials(api, url=proxy.url)})
        async with keeping(vault, selectors) as (runtime, time):
            informer = runtime.informer("pods")
            await until(lambda: informer.state.is_synced, "the first watch is open")
            passing = asyncio.create_task(pass_quickly(time))
            wanted = {f"pod-{watch}" for watch in range(WATCHES)}
            for name in sorted(wanted):
                before = informer.counts.watches
                await asyncio.to_thread(create, api, namespace, pod(name, app="web"))
                await until(partial(ended_since, informer, before), f"watch {before} has ended")
            await until(
                lambda: {record.name for record in informer.state.store.records()[0]} == wanted,
                f"{wanted} are held",
            )
            passing.cancel()
            await asyncio.wait({passing})
            assert time.slept == []
            assert not informer.counts.failures
            assert informer.counts.lists == 1

    with Proxy(api, timeout_seconds=1) as proxy:
        run(main(proxy))
