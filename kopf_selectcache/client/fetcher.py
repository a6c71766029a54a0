"""Requests to the server for what the cache does not hold: joined, paced, paged. Remembers no answer; words
no errors.

Who asks for the same as somebody else shares the answer, if the request has not been sent yet: one that is
under way may have been answered before the asker's own last write, and would say that what was just created
is not there. So of identical requests at most one is under way and one waits, however many ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from random import random
from time import monotonic
from typing import Any, Generic, TypeAlias, TypeVar

from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Page, Refusal
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.store.record import Record

from .transport import JSON, Refused, Transport, ask_in_size

Query: TypeAlias = Mapping[str, str]
_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...], str, int | None]
_T = TypeVar("_T")

EXPIRED = 410
"""What the server answers to a continue token that it has forgotten."""


class Pace:
    """At most so many requests a second on average; after a quiet second, as many at once.

    >>> pace = Pace(2.0)
    >>> for _ in range(4):
    ...     print(pace.delay(now=100.0), end=' ')
    ...     pace.take(now=100.0)
    0.0 0.0 0.5 1.0
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1.0 / per_second
        self._burst = max(1.0, self._interval)
        self._due = float("-inf")  # When all that was let through so far has been paid for.

    def delay(self, *, now: float) -> float:
        """Say how long it is until the next request may be sent."""
        return max(0.0, max(self._due, now) + self._interval - now - self._burst)

    def take(self, *, now: float) -> None:
        """Let a request through."""
        self._due = max(self._due, now) + self._interval


class Shared(Generic[_T]):
    """Work that several may wait for. It is given up when none of them does any more."""

    def __init__(self, work: Coroutine[Any, Any, _T]) -> None:
        self._task = asyncio.create_task(_outcome(work))
        self._waiting = 0

    async def result(self) -> _T:
        """Wait for it; raise what it raises."""
        self._waiting += 1
        try:
            await asyncio.wait(
                [self._task]
            )  # If this caller is cancelled, the work is not: others wait for it.
            outcome = self._task.result()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._task.cancel()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome[0]

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for it, who has begun to."""
        return not self._waiting

    async def over(self) -> None:
        """Wait until it is done, or given up."""
        await asyncio.wait([self._task])


async def _outcome(work: Coroutine[Any, Any, _T]) -> tuple[_T] | Exception:
    """Return an error rather than raise it: the task may outlive who waits, and Kopf ends with the errors of
    what is left.
    """
    try:
        return (await work,)
    except Exception as error:  # Whoever waits raises it.  # noqa: BLE001
        return error


class Fetches:
    """The requests of one operator. Used on its event loop only."""

    def __init__(
        self,
        transport: Transport,
        *,
        per_second: float,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random,
    ) -> None:
        self._transport = transport
        self._pace = Pace(per_second)
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._turn = asyncio.Lock()
        self._unsent: dict[_Key, Shared[bytes]] = {}
        self._sent: dict[_Key, Shared[bytes]] = {}

    async def get(self, path: str, query: Query, *, accept: str = JSON, most: int | None = None) -> bytes:
        """Return the answer of the server, given to a request that is sent after this call; raise Refused,
        Unreachable or TooLarge.
        """
        key = path, tuple(sorted(query.items())), accept, most
        request = self._unsent.get(key)
        if request is None:
            request = self._unsent[key] = Shared(self._answer(key, query))
        try:
            return await request.result()
        finally:
            if request.given_up:
                self._forget(key, request)

    async def page(self, path: str, paging: Paging, reader: Reader) -> Page:
        """Return the next page of a list; raise Refused, Unreachable or Garbled."""
        answer = await unhurried(
            reader,
            await ask_in_size(paging.size, lambda: self.get(path, paging.query, most=paging.size.most_bytes)),
        )
        if isinstance(answer, Refusal):
            raise Refused(answer)
        return answer

    async def pages(
        self,
        path: str,
        query: Query,
        reader: Reader,
        *,
        page_limit: int,
        patience: float,
        enough: int | None = None,
    ) -> list[Record]:
        """Return all objects, page by page, or at least `enough` of them, if there are."""
        records: list[Record] = []
        paging, in_pages = Paging(query, page_limit=page_limit, patience=patience), True
        while not paging.is_complete and (enough is None or len(records) < enough):
            if pause := paging.take_pause(self._chance()):
                await self._sleep(pause)
            try:
                page = await self.page(path, paging, reader)
            except Refused as refused:
                if refused.refusal.code != EXPIRED or not paging.token or not in_pages:
                    raise
                # The pages would be of two states. In one piece a list cannot expire, unless the server cuts
                # it up anyway.
                records, paging, in_pages = [], Paging(query, page_limit=None, patience=patience), False
                continue
            paging.turn(page)
            records += page.records
        return records

    async def _answer(self, key: _Key, query: Query) -> bytes:
        request = self._unsent[key]
        try:
            if (before := self._sent.get(key)) is not None:
                await before.over()
            async with self._turn:  # Who gives up in the queue has taken nobody's time.
                if delay := self._pace.delay(now=self._clock()):
                    await self._sleep(delay)
                self._pace.take(now=self._clock())
            del self._unsent[key]
            self._sent[key] = request
            path, _, accept, most = key
            return await self._transport.get(path, query, accept=accept, most=most)
        finally:
            self._forget(key, request)

    def _forget(self, key: _Key, request: Shared[bytes]) -> None:
        for requests in (self._unsent, self._sent):
            if requests.get(key) is request:
                del requests[key]


async def unhurried(reader: Reader, data: bytes, *, first: int = 0) -> Page | Refusal:
    """Read the answer to a list, and let everybody else on the loop go on after each slice of it; raise
    Garbled.
    """
    answer = None
    for answer in reader.slices(data, first=first):
        if answer is None:
            await asyncio.sleep(0)
    assert answer is not None, "the last slice is the answer"
    return answer
