"""Comparison: checks if the open watch of one stream has caught up with the server, by a list of metadata.

A watch that was just opened may still deliver earlier events. A bookmark shows that all of them have come,
unless somebody waits for a newer version: then the server may lag. Until then, one list of metadata for each
opening shows how far the watch is (`core.store.probe`). It is at least as new as the newest version that
somebody waits for, and all waiters share it. A comparison that has begun goes on without waiters: handlers
that come one after another share it as well. A failure delays the next list, also if nobody waited meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import reduce

from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.protocol.query import not_older_than
from kopf_selectcache.core.redact import printable
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.probe import Probe
from kopf_selectcache.core.store.record import is_newer, is_number, is_older
from kopf_selectcache.core.store.substore import Substore
from kopf_selectcache.settings.planner import Stream

from ._metadata_lists import metadata_as_of
from .environment import Environment

PAUSE = 1.0
"""Seconds until the next list, if a stream equals the last one and can't move to its version yet."""


class Comparison:
    """Compares the open watch of one stream with the server. Used on one event loop."""

    def __init__(
        self,
        stream: Stream,
        substore: Substore,
        resource: Resource,
        *,
        environment: Environment,
        jump: Callable[[str], bool],
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        self.has_caught_up = False
        """True if the open watch has delivered all that happened before it was opened."""
        self.openings = 0
        """The number of watches that were opened."""
        self._stream = stream
        self._substore = substore
        self._resource = resource
        self._environment = environment
        # Called with the version of a list that the stream equals; returns False if it can't move now.
        self._jump = jump
        # Shared by the streams of an informer: there may be a hundred.
        self._turns = turns or asyncio.Semaphore()
        self._is_open = asyncio.Event()
        self._waiting: dict[asyncio.Future[bool], str] = {}
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._next_list = 0.0  # The earliest time of the next list.
        self._is_listing = False
        self._is_comparing = False  # True while it lists, or waits until the watch lacks nothing.
        # Set if the compared watch has ended, or has reached the list.
        self._has_changed = asyncio.Event()
        self._probe: Probe | None = None

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
        self.has_caught_up = False
        self._is_open.clear()
        self._has_changed.set()

    def confirm(self, version: str) -> None:
        """Note a bookmark. If somebody waits for a newer version, the server may lag behind that."""
        self._release(version)
        self.has_caught_up = self.has_caught_up or not self._waiting

    def follow(self, substore: Substore) -> None:
        """Compare another substore from now on, which has taken over the present one."""
        self._substore = substore
        self._has_changed.set()  # A list that was compared with the other one is made again.

    def look(self) -> None:
        """Note a change of the substore."""
        probe = self._probe
        if probe is None or self._has_changed.is_set() or not (probe.is_over or probe.counts()):
            return
        self._has_changed.set()
        self.has_caught_up = True
        if not probe.is_over and not self._jump(probe.version):
            self._next_list = self._environment.clock() + PAUSE  # Who waits for the version asks again.
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
        """Compare the open watch with one list, and wait until it has reached that; raise Refused,
        Unreachable or Garbled.
        """
        newest = reduce(lambda one, other: other if is_newer(other, one) else one, self._waiting.values())
        self._is_listing = True
        try:
            async with self._turns:
                version, listed = await metadata_as_of(
                    self._stream,
                    self._resource,
                    not_older_than(newest) if is_number(newest) else {},
                    environment=self._environment,
                )
        finally:
            self._is_listing = False
        if self._has_changed.is_set():
            return  # The watch has ended.
        if is_number(newest) and not is_number(version):
            raise Garbled(f"a list of version {printable(version, 50)} came where other versions are numbers")
        if is_older(version, newest):
            raise Garbled(
                f"a list of version {printable(version, 50)} came, which is older than was asked for"
            )
        self._probe = Probe(self._substore, version, listed)
        try:
            self.look()
            await self._has_changed.wait()
        finally:
            self._probe = None
