"""The planning of faults: the requests that they affect, how often, and their record. It changes no response
itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from kopf_selectcache.testing.api.request import Request
from kopf_selectcache.testing.request_log import Asked, Match, Record

from .fault import Fault, Piece, VersionBefore

Post: TypeAlias = Callable[[Callable[[], None]], None]
"""Calls a function on the server's loop."""


class BrokenFault(Exception):
    """Code of the test, such as `where=`, has raised. The request gets a 500; the test gets this when the
    cluster ends.
    """


class Planned:
    """A fault that waits for its requests. It affects them until it is released."""

    def __init__(
        self,
        fault: Fault,
        match: Match,
        *,
        nth: int = 1,
        times: int | None = None,
        post: Post,
        broken: list[BrokenFault],
    ) -> None:
        self.fault = fault
        self.hits: Record[Asked] = Record()
        """The affected requests. The events of a watch count once per watch."""
        self.released = False
        self._match = match
        self._first = nth
        self._last = float("inf") if times is None else nth + times - 1
        self._met = 0
        self._post = post
        self._wakers: list[Callable[[], None]] = []
        self._broke: BrokenFault | None = None
        self._broken = broken

    def __repr__(self) -> str:
        return f"<{self.fault!r}, {len(self.hits)} hits{', released' if self.released else ''}>"

    async def hit(self, times: int = 1) -> Asked:
        """Wait until the fault has happened this number of times; return the last affected request."""
        await asyncio.wrap_future(self.hits.when(lambda: self._happened(times)))
        return self.hits[-1]

    def wait(self, times: int = 1, *, timeout: float = 60) -> Asked:
        """Do the same in a thread without a loop; raise TimeoutError if it does not happen."""
        __tracebackhide__ = True
        self.hits.wait_for(
            lambda: self._happened(times), timeout=timeout, in_vain=lambda: self._in_vain(times)
        )
        return self.hits[-1]

    def release(self) -> None:
        """Release the fault: delayed content is sent, and requests and open watches continue as if it had
        never been.
        """
        self._post(self._release)

    def meets(self, asked: Asked, request: Request) -> bool:
        """Count this request, and return whether the fault affects it."""
        if self.released:
            return False
        try:
            matches = self._match.matches(asked) and self.fault.concerns(request)
        except Exception as error:
            raise self.breaks(error, asked) from error
        if not matches:
            return False
        self._met += 1
        return self._first <= self._met <= self._last

    def on_release(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call a function at the release; return a function that unregisters it."""
        self._wakers.append(wake)
        return lambda: self._wakers.remove(wake)

    def breaks(self, error: Exception, asked: Asked) -> BrokenFault:
        """Record that code of the test has raised. Waiters get the exception, and the test when the cluster
        ends.
        """
        broken = BrokenFault(f"{self._named()} has raised {error!r}, about {asked.verb} {asked.path}")
        broken.__cause__ = error
        if self._broke is None:
            self._broke = broken
            self._broken.append(broken)
        self.hits.stir()
        return broken

    def _happened(self, times: int) -> bool:
        if self._broke is not None:
            raise self._broke
        return len(self.hits) >= times

    def _in_vain(self, times: int) -> str:
        return (
            f"{self._named()} has happened {len(self.hits)} of {times} times; "
            f"{self._met} requests came that it can happen to"
        )

    def _named(self) -> str:
        return f"{type(self.fault).__name__} ({self._match})"

    def _release(self) -> None:
        self.released = True
        for wake in tuple(self._wakers):
            wake()


class Faults:
    """The planned faults of one server."""

    def __init__(self, faults: Iterable[Fault] = (), *, post: Post = lambda call: call()) -> None:
        self._post = post
        self._planned: list[Planned] = []
        self.broken: list[BrokenFault] = []
        """The first exception of each fault whose code has raised."""
        for fault in faults:
            self.add(fault)

    def __iter__(self) -> Iterator[Planned]:
        return iter(tuple(self._planned))

    def add(
        self,
        fault: Fault,
        *,
        verb: str = "",
        resource: str = "",
        namespace: str | None = None,
        name: str = "",
        user: str = "",
        where: Callable[[Asked], bool] | None = None,
        nth: int = 1,
        times: int | None = None,
    ) -> Planned:
        """Plan a fault for requests that equal all given values: from the nth of them on, `times` times.

        Several faults of one request happen in the order in which they were added.
        """
        self.require(fault)
        planned = Planned(
            fault,
            Match(verb, resource, namespace, name, user, where=where),
            nth=nth,
            times=times,
            post=self._post,
            broken=self.broken,
        )
        self._planned.append(planned)
        return planned

    def require(self, fault: Fault) -> None:
        """Raise TypeError for a fault that cannot happen to this server."""

    def clear(self) -> None:
        """Release and forget all faults."""
        for planned in self:
            planned.release()
        self._planned.clear()

    def meeting(self, asked: Asked, request: Request) -> list[Planned]:
        """Return the faults of this request, and count it."""
        return [planned for planned in tuple(self._planned) if planned.meets(asked, request)]


class Stage:
    """A fault applied to the pieces of one watch."""

    def __init__(
        self, planned: Planned, asked: Asked, version_before: VersionBefore = lambda _: None
    ) -> None:
        self._planned = planned
        self._asked = asked
        self._filter = planned.fault.filter_of(version_before)
        self._reported = self._filter is None and planned.fault.idle is None
        if self._reported:
            planned.hits.add(asked)

    def pass_on(self, pieces: list[Piece]) -> list[Piece]:
        """Return the pieces that pass, and count the fault if they differ from the input."""
        if self._filter is None:
            return pieces
        released = self._planned.released
        try:
            out = self._filter(pieces, released=released)
        except Exception as error:
            raise self._planned.breaks(error, self._asked) from error
        if released:
            self._filter = None
        elif out != pieces and not self._reported:
            self._reported = True
            self._planned.hits.add(self._asked)
        return out
