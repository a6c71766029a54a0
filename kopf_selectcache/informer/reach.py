"""Reach: brings streams to a version, and wakes those who wait for that. Used on one event loop.

A busy stream learns its version from its own events. A quiet one learns it from a bookmark, about once a
minute. Whoever can't wait that long asks the `Comparison` of the stream, which makes a *probe*: it lists the
metadata of the stream. Once the stream holds exactly what was listed, it has reached the version of the list
(`core.store.claims`). One list at a time serves all who wait for the stream.

Handlers and `at_least=` wait for a version that the cluster has shown them. Their list is at least as new. It
also shows that the open watch has delivered all that happened before it was opened, so one list for each
opening is enough for all handlers.

The `Prober` waits for the streams of a *group*, which could hold the same objects. While they are at
different versions, an object that has left one of them may be in another (contract 12), and nothing can be
read before their first lists meet. Its lists are exactly as of the newest version of the group: otherwise two
quiet streams would chase each other.

`SharedVersion` is that of the first lists of a group. If all of its streams list as of the version of the
first answer, they need not wait for each other. Each stream uses it for its first list only: minutes later
the version is outdated.

`AwaitedVersions` wakes the waits for one stream, which moves forward with every event. A heap by version
wakes only the futures whose version is reached: to wake all of them with each event would take quadratic
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from kopf_selectcache.client.fetcher import pages_of_metadata
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled, MetricReason
from kopf_selectcache.core.protocol.messages import (
    Page,
    Refusal,
    delay,
    exactly,
    is_beyond_server,
    not_older_than,
)
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.redact import printable
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.claims import Listed, Probe, Substore, listed_of
from kopf_selectcache.core.store.record import is_newer, is_number, is_older, is_reached, rank_of
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.settings.planner import Stream

from .environment import Environment, sleep_until


class _Goal:
    """A version, and the futures that wait for it."""

    __slots__ = ("futures", "version")

    def __init__(self, version: str) -> None:
        self.version = version
        self.futures: set[asyncio.Future[bool]] = set()

    def __lt__(self, other: _Goal) -> bool:
        return is_older(self.version, other.version)

    def release(self, *, reached: bool) -> None:
        for future in self.futures:
            if not future.done():
                future.set_result(reached)


class AwaitedVersions:
    """The versions that futures wait for, the oldest first. False if there are none.

    Versions that are not numbers have no order: each is reached when the stream is at exactly that version.
    """

    def __init__(self) -> None:
        self._goals: dict[str, _Goal] = {}
        self._heap: list[_Goal] = []

    def __bool__(self) -> bool:
        return bool(self._goals)

    def wait(self, version: str) -> asyncio.Future[bool]:
        """Return a future: True once the version is reached, False if `wake` is called before."""
        goal = self._goals.get(version)
        if goal is None:
            goal = self._goals[version] = _Goal(version)
            if is_number(version):
                heappush(self._heap, goal)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        goal.futures.add(future)
        return future

    def discard(self, version: str, future: asyncio.Future[bool]) -> None:
        """Cancel a future. Its goal stays until the stream has reached it, or `wake` is called."""
        future.cancel()
        if (goal := self._goals.get(version)) is not None:
            goal.futures.discard(future)

    def reach(self, version: str) -> None:
        """Release the futures of this version and of older ones."""
        if (exact := self._goals.get(version)) is not None and not is_number(version):
            del self._goals[version]
            exact.release(reached=True)
        while self._heap and not is_newer(self._heap[0].version, version):
            goal = heappop(self._heap)
            del self._goals[goal.version]
            goal.release(reached=True)

    def wake(self) -> None:
        """Release all futures with False: each waiter checks the stream again."""
        goals, self._goals, self._heap = self._goals, {}, []
        for goal in goals.values():
            goal.release(reached=False)


REFUSED = frozenset({400, 410, 422, 504})
"""Codes by which servers refuse a version, and possibly other things: it is invalid, expired, or in the
future."""


class SharedVersion:
    """The version of the first list among several streams."""

    def __init__(self) -> None:
        self._asking = asyncio.Lock()
        self._version = ""
        self._unreachable = False

    async def page(self, ask: Callable[[Mapping[str, str]], Awaitable[Page | Refusal]]) -> Page | Refusal:
        """Return the first page of a list as of that version; raise what `ask` raises.

        The first caller asks for the newest version, and all others wait for that answer. After a refusal the
        next caller is the first. If the server is unreachable, which may take long to detect, nobody waits
        any more.
        """
        async with self._asking:
            if not (self._version or self._unreachable):
                return await self._first(ask)
        if self._version:
            try:
                answer = await ask(exactly(self._version))
            except Refused as refused:
                answer = refused.refusal
            # A refused version costs one more request, for the newest version.
            if (
                not isinstance(answer, Refusal)
                or not refuses_version(answer)
                or answer.retry_after is not None
            ):
                return answer
        return await ask({})

    async def _first(self, ask: Callable[[Mapping[str, str]], Awaitable[Page | Refusal]]) -> Page | Refusal:
        try:
            answer = await ask({})
        except Unreachable:
            self._unreachable = True
            raise
        if isinstance(answer, Page):
            self._version = answer.version
        return answer


def refuses_version(refusal: Refusal) -> bool:
    """Return True if a server has refused the version of a list, and may answer for another one."""
    return refusal.code in REFUSED or is_beyond_server(refusal)


def shared_versions(union: Union) -> tuple[SharedVersion | None, ...]:
    """Return for each substore the version that it shares with substores that could hold the same objects;
    None if there are no others.
    """
    shared = {group: SharedVersion() if len(group) > 1 else None for group in union.groups}
    of_each = {substore: found for group, found in shared.items() for substore in group}
    return tuple(map(of_each.__getitem__, union.substores))


CATCH_UP_SECONDS = 1.0
"""Seconds that streams get to reach each other by themselves; also the shortest rest between two lists."""

TICK_SECONDS = 0.5
"""Seconds between two looks at the streams that departures wait for."""

REST_FACTOR = 10.0
"""The rest after a list, as a multiple of its duration: lists for departures take at most a tenth of the
time."""

LARGE_STREAM_OBJECTS = 5_000
"""Maximum of objects of a stream that is listed for a departure."""


async def metadata_as_of(
    stream: Stream,
    resource: Resource,
    first: Mapping[str, str],
    *,
    version: str = "",
    environment: Environment,
) -> tuple[str, Listed]:
    """List the metadata of a stream, with these parameters for its version; return the version and the list.
    Raise Refused, Unreachable or Garbled, also if the list is as of another `version` than is required.
    """
    listed: Listed = {}
    paging = Paging(
        stream.query(),
        page_limit=environment.settings.page_limit,
        patience=environment.settings.sync_timeout,
        first=first,
        version=version,
    )
    async for records in pages_of_metadata(
        environment.transport,
        resource,
        stream.path(resource),
        paging,
        chance=environment.chance,
        sleep=environment.sleep,
    ):
        listed |= listed_of(stream.within(records))
    return paging.version, listed


class Comparison:
    """Compares the open watch of one stream with lists. Used on one event loop."""

    def __init__(
        self,
        stream: Stream,
        substore: Substore,
        resource: Resource,
        *,
        environment: Environment,
        jump: Callable[[str], bool],
        relist: Callable[[MetricReason], None],
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        self.substore = substore
        self.has_caught_up = False
        """True if the open watch has delivered all that happened before it was opened."""
        self._stream = stream
        self._resource = resource
        self._environment = environment
        # Called with the version of a list that the stream equals; returns False if it can't move now.
        self._jump = jump
        self._relist = relist
        # Shared by the streams of an informer: there may be a hundred.
        self._turns = turns or asyncio.Semaphore()
        self._is_open = asyncio.Event()
        self._waiting: dict[asyncio.Future[bool], _Wait] = {}
        self._is_urgent = asyncio.Event()
        """Set if somebody waits who does not let the stream rest."""
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._earliest = 0.0
        """The earliest time of the next list, after a failure."""
        self._rested = 0.0
        """The time at which the stream has rested after the last list."""
        self._is_listing = False
        self._is_comparing = False
        """True from the beginning of a list until the watch has reached it, or has ended."""
        self._has_changed = asyncio.Event()
        """Set if the compared watch has ended, or has reached the list."""
        self._probe: Probe | None = None
        self._is_exact = False
        """True if the list is as of a version that may be older than the open watch."""

    @property
    def is_open(self) -> bool:
        """True while a watch is open."""
        return self._is_open.is_set()

    @property
    def is_listing(self) -> bool:
        """True while a list is under way, and the one before it did not fail."""
        return self._is_listing and not self._failures

    # ---- Called by the stream.

    def open(self) -> None:
        """Note that the server has accepted the watch."""
        self._is_open.set()

    def close(self) -> None:
        """Note that the watch has ended."""
        self.has_caught_up = False
        self._is_open.clear()
        self._has_changed.set()

    def confirm(self, version: str) -> None:
        """Note a bookmark. If somebody waits for a newer version, the server may lag behind that."""
        self._release(version)
        self.has_caught_up = self.has_caught_up or not self._waiting

    def follow(self, substore: Substore) -> None:
        """Compare another substore from now on, which has taken over the present one."""
        self.substore = substore
        self._has_changed.set()  # A list that was compared with the other one is made again.

    def look(self) -> None:
        """Note that the substore has changed, or that it may move again."""
        probe = self._probe
        if probe is None or self._has_changed.is_set():
            return
        if probe.is_over:
            if probe.has_missed():
                self._relist(MetricReason.MISSED)
        elif not (probe.counts() and self._jump(probe.version)):
            return
        self._has_changed.set()
        self.has_caught_up = self.has_caught_up or not self._is_exact
        self._release(probe.version)

    def end(self) -> None:
        """Release all who wait: the stream is torn down."""
        self.close()
        for future in self._waiting:
            if not future.done():
                future.set_result(False)
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def stop(self) -> None:
        """Cancel the present list, because the stream does not run. Waiters go on: it may run again."""
        self.close()
        if self._task is not None:
            self._task.cancel()
            self._task = self._start() if self._waiting else None

    # ---- Called by waiters.

    def wait(self, version: str, *, exact: bool = False, patient: bool = False) -> asyncio.Future[bool]:
        """Return a future: True once the watch holds all that the server had at this version. An empty one is
        that of the next list. `exact` is for a version that another stream of the group has. Whoever is
        `patient` lets the stream rest between two lists. Cancel the future if you don't need it any more.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        future.add_done_callback(self._forget)
        self._waiting[future] = _Wait(version, exact, patient)
        if not patient:
            self._is_urgent.set()
        if self._task is None:
            self._task = self._start()
        return future

    def _forget(self, future: asyncio.Future[bool]) -> None:
        """Forget a future. A comparison that has begun goes on: else each further handler would need its own
        list.
        """
        self._waiting.pop(future, None)
        if not self._waiting and self._task is not None and not self._is_comparing:
            self._task.cancel()
            self._task = None

    def _release(self, version: str) -> None:
        """Release the futures of this version and of older ones, and those of versions that are not
        numbers.
        """
        for future, wanted in tuple(self._waiting.items()):
            if not is_newer(wanted.version, version) or not is_number(wanted.version):
                del self._waiting[future]
                if not future.done():
                    future.set_result(True)

    # ---- Comparing.

    def _start(self) -> asyncio.Task[None]:
        return asyncio.create_task(
            self._run(), name=f"selectcache: comparison of {self._resource}, {self._stream.selector}"
        )

    async def _run(self) -> None:
        """Compare until nobody waits any more."""
        environment = self._environment
        while self._waiting:
            await self._is_open.wait()
            if (pause := self._pause()) > 0:
                await sleep_until(self._is_urgent, environment.sleep(pause))
                continue  # The watch may have ended.
            self._has_changed.clear()
            try:
                await self._compare()
                self._failures = 0
            except (Refused, Unreachable, Garbled) as error:
                at_least = error.refusal.retry_after if isinstance(error, Refused) else None
                self._postpone(delay(self._failures, environment.chance(), at_least=at_least or 0.0))
            except Exception:
                environment.logger.exception(
                    "The comparison of %(resource)s failed because of a bug in kopf_selectcache, and starts"
                    " again.",
                    {"resource": str(self._resource)},
                    extra={"resource": str(self._resource)},
                )
                self._postpone(delay(6, environment.chance()))
            finally:
                self._is_comparing = False
        self._task = None

    def _pause(self) -> float:
        """Return the seconds until the next list may begin."""
        self._is_urgent.clear()
        is_patient = all(wanted.patient for wanted in self._waiting.values())
        begins = max(self._earliest, self._rested) if is_patient else self._earliest
        return begins - self._environment.clock()

    def _postpone(self, seconds: float) -> None:
        self._failures += 1
        self._earliest = self._environment.clock() + seconds

    async def _compare(self) -> None:
        """Compare the open watch with one list, and wait until it has reached that; raise Refused,
        Unreachable or Garbled.
        """
        clock = self._environment.clock
        self._is_listing = True
        try:
            async with self._turns:
                if self._has_changed.is_set() or not self._waiting:
                    return  # A bookmark may have come with the opening, and released all who waited.
                self._is_comparing, began = True, clock()
                try:
                    version, listed = await self._list()
                finally:
                    self._rested = clock() + max(CATCH_UP_SECONDS, REST_FACTOR * (clock() - began))
        finally:
            self._is_listing = False
        if self._has_changed.is_set():
            return  # The watch has ended.
        self._probe = Probe(self.substore, version, listed)
        try:
            self.look()
            await self._has_changed.wait()
        finally:
            self._probe = None

    async def _list(self) -> tuple[str, Listed]:
        """List the metadata as of the newest version that is waited for; raise Refused, Unreachable or
        Garbled.
        """
        wanted, self._is_exact, _ = max(self._waiting.values(), key=_newest_last)
        if self._is_exact and wanted:
            try:
                return await self._metadata(exactly(wanted), version=wanted)
            except Refused as refused:
                # The server may not have lists as of a version, or may have forgotten it.
                if not refuses_version(refused.refusal) or refused.refusal.retry_after is not None:
                    raise
        version, listed = await self._metadata(not_older_than(wanted) if is_number(wanted) else {})
        at_least = wanted or self.substore.version
        if is_number(at_least) and (not is_number(version) or is_older(version, at_least)):
            raise Garbled(
                f"a list of version {printable(version, 50)} came, which is older than was asked for"
            )
        return version, listed

    async def _metadata(self, as_of: Mapping[str, str], version: str = "") -> tuple[str, Listed]:
        return await metadata_as_of(
            self._stream, self._resource, as_of, version=version, environment=self._environment
        )


class _Wait(NamedTuple):
    """The version that a future waits for."""

    version: str
    exact: bool
    patient: bool


def _newest_last(wanted: _Wait) -> tuple[bool, tuple[int, str], bool]:
    """Return a key that sorts what is waited for. Only a list of the present state is as new as a version
    without order.
    """
    return not is_number(wanted.version), rank_of(wanted.version), wanted.exact


class Prober:
    """Says which streams of one filter must reach which version."""

    def __init__(self, union: Union, comparisons: Sequence[Comparison], *, environment: Environment) -> None:
        self._union = union
        self._comparisons = dict(zip(union.substores, comparisons, strict=True))
        self._environment = environment
        self._is_due = asyncio.Event()
        """Set if the next tick may change what is waited for."""
        self._goals: dict[Substore, tuple[str, float]] = {}
        """The version that each stream had to reach when it was first seen to be behind, and that time."""
        self._waits: list[asyncio.Future[bool]] = []

    def look(self) -> None:
        """Note a change of a substore."""
        if self._waits or self._union.awaits_streams:
            self._is_due.set()

    async def run(self) -> None:
        """Bring streams to the versions that departures and first answers wait for, until cancelled."""
        self._is_due.set()
        try:
            while True:
                await self._is_due.wait()
                self._is_due.clear()
                self._tick()
                await self._environment.sleep(TICK_SECONDS)
        finally:
            _cancel(self._waits)

    def _tick(self) -> None:
        """Wait for the streams that have not reached the newest version of then within `CATCH_UP_SECONDS`."""
        now, former = self._environment.clock(), self._goals
        awaited = self._union.awaited if self._union.awaits_streams else {}
        self._goals = {
            each: former[each]
            if each in former and not is_reached(former[each][0], each.version)
            else (version, now)
            for each, version in awaited.items()
        }
        quiet = [each for each, (_, since) in self._goals.items() if now - since >= CATCH_UP_SECONDS]
        if len(quiet) < len(awaited):
            self._is_due.set()
        waits, self._waits = (
            self._waits,
            [
                self._comparisons[each].wait(awaited[each], exact=True, patient=True)
                for each in quiet
                if is_number(each.version) and len(each.view.records()[0]) <= LARGE_STREAM_OBJECTS
            ],
        )
        _cancel(waits)  # Afterwards, so that each comparison keeps its turn.

    async def reach(self, version: str) -> None:
        """Bring all streams to a version, whatever their size, until cancelled."""
        while True:
            waits = [
                comparison.wait(version, exact=True)
                for substore, comparison in self._comparisons.items()
                if comparison.substore is substore and is_older(substore.version, version)
            ]
            try:
                await (asyncio.wait(waits) if waits else self._environment.sleep(CATCH_UP_SECONDS))
            finally:
                _cancel(waits)


def _cancel(waits: Iterable[asyncio.Future[bool]]) -> None:
    for each in waits:
        each.cancel()
