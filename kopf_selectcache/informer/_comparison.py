"""Comparison: checks if the open watch of one stream has caught up with the server, by a list of metadata.

A watch that was just opened may still deliver earlier events. A bookmark shows that all of them have come,
unless somebody waits for a newer version: then the server may lag. Until then, one list of metadata for each
opening shows what the watch lacks. All waiters share it. The list is at least as new as the newest version
that somebody waits for. A comparison that has begun goes on without waiters: handlers that come one after
another share it as well. A failure delays the next list, also if nobody waited for a while.
"""

from __future__ import annotations

import asyncio
from functools import reduce
from typing import NamedTuple

from kopf_selectcache.client.partial_metadata import pages_of_metadata
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.protocol.query import not_older_than
from kopf_selectcache.core.redact import printable
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.record import ObjectKey, Record, is_newer, is_number, is_older
from kopf_selectcache.core.store.substore import Substore
from kopf_selectcache.settings.planner import Stream

from .environment import Environment


class _Difference(NamedTuple):
    """An object of the list that the watch lacks, or one that the watch has and the list lacks."""

    key: ObjectKey
    uid: str
    version: str


class Comparison:
    """Compares the open watch of one stream with the server. Used on one event loop."""

    def __init__(
        self,
        stream: Stream,
        substore: Substore,
        resource: Resource,
        *,
        environment: Environment,
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        self.has_caught_up = False
        """True if the open watch has delivered all that happened before it was opened."""
        self.as_of = ""
        """The version as of which the open watch is known to lack nothing, by a list; empty if none was
        compared."""
        self.openings = 0
        """The number of watches that were opened."""
        self._stream = stream
        self._substore = substore
        self._resource = resource
        self._environment = environment
        # Shared by the streams of an informer: there may be a hundred.
        self._turns = turns or asyncio.Semaphore()
        self._is_open = asyncio.Event()
        self._waiting: dict[asyncio.Future[bool], str] = {}
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._next_list = 0.0  # The earliest time of the next list.
        self._is_listing = False
        self._is_comparing = False  # True while it lists, or waits until the watch lacks nothing.
        # Set if the compared watch has ended, or lacks nothing any more.
        self._has_changed = asyncio.Event()
        self._missing: list[_Difference] = []
        self._surplus: list[_Difference] = []
        self._as_of = ""

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
        self.openings += 1
        self._is_open.set()

    def close(self) -> None:
        """Note that the watch has ended."""
        self.has_caught_up, self.as_of = False, ""
        self._is_open.clear()
        self._has_changed.set()

    def confirm(self, version: str) -> None:
        """Note a bookmark. If somebody waits for a newer version, the server may lag behind that."""
        self._release(version)
        self.has_caught_up = self.has_caught_up or not self._waiting

    def follow(self, substore: Substore) -> None:
        """Compare another substore from now on, which the same watch has fed as well."""
        self._substore = substore

    def look(self) -> None:
        """Note a change of the substore."""
        if self._missing or self._surplus:
            self._strike_off()

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

    def wait(self, version: str) -> asyncio.Future[bool]:
        """Return a future: True once the watch holds all that the server had at this version."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[future] = version
        if self._task is None:
            self._task = self._start()
        return future

    def discard(self, future: asyncio.Future[bool]) -> None:
        """Cancel a future. A comparison that has begun goes on: else each further handler would need its own
        list.
        """
        future.cancel()
        self._waiting.pop(future, None)
        if not self._waiting and self._task is not None and not self._is_comparing:
            self._task.cancel()
            self._task = None

    def _release(self, version: str) -> None:
        """Release the futures of this version and of older ones, and those of versions that are not
        numbers.
        """
        for future, wanted in tuple(self._waiting.items()):
            if not is_newer(wanted, version) or not is_number(wanted):
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
            if not self._waiting:
                continue  # A bookmark came with the opening, and released all who waited.
            if (pause := self._next_list - environment.clock()) > 0:
                await environment.sleep(pause)
                continue  # The watch may have ended.
            self._has_changed.clear()
            self._is_comparing = True
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

    def _postpone(self, seconds: float) -> None:
        self._failures += 1
        self._next_list = self._environment.clock() + seconds

    async def _compare(self) -> None:
        """Compare the open watch with one list, and wait until it lacks nothing; raise Refused, Unreachable
        or Garbled.
        """
        listed, missing = set[ObjectKey](), list[_Difference]()
        newest = reduce(lambda one, other: other if is_newer(other, one) else one, self._waiting.values())
        self._is_listing = True
        try:
            async with self._turns:
                paging = Paging(
                    self._stream.query(),
                    page_limit=self._environment.settings.page_limit,
                    patience=self._environment.settings.sync_timeout,
                    first=not_older_than(newest) if is_number(newest) else None,
                )
                path = self._stream.path(self._resource)
                async for records in pages_of_metadata(
                    self._environment.transport,
                    self._resource,
                    path,
                    paging,
                    chance=self._environment.chance,
                    sleep=self._environment.sleep,
                ):
                    # Only keys and differences are stored, not the records.
                    for record in self._stream.within(records):
                        listed.add(record.key)
                        difference = _difference(record)
                        if not _is_as_new(self._substore.view.held(record.key), difference):
                            missing.append(difference)
        finally:
            self._is_listing = False
        if self._has_changed.is_set():
            return  # The watch has ended.
        if is_number(newest) and not is_number(paging.version):
            raise Garbled(
                f"a list of version {printable(paging.version, 50)} came where other versions are numbers"
            )
        if is_older(paging.version, newest):
            raise Garbled(
                f"a list of version {printable(paging.version, 50)} came, which is older than was asked for"
            )
        self._as_of, self._missing = paging.version, missing
        self._surplus = [
            _difference(record)
            for record in self._substore.view.records()[0]
            if record.key not in listed and not is_older(self._as_of, record.version)
        ]
        try:
            self._strike_off()
            await self._has_changed.wait()
            if self._is_open.is_set() and not self._missing and not self._surplus:
                self.has_caught_up, self.as_of = True, self._as_of
                self._release(self._as_of)
        finally:
            self._missing, self._surplus = [], []

    def _strike_off(self) -> None:
        """Remove differences that the watch has delivered meanwhile. Each call checks one difference more
        than it removes, so the cost per event is constant on average.
        """
        view, version = self._substore.view, self._substore.version
        is_past = not is_newer(self._as_of, version)
        while self._missing and (
            is_past
            or not is_newer(self._missing[-1].version, version)
            or _is_as_new(view.held(self._missing[-1].key), self._missing[-1])
        ):
            self._missing.pop()
        while self._surplus and (
            is_past
            or (held := view.held(self._surplus[-1].key)) is None
            or held.uid != self._surplus[-1].uid
            or is_older(self._as_of, held.version)
        ):
            self._surplus.pop()
        if not self._missing and not self._surplus:
            self._has_changed.set()


def _difference(record: Record) -> _Difference:
    return _Difference(record.key, record.uid, record.version)


def _is_as_new(held: Record | None, listed: _Difference) -> bool:
    """Return True if the stored object is at least as new as the listed one. Versions that are not numbers
    must be equal.
    """
    return (
        held is not None
        and held.uid == listed.uid
        and (held.version == listed.version or is_older(listed.version, held.version))
    )
