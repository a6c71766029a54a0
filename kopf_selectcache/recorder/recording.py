"""Recording: one recorder in one operator. Takes occurrences in any thread, and writes their Events.

    record -> correlator -> queue -> rate -> tries -> server
           -> sinks

Each occurrence is counted once, by what became of it:

    recorded + summaries == the sum of the outcomes + waiting
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from random import random
from threading import Lock, RLock
from time import monotonic, time
from typing import TYPE_CHECKING, Literal, TypeAlias

from kopf_selectcache.client.fence import time_left
from kopf_selectcache.client.fetcher import Pace
from kopf_selectcache.client.transport import WritingTransport
from kopf_selectcache.core.errors import let_exit
from kopf_selectcache.core.redact import printable, printable_name
from kopf_selectcache.informer.environment import context_of_loop, sleep_until
from kopf_selectcache.informer.informers import Runtime

from ._delivery import ApiChoice, Delivery, EventLog, Outcome
from ._queue import WaitingWrite, WriteQueue
from .correlator import Correlator, CorrelatorDecision, Limits
from .events import MOST_OF_A_MESSAGE, Api, Event, EventType, Occurrence, Reporter, ServerEvent

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Sink: TypeAlias = Callable[[Event], object] | Literal["server", "log"]
"""Takes Events: the server, the log of the operator, or a function."""

MOST_WAITING_EVENTS = 1000
"""The number of Events that may wait, as in client-go."""

WRITES_PER_SECOND = 10.0
"""The rate of the writes of one recorder."""

FLUSH_SECONDS = 5.0
"""Seconds that an operator gives its recorders at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingStats:
    """The figures of one recorder since the operator started: the outcomes of its Events.

    >>> stats = RecordingStats(recorded=5, created=1, patched=2, spam=1, waiting=1)
    >>> stats.emitted == sum(stats.outcomes.values()) + stats.waiting
    True
    """

    recorded: int = 0
    """Calls of `record`."""
    summaries: int = 0
    """Events that summarise suppressed ones."""
    waiting: int = 0
    """Events that wait to be written, or are being written."""
    created: int = 0
    patched: int = 0
    handed: int = 0
    spam: int = 0
    coalesced: int = 0
    overflow: int = 0
    rejected: int = 0
    failed: int = 0
    unsent: int = 0
    ignored: int = 0

    @property
    def emitted(self) -> int:
        """Everything that has an outcome, or waits for one."""
        return self.recorded + self.summaries

    @property
    def outcomes(self) -> Mapping[str, int]:
        """The counts by outcome: see `Outcome`."""
        counts = asdict(self)
        return {outcome.value: counts[outcome.value] for outcome in Outcome}


class Recording:
    """One recorder in one operator. `start` and `end` it on the operator's loop."""

    def __init__(
        self,
        transport: WritingTransport,
        limits: Limits,
        *,
        source: Reporter,
        writes_per_second: float | None = WRITES_PER_SECOND,
        waiting: int = MOST_WAITING_EVENTS,
        api: Literal["auto", "v1", "events.k8s.io/v1"] = "auto",
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random,
        logger: logging.Logger,
        sink: Sink | Collection[Sink] = "server",
    ) -> None:
        self.source = source
        self._limits = limits
        self._clock, self._wall_clock = clock, wall_clock
        self._sleep = sleep
        self._logger = logger
        self._correlator = Correlator(limits)
        self._log = EventLog(source.component, logger)
        sinks: Collection[Sink] = (sink,) if isinstance(sink, str) or callable(sink) else sink
        self._sinks: list[Callable[[Event], object]] = [
            each if callable(each) else self._log_event for each in sinks if each != "server"
        ]
        self._is_written = "server" in sinks
        self._delivery = Delivery(
            transport,
            ApiChoice(None if api == "auto" else Api(api), transport, self._log, clock=clock),
            self._log,
            sleep=sleep,
            chance=chance,
            take_turn=self._take_turn,
            renew=self._renew,
            adopt=self._adopt,
        )
        self._pace = None if writes_per_second is None else Pace(writes_per_second)
        self._lock = RLock()
        """Held by the methods that threads call, and by those that change the same data. A function of
        `Limits` may record as well."""
        self._queue = WriteQueue(waiting)
        self._is_writing = False
        self._absent: dict[str, bool] = {}
        """The keys of Events that the correlator takes for created, and that were dropped; and whether they
        may be created."""
        self._recorded = self._summaries = 0
        self._counts: Counter[Outcome] = Counter()
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._is_woken = False
        self._idle = asyncio.Event()

    # ---- In any thread.

    def record(self, occurrence: Occurrence) -> None:
        """Record an occurrence. It never waits for the server, and never raises."""
        try:
            with self._lock:
                self._recorded += 1
                event = self._accept(occurrence)
        except BaseException as error:  # A function of Limits has failed.  # noqa: BLE001
            let_exit(error)
            with self._lock:
                self._counts[Outcome.FAILED] += 1
            self._log.raised(error)
            return
        if event is not None:
            self._hand(event)

    def stats(self) -> RecordingStats:
        """Return the counts so far."""
        with self._lock:
            counts = {outcome.value: self._counts[outcome] for outcome in Outcome}
            waiting = len(self._queue) + self._is_writing
            return RecordingStats(
                recorded=self._recorded, summaries=self._summaries, waiting=waiting, **counts
            )

    def _accept(self, occurrence: Occurrence) -> Event | None:
        """Count an occurrence, or let it wait; return the Event for the sinks."""
        if self._is_closed or time_left() <= 0.0:
            self._counts[Outcome.UNSENT] += 1
            return None
        if _is_about_event(occurrence):
            self._counts[Outcome.IGNORED] += 1
            return None
        return self._take_verdict(self._correlator.correlate(occurrence, self._clock(), self._wall_clock()))

    def _take_verdict(self, verdict: CorrelatorDecision) -> Event | None:
        event = verdict.event
        if event is None:
            self._counts[Outcome.SPAM] += 1
            self._notify()  # Its summary may be due before what the writer waits for.
        elif not self._is_written:
            self._counts[Outcome.HANDED] += 1
        else:
            may_be_created = self._absent.pop(verdict.key, None)
            is_new = verdict.is_new or may_be_created is not None
            added = self._queue.add(WaitingWrite(verdict.key, event, is_new, bool(may_be_created)))
            if added.is_replacement:
                self._counts[Outcome.COALESCED] += 1
            if added.dropped is not None:
                self._drop(added.dropped, Outcome.OVERFLOW)
            self._notify()
        return event

    def _drop(self, item: WaitingWrite, outcome: Outcome) -> None:
        self._counts[outcome] += 1
        if item.is_new:
            if (newer := self._queue.find(item.key)) is not None:
                newer.is_new, newer.may_be_created = True, item.may_be_created
                return
            self._absent[item.key] = item.may_be_created
            if len(self._absent) > self._limits.remembered:
                del self._absent[next(iter(self._absent))]

    def _notify(self) -> None:
        """Wake the writer, from any thread."""
        if self._loop is not None and not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._wake.set)

    def _hand(self, event: Event) -> None:
        """Give an Event to the sinks, in the thread that records."""
        for sink in self._sinks:
            try:
                sink(event)
            except BaseException as error:  # It is anybody's code.  # noqa: BLE001
                let_exit(error)
                self._log.raised(error)

    def _log_event(self, event: Event) -> None:
        occurrence = event.occurrence
        about = occurrence.about
        level = logging.WARNING if occurrence.type is EventType.WARNING else logging.INFO
        self._logger.log(
            level,
            "Event of %(kind)s %(name)s: %(reason)s: %(message)s",
            {
                "kind": printable(about.kind, MOST_OF_A_MESSAGE),
                "name": printable_name(about.namespace, about.name),
                "reason": printable(occurrence.reason, MOST_OF_A_MESSAGE),
                "message": printable(occurrence.message, MOST_OF_A_MESSAGE),
            },
        )

    # ---- On the operator's loop.

    def start(self) -> None:
        """Run in a task of its own, unless it is closed already."""
        if not self._is_closed:
            self._loop = asyncio.get_running_loop()  # Of use before the task begins.
            name = f"selectcache: events of {self.source.component}"
            self._task = asyncio.create_task(self._run(), name=name, context=context_of_loop())

    async def end(self, timeout: float = FLUSH_SECONDS) -> None:  # noqa: ASYNC109  # It is a part of its work.
        """Write what waits, for at most `timeout` seconds, and end."""
        try:
            await self.flush(timeout)
        finally:
            self.close()
            if self._task is not None:
                await asyncio.wait({self._task})

    async def _run(self) -> None:
        """Write Events until cancelled."""
        while True:
            with self._lock:
                self._wake.clear()
                self._is_woken = False
                summaries = self._summarize(self._clock())
                is_empty = not self._queue
                next_due = self._correlator.next_due
            for event in summaries:
                self._hand(event)
            if is_empty:
                self._idle.set()
                await self._wait(next_due)
                continue
            self._idle.clear()
            await self._wait_for_turn()  # Meanwhile a newer state, or a Warning, may come.
            await self._write_next()

    async def _wait_for_turn(self) -> None:
        if self._pace is not None and (delay := self._pace.delay(now=self._clock())):
            await self._sleep(delay)

    async def _take_turn(self) -> None:
        """Wait until the rate allows a request, and count it."""
        await self._wait_for_turn()
        if self._pace is not None:
            self._pace.take(now=self._clock())

    async def _wait(self, due: float) -> None:
        """Wait until there is something to write, or a summary is due."""
        if due == math.inf:
            await self._wake.wait()
        else:
            await sleep_until(self._wake, self._sleep(max(0.0, due - self._clock())))

    def _summarize(self, now: float) -> list[Event]:
        """Let the summaries wait that are due; return them for the sinks."""
        verdicts = self._correlator.due(now)
        self._summaries += len(verdicts)
        return [event for each in verdicts if (event := self._take_verdict(each)) is not None]

    async def _write_next(self) -> None:
        """Write the next Event."""
        with self._lock:
            item = self._queue.take()
            self._is_writing = True
        outcome = Outcome.UNSENT
        try:
            outcome = await self._delivery.run(item)
        except Exception as error:  # The writes of other Events go on.  # noqa: BLE001
            outcome = Outcome.FAILED
            self._log.raised(error)
        finally:
            with self._lock:
                self._is_writing = False
                if outcome in (Outcome.CREATED, Outcome.PATCHED):
                    self._counts[outcome] += 1
                else:
                    self._drop(item, outcome)

    def _renew(self, item: WaitingWrite) -> None:
        """Replace the state of the Event that failed by the newest one."""
        with self._lock:
            newer = self._queue.take_key(item.key)
            if newer is not None:
                item.event = newer.event
                self._counts[Outcome.COALESCED] += 1

    def _adopt(self, item: WaitingWrite, found: ServerEvent) -> None:
        """Add the count of the server's Event to that of an earlier run."""
        with self._lock:
            sent = item.event.count
            item.event = found.continued(item.event)
            if (newer := self._queue.find(item.key)) is not None:
                newer.event = found.continued(newer.event)
                newer.is_new = False
            self._correlator.confirm(item.key, item.event, sent=sent)

    async def flush(self, timeout: float = FLUSH_SECONDS) -> None:  # noqa: ASYNC109  # It is a part of its work.
        """Accept nothing more, and return once all that waits is written, or after `timeout` seconds. What is
        left is counted as unsent by `close`.
        """
        with self._lock:
            summaries = self._summarize(math.inf)
            self._is_closed = True
            if self._queue or self._is_writing:
                self._idle.clear()
            else:
                self._idle.set()
            self._notify()
        for event in summaries:
            self._hand(event)
        if self._loop is not None and not self._idle.is_set():
            await sleep_until(self._idle, self._sleep(timeout))

    def close(self) -> None:
        """Accept nothing more, end the task, and count what waits as unsent."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
        with self._lock:
            self._is_closed = True
            left = len(self._queue)
            while self._queue:
                self._queue.take()
            self._counts[Outcome.UNSENT] += left
            left += self._is_writing  # The write that is cancelled counts itself.
        if left:
            self._log.unsent(left)


def _is_about_event(occurrence: Occurrence) -> bool:
    about = occurrence.about
    return about.kind == "Event" and about.api_version.partition("/")[0] in ("v1", "events.k8s.io")


class Recordings:
    """The recordings of one operator, by the names and options of recorders. They start with the first
    record.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._recordings: dict[object, Recording] = {}
        self._lock = Lock()
        self._is_closed = False

    def of(self, key: object, make: Callable[[Runtime], Recording]) -> Recording:
        """Return the recording of the recorders with this key, in any thread."""
        with self._lock:
            found = self._recordings.get(key)
            if found is None:
                found = self._recordings[key] = make(self._runtime)
                if self._is_closed:
                    found.close()
                else:
                    with suppress(RuntimeError):  # The loop is closed.
                        self._runtime.loop.call_soon_threadsafe(found.start)
            return found

    def all(self) -> Mapping[object, Recording]:
        with self._lock:
            return dict(self._recordings)

    async def end(self, timeout: float) -> None:  # noqa: ASYNC109  # It is a part of its work.
        """Write what waits, and end; on the operator's loop."""
        with self._lock:
            self._is_closed = True
        await asyncio.gather(*(each.end(timeout) for each in self.all().values()))

    def close(self) -> None:
        """End without writing what waits; on the operator's loop."""
        with self._lock:
            self._is_closed = True
        for each in self.all().values():
            each.close()


async def end_recordings(runtime: Runtime, timeout: float = FLUSH_SECONDS) -> None:  # noqa: ASYNC109  # As above.
    """Write the Events that wait, for at most `timeout` seconds, and end all recorders of an operator. Call
    it on its loop, while its transport is open.
    """
    await runtime.extensions.get(Recordings).end(timeout)


# ---- Metrics for Prometheus.

_METRICS = "kopf_selectcache_"


def event_metrics(runtime: Runtime) -> Iterator[Metric]:
    """Yield the counts of an operator's Events by the name of their recorder."""
    # prometheus_client is an optional dependency.
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

    emitted = CounterMetricFamily(
        _METRICS + "emitted_events", "Events that were recorded, and summaries.", labels=["component"]
    )
    recorded = CounterMetricFamily(
        _METRICS + "recorded_events", "The outcomes of these Events.", labels=["component", "outcome"]
    )
    waiting = GaugeMetricFamily(
        _METRICS + "waiting_events", "Events that wait to be written.", labels=["component"]
    )
    totals: dict[str, Counter[str]] = {}
    for recording in recordings_of(runtime):  # Several may have one name.
        stats, total = recording.stats(), totals.setdefault(recording.source.component, Counter())
        total.update({**stats.outcomes, "emitted": stats.emitted, "waiting": stats.waiting})
    for component, total in totals.items():
        emitted.add_metric([component], total.pop("emitted"))
        waiting.add_metric([component], total.pop("waiting"))
        for outcome, count in total.items():
            recorded.add_metric([component, outcome], count)
    yield from (emitted, recorded, waiting)


def recordings_of(runtime: Runtime) -> list[Recording]:
    """Return the recordings of an operator, for its metrics."""
    return [*runtime.extensions.get(Recordings).all().values()]
