"""WorkQueue: the keys that are still to run. One entry a key, one run of a key at a time, delays, retries
with backoff, and priorities with ageing.

Pure: the clock and the random source are handed in, and nothing waits here. A worker takes keys, runs them,
and says when they are done.

Order. A key that is ready since `r` with priority `p` has the deadline `r - p * ageing`, and the earliest
deadline is taken first. So a higher priority goes first, but a key is overtaken only by keys that become
ready within `(p' - p) * ageing` seconds after it: the wait of each key is bounded, whatever else is added.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from kopf_selectcache.selectors.object_key import Key

AGEING_SECONDS = 0.6
"""Seconds of waiting that outweigh one level of priority: a key of the first list waits at most one minute
longer than a live one, a retry at most a minute and a half."""

SHORTEST, LONGEST = 0.005, 1000.0
"""Seconds before the first retry of a key, and at most: those of client-go. Each failure doubles them."""

JITTER_RATIO = 0.1
"""The random share that is added to a delay, so that keys that failed together do not come back together."""

MOST_CAUSES = 20
"""The causes that are remembered for each key."""

_MOST_DOUBLED = 1000  # The float of 2 to this power is finite.
_HEAP_SLACK_ENTRIES = 64  # Outdated places of a heap that are not worth a compaction.


class Priority(IntEnum):
    """Priorities of the package's own adds. Any int may be given; a higher one goes first."""

    LIVE = 0
    """A change of an object."""
    INITIAL = -100
    """An object of a first list, a resync, or a changed filter: there are many at once, and nothing
    happened."""
    RETRY = -150
    """The key has failed. It goes after those that have not, so that it does not delay them."""


class Cause(NamedTuple):
    """Why a key was added: the event, the source that reported it, and the object that it is about.

    >>> print(Cause('updated', 'pods', Key('web-1', namespace='shop')))
    updated: pods shop/web-1
    """

    event: str
    """`entered`, `updated`, `left`, `deleted`, `resync`, `sent`, `retry` or `requeue`."""
    source: str = ""
    obj: Key | None = None
    time: float = 0.0
    """When the key was added, by the clock of the queue. The queue sets it."""
    version: str = ""
    """The version of the object after the event."""

    def __str__(self) -> str:
        named = self.obj if self.obj is not None else ""
        return f"{self.event}: {self.source} {named}".rstrip(": ").replace(":  ", ": ")


_ADDED = Cause("added")
"""The cause of an add that gives none."""


class Run(NamedTuple):
    """A key that was taken: run it, then call `done`."""

    key: Key
    priority: int
    causes: tuple[Cause, ...]
    """Why, the oldest first: the last 20 of the `joined` adds."""
    joined: int
    """The number of adds that this run is for."""
    failures: int
    """The retries in a row that were ordered for the key, up to `forget`."""


@dataclass
class Histogram:
    """Counts of observed seconds by upper bounds, as those of client-go: 10 ns to 1,000 s by powers of
    ten.
    """

    bounds: tuple[float, ...] = tuple(10.0**power for power in range(-8, 4))
    counts: list[int] = field(default_factory=lambda: [0] * 13)
    """The observations up to each bound that exceed the one before; the last count has no bound."""
    total: float = 0.0
    count: int = 0

    def buckets(self) -> list[tuple[str, float]]:
        """Return the number of observations up to each bound, as Prometheus has them."""
        return list(zip([*map(repr, self.bounds), "+Inf"], accumulate(self.counts), strict=True))

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds
        self.count += 1


class QueueMetrics(NamedTuple):
    """The metrics of a queue, under the names that client-go's workqueues have."""

    depth: int
    """Keys that are ready, those included that wait for their running one."""
    adds_total: int
    retries_total: int
    """Adds with a delay."""
    queue_duration_seconds: Histogram
    """From ready until taken."""
    work_duration_seconds: Histogram
    """From taken until done."""
    unfinished_work_seconds: float
    """The sum of the times since the running keys were taken."""
    longest_running_processor_seconds: float


class _State(Enum):
    WAITING = "its delay is not over"
    READY = "it can be taken"
    BLOCKED = "it is ready, and its key runs"


class _Entry:
    __slots__ = ("causes", "deadline", "due", "joined", "place", "priority", "ready_since", "state")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.state = _State.WAITING
        self.due = math.inf
        self.ready_since = 0.0
        self.deadline = 0.0
        self.place = 0
        """The number of its present place in a heap. Others of its places are outdated."""
        self.causes: deque[Cause] = deque(maxlen=MOST_CAUSES)
        self.joined = 0


class WorkQueue:
    """The keys that are still to run. Use it in one thread.

    >>> now = [0.0]
    >>> queue = WorkQueue(clock=lambda: now[0], chance=lambda: 0.0)
    >>> queue.add(('shop', 'web'), priority=Priority.INITIAL), queue.add(('shop', 'db'))
    (True, True)
    >>> run = queue.take()
    >>> run.key
    ('shop', 'db')
    >>> queue.add_rate_limited(run.key), queue.done(run.key)
    (0.005, None)
    >>> queue.take().key, queue.take(), queue.next_due()
    (('shop', 'web'), None, 0.005)

    `clock` returns monotonic seconds, and `chance` a number from 0 to 1. `ageing` is the number of seconds
    that outweigh one level of priority. `wake` is called when there may be a key to take, or an earlier
    `next_due`.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        chance: Callable[[], float],
        ageing: float = AGEING_SECONDS,
        shortest: float = SHORTEST,
        longest: float = LONGEST,
    ) -> None:
        self.clock = clock
        self._chance = chance
        self._ageing = ageing
        self._shortest, self._longest = shortest, longest
        self.wake: Callable[[], None] = lambda: None
        self._entries: dict[Key, _Entry] = {}
        self._ready: list[tuple[float, int, Key]] = []
        self._waiting: list[tuple[float, int, int, Key]] = []
        self._count_ready = 0
        self._count_blocked = 0
        self._places = 0
        self._running: dict[Key, float] = {}
        """The keys that were taken and are not done, with the times that they were taken."""
        self._failures: dict[Key, int] = {}
        self.is_shut_down = False
        self._adds = self._retries = 0
        self._queue_duration, self._work_duration = Histogram(), Histogram()

    # ---- Adding.

    def add(self, key: Key, *, priority: int = Priority.LIVE, cause: Cause | None = None) -> bool:
        """Have a key run; return False if the queue is shut down.

        A key that runs already runs again afterwards. Of several adds the highest priority counts.
        """
        return self._add(key, 0.0, priority, cause)

    def add_after(
        self, key: Key, seconds: float, *, priority: int = Priority.LIVE, cause: Cause | None = None
    ) -> bool:
        """Have a key run after a delay; return False if the queue is shut down. Of several adds the earliest
        counts.
        """
        return self._add(key, seconds, priority, cause or Cause("requeue"))

    def add_rate_limited(
        self, key: Key, *, priority: int = Priority.RETRY, cause: Cause | None = None
    ) -> float | None:
        """Have a key run again after its failure; return the delay in seconds, None if the queue is shut
        down. It doubles with each call until `forget`.
        """
        if self.is_shut_down:
            return None
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        seconds = min(self._longest, self._shortest * 2.0 ** min(failures, _MOST_DOUBLED))
        seconds *= 1.0 + JITTER_RATIO * self._chance()
        self._add(key, seconds, priority, cause or Cause("retry"))
        return seconds

    def forget(self, key: Key) -> None:
        """Begin the delays of a key anew: it has succeeded, or nobody wants to retry it."""
        self._failures.pop(key, None)

    def failures(self, key: Key) -> int:
        """Return the number of retries in a row that were ordered for a key."""
        return self._failures.get(key, 0)

    def _add(self, key: Key, seconds: float, priority: int, cause: Cause | None) -> bool:
        if self.is_shut_down:
            return False
        now = self.clock()
        if self._waiting:
            self._promote(now)
        if seconds > 0:
            self._retries += 1
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(priority)
        event, source, obj, _, version = cause or _ADDED
        entry.joined += 1
        entry.causes.append(Cause(event, source, obj, now, version))
        is_raised = priority > entry.priority
        if is_raised:
            entry.priority = priority
        if entry.state is not _State.WAITING:
            if is_raised:
                # An earlier deadline stays: a higher priority must not make a key wait longer.
                self._place(key, entry, min(entry.deadline, now - priority * self._ageing))
        elif seconds <= 0:
            self._set_ready(key, entry, now)
            self.wake()
        elif now + seconds < entry.due or is_raised:
            is_next = now + seconds < (self.next_due() or math.inf)
            entry.due = min(entry.due, now + seconds)
            self._places += 1
            entry.place = self._places
            heappush(self._waiting, (entry.due, -entry.priority, entry.place, key))
            if len(self._waiting) > 2 * len(self._entries) + _HEAP_SLACK_ENTRIES:
                self._waiting = [
                    each for each in self._waiting if self._is_current(each[2], each[3], _State.WAITING)
                ]
                heapify(self._waiting)
            if is_next:
                self.wake()
        return True

    def _set_ready(self, key: Key, entry: _Entry, since: float) -> None:
        self._adds += 1
        entry.ready_since = since
        if key in self._running:
            entry.state = _State.BLOCKED
            self._count_blocked += 1
        else:
            entry.state = _State.READY
            self._count_ready += 1
        self._place(key, entry, since - entry.priority * self._ageing)

    def _place(self, key: Key, entry: _Entry, deadline: float) -> None:
        self._places += 1
        entry.deadline, entry.place = deadline, self._places
        if entry.state is _State.READY:
            heappush(self._ready, (deadline, entry.place, key))
            if len(self._ready) > 2 * self._count_ready + _HEAP_SLACK_ENTRIES:
                self._ready = [
                    each for each in self._ready if self._is_current(each[1], each[2], _State.READY)
                ]
                heapify(self._ready)

    def _is_current(self, place: int, key: Key, state: _State) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.place == place and entry.state is state

    def _promote(self, now: float) -> None:
        """Make the keys ready whose delays are over."""
        while (due := self.next_due()) is not None and due <= now:
            key = heappop(self._waiting)[3]
            self._set_ready(key, self._entries[key], due)

    # ---- Taking.

    def take(self) -> Run | None:
        """Return the key that goes first; None if there is none to take now. Call `done` after its run."""
        now = self.clock()
        if self._waiting:
            self._promote(now)
        while self._ready:
            _, place, key = heappop(self._ready)
            entry = self._entries.get(key)
            if entry is None or entry.place != place:  # It is outdated. Only ready keys are in this heap.
                continue
            del self._entries[key]
            self._count_ready -= 1
            self._running[key] = now
            self._queue_duration.observe(now - entry.ready_since)
            return Run(key, entry.priority, tuple(entry.causes), entry.joined, self._failures.get(key, 0))
        return None

    def next_due(self) -> float | None:
        """Return the time at which the next delay is over; None if no key is delayed."""
        while self._waiting:
            due, _, place, key = self._waiting[0]
            if self._is_current(place, key, _State.WAITING):
                return due
            heappop(self._waiting)
        return None

    def done(self, key: Key) -> None:
        """Note that the run of a key has ended. It can be taken again if it was added meanwhile."""
        now = self.clock()
        # Delays that ended during the run are over before it: they wait for it as any other add.
        self._promote(now)
        self._work_duration.observe(now - self._running.pop(key))
        entry = self._entries.get(key)
        if entry is not None and entry.state is _State.BLOCKED:
            entry.state = _State.READY
            self._count_blocked -= 1
            self._count_ready += 1
            heappush(self._ready, (entry.deadline, entry.place, key))
        if self._ready or self._waiting or self.is_shut_down:
            self.wake()

    # ---- The end.

    def shut_down(self) -> None:
        """Take no more adds, and drop the keys that do not run."""
        self.is_shut_down = True
        self._entries.clear()
        self._waiting, self._ready, self._count_ready, self._count_blocked = [], [], 0, 0
        self.wake()

    @property
    def is_finished(self) -> bool:
        """True if it is shut down, and no key runs."""
        return self.is_shut_down and not self._running

    # ---- Figures.

    def __len__(self) -> int:
        """Return the number of keys that are ready, those included that wait for their running one."""
        return self._count_ready + self._count_blocked

    @property
    def running(self) -> frozenset[Key]:
        """The keys that were taken and are not done."""
        return frozenset(self._running)

    def metrics(self, *, is_read_only: bool = False) -> QueueMetrics:
        """Return the metrics as of now.

        With `is_read_only`, in any thread: keys whose delay has just ended count as delayed until the worker
        asks for the next one.
        """
        now = self.clock()
        if not is_read_only:
            self._promote(now)
        ages = [now - taken for taken in list(self._running.values())]
        return QueueMetrics(
            depth=len(self),
            adds_total=self._adds,
            retries_total=self._retries,
            queue_duration_seconds=self._queue_duration,
            work_duration_seconds=self._work_duration,
            unfinished_work_seconds=sum(ages),
            longest_running_processor_seconds=max(ages, default=0.0),
        )


class WorkQueues:
    """The work queues that run in one operator, by the names of their reconcilers."""

    def __init__(self, _: object) -> None:
        self._queues: Mapping[str, WorkQueue] = {}

    @contextmanager
    def running(self, name: str, queue: WorkQueue) -> Iterator[None]:
        """Show a queue meanwhile."""
        # Replaced, since the metrics are read in another thread.
        self._queues = {**self._queues, name: queue}
        try:
            yield
        finally:
            self._queues = {each: other for each, other in self._queues.items() if other is not queue}

    def metrics(self) -> Mapping[str, QueueMetrics]:
        """Return the metrics of each queue, in any thread."""
        return {name: queue.metrics(is_read_only=True) for name, queue in self._queues.items()}

    def close(self) -> None:
        """End with the operator: each queue ends with its reconciler."""
