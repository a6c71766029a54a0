"""Reads that ask a real server, through a proxy that refuses some of the requests: `timeout=` retries them,
and errors have their cause."""

from __future__ import annotations

import asyncio

import pytest

from kopf_selectcache.errors import Stalled
from tests.apiserver.server import ApiServer
from tests.real.inprocess import operating, run
from tests.real.proxy import Fault, Proxy
from tests.real.test_provoked import PACE, create

FILTER = {"configmaps": "app=web"}


@pytest.mark.parametrize("code", [429, 503])
def test_refusals_that_pass_are_retried_as_the_server_asks(real_api: ApiServer, code: int) -> None:
    async def main() -> None:
        namespace = real_api.namespace()
        create(real_api, namespace, "hidden", kinds=("configmaps",))
        with Proxy(real_api) as proxy:
            async with operating(real_api, namespace, FILTER, url=proxy.url, pace=PACE) as operator:

                def refuse(times: int = 2, retry_after: str | None = "3") -> Fault:
                    proxy.faults[:] = [
                        Fault(
                            lambda asked: asked.path.startswith(f"/api/v1/namespaces/{namespace}/configmaps"),
                            code,
                            times,
                            retry_after=retry_after,
                        )
                    ]
                    return proxy.faults[0]

                cache = operator.cache
                fault = refuse()
                found = await cache.fetch("configmaps", "hidden", namespace=namespace, timeout=60 / PACE)
                uid = found["metadata"]["uid"]
                assert (found["metadata"]["name"], fault.hits) == ("hidden", 2)
                fault = refuse()
                assert [
                    each["metadata"]["name"]
                    for each in await cache.fetch_list(
                        "configmaps", names=["hidden"], namespace=namespace, timeout=60 / PACE
                    )
                ] == ["hidden"]
                assert fault.hits == 2
                fault = refuse()
                assert not await asyncio.to_thread(
                    lambda: cache.blocking.is_deleted(
                        "configmaps", "hidden", namespace=namespace, uid=uid, timeout=60 / PACE
                    )
                )
                assert fault.hits == 2
                refuse(1)
                with pytest.raises(Stalled) as info:
                    await cache.fetch("configmaps", "hidden", namespace=namespace)
                assert (info.value.code, info.value.reason, info.value.retry_after, info.value.transient) == (
                    code,
                    "Fault",
                    3.0,
                    True,
                )
                fault = refuse(10, "600")
                with pytest.raises(Stalled):
                    await cache.fetch("configmaps", "hidden", namespace=namespace, timeout=60)
                assert fault.hits == 1, "the server asks for more patience than there is"

    run(main())
