"""Two watches keep one cache, and one is quiet: deletions that the other tells become visible after a handful
of lists. On both servers."""

from __future__ import annotations

import asyncio

from tests.apiserver.cluster import Cluster

from .inprocess import operating, run, until

DELETED = 200


def test_200_deletions_become_visible_after_a_handful_of_requests_and_gone_knows_of_them_before(
    api: Cluster,
) -> None:
    namespace = api.namespace(prefix="quiet")
    path = f"/api/v1/namespaces/{namespace}/configmaps"

    def create(name: str, **labels: str) -> None:
        api.request("POST", path, body={"metadata": {"name": name, "labels": labels}})

    async def main() -> None:
        answered: list[str] = []
        for number in range(DELETED):
            create(f"web-{number:03}", app="web")
        create("gold", tier="gold")
        async with operating(
            api, namespace, {"v1/configmaps": ["app=web", "tier=gold"]}, asked=lambda: answered.append("list")
        ) as operator:
            cache, informer = operator.cache, operator.runtime.informer("v1/configmaps")
            await until(
                lambda: cache.count("configmaps", namespace=namespace, labels="app=web") == DELETED,
                "all are held",
            )
            before = len(answered)
            await asyncio.to_thread(api.request, "DELETE", path, query={"labelSelector": "app=web"})
            await until(
                lambda: (
                    informer.state.union.unconfirmed or not cache.list_cached("configmaps", labels="app=web")
                ),
                "the first watch has told",
            )
            shown = [informer.state.union.shown(key) for key in informer.state.union.unconfirmed]
            for doubt in [record for record in shown if record is not None][:3]:
                assert await cache.is_deleted("configmaps", doubt.name, namespace=namespace, uid=doubt.uid)
            await until(
                lambda: not cache.list("configmaps", namespace=namespace, labels="app=web"),
                "none is shown any more",
            )
            assert [each["metadata"]["name"] for each in cache.list_cached("configmaps", labels="tier")] == [
                "gold"
            ]
            assert len(answered) - before <= 10, (
                "a list or two of the other stream, and what asked if they are deleted"
            )
            print(f"{len(answered) - before} requests")

    run(main())
