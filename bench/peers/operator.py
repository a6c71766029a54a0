"""An operator whose handler is called for each pod: `python -m bench.peers.operator MODE`.

- `plain`: Kopf alone. `two`: with a cache of all pods, and two watches. `one`: the cache feeds the handler.
- `reading`: as `one`, and the handler gets the pod from the cache.
- `index-plain`, `index-one`: with a `@kopf.index` of all pods in addition.

It takes orders as JSON. `start` starts the operator. `handled` waits until the handler was called for this
many `pods`, and for this many changes (`changed`), and until the cache is synced. `rest` waits until Kopf's
workers have ended, and frees memory.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import kopf

from bench.data import ROUND, round_of
from bench.peers.asking import Answer, Answers, Order
from bench.peers.kopfs import login

LOOK = 0.01
FEW_TASKS = 50
PAGE = 500


class Handled:
    """What the handler was called for."""

    def __init__(self) -> None:
        self.pods = 0
        self.changed = 0
        self.wait_synced: Callable[[], object] = lambda: None
        """Waits for the cache, whose list may come after that of Kopf's own watch."""

    def note(self, annotations: Mapping[str, str]) -> None:
        if annotations[ROUND] == FIRST:
            self.pods += 1
        else:
            self.changed += 1


FIRST = round_of(0)


def register(registry: kopf.OperatorRegistry, mode: str, handled: Handled) -> None:
    """Register the handlers of a mode."""
    if mode.startswith("index-"):

        @kopf.index("pods", registry=registry)
        def pods(namespace: str | None, name: str, body: kopf.Body, **_: Any) -> Any:
            return {(namespace, name): body["metadata"]["uid"]}

    if mode != "reading":

        @kopf.on.event("pods", registry=registry)
        async def handle(annotations: Mapping[str, str], **_: Any) -> None:
            handled.note(annotations)


def add_cache(registry: kopf.OperatorRegistry, mode: str, handled: Handled) -> None:
    """Add a cache of all pods."""
    # Plain Kopf does not even import the package.
    import kopf_selectcache as selectcache  # noqa: PLC0415

    @kopf.on.startup(registry=registry)
    def select(settings: kopf.OperatorSettings, **_: Any) -> None:
        ours = selectcache.settings_of(settings)
        ours.one_watch = not mode.endswith("two")
        ours.selectors["v1/pods"] = selectcache.EVERYTHING
        ours.gzip = False
        handled.wait_synced = selectcache.cache_of(settings).blocking.wait_synced

    if mode == "reading":

        @kopf.on.event("pods", registry=registry)
        @selectcache.with_cache
        async def read(
            annotations: Mapping[str, str], namespace: str, name: str, cache: selectcache.Cache, **_: Any
        ) -> None:
            assert cache.get("pods", name, namespace=namespace)
            handled.note(annotations)


def obeyed(order: Order, handled: Handled, loop: asyncio.AbstractEventLoop, begin: threading.Event) -> Answer:
    match order["do"]:
        case "start":
            begin.set()
        case "handled":
            while handled.pods < order["pods"] or handled.changed < order.get("changed", 0):
                time.sleep(LOOK)
            handled.wait_synced()
        case "rest":
            while len(asyncio.all_tasks(loop)) > FEW_TASKS:
                time.sleep(LOOK)
            gc.collect()
    return {}


def main(mode: str) -> None:
    answers, handled, begin = Answers(), Handled(), threading.Event()
    registry = kopf.OperatorRegistry()
    kopf.configure()
    kopf.on.login(registry=registry)(login)

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True
        if hasattr(settings.watching, "chunk_size"):
            settings.watching.chunk_size = PAGE  # As the cache has by default.
        await asyncio.to_thread(begin.wait)

    register(registry, mode, handled)
    if not mode.endswith("plain"):
        add_cache(registry, mode, handled)

    def serve(loop: asyncio.AbstractEventLoop) -> None:
        answers.tell({"ready": True})
        for line in sys.stdin:
            answers.tell(obeyed(json.loads(line), handled, loop, begin))
        os._exit(0)

    async def operate() -> None:
        threading.Thread(target=serve, args=[asyncio.get_running_loop()], daemon=True).start()
        await kopf.operator(registry=registry, clusterwide=True, standalone=True)

    asyncio.run(operate())


if __name__ == "__main__":
    main(sys.argv[1])
