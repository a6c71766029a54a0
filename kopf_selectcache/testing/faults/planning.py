"""Which requests faults happen to, how often, and what has happened. Does no harm itself."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from kopf_selectcache.testing.api.calls import Request
from kopf_selectcache.testing.requests import Asked, Match, Record

from .fault import Fault, Piece

Post: TypeAlias = Callable[[Callable[[], None]], None]
"""Calls this where the server runs."""


class Planned:
    """A fault that waits for its requests. Until it is released, it happens to them."""

    def __init__(self, fault: Fault, match: Match, *, nth: int = 1, times: int | None = None, post: Post) -> None:
        self.fault = fault
        self.hits: Record[Asked] = Record()
        """The requests that it has happened to. What happens to the events of a watch counts once a watch."""
        self.released = False
        self._match = match
        self._first = nth
        self._last = float("inf") if times is None else nth + times - 1
        self._met = 0
        self._post = post
        self._wakers: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<{self.fault!r}, {len(self.hits)} hits{', released' if self.released else ''}>"

    async def hit(self, times: int = 1) -> Asked:
        """Wait until it has happened so often; return the request that it happened to last."""
        await asyncio.wrap_future(self.hits.when(lambda: len(self.hits) >= times))
        return self.hits[-1]

    def wait(self, times: int = 1, *, timeout: float = 60) -> Asked:
        """Do the same in a thread that has no loop; TimeoutError, if it does not happen."""
        self.hits.wait_for(lambda: len(self.hits) >= times, timeout=timeout)
        return self.hits[-1]

    def release(self) -> None:
        """Be over: what was held back comes, and requests and open watches go on as if it had never been."""
        self._post(self._release)

    def meets(self, asked: Asked, request: Request) -> bool:
        """Count this request, and say whether the fault happens to it."""
        if self.released or not self._match.matches(asked) or not self.fault.concerns(request):
            return False
        self._met += 1
        return self._first <= self._met <= self._last

    def on_release(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call this at the release; return what ends it."""
        self._wakers.append(wake)
        return lambda: self._wakers.remove(wake)

    def _release(self) -> None:
        self.released = True
        for wake in tuple(self._wakers):
            wake()


class Faults:
    """The faults that are planned for one server."""

    def __init__(self, faults: Iterable[Fault] = (), *, post: Post = lambda call: call()) -> None:
        self._post = post
        self._planned: list[Planned] = []
        for fault in faults:
            self.add(fault)

    def __iter__(self) -> Iterator[Planned]:
        return iter(tuple(self._planned))

    def add(
        self, fault: Fault, *, verb: str = "", resource: str = "", namespace: str | None = None, name: str = "",
        user: str = "", where: Callable[[Asked], bool] | None = None, nth: int = 1, times: int | None = None,
    ) -> Planned:
        """Plan a fault for requests that are equal in all that is given: from the nth of them on, so many times.

        Faults that meet in one request happen in the order in which they were added.
        """
        planned = Planned(fault, Match(verb, resource, namespace, name, user, where=where), nth=nth, times=times, post=self._post)
        self._planned.append(planned)
        return planned

    def clear(self) -> None:
        """Release all, and forget them."""
        for planned in self:
            planned.release()
        self._planned.clear()

    def meeting(self, asked: Asked, request: Request) -> list[Planned]:
        """Return those that happen to this request, which is counted."""
        return [planned for planned in tuple(self._planned) if planned.meets(asked, request)]


class Stage:
    """A fault at work on the pieces of one watch."""

    def __init__(self, planned: Planned, asked: Asked) -> None:
        self._planned = planned
        self._asked = asked
        self._filter = planned.fault.filter()
        self._told = self._filter is None and planned.fault.idle is None
        if self._told:
            planned.hits.add(asked)

    def pass_on(self, pieces: list[Piece]) -> list[Piece]:
        """Return what comes of them, and tell the fault's plan when it is not what went in."""
        if self._filter is None:
            return pieces
        released = self._planned.released
        out = self._filter(pieces, released)
        if released:
            self._filter = None
        elif out != pieces and not self._told:
            self._told = True
            self._planned.hits.add(self._asked)
        return out
