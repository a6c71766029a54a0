"""The writes of Kopf itself: the patches of its handlers and daemons, and its finalizers. Each try is checked
like those of `client.writer`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from math import inf
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from kopf_selectcache import _kopf

from .fence import FENCE, may_be_executed, time_left

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
