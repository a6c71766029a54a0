"""Requests to the server for objects that the cache does not hold: joined, paced and paged; and the lists of
metadata. Caches no answers.

Identical requests share one answer if it has not been sent yet. A request under way is not shared: the server
may have answered it before the caller's last write, and the answer would lack a new object. So of identical
requests at most one is under way and one waits, whatever the number of callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from random import random
from time import monotonic
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.decoder import PARTIAL_KIND, PARTIAL_VERSION, Reader
from kopf_selectcache.core.protocol.messages import Page, Refusal
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.core.store.record import Record

from .reading import Refused, decode_in_slices
from .transport import JSON, METADATA_LIST, Transport, ask_in_size

_T = TypeVar("_T")


class Shared(Generic[_T]):
    """Work that several callers wait for. It is cancelled when none of them waits any more."""

    def __init__(self, work: Coroutine[Any, Any, _T]) -> None:
        self._task = asyncio.create_task(_outcome(work))
        self._waiting = 0

    async def result(self) -> _T:
        """Wait for the result, and return or raise it."""
        self._waiting += 1
        try:
            # If this caller is cancelled, the work is not: others wait for it.
            await asyncio.wait([self._task])
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
        """True if no caller waits."""
        return not self._waiting

    async def over(self) -> None:
        """Wait until the work is done or cancelled."""
        await asyncio.wait([self._task])


async def _outcome(work: Coroutine[Any, Any, _T]) -> tuple[_T] | Exception:
    """Return an error instead of raising it: the task may outlive its callers, and Kopf ends with the errors
    of tasks that are left over.
    """
    try:
        return (await work,)
    except Exception as error:  # noqa: BLE001  # Each caller raises it.
        return error


Query: TypeAlias = Mapping[str, str]


_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...], str, int | None]

EXPIRED = 410
"""Status of a list whose continue token has expired."""


class Pace:
    """Rate limit: `per_second` requests on average; after a quiet second, that many at once.

    >>> pace = Pace(2.0)
    >>> for _ in range(4):
    ...     print(pace.delay(now=100.0), end=' ')
    ...     pace.take(now=100.0)
    0.0 0.0 0.5 1.0
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1.0 / per_second
        self._burst = max(1.0, self._interval)
        self._due = float("-inf")  # The time at which the requests so far are paid for.

    def delay(self, *, now: float) -> float:
        """Return the seconds until the next request may be sent."""
        return max(0.0, max(self._due, now) + self._interval - now - self._burst)

    def take(self, *, now: float) -> None:
        """Count a request."""
        self._due = max(self._due, now) + self._interval


class Fetcher:
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
        """Return the server's answer to a request that is sent after this call. Raise Refused, Unreachable or
        TooLarge.
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

    async def page(self, path: str, paging: Paging, reader: Reader, *, accept: str = JSON) -> Page:
        """Return the next page of a list; raise Refused, Unreachable or Garbled."""
        answer = await decode_in_slices(
            reader,
            await ask_in_size(
                paging.size,
                lambda: self.get(path, paging.query, accept=accept, most=paging.size.most_bytes),
            ),
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
        accept: str = JSON,
        page_limit: int,
        patience: float,
        enough: int | None = None,
    ) -> list[Record]:
        """Return all objects, page by page, or at least `enough` of them if there are that many."""
        records: list[Record] = []
        paging, in_pages = Paging(query, page_limit=page_limit, patience=patience), True
        while not paging.is_complete and (enough is None or len(records) < enough):
            if pause := paging.take_pause(self._chance()):
                await self._sleep(pause)
            try:
                page = await self.page(path, paging, reader, accept=accept)
            except Refused as refused:
                if refused.refusal.code != EXPIRED or not paging.token or not in_pages:
                    raise
                # The pages would show two states. A list in one piece cannot expire, unless the server cuts
                # it anyway.
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
            async with self._turn:  # A caller that gives up in the queue takes no turn.
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


# ---- The metadata of objects.


class Client(Protocol):
    """Sends GET requests: a transport, or the fetcher of an operator."""

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = ..., most: int | None = None
    ) -> bytes: ...


_READER = Reader(PARTIAL_VERSION, PARTIAL_KIND)


def metadata_of(resource: Resource, answer: bytes) -> Record:
    """Decode the answer to a request for one object. Raise Garbled."""
    try:
        return _READER.record(answer, kindless=False)
    except Garbled:
        return Reader.of(resource, ALL).record(answer, kindless=False)


async def pages_of_metadata(
    transport: Transport,
    resource: Resource,
    path: str,
    paging: Paging,
    *,
    chance: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> AsyncGenerator[tuple[Record, ...], None]:
    """Yield the objects of a list, page by page, to its end; raise Refused, Unreachable or Garbled."""
    while not paging.is_complete:
        if pause := paging.take_pause(chance()):
            await sleep(pause)
        page = await page_of_metadata(transport, resource, path, paging)
        paging.turn(page)
        yield page.records


async def exists(client: Client, resource: Resource, namespace: str | None, name: str) -> bool:
    """Ask whether an object exists, with the permission to list the kind. Raise Refused, Unreachable or
    Garbled.
    """
    paging = Paging({"fieldSelector": f"metadata.name={name}"}, page_limit=1, patience=0.0)
    page = await page_of_metadata(client, resource, resource.path(namespace), paging)
    return any(record.name == name for record in page.records)


async def page_of_metadata(transport: Client, resource: Resource, path: str, paging: Paging) -> Page:
    """Return the next page of a list; raise Refused, Unreachable or Garbled."""
    answer = await ask_in_size(
        paging.size,
        lambda: transport.get(path, paging.query, accept=METADATA_LIST, most=paging.size.most_bytes),
    )
    try:
        page = _READER.page(answer)
    except Garbled:
        page = Reader.of(resource, ALL).page(answer)
    if not isinstance(page, Page):
        raise Refused(page)
    return page
