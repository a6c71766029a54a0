"""Changes to namespaces by label on both servers: who follows the cache sees each departure once."""

from __future__ import annotations

import asyncio
from collections import Counter

from kopf_selectcache import Selector
from kopf_selectcache.selectors.text import LabelSelector
from tests.apiserver.cluster import Cluster
from tests.real.inprocess import operating, until
from tests.real.test_filter_change import KIND, config

BY_LABEL = Selector("app=web", namespaces=LabelSelector.parse("tenant=yes"))
NAMES = [f"web-{number}" for number in range(5)]


def mark(api: Cluster, path: str, tenant: str | None) -> None:
    api.request("PATCH", path, body={"metadata": {"labels": {"tenant": tenant}}})


async def test_15_each_departure_by_a_change_to_namespaces_by_label_is_seen_once(api: Cluster) -> None:
    namespace = api.namespace()
    path = f"/api/v1/namespaces/{namespace}"
    for name in NAMES:
        api.request("POST", f"{path}/configmaps", body=config(name, {"app": "web"}))
    async with operating(api, namespace, {KIND: "app=web"}) as operator:
        cache, seen = operator.cache, [Counter[tuple[str, str]](), Counter[tuple[str, str]]()]

        async def follow(seen: Counter[tuple[str, str]], **options: str) -> None:
            async for change in cache.changes(KIND, **options):  # type: ignore[arg-type]  # The label.
                seen[change.name, "departs" if change.new is None else "enters"] += 1

        tasks = [
            asyncio.create_task(follow(seen[0])),
            asyncio.create_task(follow(seen[1], labels="app=web")),
        ]
        present = Counter[tuple[str, str]]()

        async def all_of(what: str) -> None:
            present.update((name, what) for name in NAMES)
            await until(lambda: all(each == present for each in seen), f"followers have seen {present}")

        await all_of("enters")
        for _ in range(3):
            await cache.declare(KIND, BY_LABEL, replace=True)
            await all_of("departs")
            await asyncio.to_thread(mark, api, path, "yes")
            await all_of("enters")
            await asyncio.to_thread(mark, api, path, None)
            await all_of("departs")
            await cache.declare(KIND, "app=web", replace=True)
            await all_of("enters")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
