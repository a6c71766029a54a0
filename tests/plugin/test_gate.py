"""The gate of handler calls: it looks at the caches only if one of them may not be settled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.client.transport import WritingTransport
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.plugin.changes import deliver_changes
from kopf_selectcache.plugin.operator import Operator, launch
from kopf_selectcache.settings.options import settings_of
from tests.faults.environment import until
from tests.kopf_operators import Answer, Cluster, context, cycles, declaring, pod

APPS = "/apis/example.com/v1/webapps"


class Paged(Cluster):
    """Lists have two pages, and the second one can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released = asyncio.Event(), asyncio.Event()

    async def answer(self, path: str, query: Mapping[str, str]) -> Answer:
        code, body = await super().answer(path, query)
        if "continue" in query:
            self.begun.set()
            await self.released.wait()
        elif code == 200 and "limit" in query:
            body = {**body, "metadata": {"resourceVersion": "10", "continue": "more"}}
        return code, body


@asynccontextmanager
async def operating(cluster: Cluster, *kinds: str, **options: Any) -> AsyncIterator[Operator]:
    """Run the caches of an operator that retries at once."""

    def make(settings: kopf.OperatorSettings, *, namespaces: tuple[str, ...] | None) -> Runtime:
        return Runtime(
            settings_of(settings),
            cast("WritingTransport", cluster),
            namespaces=namespaces,
            chance=lambda: 0.5,
            logger=logging.getLogger("tests"),
            sleep=lambda _: asyncio.sleep(0),
        )

    settings = declaring(**dict.fromkeys(kinds, ""))
    settings.peering.clusterwide = True
    with context(settings):
        operator = launch(settings, make_runtime=make, **options)
        try:
            yield operator
        finally:
            operator.task.cancel()
            await asyncio.wait({operator.task})


async def test_15_no_handler_is_called_before_the_caches_are_synced() -> None:
    registry, seen = kopf.OperatorRegistry(), list[str]()

    @selectcache.on.change("pods", registry=registry)
    async def follow(name: str, **_: Any) -> None:
        seen.append(name)

    cluster = Cluster(pod("a"))
    answer = cluster.hold(APPS)
    kinds = "v1/pods", "example.com/v1/webapps"
    async with operating(cluster, *kinds, registry=registry, beside=deliver_changes) as operator:
        await cluster.reached(APPS).wait()
        await until(lambda: operator.runtime.informer("v1/pods").state.is_synced)
        await cycles()
        assert seen == []
        answer.set()
        await until(lambda: seen == ["a"])


async def test_15_handlers_wait_while_a_kind_lists_that_was_not_served() -> None:
    cluster = Paged()
    cluster.refused["/apis/example.com/v1"] = 404
    cluster.released.set()
    async with operating(cluster, "v1/pods", "example.com/v1/webapps") as operator:
        while not operator.unsettling.is_settled:
            await operator.gate(None, None)
        cluster.released.clear()
        cluster.refused.clear()
        await until(lambda: not operator.runtime.informer("example.com/v1/webapps").state.is_resolving)
        waiting = asyncio.create_task(operator.gate(None, None))
        await cycles()
        assert not waiting.done()
        cluster.released.set()
        await waiting


async def test_15_a_handler_call_looks_at_no_cache_while_all_are_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, wait_until_settled = list[str](), Informer.wait_until_settled

    async def look(self: Informer, *given: Any) -> None:
        looks.append(self.key)
        await wait_until_settled(self, *given)

    monkeypatch.setattr(Informer, "wait_until_settled", look)
    async with operating(Cluster(), "v1/pods", "v1/secrets") as operator:
        await operator.gate(None, None)
        await operator.gate(None, None)  # One may have settled after another.
        assert {*looks} >= {"v1/pods", "v1/secrets"}
        looks.clear()
        await operator.gate(None, None)
        assert looks == []
