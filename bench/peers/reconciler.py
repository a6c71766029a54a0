"""An operator with a reconciler that `bench.reconcile_cost` measures: `python -m bench.peers.reconciler`. It
notes the last state of each ConfigMap and of the pods that it owns.

An order per line on standard input, an answer per line on standard output, in JSON:

- `start`: start the operator, with this `limit` of calls at the same time.
- `handle`: from now on, a call `takes` this number of seconds, and with `writes` it writes the state into an
  annotation.
- `until`: wait until the last noted state of each of these ConfigMaps is the one in `states`; answer the time
  of the clock, `at`, when the last of them was noted.
- `runs`: answer the number of calls so far.

`go_reconciler` obeys the same orders.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import kopf

import kopf_selectcache as selectcache
from bench.peers.asking import Answer, Answers, Order
from bench.peers.kopfs import login

LABEL = "bench"
"""The label of the objects, which is `yes`."""
NUMBER = "n"
"""The label with the number of the last change of an object."""
WRITTEN = "bench/written"
"""The annotation with the state."""
LOOK = 0.02
"""Seconds between two looks at the states."""


class Noted:
    """The states that a reconciler has seen, and how it is to behave."""

    def __init__(self) -> None:
        self.runs = 0
        self.takes = 0.0
        self.writes = False
        self._seen: dict[str, tuple[list[int], float]] = {}

    def note(self, name: str, state: list[int]) -> None:
        """Note the state of a ConfigMap, with the time if it is another one."""
        before, _ = self._seen.get(name, (None, 0.0))
        if before != state:
            self._seen[name] = state, time.time()

    def reached(self, states: Mapping[str, Sequence[int]]) -> float | None:
        """Return when the last of these states was noted; None while one is missing."""
        found = [self._seen.get(name, (None, 0.0)) for name in states]
        if any(state != list(wanted) for (state, _), wanted in zip(found, states.values(), strict=True)):
            return None
        return max(at for _, at in found)


def number_of(labels: Mapping[str, str]) -> int:
    return int(labels.get(NUMBER, 0))


def value_of(state: Sequence[int]) -> str:
    return "-".join(map(str, state))


def register(registry: kopf.OperatorRegistry, noted: Noted, limit: int) -> None:
    """Register the reconciler, and what its caches hold."""

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        select = selectcache.settings_of(settings).selectors
        select["v1/configmaps"] = select["v1/pods"] = f"{LABEL}=yes"

    @selectcache.reconcile("configmaps", owns=["pods"], limit=limit, registry=registry)
    async def reconcile(
        name: str,
        body: Any,
        labels: Any,
        annotations: Any,
        cache: selectcache.Cache,
        patch: kopf.Patch,
        **_: Any,
    ) -> None:
        noted.runs += 1
        owned = cache.list_cached("pods", owner=body)
        if noted.takes:
            await asyncio.sleep(noted.takes)
        state = [number_of(labels), sum(number_of(pod["metadata"]["labels"]) for pod in owned)]
        value = value_of(state)
        if noted.writes and annotations.get(WRITTEN) != value:
            patch.metadata.annotations[WRITTEN] = value
        noted.note(name, state)


def obeyed(order: Order, noted: Noted, begin: Future[int]) -> Answer:
    match order["do"]:
        case "start":
            begin.set_result(order["limit"])
        case "handle":
            noted.takes, noted.writes = order["takes"], order["writes"]
        case "until":
            while (at := noted.reached(order["states"])) is None:
                time.sleep(LOOK)
            return {"at": at}
        case "runs":
            return {"runs": noted.runs}
    return {}


def main() -> None:
    answers, noted, begin = Answers(), Noted(), Future[int]()
    kopf.configure()

    def serve() -> None:
        answers.tell({"ready": True})
        for line in sys.stdin:
            answers.tell(obeyed(json.loads(line), noted, begin))
        os._exit(0)

    threading.Thread(target=serve, daemon=True).start()
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(login)
    register(registry, noted, begin.result())
    asyncio.run(kopf.operator(registry=registry, clusterwide=True, standalone=True))


if __name__ == "__main__":
    main()
