"""Ready: tells the kubelet by HTTP whether a replica does its part."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial

REQUEST_SECONDS = 5.0
"""The longest that a request may take to come."""


@asynccontextmanager
async def readiness(
    port: int | None, problem: Callable[[], str], logger: logging.Logger
) -> AsyncIterator[None]:
    """Answer the requests to a port meanwhile: with 200, or with 503 and the problem if there is one."""
    server: asyncio.Server | None = None
    if port is not None:
        try:
            server = await asyncio.start_server(partial(_answer, problem), port=port)
        except OSError as error:
            logger.error(  # The replica works without it.  # noqa: TRY400
                "Nobody can ask this replica whether it is ready: port %(port)s can't be used: %(error)s."
                " Give another one: Sharding(ready_port=...).",
                {"port": port, "error": error.strerror},
            )
    try:
        yield
    finally:
        if server is not None:
            server.close()


async def _answer(
    problem: Callable[[], str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    with closing(writer), suppress(OSError, EOFError, asyncio.LimitOverrunError):
        async with asyncio.timeout(REQUEST_SECONDS):
            await reader.readuntil(b"\r\n\r\n")
        found = problem()
        body = f"{found or 'ready'}\n".encode()
        head = (
            f"HTTP/1.1 {'503 Service Unavailable' if found else '200 OK'}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        writer.write("\r\n".join((*head, "", "")).encode() + body)
        await writer.drain()
