"""Objects of 900 KB on a real server: in which pages caches and fetches list them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.errors import MetricReason
from tests.apiserver.server import ApiServer
from tests.real.inprocess import operating, until

KIND, COUNT = "configmaps", 30


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The queries of all lists that are asked for."""
    queries: list[dict[str, str]] = []
    get = KopfTransport.get

    async def noted(self: KopfTransport, path: str, query: Mapping[str, str], **options: Any) -> bytes:
        if path.endswith(KIND):
            queries.append(dict(query))
        return await get(self, path, query, **options)

    monkeypatch.setattr(KopfTransport, "get", noted)
    return queries


def limits(asked: list[dict[str, str]]) -> list[int]:
    return [int(query["limit"]) for query in asked]


async def test_35_large_objects_are_listed_in_pages_of_4_mb_whose_limit_changes_within_one_list(
    real_api: ApiServer,
    asked: list[dict[str, str]],
) -> None:
    namespace = real_api.namespace()
    for number in range(COUNT):
        real_api.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/{KIND}",
            body={
                "metadata": {"name": f"large-{number}", "labels": {"app": "web"}},
                "data": {"value": f"{number:9}" * 100_000},
            },
        )
    async with operating(real_api, namespace, {KIND: "app=web"}, storage="raw") as operator:
        assert len(operator.holds(KIND)) == COUNT
        assert limits(asked) == [500, 31, 1, 2, *[4] * 7], (
            "a continue token of one limit is taken with another"
        )
        assert len({query.get("labelSelector") for query in asked}) == 1

        asked.clear()
        assert len([*await operator.cache.fetch_list(KIND, namespace=namespace, labels="app")]) == COUNT
        assert limits(asked) == [500, 31, 1, 2, *[4] * 7]

        asked.clear()
        informer = operator.runtime.informer(KIND)
        informer.state.reflectors[0].relist(MetricReason.AUDIT)
        await until(lambda: informer.counts.relists["audit"], "it is listed anew")
        assert limits(asked) == [4] * 8
        await operator.in_step(KIND)

        # As new as a version, the server may answer from its watch cache: this one keeps to the limit
        # there as well.
        asked.clear()
        answer = await asyncio.to_thread(
            real_api.request,
            "GET",
            f"/api/v1/namespaces/{namespace}/{KIND}",
            query={
                "limit": "4",
                "resourceVersion": informer.state.store.version,
                "resourceVersionMatch": "NotOlderThan",
            },
        )
        assert len(answer["items"]) == 4
        assert answer["metadata"]["continue"]
