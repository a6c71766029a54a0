"""Answers to the writes of an Event are lost, and it occurs again before the repeat, on both servers."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Literal

import pytest
from aiohttp import web
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.recorder.correlator import Limits
from kopf_selectcache.recorder.events import EventType, Occurrence, Reference, Reporter
from kopf_selectcache.recorder.recording import Recording
from tests.real.inprocess import credentials
from tests.real.proxy import Loss, Proxy

from .places import Place
from .test_features_reconcile import run


def counts(place: Place) -> list[int]:
    """Return the count of each Event, as the core API has it."""
    events = place.api.request("GET", f"/api/v1/namespaces/{place.namespace}/events")["items"]
    return [event.get("count") or (event.get("series") or {"count": 1})["count"] for event in events]


def is_sent_by(method: str, request: web.Request) -> bool:
    return request.method == method


@pytest.mark.parametrize("lost", [("POST",), ("PATCH",), ("POST", "PATCH"), ("POST", "PATCH", "PATCH")])
@pytest.mark.parametrize("group_version", ["v1", "events.k8s.io/v1"])
def test_19_each_call_is_counted_once_although_answers_are_lost(
    place: Place, group_version: Literal["v1", "events.k8s.io/v1"], lost: tuple[str, ...]
) -> None:
    """Two calls before the first request, and one in each pause before a repeat, in two runs; of one message,
    and of a message in each call, which are aggregated.
    """
    calls = 0

    async def play(proxy: Proxy, limits: Limits, message: str) -> None:
        vault = Vault({"login": credentials(place.api, url=proxy.url)})

        def record(*_: Any) -> None:
            nonlocal calls
            calls += 1
            about = Reference("v1", "Pod", place.namespace, "web", "uid")
            text = message.format(calls)
            events.record(Occurrence(events.source, about, EventType.NORMAL, "Deployed", text))

        async def sleep(seconds: float) -> None:
            if seconds >= 1:  # It is the pause before a repeat.
                record()
            await asyncio.sleep(seconds / 100)

        events = Recording(
            KopfTransport(vault),
            limits,
            source=Reporter("webapps", "", "webapps", "webapps"),
            api=group_version,
            writes_per_second=None,
            sleep=sleep,
            chance=lambda: 0.5,
            logger=logging.getLogger("kopf_selectcache"),
        )
        proxy.losses = [Loss(partial(is_sent_by, method), True) for method in lost]
        events.start()
        record()
        for _ in range(2):
            record()
            # Nothing else tells that they are written.
            while events.stats().waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await events.end()
        assert [loss.hits for loss in proxy.losses] == [1] * len(lost)
        assert events.stats().failed == events.stats().rejected == events.stats().unsent == 0
        await vault.close()

    async def main() -> None:
        nonlocal calls
        with Proxy(place.api) as proxy:
            for _ in range(2):
                await play(proxy, Limits(), "It is deployed")
            assert counts(place) == [calls]
            alone = calls
            await play(proxy, Limits(similar=2), "It is release {}")
            assert sum(counts(place)) == calls > alone

    run(main())
