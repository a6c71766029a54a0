"""The streams of one informer: `StreamFactory` creates them, for its present state or for the next one;
`StreamTasks` runs them, and the work beside them. A change of the filter exchanges some of them while the
others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from kopf_selectcache._errors import context_of_loop
from kopf_selectcache.core.errors import let_exit
from kopf_selectcache.core.reasons import ReasonLabel
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.packing import SiblingPacking
from kopf_selectcache.core.store.projection import METADATA_ONLY, where_of
from kopf_selectcache.settings.options import OnWatchError, WatchError
from kopf_selectcache.settings.planner import Stream

from ._messages import Subject
from .environment import Environment, Work, run_again
from .health import Condition, context_of_stream
from .memory import Share
from .metrics import Counts
from .reach import SharedVersion
from .reflector import Reflector
from .state import InformerState
from .stream_writer import StreamWriter


class WatchErrors:
    """Calls the operator's function with each failure, on the operator's loop. An error of that function is
    logged, and changes nothing else.
    """

    def __init__(self, call: OnWatchError, logger: logging.Logger) -> None:
        self._call = call
        self._logger = logger

    def report(self, writer: StreamWriter, reason: ReasonLabel) -> None:
        """Call the function for a failure that this stream has noted."""
        (selector,) = writer.filter.branches
        condition, stream = writer.condition, Stream(selector)
        try:
            self._call(
                WatchError(
                    resource=str(writer.resource),
                    selector=str(stream.selector),
                    namespace=stream.namespace,
                    verb=writer.verb,
                    reason=str(reason),
                    state=condition.health.value,
                    message=condition.message,
                )
            )
        except BaseException as error:  # It is anybody's code.  # noqa: BLE001
            let_exit(error)
            self._logger.error(  # Its text may have anything in it.  # noqa: TRY400
                "settings.selectcache.on_watch_error raised %(error)s%(place)s.",
                {"error": type(error).__name__, "place": where_of(error)},
                extra=context_of_stream(condition),
            )


PAGES_AT_ONCE = 20
"""Maximum of streams of one informer that list at the same time. A filter over 100 namespaces has 100
streams."""


class StreamFactory:
    """The dependencies that all streams of one informer share."""

    def __init__(self, environment: Environment, counts: Counts) -> None:
        self._environment = environment
        self._counts = counts
        self._turns = asyncio.Semaphore(PAGES_AT_ONCE)
        self._comparing = asyncio.Semaphore(PAGES_AT_ONCE)

    def make(
        self,
        stream: Stream,
        substore: Substore,
        shared_version: SharedVersion | None,
        state: InformerState,
        *,
        packing: SiblingPacking | None,
        share: Share,
        new_condition: Callable[[Subject], Condition],
        notify: Callable[[Sequence[Change]], None],
    ) -> Reflector:
        """Return the reflector that writes to a substore of the union of this state."""
        assert state.resource is not None, "planned before it was resolved"
        writer = StreamWriter(
            stream,
            state.resource,
            state.union,
            substore,
            new_condition=new_condition,
            clock=self._environment.clock,
            counts=self._counts,
            logger=self._environment.logger,
            notify=notify,
        )
        if (on_watch_error := self._environment.settings.on_watch_error) is not None:
            writer.failed = WatchErrors(on_watch_error, self._environment.logger).report
        return Reflector(
            stream,
            writer,
            state.resource,
            environment=self._environment,
            counts=self._counts,
            projection=METADATA_ONLY if stream.is_outside else state.projection,
            packing=None if stream.is_outside else packing,
            share=share,
            all_kept=state.union.writing,
            shared_version=shared_version,
            turns=self._turns,
            comparing=self._comparing,
        )


class StreamTasks:
    """The running tasks of one informer."""

    def __init__(
        self, key: str, environment: Environment, resource: object, context: Callable[[], dict[str, str]]
    ) -> None:
        self._key = key
        self._environment = environment
        self._resource = resource  # `str` returns the name of the resource.
        self._context = context  # Returns the attributes of log records.
        self._streams: dict[Reflector, asyncio.Task[None]] = {}
        self._probing: asyncio.Task[None] | None = None
        self._exchanged = asyncio.Event()
        self._must_end = False
        self._cancelled = set[asyncio.Task[None]]()
        """The tasks of streams that `end` has cancelled."""

    def start(self, reflector: Reflector) -> asyncio.Task[None]:
        """Start to run a stream."""
        name = f"selectcache: {self._key}, {reflector.filter}"
        return asyncio.create_task(reflector.run(), name=name, context=context_of_loop())

    def start_beside(self, name: str, work: Work) -> asyncio.Task[None]:
        """Start endless work beside the streams. A bug in it restarts it, and does not affect the streams."""
        endless = run_again(work, self._environment, self._resource, self._context)
        return asyncio.create_task(endless, name=f"selectcache: {self._key}, {name}")

    def start_probing(self, work: Work) -> asyncio.Task[None]:
        return self.start_beside("probes", work)

    async def run(
        self,
        reflectors: Collection[Reflector],
        probe: Work | None,
        beside: Collection[asyncio.Task[None]],
        ends: Callable[[], None],
    ) -> None:
        """Run the streams until one of them ends, or a task beside them; raise its error. `ends` is called
        before the others are ended: no exchange may start streams meanwhile.
        """
        self._must_end = False
        self._streams = {each: self.start(each) for each in reflectors}
        del reflectors  # An exchange may end them.
        self._probing = None if probe is None else self.start_probing(probe)
        try:
            await self._wait_for_end(beside)
        finally:
            ends()
            tasks = [*beside, *self._streams.values()]
            if self._probing is not None:
                tasks.append(self._probing)
            self._streams, self._probing = {}, None
            for task in tasks:
                if task not in self._cancelled:  # A second time would interrupt how it ends.
                    task.cancel()
            self._cancelled = set()
            await asyncio.gather(*tasks, return_exceptions=True)

    def exchange(
        self,
        retired: Collection[Reflector],
        new: Mapping[Reflector, asyncio.Task[None]],
        probing: asyncio.Task[None] | None,
    ) -> None:
        """Cancel the tasks of some streams, and take over those of new ones, which run already."""
        for each in retired:
            if (task := self._streams.pop(each, None)) is not None:
                task.cancel()
        if self._probing is not None:
            self._probing.cancel()
        self._streams |= new
        self._probing = probing
        self._exchanged.set()

    def end(self) -> None:
        """End all streams, to run those of another declaration. They apply no further input."""
        self._must_end = True
        self._cancelled = {*self._streams.values()}
        for task in self._cancelled:
            task.cancel()
        self._exchanged.set()

    async def _wait_for_end(self, beside: Collection[asyncio.Task[None]]) -> None:
        while True:
            self._exchanged.clear()
            exchanged = asyncio.create_task(self._exchanged.wait())
            try:
                await asyncio.wait(
                    {*beside, *self._streams.values(), exchanged}, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                exchanged.cancel()
            if self._must_end:
                return
            # Without those that an exchange has cancelled.
            ended = [task for task in (*beside, *self._streams.values()) if task.done()]
            for task in ended:
                if task.cancelled():  # By what it has awaited: this informer was not told to end.
                    raise RuntimeError(f"{task.get_name()} was cancelled")
                task.result()
            if ended:
                return
