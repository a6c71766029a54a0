"""Loops of writes on a real server: they are slowed down, and named."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.plugin.brake import LIMIT_CALLS
from tests.apiserver.server import ApiServer
from tests.plugin.reconciling import APPS, CRD, app, config, operated
from tests.real.inprocess import run, until
from tests.real.proxy import Proxy
from tests.real.test_reconcile import Address, Objects


@pytest.mark.parametrize("is_undone", [True, False])
def test_17_a_loop_of_writes_is_slowed_down_on_a_real_server(
    is_undone: bool, start_api: Any, caplog: pytest.LogCaptureFixture
) -> None:
    registry, writes = kopf.OperatorRegistry(), Counter[str]()

    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, id="follow")
    async def follow(cache: selectcache.Cache, name: str, **_: Any) -> None:
        if not is_undone or name == "other":
            writes[name] += 1
            status = {"count": writes[name] if name == "web" else 1}
            await cache.live.patch(APPS, name, {"status": status}, namespace="shop", subresource="status")
        elif cache.get("configmaps", "child", namespace="shop")["data"]["size"] != "1":
            writes[name] += 1
            await cache.live.patch("configmaps", "child", {"data": {"size": "1"}}, namespace="shop")

    async def main(api: ApiServer) -> None:
        api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "shop"}})
        schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        await asyncio.to_thread(
            partial(api.create_crd, "example.com", "v1", "WebApp", "webapps", schema=schema, status=True)
        )
        objects = Objects(api)
        objects.create(app())
        uid = api.request("GET", "/apis/example.com/v1/namespaces/shop/webapps/web")["metadata"]["uid"]
        web = app() | {"metadata": {**app()["metadata"], "uid": uid}}
        objects.create(config("child", web, size="2"))

        @selectcache.on.change("configmaps", registry=registry)
        async def revert(name: str, new: Any, **_: Any) -> None:
            if name == "child" and new is not None and new["data"]["size"] == "1":
                await asyncio.to_thread(objects.patch, config("child"), {"data": {"size": "2"}})

        with Proxy(api) as proxy:
            async with operated(registry, Address(proxy.url, api.token)):
                await until(
                    lambda: "calls are delayed" in caplog.text or writes["web"] > 2 * LIMIT_CALLS,
                    "it is named",
                )
                before = writes["web"]
                objects.create(app("other"))
                await until(lambda: objects.statuses()["other"] == {"count": 1}, "others are called")
                assert LIMIT_CALLS <= before <= LIMIT_CALLS + 2

    caplog.set_level(logging.WARNING)
    run(main(start_api()))
    assert caplog.text.count("calls are delayed") == 1
