"""The protocol of peers: an order per line on standard input, an answer per line on standard output, in JSON.

The first line of a peer reports that everything is loaded and nothing is synced yet; or that it is `left out`
here, with the reason. Then it obeys:

- `sync`: store all pods. Answers the `seconds` that it took, and the number of `objects`.
- `collect`: free memory.
- `get`, `namespace`, `label`, `indexed`: read, repeated `times` times (a slow peer may stop after `seconds`),
  in this `form` (`""`, the result of a plain read; `view`, read-only; `typed`, some members, as a class
  declares them; `keys`; `kept`, plain, and all of them in memory at once). Each object of a list is made, by
  the list or by iterating over it. Answers `p50` and `p99` in microseconds, and the number of `objects`
  of a read.
- `until`: wait until a pod has an annotation, checking `every` that many seconds. Answers the time of the
  clock, `at`.
- `late`: wake on its event loop, if it has one, `every` that many seconds, for `seconds`. Answers `p50`,
  `p99` and `max` of the lateness, in milliseconds, and `counts`, the number of wakes no later than each
  of `BOUNDS`, and later than the one before.

It does not look at the results, and adds no more than a call to a read.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TextIO, TypeAlias

Order: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str]
"""Namespace and name."""
Read: TypeAlias = Callable[[int], Any]
"""One read of many: its number and its result. The result has a length, or is one object."""

LEFT_OUT = "left out"
FEWEST = 5
"""The most reads that are timed."""
BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
"""Milliseconds: the upper bounds of the bars of a histogram, except the last."""


class Peer(Protocol):
    """A cache of all pods."""

    def sync(self) -> None: ...

    def count(self) -> int: ...

    def read(self, order: Order) -> Read | None:
        """Return a read of this form; None if the peer has none."""

    def annotation(self, key: Key, name: str) -> str | None: ...


class Answers:
    """The stream of answers. Other output is redirected."""

    def __init__(self) -> None:
        self._out: TextIO = sys.stdout
        sys.stdout = sys.stderr

    def tell(self, answer: Answer) -> None:
        print(json.dumps(answer), file=self._out, flush=True)


def serve(
    peer: Peer,
    answers: Answers,
    *,
    clock: Callable[[], float] = time.perf_counter,
    loop: asyncio.AbstractEventLoop | None = None,
) -> None:
    """Obey orders until the input ends, and then end the process."""
    answers.tell({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answers.tell(obeyed(peer, order, clock=clock, loop=loop))
        except Exception as error:  # The asking process reports it.  # noqa: BLE001
            answers.tell({"error": f"{type(error).__name__}: {error}"[:400]})
    os._exit(0)


def obeyed(
    peer: Peer, order: Order, *, clock: Callable[[], float], loop: asyncio.AbstractEventLoop | None = None
) -> Answer:
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
        case "late":
            if loop is None:
                return {LEFT_OUT: "no event loop"}
            return lateness(
                asyncio.run_coroutine_threadsafe(
                    late(every=order["every"], seconds=order["seconds"]), loop
                ).result()
            )
    read = peer.read(order)
    return (
        {LEFT_OUT: "no such read"}
        if read is None
        else timed(read, order["times"], seconds=order["seconds"], clock=clock)
    )


def timed(read: Read, times: int, *, seconds: float, clock: Callable[[], float]) -> Answer:
    took: list[float] = []
    found: Any = None
    spent = 0.0
    while len(took) < times and (spent < seconds or len(took) < FEWEST):
        began = clock()
        found = read(len(took))
        took.append(clock() - began)
        spent += took[-1]
    objects = len(found) if isinstance(found, (list, tuple, set)) else found if isinstance(found, int) else 1
    return {**percentiles([1e6 * one for one in took]), "objects": objects}


async def late(*, every: float, seconds: float) -> list[float]:
    """Return the lateness of each wake in seconds. Every wake that was due while the loop was busy is late,
    not only the first.
    """
    loop = asyncio.get_running_loop()
    found: list[float] = []
    due = began = loop.time()
    while due < began + seconds:
        due += every
        await asyncio.sleep(due - loop.time())
        now = loop.time()
        found.append(max(0.0, now - due))
        while due + every <= now:
            due += every
            found.append(now - due)
    return found


def lateness(values: Sequence[float]) -> Answer:
    """Count the lateness of wakes, given in seconds.

    >>> lateness([0.0001, 0.0002, 0.0011, 0.7])
    {'p50': 1.1, 'p99': 700.0, 'max': 700.0, 'counts': [2, 1, 0, 0, 0, 0, 0, 0, 0, 1]}
    """
    found = [1e3 * value for value in values]
    counts = [0] * (len(BOUNDS) + 1)
    for one in found:
        counts[bisect_left(BOUNDS, one)] += 1
    return {**percentiles(found), "max": max(found), "counts": counts}


def percentiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100]}
