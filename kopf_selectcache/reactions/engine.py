"""The engine of reactions: `Deliveries` brings what one source reports to the queue, and `Worker` takes keys
off the queue and runs an async function for each, a limited number at the same time.

Predicates drop events, the mapping makes keys. If a mapping is async, or fails, its object waits in a work
queue of its own, for a worker that maps it; later changes of the object are joined. Of the states of an
object between two mappings, the first and the last are mapped: nobody was told of the others.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from kopf_selectcache.cache.formats.views import BodyView, Views
from kopf_selectcache.core.errors import let_exit
from kopf_selectcache.core.protocol.messages import delay
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.record import EvictedRecord, ObjectKey, Record
from kopf_selectcache.informer.environment import end_within, sleep_until
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.object_key import Key
from kopf_selectcache.selectors.signatures import refuse_awaitable

from .mapping import Itself, Mapping, checked_keys
from .predicates import Obj, Predicate
from .queue import Cause, Priority, Run, WorkQueue, WorkQueues

if TYPE_CHECKING:
    from prometheus_client.core import Metric

GRACE_SECONDS = 5.0
"""Seconds for the runs that were cancelled. One that resists longer is left behind."""


@dataclass(frozen=True, slots=True)
class RunAgain:
    """The result of a run that has succeeded, and is repeated after some seconds."""

    after: float


Function: TypeAlias = Callable[[Run], Awaitable[RunAgain | None]]
"""Runs a key. An exception means that it has failed: it is retried with backoff."""


class Worker:
    """Runs the keys of a queue, up to `limit` at the same time, never one key twice at once.

        worker = Worker(queue, reconcile, limit=10)
        task = asyncio.create_task(worker.run())
        ...
        await worker.stop(deadline=30)

    A worker runs once. `sleep` is that of its clock. `gate` returns what to wait for before keys may run;
    None if they may run now.
    """

    def __init__(
        self,
        queue: WorkQueue,
        function: Function,
        *,
        limit: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float],
        logger: logging.Logger | None = None,
        gate: Callable[[], Awaitable[object] | None] = lambda: None,
    ) -> None:
        if limit < 1:
            raise ValueError(f"limit= is {limit}: a worker runs at least one key at a time")
        self._queue = queue
        self._function = function
        self._limit = limit
        self._sleep, self._clock, self._gate = sleep, clock, gate
        self._logger = logger if logger is not None else logging.getLogger("kopf_selectcache")
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._moved = asyncio.Event()
        """Set if there may be a key to take."""
        self._finished = asyncio.Event()
        """Set once the queue is finished."""
        queue.wake = self._wake

    def _wake(self) -> None:
        self._moved.set()
        if self._queue.is_finished:
            self._finished.set()

    async def run(self) -> None:
        """Run keys until the queue is shut down and finished. Cancelled, it cancels the runs."""
        queue = self._queue
        try:
            while not self._finished.is_set():
                self._moved.clear()
                if (opened := self._gate()) is not None:
                    await self._wait_for_gate(asyncio.ensure_future(opened))
                    continue
                while len(self._tasks) < self._limit and (run := queue.take()) is not None:
                    task = self._tasks[run.key] = asyncio.create_task(
                        self._run(run), name=f"selectcache: {run.key.name}"
                    )
                    # A task that is cancelled before it begins does not run at all.
                    task.add_done_callback(partial(self._note_end, run.key))
                due = queue.next_due()
                if due is None or len(self._tasks) >= self._limit:
                    await self._moved.wait()
                else:
                    await sleep_until(self._moved, self._sleep(max(0.0, due - self._clock())))
        finally:
            queue.shut_down()
            await self._cancel()

    async def _wait_for_gate(self, opened: asyncio.Future[Any]) -> None:
        """Wait until keys may run, or the queue is finished."""
        await sleep_until(self._finished, opened)
        if not opened.cancelled():
            opened.result()

    def running(self, has: Callable[[ObjectKey], bool]) -> set[asyncio.Task[None]]:
        """Return the runs of some keys."""
        return {task for key, task in self._tasks.items() if has(key.pair)}

    async def stop(self, *, deadline: float = math.inf) -> frozenset[Key]:
        """Shut the queue down, and wait until the runs have ended; return the keys whose runs were cancelled,
        because they took longer than `deadline` seconds.
        """
        queue = self._queue
        queue.shut_down()
        if deadline == math.inf:
            await self._finished.wait()
        elif not queue.is_finished:
            await sleep_until(self._finished, self._sleep(deadline))
        cancelled = queue.running
        await self._cancel()
        return cancelled

    async def _cancel(self) -> None:
        """Cancel the runs, and wait for their ends. One that resists is left behind."""
        tasks = set(self._tasks.values())
        for task in tasks:
            task.cancel()
        if await end_within(tasks, self._sleep(GRACE_SECONDS)):
            keys = ", ".join(sorted(map(_shown, self._queue.running)))
            self._logger.warning(
                "These runs have not ended, although they were cancelled: %(keys)s.", {"keys": keys}
            )

    async def _run(self, run: Run) -> None:
        queue, key = self._queue, run.key
        try:
            result = await self._function(run)
        except (Exception, asyncio.CancelledError) as error:
            # A run may be cancelled by what it awaits. The worker itself cancels after the end of the
            # queue only.
            seconds = queue.add_rate_limited(key)
            if isinstance(error, asyncio.CancelledError) and seconds is None:
                raise
            again = "it is not repeated" if seconds is None else f"it is repeated in {seconds:.3g} s"
            self._logger.exception(
                "The run of %(key)s has failed: %(again)s.", {"key": _shown(key), "again": again}
            )
        else:
            queue.forget(key)
            if result is not None:
                queue.add_after(key, result.after)

    def _note_end(self, key: Key, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        self._queue.done(key)
        if not task.cancelled():
            task.exception()  # Retrieved: what is no error of the run ends the process.


def _shown(key: Key) -> str:
    return printable_name(*key.pair)


_T = TypeVar("_T")

MAPPINGS_AT_ONCE = 10
"""Async mappings of one source that run at the same time."""

MOST_DEPARTED = 100_000
"""Departed objects of one source at most whose mapping has not ended. Present ones have one mapping each."""


class _EvictedKeys:
    """The keys of an evicted object, once its mapping has ended."""

    keys: list[Key] | None = None


class _Unmapped:
    """The states of one object that are still to be mapped."""

    __slots__ = (
        "cause",
        "failures",
        "first",
        "is_added",
        "is_departed",
        "kept",
        "keys",
        "last",
        "name",
        "priority",
    )

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.failures = 0
        """The runs in a row that have failed to map a state."""
        self.first: Obj | None = None
        self.last: Obj | None = None
        self.keys: list[Key] = []
        """Those of the last state, if they were added while the first one fails."""
        self.is_departed = False
        self.priority: int = Priority.RETRY
        self.cause = Cause("")
        self.is_added = False
        """True if the keys are added to the queue."""
        self.kept: _EvictedKeys | None = None
        """Receives the keys of the last state, if its object is evicted."""

    def __bool__(self) -> bool:
        return self.first is not None or self.last is not None

    def join(self, states: list[Obj]) -> None:
        if not self:
            self.first = states[0] if len(states) > 1 else None
        elif self.first is None:
            self.first = self.last
        self.last = states[-1]

    def take(self) -> tuple[Obj | None, Obj | None]:
        taken = self.first, self.last
        self.first = self.last = None
        return taken


class Deliveries:
    """The way from one source to a queue. Used on the event loop only."""

    def __init__(
        self,
        queue: WorkQueue,
        predicate: Predicate,
        mapping: Mapping,
        cache: Any,
        *,
        source: str,
        sleep: Callable[[float], Awaitable[None]],
        chance: Callable[[], float],
        logger: logging.Logger,
    ) -> None:
        self.paths = tuple(dict.fromkeys((*predicate.paths, *mapping.paths)))
        """The paths of objects that are read here, as far as that is known."""
        self._queue, self._predicate, self._mapping, self._cache = queue, predicate, mapping, cache
        self._source = source
        self._chance, self._logger = chance, logger
        self._pending: dict[Hashable, _Unmapped] = {}
        self._numbered: dict[Key, _Unmapped] = {}
        """The same, by the keys that they have in the queue of mappings. These are numbers."""
        self._numbers = count()
        self._mappings = WorkQueue(clock=queue.clock, chance=chance)
        self._worker = Worker(
            self._mappings, self._map, limit=MAPPINGS_AT_ONCE, sleep=sleep, clock=queue.clock, logger=logger
        )
        self._working: asyncio.Task[None] | None = None
        """Runs from the first pending object on."""
        self._reported: set[tuple[str, type[BaseException]]] = set()
        """The errors that were logged with a traceback."""
        self._departed = 0
        """The pending objects that have departed."""
        self._is_full = False
        """True once it was logged that departures are lost, until no departed object is pending."""
        self._is_closing = False
        self._has_nameless = False
        """True once it was logged that something has no name."""
        self.ended = asyncio.Event()
        """Set whenever the last mapping of an object has ended."""

    def __len__(self) -> int:
        """Return the number of objects whose mapping has not ended."""
        return len(self._pending)

    def deliver(self, change: Change, name: Hashable, *, priority: int = Priority.LIVE) -> None:
        """Add the keys of the object before and after a change, unless a predicate drops the change.

        Changes of one name are joined while their mapping runs.
        """
        if type(change.cause) is not ChangeCause:
            raise TypeError(
                "the cause of a change must be a ChangeCause. Make it with Change.of(cause, old, new)"
            )
        if not self._admits(change):
            return
        pair = change.key
        try:
            obj = Key.stored(pair) if pair[1] else None
        except ValueError:  # Anything may be sent, also a name with a slash.
            obj = None
        cause = Cause(change.cause, self._source, obj, version=change.version)
        if isinstance(self._mapping, Itself):
            if obj is None:
                self._report_nameless()
            else:
                self._queue.add(obj, priority=priority, cause=cause)
            return
        states = [
            state for state in (change.old if change.is_whole else None, change.new) if state is not None
        ]
        if not change.is_whole:
            self._deliver_evicted(change, name, priority, cause)
        if not states:
            return
        if (
            name not in self._pending
            and not self._mapping.is_async
            and (mapped := self._try("map=", lambda: self._mapped(states))) is not None
        ):
            self._add(mapped, priority, cause)
            return
        if change.after is None and not self._has_room(name):
            return
        pending = self._join(name, states)
        self._set_departed(pending, is_departed=change.after is None)
        keys, pending.keys = pending.keys, []
        self._add(keys, priority, cause)
        pending.is_added = True
        pending.priority = max(pending.priority, priority)
        pending.cause = cause

    def _admits(self, change: Change) -> bool:
        try:
            return self._predicate.admits(change)
        except BaseException as error:  # A function may raise anything.  # noqa: BLE001
            let_exit(error)
            self._report("predicates=", error)
            return True  # To run once too often is harmless; to miss a change is not.

    def _mapped(self, states: list[Obj]) -> list[Key]:
        keys: list[Key] = []
        for state in states:
            found = self._mapping.map(state, self._cache)
            if type(found) is not list:
                refuse_awaitable(found, "map= returned an awaitable, but is not declared with `async def`")
            keys += checked_keys(cast("Any", found))
        return list(dict.fromkeys(keys))

    def _add(self, keys: list[Key], priority: int, cause: Cause) -> None:
        for key in keys:
            self._queue.add(key, priority=priority, cause=cause)

    # ---- Mappings that take longer.

    def _join(self, name: Hashable, states: list[Obj]) -> _Unmapped:
        if (pending := self._pending.get(name)) is None:
            key, pending = Key(str(next(self._numbers))), _Unmapped(name)
            self._pending[name] = self._numbered[key] = pending
            self._mappings.add(key)
            if self._working is None:
                self._working = asyncio.create_task(self._worker.run(), name=f"selectcache: {self._source}")
        pending.join(states)
        return pending

    async def _map(self, run: Run) -> RunAgain | None:
        """Map the states of an object; run again if one cannot be mapped, or if there are further ones."""
        pending = self._numbered[run.key]
        first, last = pending.take()
        if last is not None:
            pending.keys = []
        if first is not None and await self._is_mapped(pending, first, is_last=False):
            first = None
        if last is not None and await self._is_mapped(pending, last, is_last=True):
            last = None
        later = [state for state in pending.take() if state is not None]
        pending.first, pending.last = first, last
        has_failed = bool(pending)
        if later:
            pending.join(later)
            pending.keys = []  # They were added after these changes.
        if has_failed:
            pending.failures += 1
            return RunAgain(delay(pending.failures - 1, self._chance()))
        pending.failures = 0
        if pending:
            return RunAgain(0.0)
        del self._pending[pending.name], self._numbered[run.key]
        self._set_departed(pending, is_departed=False)
        self.ended.set()
        return None

    async def _is_mapped(self, pending: _Unmapped, state: Obj, *, is_last: bool) -> bool:
        """Map one state and use its keys; return False if that fails."""
        try:
            keys = await self._mapped_by_any(state)
        except BaseException as error:
            let_exit(error)
            if self._is_closing:
                raise
            self._report("map=", error)
            return False
        if is_last and pending.kept is not None:
            pending.kept.keys = keys
        if pending.is_added:
            self._add(keys, pending.priority, pending.cause)
            if is_last:
                pending.keys = keys
        return True

    def _has_room(self, name: Hashable) -> bool:
        """Return False if too many departed objects are pending: this one is dropped."""
        pending = self._pending.get(name)
        if self._departed < MOST_DEPARTED or (pending is not None and pending.is_departed):
            return True
        if pending is not None:
            pending.take()
        if not self._is_full:
            self._is_full = True
            self._logger.error(
                "The source %(source)s has lost departures of objects, because its map= is too slow or"
                " fails.",
                {"source": self._source},
            )
        return False

    def _set_departed(self, pending: _Unmapped, *, is_departed: bool) -> None:
        self._departed += is_departed - pending.is_departed
        pending.is_departed = is_departed
        self._is_full = self._is_full and self._departed > 0

    async def _mapped_by_any(self, state: Obj) -> list[Key]:
        if not self._mapping.is_async:
            return self._mapped([state])
        return checked_keys(await cast("Awaitable[Any]", self._mapping.map(state, self._cache)))

    # ---- Objects whose store was dropped to free memory.

    def keep(self, record: Record) -> object:
        """Return the keys of an object that is about to be evicted, for `deliver`; True if its metadata is
        enough.
        """
        if isinstance(self._mapping, Itself):
            return True
        obj, kept = BodyView(record), _EvictedKeys()
        if record.key not in self._pending and not self._mapping.is_async:
            kept.keys = self._try("map=", lambda: self._mapped([obj]))
        if kept.keys is None:
            self._join(record.key, [obj]).kept = kept
        return kept

    def _deliver_evicted(self, change: Change, name: Hashable, priority: int, cause: Cause) -> None:
        kept = change.before.kept if isinstance(change.before, EvictedRecord) else None
        pending = self._pending.get(name)
        if isinstance(kept, _EvictedKeys) and kept.keys is not None:
            self._add(kept.keys, priority, cause)
        elif pending is not None:
            pending.is_added = True
            pending.priority, pending.cause = max(pending.priority, priority), cause
        elif (old := change.old) is not None and not self._mapping.is_async:
            # It was never seen whole. A mapping that needs its metadata only can still tell.
            self._add(self._try("map=", lambda: self._mapped([old])) or [], priority, cause)

    # ---- Failures, and the end.

    def _try(self, what: str, call: Callable[[], _T]) -> _T | None:
        """Call a function of the operator's author; report its error, and return None then."""
        try:
            return call()
        except BaseException as error:  # It is the operator's code.  # noqa: BLE001
            let_exit(error)
            self._report(what, error)
            return None

    def _report(self, what: str, error: BaseException) -> None:
        """Log an error of the operator's functions, once for each class."""
        if (what, type(error)) not in self._reported:
            self._reported.add((what, type(error)))
            self._logger.error(
                "A function in %(what)s of the source %(source)s fails, so %(consequence)s.",
                {
                    "what": what,
                    "source": self._source,
                    "consequence": "it is called again" if what == "map=" else "the change is not dropped",
                },
                exc_info=error,
            )

    def _report_nameless(self) -> None:
        """Log once that the object itself is no key."""
        if not self._has_nameless:
            self._has_nameless = True
            self._logger.error(
                "The source %(source)s has sent something whose metadata.name is not the name of an object,"
                " so nothing is called for it. Give map=.",
                {"source": self._source},
            )

    async def close(self) -> None:
        """Cancel the mappings."""
        self._is_closing = True
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)


def deliver_change(informer: Informer, deliveries: Deliveries, change: Change) -> None:
    """Deliver a change of an informer, with views of its objects."""
    resource, cause = informer.state.resource, change.cause
    assert resource is not None, "it has objects"
    is_live = cause is not ChangeCause.RESYNC and not (
        cause is ChangeCause.ENTERED and (change.initial or change.filter_changed or not informer.is_complete)
    )
    deliveries.deliver(
        replace(change, views=Views(resource)),
        change.key,
        priority=Priority.LIVE if is_live else Priority.INITIAL,
    )


# ---- Metrics for Prometheus.

_METRICS = {
    "depth": "Keys that are ready.",
    "adds_total": "Keys that were added.",
    "retries_total": "Keys that were added with a delay.",
    "queue_duration_seconds": "How long keys were ready before their calls.",
    "work_duration_seconds": "How long the calls for a key took.",
    "unfinished_work_seconds": "The sum of the times of the calls that run.",
    "longest_running_processor_seconds": "The time of the longest of these.",
}
"""The texts of the metrics, which are fields of `QueueMetrics`."""


def queue_metrics(runtime: Runtime) -> Iterator[Metric]:
    """Yield the metrics as client-go has them, in any thread; none without reconcilers."""
    # prometheus_client is an optional dependency.
    from prometheus_client.core import (  # noqa: PLC0415
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    queues = runtime.extensions.get(WorkQueues).metrics()
    for name, text in _METRICS.items() if queues else ():
        values = {queue: getattr(metrics, name) for queue, metrics in queues.items()}
        if name.endswith("_duration_seconds"):
            histogram = HistogramMetricFamily(f"workqueue_{name}", text, labels=["name"])
            for queue, seen in values.items():
                histogram.add_metric([queue], buckets=seen.buckets(), sum_value=seen.total)
            yield histogram
            continue
        make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = make(f"workqueue_{name}", text, labels=["name"])
        for queue, value in values.items():
            family.add_metric([queue], value)
        yield family
