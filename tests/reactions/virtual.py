"""Runs scripts on our queue in virtual time, as tests/oracle/workqueue does on those of Go. A script is
data: see `Script`."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TypedDict

from kopf_selectcache import Key
from kopf_selectcache.reactions.queue import Cause, WorkQueue

SECOND = 1_000_000_000


class Operation(TypedDict):
    """Times and durations are nanoseconds, from the start of the script."""

    at: int
    op: str
    """`add`, `limited` or `forget`."""
    key: str
    after: int
    priority: int


Ending = TypedDict("Ending", {"for": int, "then": str, "after": int})
"""How long a run takes, and if it is then `done`, has to `fail`, or is run again `after` some time."""


class Script(TypedDict):
    """What happens to a queue."""

    queue: str
    """Whose: `client-go` or `controller-runtime`."""
    workers: int
    ops: list[Operation]
    runs: dict[str, list[Ending]]
    """The runs of each key, in order; the last one repeats."""
    until: int


class HandOut(TypedDict):
    at: int
    key: str
    priority: int


class Answer(TypedDict):
    """What was handed out, and the metrics at the end."""

    taken: list[HandOut]
    adds: int
    retries: int
    depth: int


def play(script: Script, *, ageing: float) -> Answer:
    """Return what our queue hands out."""
    now = [0]
    queue = WorkQueue(clock=lambda: now[0] / SECOND, chance=lambda: 0.0, ageing=ageing)
    numbers = count()
    events: list[tuple[int, int, Operation | None, tuple[Key, int, Ending] | None]] = []
    for op in script["ops"]:
        heappush(events, (op["at"], next(numbers), op, None))
    taken: list[HandOut] = []
    counts: dict[str, int] = {}
    idle = script["workers"]

    def take() -> None:
        nonlocal idle
        while idle and (run := queue.take()) is not None:
            name = run.key.name
            taken.append({"at": now[0], "key": name, "priority": run.priority})
            runs = script["runs"][name]
            ending = runs[min(counts.get(name, 0), len(runs) - 1)]
            counts[name] = counts.get(name, 0) + 1
            idle -= 1
            heappush(events, (now[0] + ending["for"], next(numbers), None, (run.key, run.priority, ending)))

    while True:
        due = queue.next_due() if idle else None
        next_due = None if due is None else int(due * SECOND) + 1
        at = min(
            (each for each in (next_due, events[0][0] if events else None) if each is not None), default=None
        )
        if at is None or at > script["until"]:
            break
        now[0] = max(now[0], at)
        if events and events[0][0] <= at:
            _, _, operation, ended = heappop(events)
            if operation is not None:
                _apply(operation, queue)
            if ended is not None:
                key, priority, ending = ended
                if ending["then"] == "fail":
                    queue.add_rate_limited(key, priority=priority)
                else:
                    queue.forget(key)
                    if ending["then"] == "after":
                        queue.add_after(key, ending["after"] / SECOND, priority=priority)
                queue.done(key)
                idle += 1
        take()
    now[0] = script["until"]
    metrics = queue.metrics()
    return {
        "taken": taken,
        "adds": metrics.adds_total,
        "retries": metrics.retries_total,
        "depth": metrics.depth,
    }


def _apply(op: Operation, queue: WorkQueue) -> None:
    key = Key(op["key"])
    if op["op"] == "forget":
        queue.forget(key)
    elif op["op"] == "limited":
        queue.add_rate_limited(key, priority=op["priority"])
    elif op["after"]:
        queue.add_after(key, op["after"] / SECOND, priority=op["priority"], cause=Cause("requeue"))
    else:
        queue.add(key, priority=op["priority"])
