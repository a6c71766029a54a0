"""Masses of objects are read in slices: everybody else on Kopf's loop goes on in between."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from kopf_selectcache import Selector
from kopf_selectcache.client.fetcher import Fetcher
from kopf_selectcache.client.transport import WritingTransport
from kopf_selectcache.core.protocol.decoder import OBJECT_COST_BYTES, SLICE_BYTES, Reader
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.options import SelectCacheSettings
from tests.faults.environment import Time

COUNT = 1000
PATH = "/api/v1/pods"
SERVED = {
    "/api/v1": {
        "kind": "APIResourceList",
        "resources": [
            {
                "name": "pods",
                "singularName": "pod",
                "namespaced": True,
                "kind": "Pod",
                "verbs": ["list", "watch"],
            }
        ],
    }
}


def pod(number: int, version: int) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"p-{number}",
            "namespace": "shop",
            "uid": f"u-{number}",
            "resourceVersion": str(version),
        },
        "spec": "x" * 1000,
    }


PAGE = json.dumps(
    {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(COUNT)},
        "items": [pod(number, number + 1) for number in range(COUNT)],
    }
).encode()
EVENTS = b"".join(
    json.dumps(
        {"type": "MODIFIED", "object": {"kind": "Pod", "apiVersion": "v1", **pod(number, COUNT + number + 1)}}
    ).encode()
    + b"\n"
    for number in range(COUNT)
)
SLICES = COUNT * (1000 + OBJECT_COST_BYTES) // SLICE_BYTES
"""So many there are at least."""


class Flood:
    """A server that has all that is asked for at hand: who reads from it never has to wait. It sends its
    events once told to."""

    def __init__(self, *events: bytes) -> None:
        self.begin = asyncio.Event()
        self.seen: list[str] = []
        """The versions of the cache that somebody else on the loop saw, turn by turn."""
        self.turns: list[int] = []
        """How many turns somebody else had had whenever a piece of the watch was read."""
        self._events = events

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = "", most: int | None = None
    ) -> bytes:  # As transports are called.
        return PAGE if path == PATH else json.dumps(SERVED[path]).encode()

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], **_: object
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        await self.begin.wait()
        for chunk in self._events:
            self.turns.append(len(self.seen))
            yield chunk
        await asyncio.Event().wait()


async def versions_seen(flood: Flood) -> list[str]:
    """Take in all events; return what somebody else on the loop saw meanwhile."""
    settings = SelectCacheSettings(audit_interval=0, storage="raw")
    settings.selectors.update({"v1/pods": Selector()})
    time = Time()
    runtime = Runtime(
        settings,
        cast("WritingTransport", flood),
        namespaces=None,
        chance=lambda: 1.0,
        logger=logging.getLogger("kopf_selectcache"),
        clock=time.clock,
        sleep=time.sleep,
    )
    task = asyncio.create_task(runtime.run())
    seen = flood.seen
    try:
        while seen[-1:] != [str(2 * COUNT)]:
            await asyncio.sleep(0)
            seen.append(version := runtime.informer("v1/pods").state.store.version)
            if version == str(COUNT):
                flood.begin.set()
    finally:
        task.cancel()
        await asyncio.wait([task])
    return seen


async def test_others_go_on_while_one_chunk_of_a_watch_is_taken_in() -> None:
    assert len(set(await versions_seen(Flood(EVENTS)))) >= SLICES


async def test_others_go_on_while_chunks_come_that_end_no_line() -> None:
    flood = Flood(*[b"\n"] * 50 * (SLICE_BYTES // OBJECT_COST_BYTES), EVENTS)
    await versions_seen(flood)
    assert flood.turns[-1] - flood.turns[0] >= 50


async def test_others_go_on_while_the_first_list_is_read() -> None:
    assert (await versions_seen(Flood(EVENTS))).count("") >= SLICES


async def test_others_go_on_while_a_page_is_read() -> None:
    turns, over = 0, False

    async def others() -> None:
        nonlocal turns
        while not over:
            await asyncio.sleep(0)
            turns += 1

    kind = find("pods")
    assert kind is not None
    fetches = Fetcher(Flood(), per_second=1000.0)
    asked = await fetches.get(PATH, {})  # Whatever it takes to ask has been seen.
    assert asked == PAGE
    task = asyncio.create_task(others())
    page = await fetches.page(
        PATH, Paging({}, page_limit=500, patience=0.0), Reader.of(Resource(kind, "v1"), ALL)
    )
    seen, over = turns, True
    await task
    assert len(page.records) == COUNT
    assert seen >= SLICES
