"""Requests to the server for what the cache does not hold: joined, paced, paged. Remembers nothing; words no errors.

Who asks for the same as somebody else shares the answer, if the request has not been sent yet: one that is under way
may have been answered before the asker's own last write, and would say that what was just created is not there. So of
identical requests at most one is under way and one waits, however many ask.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

from .core.record import Record
from .core.resources import Resource
from .core.wire import Page, Reader, Refusal
from .selector import Selector
from .texts import FieldSelector
from .transport import Refused, Transport

Query: TypeAlias = Mapping[str, str]
_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]

EXPIRED = 410
"""What the server answers to a continue token that it has forgotten."""


class Pace:
    """At most so many requests a second on average; after a quiet second, as many at once.

    >>> pace = Pace(2.0)
    >>> [pace.delay(now=100.0) for _ in range(4)]
    [0.0, 0.0, 0.5, 1.0]
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1.0 / per_second
        self._burst = max(1.0, self._interval)
        self._due = float("-inf")   # When all that was let through so far has been paid for.

    def delay(self, *, now: float) -> float:
        """Take the next place in the queue, and say how long it is until its turn."""
        self._due = max(self._due, now) + self._interval
        return max(0.0, self._due - now - self._burst)


@dataclass(slots=True)
class _Request:
    """One request that several may wait for."""

    task: asyncio.Task[bytes]
    waiting: int = 0


class Fetches:
    """The requests of one operator. Used on its event loop only."""

    def __init__(
        self, transport: Transport, *, per_second: float,
        clock: Callable[[], float] = monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._pace = Pace(per_second)
        self._clock = clock
        self._sleep = sleep
        self._unsent: dict[_Key, _Request] = {}
        self._sent: dict[_Key, _Request] = {}

    async def get(self, path: str, query: Query) -> bytes:
        """Return the answer of the server, given to a request that is sent after this call; raise Refused or Unreachable."""
        key = path, tuple(sorted(query.items()))
        request = self._unsent.get(key)
        if request is None:
            request = self._unsent[key] = _Request(asyncio.create_task(self._answer(key, path, query)))
        request.waiting += 1
        try:
            await asyncio.wait([request.task])   # If this caller is cancelled, the request is not: others wait for it.
            return request.task.result()
        finally:
            request.waiting -= 1
            if not request.waiting:
                request.task.cancel()
                self._forget(key, request)

    async def page(self, path: str, query: Query, reader: Reader) -> Page:
        """Return one page of a list; raise Refused, Unreachable or Garbled."""
        answer = reader.page(await self.get(path, query))
        if isinstance(answer, Refusal):
            raise Refused(answer)
        return answer

    async def pages(
        self, path: str, query: Query, reader: Reader, *, page_limit: int, enough: int | None = None,
    ) -> list[Record]:
        """Return all objects, page by page, or at least `enough` of them, if there are."""
        records: list[Record] = []
        token: dict[str, str] = {}
        while True:
            try:
                page = await self.page(path, {**query, "limit": str(page_limit), **token}, reader)
            except Refused as refused:
                if refused.refusal.code != EXPIRED or not token:
                    raise
                # The pages would be of two states. In one piece the list cannot expire; client-go does the same.
                return list((await self.page(path, query, reader)).records)
            records += page.records
            if not page.token or (enough is not None and len(records) >= enough):
                return records
            token = {"continue": page.token}

    async def _answer(self, key: _Key, path: str, query: Query) -> bytes:
        request = self._unsent[key]
        try:
            if (before := self._sent.get(key)) is not None:
                await asyncio.wait([before.task])
            if delay := self._pace.delay(now=self._clock()):
                await self._sleep(delay)
            del self._unsent[key]
            self._sent[key] = request
            return await self._transport.get(path, query)
        finally:
            self._forget(key, request)

    def _forget(self, key: _Key, request: _Request) -> None:
        for requests in (self._unsent, self._sent):
            if requests.get(key) is request:
                del requests[key]


def questions(resource: Resource, request: Selector) -> list[tuple[str, dict[str, str]]]:
    """Say which lists the server must be asked for: one for each namespace, or name, as it lists all of them or one.

    >>> from .core.fields import find
    >>> questions(Resource(find('pods'), 'v1'), Selector('app=web', names=['web-1'], namespaces=['shop']))
    [('/api/v1/namespaces/shop/pods', {'labelSelector': 'app=web', 'fieldSelector': 'metadata.name=web-1'})]
    """
    label = {"labelSelector": str(request.label)} if request.requirements else {}
    asked = []
    for namespace in request.namespaces or (None,):
        for name in request.names or (None,):
            terms = [*request.terms, *(FieldSelector.from_dict({"metadata.name": name}).terms if name is not None else ())]
            fields = {"fieldSelector": ",".join(map(str, terms))} if terms else {}
            asked.append((resource.path(namespace), {**label, **fields}))
    return asked
