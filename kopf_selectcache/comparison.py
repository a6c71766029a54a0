"""Tells whether the open watch of one stream has caught up with the server; compares it with a list for those who must know.

A watch that was just opened may still be delivering what happened before. A bookmark shows that all of it has come. Until
then, one list of metadata for each opening tells what the watch lacks, and all who wait share it. The list
is as new as the newest version that is waited for. Failures are paid for with a wait, as those of other lists.
"""
from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import reduce

from .core.backoff import delay
from .core.branches import Branch, Key
from .core.paging import Paging
from .core.problems import Garbled
from .core.record import Record, is_newer, is_number, is_older
from .core.resources import Resource
from .metadata import pages_of_metadata
from .planning import Stream
from .queries import not_older_than
from .transport import Refused, Unreachable
from .world import World


class Comparison:
    """Compares the open watch of one stream with the server. Used on one event loop."""

    def __init__(self, stream: Stream, branch: Branch, resource: Resource, *, world: World) -> None:
        self.has_caught_up = False
        """True if the open watch has delivered all that happened before it was opened."""
        self.openings = 0
        """How many watches were opened."""
        self._stream = stream
        self._branch = branch
        self._resource = resource
        self._world = world
        self._is_open = asyncio.Event()
        self._waiting: dict[asyncio.Future[bool], str] = {}
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._has_changed = asyncio.Event()   # Whether the opening that is compared is over, or nothing is lacking any more.
        self._missing: list[Record] = []
        self._surplus: list[Record] = []
        self._as_of = ""

    @property
    def is_open(self) -> bool:
        """True while a watch is open."""
        return self._is_open.is_set()

    # ---- What the stream reports.

    def open(self) -> None:
        """The server has accepted the watch."""
        self.openings += 1
        self._is_open.set()

    def close(self) -> None:
        """The watch has ended."""
        self.has_caught_up = False
        self._is_open.clear()
        self._has_changed.set()

    def confirm(self, version: str) -> None:
        """A bookmark has come."""
        self.has_caught_up = True
        self._release(version)

    def look(self) -> None:
        """The stream has taken something in."""
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

    # ---- Those who wait.

    def wait(self, version: str) -> asyncio.Future[bool]:
        """Return a future: True once the watch holds all that the server had at this version."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[future] = version
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"selectcache: comparison of {self._resource}, {self._stream.selector}")
        return future

    def discard(self, future: asyncio.Future[bool]) -> None:
        """Wait no more. The last one ends the comparison."""
        future.cancel()
        self._waiting.pop(future, None)
        if not self._waiting and self._task is not None:
            self._task.cancel()
            self._task = None

    def _release(self, version: str) -> None:
        """Release those who wait for this version or an older one; of versions that are not numbers, all."""
        for future, wanted in tuple(self._waiting.items()):
            if not is_newer(wanted, version) or not is_number(wanted):
                del self._waiting[future]
                if not future.done():
                    future.set_result(True)

    # ---- Comparing.

    async def _run(self) -> None:
        """Compare until nobody waits any more."""
        world = self._world
        while self._waiting:
            await self._is_open.wait()
            self._has_changed.clear()
            try:
                await self._compare()
                self._failures = 0
            except (Refused, Unreachable, Garbled) as error:
                at_least = error.refusal.retry_after if isinstance(error, Refused) else None
                await world.sleep(delay(self._failures, world.chance(), at_least=at_least or 0.0))
                self._failures += 1
            except Exception:
                world.logger.exception("The comparison of %s stumbled over a mistake of its own, and starts again.", self._resource)
                await world.sleep(delay(6, world.chance()))
        self._task = None

    async def _compare(self) -> None:
        """Compare the open watch with one list, and wait until it lacks nothing; raise Refused, Unreachable or Garbled."""
        listed, self._as_of = await self._list()
        if self._has_changed.is_set():
            return   # Another watch will be open.
        held = {record.key: record for record in self._branch.view.records()[0]}
        self._missing = [record for record in listed.values() if not _is_as_new(held.get(record.key), record)]
        self._surplus = [record for key, record in held.items() if key not in listed and not is_newer(record.version, self._as_of)]
        try:
            self._strike_off()
            await self._has_changed.wait()
            if self._is_open.is_set() and not self._missing and not self._surplus:
                self.has_caught_up = True
                self._release(self._as_of)
        finally:
            self._missing, self._surplus = [], []

    async def _list(self) -> tuple[Mapping[Key, Record], str]:
        """Return the metadata of all that the stream should hold, and the version as of which that is so."""
        newest = reduce(lambda one, other: other if is_newer(other, one) else one, self._waiting.values())
        listed: dict[Key, Record] = {}
        paging = Paging(
            self._stream.query(), page_limit=self._world.settings.page_limit, patience=self._world.settings.sync_timeout,
            first=not_older_than(newest) if is_number(newest) else None)
        path = self._stream.path(self._resource)
        async for records in pages_of_metadata(self._world, self._resource, path, paging):
            listed |= {record.key: record for record in self._stream.within(records)}
        return listed, paging.version

    def _strike_off(self) -> None:
        """Strike off what the watch has delivered meanwhile. Each event looks at what it strikes off, and at one more."""
        view, version = self._branch.view, self._branch.version
        is_past = not is_newer(self._as_of, version)
        while self._missing and (is_past or not is_newer(self._missing[-1].version, version)
                                 or _is_as_new(view.held(self._missing[-1].key), self._missing[-1])):
            self._missing.pop()
        while self._surplus and (is_past or (held := view.held(self._surplus[-1].key)) is None or held.uid != self._surplus[-1].uid
                                 or is_newer(held.version, self._as_of)):
            self._surplus.pop()
        if not self._missing and not self._surplus:
            self._has_changed.set()


def _is_as_new(held: Record | None, listed: Record) -> bool:
    return held is not None and held.uid == listed.uid and not is_older(held.version, listed.version)
