"""Reflector: keeps one stream (list+watch) running. Executes the commands of the protocol machine, and passes
the server's messages to the stream writer.

Failures are retried with backoff, and reported to the condition of the stream. A reflector never awaits
readers or handlers. `StreamRequests` sends its lists and watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

from kopf_selectcache.client.reading import IdleTimeout, Lines, NoCredentials, Refused, Unreachable
from kopf_selectcache.client.transport import accept_of, ask_in_size
from kopf_selectcache.core.errors import Garbled, MetricReason, TooLarge
from kopf_selectcache.core.protocol.decoder import OBJECT_COST_BYTES, SLICE_BYTES, Reader
from kopf_selectcache.core.protocol.machine import (
    Due,
    Filling,
    Idle,
    Input,
    Known,
    List,
    Listing,
    Lost,
    Opened,
    Probed,
    Silent,
    Start,
    State,
    Wait,
    Waiting,
    Watch,
    Watching,
)
from kopf_selectcache.core.protocol.messages import Event, Page, Refusal, delay
from kopf_selectcache.core.protocol.pager import PageSize
from kopf_selectcache.core.selection.grammar import Unselected
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.packing import SiblingPacking
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.core.store.record import Record, is_number, is_older
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.settings.planner import Stream

from .background import DictionaryTraining, run_in_thread, trim_heap
from .environment import Environment, run_again, sleep_until
from .health import Condition, Health, Mistake
from .log import context_of_stream
from .memory import Share
from .metrics import Counts
from .reach import AwaitedVersions, Comparison, SharedVersion
from .stream_writer import CheckedReader, StreamWriter, failure_of

HEALTHY_WATCH_SECONDS = 60.0
"""A watch that was open for this many seconds was a good one, even without events: its end is no failure."""

REOPEN_AT_ONCE_SECONDS = 5.0
"""Seconds that a stream must have been open for the next one to be opened at once."""

IDLE_FACTOR_WITHOUT_BOOKMARKS = 4.0
"""Factor of the idle timeout for a server that has never sent a bookmark."""


class StreamRequests:
    """The requests of one stream."""

    def __init__(
        self,
        stream: Stream,
        writer: StreamWriter,
        resource: Resource,
        *,
        environment: Environment,
        counts: Counts,
        projection: Projection,
        indexes: Iterable[Indexed],
        packing: SiblingPacking | None,
        storing: DictionaryTraining,
        comparison: Comparison,
        shared_version: SharedVersion | None,
        turns: asyncio.Semaphore | None,
    ) -> None:
        reader = Reader.of(
            resource,
            projection,
            accepts=stream.keys.have if stream.is_wider else None,
            packing=packing,
            indexes=indexes,
            sent=stream.sent(resource),
            is_outside=stream.is_outside,
        )
        self.checked = CheckedReader(reader, resource, environment=environment)
        """Reads the answers."""
        self.list_accept, self.watch_accept = accept_of(projection, is_list=True), accept_of(projection)
        self._stream = stream
        self._writer = writer
        self._resource = resource
        self._environment = environment
        self._counts = counts
        self._storing = storing
        self._comparison = comparison
        # For the first list, if other streams could hold the same objects.
        self._shared_version = shared_version
        writer.shares_list = shared_version is not None
        # Held during the request for a page: an informer may have a hundred streams.
        self._turns = turns or asyncio.Semaphore()
        # The size that one list has learned holds for the next one.
        self._page_size = PageSize(environment.settings.page_limit)
        self._opened: float | None = None
        """The time at which the server accepted the present watch; None for a list."""

    async def inputs(self, command: List | Watch) -> AsyncGenerator[Input, None]:
        """Send a request; yield the inputs of the protocol that its answer brings, and its failure as the
        last one.
        """
        self._writer.verb = "list" if isinstance(command, List) else "watch"
        shared_version, self._shared_version = self._shared_version, None  # For the first request only.
        self._writer.shares_list = False
        path, query = self._stream.path(self._resource), self._stream.query()
        self._opened = None
        try:
            if isinstance(command, List):
                size = PageSize(None) if command.whole else self._page_size
                page = await self._listed(path, query | command.query(), size, shared_version)
                if isinstance(page, Page):
                    # From the first page on, so that few objects are ever stored unpacked.
                    await self._storing.taken(page.records)
                yield page
            else:
                self._counts.watches += 1
                # No single page was large enough to train a dictionary; train on everything listed so far.
                await self._storing.taken()
                query |= command.query(bookmarks=self._environment.settings.bookmarks)
                async with aclosing(self._watched(path, query, command)) as messages:
                    async for message in messages:
                        yield message
        except Unreachable as lost:
            yield replace(self._lost(str(lost)), unauthorized=isinstance(lost, NoCredentials))
        except (Refused, Garbled) as error:
            failure = failure_of(error)
            if (
                isinstance(error, TooLarge)
                and isinstance(failure, Lost)
                and isinstance(self._writer.state, Listing)
                and (last := self._writer.state.pager.greatest)
            ):
                # The page had a limit of one object.
                failure = replace(failure, why=f"{error}: the object after {last}")
            yield failure
        except TimeoutError:
            within = (
                f"{self._environment.settings.request_timeout:g} s (settings.selectcache.request_timeout)"
            )
            yield (
                Silent() if isinstance(command, Watch) else self._lost(f"a list did not end within {within}")
            )

    async def _listed(
        self,
        path: str,
        query: Mapping[str, str],
        size: PageSize,
        shared_version: SharedVersion | None,
    ) -> Page | Refusal:
        """Request a page; raise what `_page` raises."""
        page = await (
            self._page(path, query, size)
            if shared_version is None
            else shared_version.page(lambda as_of: self._page(path, {**query, **as_of}, size))
        )
        if isinstance(page, Page):
            size.learn(page)
        return page

    async def _page(self, path: str, query: Mapping[str, str], size: PageSize) -> Page | Refusal:
        """Request a page; raise Refused, Unreachable or Garbled."""

        def ask() -> Awaitable[bytes]:
            self._counts.lists += 1
            return self._environment.transport.get(
                path, {**query, **size.query}, accept=self.list_accept, most=size.most_bytes
            )

        async with self._turns:
            return await self.checked.page(await ask_in_size(size, ask))

    async def _watched(self, path: str, query: dict[str, str], command: Watch) -> AsyncGenerator[Input, None]:
        """Read a watch to its end; raise Refused, Unreachable, Garbled, or TimeoutError if it is dead.

        Signs of life are messages that move the stream forward, bookmarks of the version that it has reached,
        and deletions of stored objects. Half lines, blank lines, events and bookmarks of the past can also
        come from a proxy, or from a server that does not follow the cluster any more.
        """
        clock, settings = self._environment.clock, self._environment.settings
        idle, lines, filling, taken = settings.idle_timeout, Lines(), command.initial, 0
        # Until the first bookmark, silence is no failure: the server may have no bookmarks, and no events.
        unmarked = idle * IDLE_FACTOR_WITHOUT_BOOKMARKS
        patience = IdleTimeout()
        async with AsyncExitStack() as stack:
            # Servers accept a watch before they have an event.
            async with asyncio.timeout(idle):
                chunks = await stack.enter_async_context(
                    self._environment.transport.watch(path, query, accept=self.watch_accept)
                )
            stack.callback(patience.end)
            stack.callback(self._comparison.close)
            self._opened = opened = clock()
            self._comparison.open()
            yield Opened()
            alive = True
            while (
                chunk := await patience.next(
                    chunks,
                    within=idle if filling or self._writer.state.known.marked else unmarked,
                    alive=alive,
                )
            ) is not None:
                alive = False
                for line in lines.feed(chunk):
                    try:
                        message = self.checked.reader.line(line)
                    except Unselected as unselected:
                        message = await self.checked.line_again(line, unselected)
                    if isinstance(message, Event):
                        self._counts.events += 1
                        if message.type != "DELETED":
                            self._storing.changed(message.record, is_initial=filling)
                    yield message
                    # The writer has processed the message by now.
                    alive = alive or self._writer.has_moved
                    filling = isinstance(self._writer.state, Filling)
                    taken += OBJECT_COST_BYTES + len(line)
                    if taken >= SLICE_BYTES:
                        taken = 0
                        # A busy stream never waits for its next chunk, and would block the loop.
                        await asyncio.sleep(0)
                        await self._storing.taken()
                if filling and clock() - opened > settings.request_timeout:
                    # Some servers never send the bookmark that ends the initial state.
                    raise TimeoutError
                # Chunks may come without a pause. After an invalid chunk aiohttp also does not wake a reader
                # that waits already, but raises for one that asks for the next chunk afterwards.
                await asyncio.sleep(0)
            yield self.checked.reader.rest(lines.rest) or self._lost(
                "the watch ended", clean=not lines.rest.strip()
            )

    def _lost(self, why: str, *, clean: bool = False) -> Lost:
        """Return the failure of a request that broke off. `lived` and `lasted` are for watches: the time of a
        list proves nothing.
        """
        age = 0.0 if self._opened is None else self._environment.clock() - self._opened
        return Lost(why, lived=age > HEALTHY_WATCH_SECONDS, lasted=age >= REOPEN_AT_ONCE_SECONDS, clean=clean)


FOREIGN_BODIES = 1_000
"""Maximum of bodies of another epoch that are remembered."""


class Reflector:
    """The reflector of one stream: its requests, its writer and its condition."""

    def __init__(
        self,
        stream: Stream,
        writer: StreamWriter,
        resource: Resource,
        *,
        environment: Environment,
        counts: Counts,
        projection: Projection,
        indexes: Iterable[Indexed] = (),
        packing: SiblingPacking | None = None,
        share: Share | None = None,
        all_kept: Callable[[], Sequence[Record]] = list,
        shared_version: SharedVersion | None = None,
        turns: asyncio.Semaphore | None = None,
        comparing: asyncio.Semaphore | None = None,
    ) -> None:
        self.stream = stream
        self.writer = writer
        self.resource = resource
        self._environment = environment
        self._storing = DictionaryTraining(
            packing,
            view=writer.substore.view,
            all_kept=all_kept,
            tally=share.tally if share is not None else None,
        )
        self._share = share
        self._running: asyncio.Timeout | None = None
        self._is_ordered = False
        """True if a list was ordered: a failure meanwhile is not its reason."""
        self.comparison = Comparison(
            stream,
            writer.substore,
            resource,
            environment=environment,
            jump=self._jump,
            relist=self.relist,
            turns=comparing,
        )
        """Finds out how far the open watch is."""
        self.requests = StreamRequests(
            stream,
            writer,
            resource,
            environment=environment,
            counts=counts,
            projection=projection,
            indexes=indexes,
            packing=packing,
            storing=self._storing,
            comparison=self.comparison,
            shared_version=shared_version,
            turns=turns,
        )
        self._again = asyncio.Event()
        """Set if the kind may be served again, so that its pause ends."""
        self._held: asyncio.Event | None = None
        """Set once the stream may go on; None if it need not wait."""
        self.foreign: set[tuple[str, str]] = set()
        """Uids and versions of bodies that are newer than the server, because it was restored since."""

    def __str__(self) -> str:
        return str(self.resource)

    @property
    def filter(self) -> Selector:
        return self.stream.selector

    @property
    def substore(self) -> Substore:
        return self.writer.substore

    @property
    def condition(self) -> Condition:
        return self.writer.condition

    @property
    def version(self) -> str:
        return self.writer.substore.version

    def goal(self, version: str) -> str:
        """Return the version that this stream must reach for a read as of a version: that of another stream's
        list if it is newer, since an object may have moved between them unseen.
        """
        listed = self.writer.union.unreached_list(self.substore)
        return listed if is_older(version, listed) else version

    @property
    def awaited(self) -> AwaitedVersions:
        """Futures that wait for this stream to reach a version."""
        return self.writer.awaited

    def hold(self) -> None:
        """Apply no input before `release`: readers shall not see the store move."""
        self._held = self._held or asyncio.Event()

    def release(self) -> None:
        if self._held is not None:
            self._held.set()
            self._held = None
            self.comparison.look()

    def attach(self, notify: Callable[[Sequence[Change]], None], share: Share) -> None:
        """Note that the filter of the stream is the present one now."""
        self._share, self.writer.notify, self.writer.share = share, notify, None

    def follow(
        self,
        union: Union,
        substore: Substore,
        notify: Callable[[Sequence[Change]], None],
        share: Share,
    ) -> None:
        """Be a stream of another union from now on: the filter has changed, and this stream is kept."""
        self.writer.follow(union, substore, notify)
        self._share = share
        self.comparison.follow(substore)
        self._storing.follow(substore.view, union.writing, share.tally)

    def forget(self) -> None:
        """Drop the stored objects and wake all waiters: the stream was replaced."""
        self.writer.forget()
        self.comparison.end()
        self.comparison.follow(self.substore)
        self._storing.end()

    def index(self, indexes: tuple[Indexed, ...]) -> None:
        """Read the values of these indexes from objects that come from now on."""
        if not self.stream.is_outside:
            self.requests.checked.index(indexes)

    def age(self) -> float | None:
        """Return the seconds since the server last confirmed the stored objects; None before the first
        complete list.
        """
        return self.writer.age()

    @property
    def is_watching(self) -> bool:
        """True while a watch is open or requested."""
        return isinstance(self.writer.state, Watching)

    @property
    def is_live(self) -> bool:
        """True if the open watch has caught up with the server, and is not held."""
        return self.comparison.has_caught_up and self._held is None

    @property
    def can_jump(self) -> bool:
        """True if a probe may count: the stream watches, is not held, and no list was ordered."""
        return self.is_watching and self._held is None and not self._is_ordered

    def _jump(self, version: str) -> bool:
        """Note that the stream holds what a list as of a version has; return False if it can't move now.
        Versions without order move nothing.
        """
        if not self.can_jump:
            return False
        if is_number(version):
            self.writer.take(Probed(version))
        return True

    @property
    def goes_on(self) -> bool:
        """True if no list is due: a watch is open, or will be opened at the version that it has reached."""
        state = self.writer.state
        return self.is_watching or (isinstance(state, Waiting) and state.resume != "")

    @property
    def has_misread(self) -> bool:
        """True if a field of the selector was misread: an object does not show if the stream selects it."""
        return self.requests.checked.has_misread

    def note_foreign(self, uid: str, version: str) -> None:
        """Note a body of another epoch. Kopf may call timers with it repeatedly."""
        if len(self.foreign) >= FOREIGN_BODIES:
            self.foreign.clear()
        self.foreign.add((uid, version))

    async def run(self) -> None:
        """List and watch until the server stops to serve the resource, or the store exceeds its limit. A bug
        in this package causes a relist.
        """
        packing = asyncio.create_task(
            run_again(
                lambda: self._storing.run(self._environment.sleep),
                self._environment,
                self,
                lambda: context_of_stream(self.condition),
            ),
            name=f"selectcache: {self}, packing",
        )
        try:
            await self._run()
        finally:
            packing.cancel()
            self.comparison.stop()

    async def _run(self) -> None:
        environment = self._environment
        state: State = self._anew()
        while True:
            running = asyncio.timeout(None)
            try:
                async with running:
                    self._running = running
                    try:
                        return await self._follow(state)
                    finally:
                        self._running = None
            except Exception as error:
                if isinstance(error, TimeoutError) and running.expired():
                    state = self._after_interruption()
                    continue
                environment.logger.exception(
                    "The cache of %(resource)s failed because of a bug in kopf_selectcache, and starts"
                    " again.",
                    {"resource": str(self)},
                    extra=context_of_stream(self.condition),
                )
                self.condition.fail(Mistake(type(error).__name__))
                await environment.sleep(delay(6, environment.chance()))
                state = self._anew()

    def _anew(self) -> Idle:
        self._is_ordered = False
        # The server may have been restored since: the list must be consistent, and its version is compared
        # with that of the stored objects.
        return Idle(
            Known(
                streaming=self._environment.settings.initial == "stream",
                floor=self.version,
                beyond=self.version != "",
            )
        )

    def relist(self, reason: MetricReason) -> None:
        """List all objects again; reads use the stored ones meanwhile. A list that is under way goes on, also
        if it waits for its next page.
        """
        if isinstance(self.writer.state, Watching) or (
            isinstance(self.writer.state, Waiting) and self.writer.state.paused is None
        ):
            self._is_ordered = True
            self.writer.note_reason(reason)
        self.resume()

    def resume(self) -> None:
        """Open the watch again, if it is open: its connection may be dead."""
        if self._running is not None and isinstance(self.writer.state, Watching):
            self._running.reschedule(asyncio.get_running_loop().time())
            self._running = None  # A timeout interrupts once.

    def look_again(self) -> None:
        """Ask now, if the cluster did not serve the kind."""
        if self.condition.is_missing:
            self._again.set()

    def _after_interruption(self) -> State:
        """Return the state that `resume` or `relist` leads to."""
        state, relisting, self._is_ordered = self.writer.state, self._is_ordered, False
        if isinstance(state, Watching) and not relisting:
            return Waiting(state.known, resume=state.version)
        # The list must be consistent: a cached answer of the server may be as outdated as the stored objects.
        return Idle(state.known.going_beyond())

    async def _follow(self, state: State) -> None:
        """Run the protocol: the writer takes each input, and may return the command that the next inputs come
        from.

        Return if the cluster stops to serve the resource, which may come back in another version, or if the
        store exceeds its limit. That is no exception, because its traceback would reference stored objects.
        """
        writer = self.writer
        writer.state = state
        source = _just(Start() if isinstance(state, Idle) else Due())
        missing = False
        while True:
            command = None
            async with aclosing(source):
                async for input_ in source:
                    while self._held is not None:
                        await self._held.wait()
                    command = writer.take(input_)
                    if writer.is_confirmed:
                        self.comparison.confirm(writer.substore.version)
                    if writer.has_committed:  # The memory of the pages is free now.
                        self._storing.free_compressors()
                        await run_in_thread(trim_heap)
                    self.comparison.look()
                    if self._share is not None and self._share.is_beyond():
                        return
                    missing = missing or (isinstance(input_, Refusal) and input_.code == 404)
                    if command is not None:
                        break
            assert command is not None, f"nothing to do in {self.writer.state}"
            if missing and not isinstance(command, Wait):
                return
            source = self._waited(command) if isinstance(command, Wait) else self.requests.inputs(command)

    async def _waited(self, command: Wait) -> AsyncGenerator[Input, None]:
        self._again.clear()
        # Retries are slow if only a person can help, and fast while that is uncertain.
        slow = self.condition.health is Health.UNAUTHORIZED or (
            command.slow and self.condition.error() is not None
        )
        pause = delay(command.failures, self._environment.chance(), at_least=command.at_least, slow=slow)
        if (left := self.condition.until_stalled()) is not None and 0 < left < pause:
            await self._environment.sleep(left)
            self.condition.repeat()
            pause -= left
        await sleep_until(self._again, self._environment.sleep(pause))
        if self._is_ordered:
            self._is_ordered = False
            self.writer.state = Waiting(self.writer.state.known.going_beyond())
        yield Due()


async def _just(input_: Input) -> AsyncGenerator[Input, None]:
    yield input_
