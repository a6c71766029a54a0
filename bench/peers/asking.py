"""How a peer is told what to do: an order a line on its standard input, an answer a line on its standard
output, both JSON.

The first line that it writes says that all is loaded and nothing is synced yet; or that it is `left out`
here, and why. Then it obeys:

- `sync`: hold all pods. Answers how many `seconds` that took, and how many `objects` there are.
- `collect`: free what can be freed.
- `get`, `namespace`, `label`, `indexed`: read so many `times` (a slow peer may stop after so many `seconds`),
  in this `form` (`""`, what a plain read returns; `view`, not to be changed; `typed`, some members as a class
  has them; `keys`; `kept`, plain, and all of them there at once). Each object of a list is made, whether the
  list makes them or whoever goes through it. Answers `p50` and `p99` in microseconds, and how many `objects`
  a read gave.
- `until`: wait until a pod has an annotation, looking so `every` second. Answers `at` which time of the
  clock.
- `late`: on its event loop, if it has one, wake every `every` seconds, for so many `seconds`. Answers `p50`,
  `p99` and `max` of how late that was, in milliseconds, and `counts`, how many wakes were no later than each
  of `BOUNDS`, and later than the one before.

Must not look at what it reads, and adds to a read no more than a call.
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
"""One read of many: which of them, and what it returned. What is returned has a length, or is one object."""

LEFT_OUT = "left out"
FEWEST = 5
"""So many reads are timed, however long they take."""
BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
"""Milliseconds: where the bars of a histogram end, but for the last, which has no end."""


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


def serve(
    peer: Peer,
    answers: Answers,
    *,
    clock: Callable[[], float] = time.perf_counter,
    loop: asyncio.AbstractEventLoop | None = None,
) -> None:
    """Obey until the input ends, and the process with it."""
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
    """Return how late each wake was, in seconds. All that were due while the loop was busy were late, and not
    the first alone.
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
    """Count what was that late, given in seconds.

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
