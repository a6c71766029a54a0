"""Measure one checkout, old or new: a program that `bench.pairs` runs by its path, once for each checkout.

    python -P bench/checkout.py CHECKOUT OBJECTS SHARE

OBJECTS has pods, one JSON object a line; SHARE multiplies the numbers of events and listed pods. Prints the
figures as JSON: CPU times, and bytes of memory. Uses only what 0.1.0 and later versions have alike, and no
other module of this folder: those are of the new checkout.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import timeit
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any

KEY = "v1/pods"
FILTER = "app"
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
CHUNK = 64 * 1024
PAGE = 500
LISTED = 5_000
EVENTS = 20_000
LARGE_EVENTS = 2_000
LONE_EVENTS = 4_000
EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}\n'  # A line of a watch is not broken.  # noqa: E501

Figures = dict[str, float]


def find(name: str, *modules: str) -> Any:
    """Return a name of the first of these modules that exists: 0.1.0 has other modules."""
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(" or ".join(modules))


def pod(number: int, round_: int) -> dict[str, Any]:
    """Return a small pod."""
    metadata = {
        "name": f"web-{number:05}",  # Servers list objects by name.
        "namespace": "shop",
        "uid": f"u-{number}",
        "resourceVersion": str(1_000_000 + number),
        "labels": {"app": "web", "n": str(number % 20)},
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "main", "image": "nginx:1.29", "args": ["x" * 400]}],
        },
        "status": {"phase": "Running", "message": str(round_)},
    }


class Server:
    """A server in process: it lists its pods in pages, and sends what is put into its queue to the watch."""

    def __init__(self, pods: Sequence[Mapping[str, Any]]) -> None:
        self.versions = count(2_000_000)
        self.chunks: asyncio.Queue[Sequence[bytes]] = asyncio.Queue()
        self.opened = asyncio.Event()
        """Set whenever a watch is opened: the list before it is complete."""
        version = str(next(self.versions))
        self.pages = {
            str(start) if start else "": json.dumps(
                {
                    "kind": "PodList",
                    "apiVersion": "v1",
                    "metadata": {
                        "resourceVersion": version,
                        **({"continue": str(start + PAGE)} if start + PAGE < len(pods) else {}),
                    },
                    "items": [
                        {key: value for key, value in each.items() if key not in ("kind", "apiVersion")}
                        for each in pods[start : start + PAGE]
                    ],
                },
                separators=(",", ":"),
            ).encode()
            for start in range(0, len(pods), PAGE)
        }

    async def get(self, path: str, query: Mapping[str, str], **_: object) -> bytes:
        return self.pages[query.get("continue", "")] if path == PATH else json.dumps(SERVED[path]).encode()

    @asynccontextmanager
    async def watch(self, *_: object, **__: object) -> AsyncIterator[AsyncIterator[bytes]]:
        self.opened.set()
        yield self._chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            for chunk in await self.chunks.get():
                yield chunk


def lines(pods: Sequence[Mapping[str, Any]], number: int, versions: Iterator[int]) -> list[bytes]:
    """Return changes of pods as lines of a watch, each with a newer version."""
    found = []
    for index in range(number):
        each = pods[index % len(pods)]
        metadata = {**each["metadata"], "resourceVersion": str(next(versions))}
        event = {"type": "MODIFIED", "object": {**each, "metadata": metadata}}
        found.append(json.dumps(event, separators=(",", ":")).encode() + b"\n")
    return found


def chunked(data: bytes) -> list[bytes]:
    """Return the bytes as a busy server's socket has them: a chunk ends anywhere."""
    return [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]


class Followed:
    """The cache of a server's pods, with one listener."""

    def __init__(self, server: Server) -> None:
        self.server = server
        options = find(
            "SelectCacheSettings", "kopf_selectcache.settings.options", "kopf_selectcache.settings"
        )
        settings = options(audit_interval=0, storage="raw")
        settings.selectors[KEY] = FILTER
        runtime = find("Runtime", "kopf_selectcache.informer.informers", "kopf_selectcache.runner")(
            settings,
            server,
            namespaces=None,
            chance=lambda: 0.0,
            logger=logging.getLogger("bench"),
            sleep=lambda seconds: asyncio.sleep(min(seconds, 0.001)),
        )
        self._task = asyncio.create_task(runtime.run())
        self.informer = (runtime.informers if hasattr(runtime, "informers") else runtime.feeds)[KEY]
        self.informer.subscribe(self._note)
        self.changes = 0
        self._awaited: int | None = None
        self._reached = asyncio.Event()

    def _note(self, change: object) -> None:
        if change is not None:
            self.changes += 1
            if self.changes == self._awaited:
                self._reached.set()

    async def notifications(self, number: int) -> None:
        """Wait until the listener was called this often since the start."""
        self._awaited = number
        self._reached.clear()
        if self.changes < number:
            await self._reached.wait()

    async def watched(self) -> None:
        """Wait until a list is complete, and the watch after it is open."""
        await self.server.opened.wait()
        self.server.opened.clear()

    async def send(self, chunks: Sequence[bytes], events: int) -> float:
        """Send chunks with this many events; return the CPU time until the listener has had them all."""
        gc.collect()
        goal, begun = self.changes + events, process_time()
        self.server.chunks.put_nowait(chunks)
        await self.notifications(goal)
        return process_time() - begun

    async def relist(self) -> float:
        """End the watch with 410; return the CPU time until all is listed again and watched."""
        gc.collect()
        begun = process_time()
        self.server.chunks.put_nowait([EXPIRED])
        await self.watched()
        return process_time() - begun

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def events(pods: Sequence[Mapping[str, Any]], number: int, *, alone: bool = False) -> float:
    """Return the CPU of an event in microseconds, from the bytes of the watch to the listener."""
    server = Server(pods)
    followed = Followed(server)
    await followed.watched()
    best = float("inf")
    for _ in range(3):
        sent = lines(pods, number, server.versions)
        chunks = sent if alone else chunked(b"".join(sent))
        best = min(best, await followed.send(chunks, number))
    await followed.end()
    return best / number * 1e6


async def lists(pods: Sequence[Mapping[str, Any]]) -> Figures:
    """Measure the first list and a relist of all pods, in pages, and the memory of the stored pods."""
    server, found = Server(pods), Figures()

    async def first() -> tuple[Followed, float]:
        gc.collect()
        begun = process_time()
        followed = Followed(server)
        await followed.watched()
        return followed, process_time() - begun

    best = relisted = float("inf")
    for _ in range(3):
        followed, seconds = await first()
        best, relisted = min(best, seconds), min(relisted, await followed.relist())
        await followed.end()
        del followed
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    followed, _ = await first()
    _, peak = tracemalloc.get_traced_memory()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    await followed.relist()
    _, again = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await followed.end()
    found[f"a list of {len(pods):,}, ms"] = best * 1e3
    found[f"a relist of {len(pods):,}, ms"] = relisted * 1e3
    found["a stored pod, bytes"] = (after - before) / len(pods)
    found["a pod at the peak of the list, bytes"] = (peak - before) / len(pods)
    found["a pod at the peak of the relist, bytes"] = (again - before) / len(pods)
    return found


def best(call: Callable[[], object], number: int) -> float:
    """Return the microseconds of the fastest repetition."""
    call()
    return min(timeit.repeat(call, timer=process_time, number=number, repeat=7)) / number * 1e6


def failing(call: Callable[[], object]) -> Callable[[], str]:
    """Return a call that returns the text of the error that it raises."""

    def fail() -> str:
        try:
            call()
        except Exception as error:  # Its class differs between versions.  # noqa: BLE001
            return str(error)
        raise AssertionError("it raises no error")

    return fail


def reads() -> Figures:
    """Measure reads of 200 pods, and one line of a watch."""
    fake: Any = find("FakeCache", "kopf_selectcache.testing")
    stored = [pod(number, 0) for number in range(200)]
    for each in stored:
        del each["metadata"]["uid"], each["metadata"]["resourceVersion"]
    cache = fake(stored, {KEY: "app=web"})
    of_shop = fake(stored, {KEY: find("Selector", "kopf_selectcache")(namespaces=["shop"])})
    reader = find("Reader", "kopf_selectcache.core.protocol.decoder", "kopf_selectcache.core.wire")(
        "v1", "Pod"
    )
    event = {"type": "MODIFIED", "object": pod(1, 1)}
    line, with_blanks = json.dumps(event, separators=(",", ":")).encode(), json.dumps(event).encode()
    label = "app=web,n=3"
    found: Figures = {
        "get": best(lambda: cache.get("pods", "web-00003", namespace="shop"), 2000),
        "get as a view": best(lambda: cache.get("pods", "web-00003", namespace="shop", as_="view"), 2000),
        "get of a missing pod, with a default": best(
            lambda: of_shop.get("pods", "none", namespace="shop", default=None), 2000
        ),
        "get of a missing pod": best(failing(lambda: of_shop.get("pods", "none", namespace="shop")), 500),
        "get outside of the filter": best(
            failing(lambda: of_shop.get("pods", "none", namespace="other")), 500
        ),
        "list of 10, by an index": best(lambda: cache.list("pods", labels=label), 500),
        "list of 10, decoded": best(lambda: list(cache.list("pods", labels=label)), 200),
        "count": best(lambda: cache.count("pods", labels=label), 500),
        "a line of a watch, decoded": best(lambda: reader.line(line), 2000),
        "a line that is written with blanks": best(lambda: reader.line(with_blanks), 2000),
    }
    return {f"{name}, µs": microseconds for name, microseconds in found.items()}


async def informers(large: Sequence[Mapping[str, Any]], share: float) -> Figures:
    """Measure events and lists."""
    small = [pod(number, 0) for number in range(1_000)]
    listed = [pod(number, 0) for number in range(round(share * LISTED))]
    return {
        "an event of a burst, small pods, µs": await events(small, round(share * EVENTS)),
        "an event of a burst, large pods, µs": await events(large, round(share * LARGE_EVENTS)),
        "an event that comes alone, µs": await events(small, round(share * LONE_EVENTS), alone=True),
        **await lists(listed),
    }


def main() -> None:
    checkout, objects, share = sys.argv[1:]
    sys.path.insert(0, checkout)
    logging.disable()
    large = [json.loads(text) for text in Path(objects).read_bytes().splitlines()]
    for number, each in enumerate(large):
        each["metadata"]["resourceVersion"] = str(1_000_000 + number)
    print(json.dumps({**reads(), **asyncio.run(informers(large, float(share)))}))


if __name__ == "__main__":
    main()
