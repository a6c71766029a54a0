"""How a peer is told what to do: an order a line on its standard input, an answer a line on its standard output, both JSON.

The first line that it writes says that all is loaded and nothing is synced yet. Then it obeys:

- `sync`: hold all pods. Answers how many `seconds` that took, and how many `objects` there are.
- `collect`: free what can be freed.
- `get`, `namespace`, `label`, `indexed`: read so many `times`, in this `form` (`""`, what a plain read returns; `view`, not
  to be changed; `typed`; `keys`). Answers `p50` and `p99` in microseconds, and how many `objects` a read gave.
- `until`: wait until a pod has an annotation, looking so `every` second. Answers `at` which time of the clock.

Must not look at what it reads, and adds to a read no more than a call.
"""
from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TextIO, TypeAlias

Order: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str]
"""Namespace and name."""
Read: TypeAlias = Callable[[int], Any]
"""One read of many: which of them, and what it returned. What is returned has a length, or is one object."""

LEFT_OUT = "left out"


class Peer(Protocol):
    """A cache of all pods."""

    def sync(self) -> None: ...

    def count(self) -> int: ...

    def read(self, order: Order) -> Read | None:
        """Return what reads so; None if it has no such read."""

    def annotation(self, key: Key, name: str) -> str | None: ...


class Answers:
    """Where answers go. Whatever else is printed is none."""

    def __init__(self) -> None:
        self._out: TextIO = sys.stdout
        sys.stdout = sys.stderr

    def tell(self, answer: Answer) -> None:
        print(json.dumps(answer), file=self._out, flush=True)


def serve(peer: Peer, answers: Answers, *, clock: Callable[[], float] = time.perf_counter) -> None:
    """Obey until the input ends, and the process with it."""
    answers.tell({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answers.tell(obeyed(peer, order, clock=clock))
        except Exception as error:   # noqa: BLE001  # Whoever asked is to know.
            answers.tell({"error": f"{type(error).__name__}: {error}"[:400]})
    os._exit(0)


def obeyed(peer: Peer, order: Order, *, clock: Callable[[], float]) -> Answer:
    match order["do"]:
        case "sync":
            began = clock()
            peer.sync()
            return {"seconds": clock() - began, "objects": peer.count()}
        case "collect":
            gc.collect()
            return {}
        case "until":
            (namespace, name), (annotation, value) = order["keys"][0], order["annotation"]
            while peer.annotation((namespace, name), annotation) != value:
                time.sleep(order["every"])
            return {"at": time.time()}
    read = peer.read(order)
    return {LEFT_OUT: "no such read"} if read is None else timed(read, order["times"], clock=clock)


def timed(read: Read, times: int, *, clock: Callable[[], float]) -> Answer:
    took = []
    found: Any = None
    for index in range(times):
        began = clock()
        found = read(index)
        took.append(clock() - began)
    objects = len(found) if isinstance(found, (list, tuple, set)) else found if isinstance(found, int) else 1
    return {**percentiles([1e6 * one for one in took]), "objects": objects}


def percentiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100]}
