"""Futures that wait for a stream to reach a resourceVersion. Used on one event loop.

A stream moves forward with every event. A heap by version wakes only the futures whose version is reached: to
wake all of them with each event would take quadratic time.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

from kopf_selectcache.core.store.record import is_newer, is_number, is_older


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
