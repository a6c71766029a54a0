"""A replica of an operator that `bench.replicas` measures: `python -m bench.peers.replica`. It reconciles
ConfigMaps, and does nothing with them.

An order per line on standard input, an answer per line on standard output, in JSON:

- `start`: start the operator. The environment has the name of the replica (`POD_NAME`), and the options of
  its `Sharding` as JSON.
- `status`: answer the ranges that it handles, the cached `objects`, the number of calls (`runs`), the bytes
  that it has `received`, and how many of its objects were seen with the number of this `round`.
- `collect`: free memory.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
from collections import defaultdict
from concurrent.futures import Future
from typing import Any

import aiohttp.client_proto
import kopf

import kopf_selectcache as selectcache
from bench.peers.asking import Answer, Answers, Order
from bench.peers.kopfs import login
from bench.peers.reconciler import LABEL, number_of
from kopf_selectcache.plugin.operator import operator_of

KIND = "v1/configmaps"


class Seen:
    """What this replica has seen so far."""

    def __init__(self) -> None:
        self.received = 0
        self.runs = 0
        self.settings: kopf.OperatorSettings | None = None
        self.keys: dict[int, set[tuple[str, str]]] = defaultdict(set)
        """By the number of the round."""

    def count_received(self) -> None:
        """Count what comes over the connections of this process from now on, as the HTTP client reads it."""
        handler = aiohttp.client_proto.ResponseHandler
        take = handler.data_received

        def data_received(protocol: Any, data: bytes) -> None:
            self.received += len(data)
            take(protocol, data)

        setattr(handler, "data_received", data_received)  # Checkers take it for a method.  # noqa: B010

    def answer(self, round_: int) -> Answer:
        found = {"received": self.received, "runs": self.runs, "seen": len(self.keys[round_])}
        operator = None if self.settings is None else operator_of(self.settings)
        if operator is None or operator.shards is None:
            return found | {"ranges": 0, "objects": 0}
        shards = operator.shards
        ranges = sum(shards.ownership.term_of(each) is not None for each in range(shards.ranges))
        records, _ = operator.runtime.informer(KIND).state.store.records()
        return found | {"ranges": ranges, "objects": len(records)}


def register(registry: kopf.OperatorRegistry, seen: Seen) -> None:
    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        ours = selectcache.settings_of(settings)
        options = json.loads(os.environ["BENCH_SHARDING"])
        static = options.pop("static", None)
        ours.sharding = selectcache.Sharding(static=None if static is None else tuple(static), **options)
        ours.selectors[KIND] = f"{LABEL}=yes"
        seen.settings = settings

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(name: str, namespace: str, labels: Any, **_: Any) -> None:
        seen.runs += 1
        seen.keys[number_of(labels)].add((namespace, name))


def obeyed(order: Order, seen: Seen, begin: Future[None]) -> Answer:
    match order["do"]:
        case "start":
            begin.set_result(None)
        case "status":
            return seen.answer(order["round"])
        case "collect":
            gc.collect()
    return {}


def main() -> None:
    answers, seen, begin = Answers(), Seen(), Future[None]()
    kopf.configure()
    seen.count_received()

    def serve() -> None:
        answers.tell({"ready": True})
        for line in sys.stdin:
            answers.tell(obeyed(json.loads(line), seen, begin))
        os._exit(0)

    threading.Thread(target=serve, daemon=True).start()
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(login)
    register(registry, seen)
    begin.result()
    asyncio.run(kopf.operator(registry=registry, clusterwide=True, standalone=True))


if __name__ == "__main__":
    main()
