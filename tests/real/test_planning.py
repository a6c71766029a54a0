"""`cache.plan` on a real API server: the plan of a change is what the change does then, and it names the
rights that the operator lacks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_selectcache.core.store.packing import weight
from kopf_selectcache.informer.state import Relist
from kopf_selectcache.settings.planner import READ
from tests.apiserver.server import ApiServer
from tests.real.inprocess import operating, run

pytestmark = pytest.mark.real

KIND = "v1/configmaps"
EITHER = ["app=web", "tier=gold"]
RULE = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}


def config(name: str, **labels: str) -> dict[str, Any]:
    data = {"filling": name * 500}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": data,
    }


def test_16_a_plan_matches_the_change(real_api: ApiServer) -> None:
    async def main() -> None:
        namespace, user = real_api.namespace(), real_api.user()
        real_api.grant(user, [RULE], namespace)
        labels = ({"app": "web"}, {"tier": "gold"}, {"app": "web", "tier": "gold"}, {"app": "db"})
        for number in range(20):
            body = config(f"c-{number}", **labels[number % 4])
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            await asyncio.to_thread(real_api.request, "POST", path, body=body)
        async with operating(real_api, namespace, {KIND: "app=web"}, token=user.token) as operator:
            cache, informer = operator.cache, operator.runtime.informer(KIND)
            plan = await cache.plan(KIND, EITHER)
            assert [(each.query, each.reason) for each in plan.opened] == [
                ({"labelSelector": "app=web"}, Relist.MOVING),
                ({"labelSelector": "tier=gold"}, Relist.NEW),
            ]
            assert [each.query for each in plan.ended] == [{"labelSelector": "app=web"}]
            assert (plan.kept, plan.missing, plan.objects) == ((), (), 15)
            assert len(cache.list_cached(KIND)) == 10, "a plan changes nothing"
            ended = set(informer.state.reflectors)
            await cache.declare(KIND, EITHER, replace=True)
            assert ended.isdisjoint(informer.state.reflectors)
            assert cache.info(KIND).filter == plan.filter
            records = informer.state.store.records()[0]
            assert len(records) == plan.objects
            held = sum(map(weight, records))
            assert plan.bytes is not None
            assert held / 2 < plan.bytes < held * 2
            assert (await cache.plan(KIND, EITHER)).opened == ()
            anew = await cache.plan(KIND, EITHER, drop=["data"])
            assert [each.reason for each in anew.opened] == [Relist.PROJECTION] * 2
            assert anew.bytes is not None
            assert anew.bytes < plan.bytes

    run(main())


def test_16_a_plan_names_the_rights_that_the_operator_lacks(real_api: ApiServer) -> None:
    async def main() -> None:
        namespace, user = real_api.namespace(), real_api.user()
        real_api.grant(user, [RULE], namespace)
        async with operating(real_api, namespace, {KIND: "app=web"}, token=user.token) as operator:
            plan = await operator.cache.plan("v1/secrets", "app=web")
            (right,) = plan.missing or ()
            assert (right.resource, right.namespace, right.verbs) == ("secrets", namespace, READ)
            assert (plan.objects, plan.bytes) == (None, None)
            rule = {**RULE, "resources": ["secrets"]}
            await asyncio.to_thread(real_api.grant, user, [rule], namespace)
            plan = await operator.cache.plan("v1/secrets", "app=web")
            assert (plan.missing, plan.objects) == ((), 0)

    run(main())
