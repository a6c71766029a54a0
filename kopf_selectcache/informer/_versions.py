"""Versions that streams are to reach. Used on one event loop.

`AwaitedVersions` wakes the waits for one stream. A stream moves forward with every event. A heap by version
wakes only the futures whose version is reached: to wake all of them with each event would take quadratic
time.

`SharedVersion` is that of the first lists of streams that could hold the same objects. Such streams can be
read together once each has reached the newest of their lists. While the cluster writes, each list has another
version, and a watch without events reaches that version only by a bookmark, within a minute. If all streams
list as of the version of the first answer, they need not wait. Each stream uses it for its first list only:
minutes later the version is outdated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from heapq import heappop, heappush

from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.protocol.messages import Page, Refusal
from kopf_selectcache.core.protocol.query import exactly, is_beyond_server
from kopf_selectcache.core.store.record import is_newer, is_number, is_older
from kopf_selectcache.core.store.union import Union


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
