"""Fences: until when the running code, or Kopf for it, may write on behalf of a key of this replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.http import SERVER_SOFTWARE

from kopf_selectcache import _kopf

_REQUEST_TIMEOUT, _NOT_IMPLEMENTED = 408, 501

SHORTEST_WRITE_SECONDS = 0.001
"""The seconds that a write needs. Of less, the server would be told 0 s, and take that for no limit."""


class Fence:
    """Until when some code may write, and what it has sent. Used on the operator's loop."""

    def __init__(self, time_left: Callable[[], float], *, sender: str = "replica") -> None:
        """`sender` says in the audit log of the server for whom the code writes."""
        self._time_left = time_left
        self._sender = sender
        self._is_closed = False
        self._under_way = 0
        self._has_lost = False

    def time_left(self) -> float:
        """Return the seconds within which a write must be over; 0.0 if it must not be sent."""
        left = 0.0 if self._is_closed else self._time_left()
        return left if left >= SHORTEST_WRITE_SECONDS else 0.0

    def headers(self, sessions: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a write that say who sends it, in a session with these headers.

        The server takes what comes before the first slash as the name of the manager of fields, which must
        not change with the replica.
        """
        agent = sessions.get("User-Agent", SERVER_SOFTWARE)
        return {"User-Agent": f"{agent}{' ' if '/' in agent else '/'}{self._sender}"}

    def close(self) -> bool:
        """Refuse all later writes. Return True if the server has answered all earlier ones."""
        self._is_closed = True
        return not (self._under_way or self._has_lost)

    def begin(self) -> None:
        """Note that a write is sent."""
        self._under_way += 1

    def end(self, *, is_answered: bool) -> None:
        """Note the end of a write. Without an answer, the server may execute it yet."""
        self._under_way -= 1
        self._has_lost |= not is_answered


FENCE: ContextVar[Fence | None] = ContextVar("selectcache_fence", default=None)
"""The fence of the running code; None if it runs for no key of a replica."""


@contextmanager
def fenced(fence: Fence) -> Iterator[None]:
    """Let the code that runs here, and the tasks that it starts, write while a fence is open."""
    token = FENCE.set(fence)
    try:
        yield
    finally:
        FENCE.reset(token)


def time_left() -> float:
    """Return the seconds within which a write of the running code must be over: infinite if it runs for no
    key of a replica, 0.0 if it must not be sent.
    """
    fence = FENCE.get()
    return inf if fence is None else fence.time_left()


def may_be_executed(code: int) -> bool:
    """Return True if a write that is answered with this code may have been executed, or may be yet."""
    return code == _REQUEST_TIMEOUT or (code >= 500 and code != _NOT_IMPLEMENTED)


# ---- The writes of Kopf itself: the patches of its handlers and daemons, and its finalizers. Each try is
# checked like those of `client.writer`.

_logger = logging.getLogger("kopf_selectcache")


def guard() -> None:
    """Have what Kopf writes for a key of this replica checked, and the Events that it is to post."""
    _kopf.guard_writes(lambda: FENCE.get() is not None, _send)
    _kopf.guard_events(lambda: time_left() > 0.0)


async def _send(
    session: aiohttp.ClientSession, *, headers: Mapping[str, str] | None, **options: Any
) -> aiohttp.ClientResponse:
    """Send a write once. If it must not be sent, raise Kopf's error of an absent object: Kopf drops the write
    then, and tries no more.
    """
    fence = FENCE.get()
    assert fence is not None, "it is guarded"
    if (left := fence.time_left()) <= 0.0:
        _logger.info(
            "Kopf's %(method)s of %(path)s was not sent: this replica does not handle its object any more.",
            {"method": options["method"].upper(), "path": urlsplit(options["url"]).path},
        )
        raise _kopf.APINotFoundError("this replica does not handle it any more", status=404, headers={})
    if left != inf:
        options["params"] = {"timeout": f"{left:.3f}s"}
    is_answered = False
    fence.begin()
    try:
        async with asyncio.timeout(left):
            headers = {**(headers or {}), **fence.headers(session.headers)}
            response = await session.request(headers=headers, **options)
        is_answered = not may_be_executed(response.status)
    except aiohttp.ClientConnectorError:
        is_answered = True  # Nothing was sent.
        raise
    finally:
        fence.end(is_answered=is_answered)
    return response
