"""HTTP of the embedded server: read requests, compress responses, break connections. It knows nothing of
Kubernetes.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import zlib

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from .api.request import Request
from .faults.fault import End

MAX_BODY = 3 * 1024 * 1024  # As the real server.
MAX_HEAD = 1024 * 1024  # Bytes of one line: selectors may be long.
BLOCK = 256 * 1024  # Bytes that are compressed or written at a time, before others have their turn.


def raw_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """Make aiohttp's request as aiohttp does, except for the size of the body."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)


async def read_request(raw: web.BaseRequest) -> Request:
    """Read a request to its end. The first value of a query parameter counts; a repeated header is joined by
    newlines.
    """
    headers: dict[str, str] = {}
    for name, value in raw.headers.items():
        key = name.lower()
        headers[key] = f"{headers[key]}\n{value}" if key in headers else value
    query: dict[str, str] = {}
    if raw.query_string:
        for name, value in raw.query.items():
            query.setdefault(name, value)
    body = await raw.read() if raw.body_exists else b""
    return Request(raw.method, raw.path, query, headers, body)


def accepts_gzip(raw: web.BaseRequest) -> bool:
    """Return whether the client accepts a compressed response."""
    offers = raw.headers.get("Accept-Encoding", "").split(",")
    return any(
        offer.partition(";")[0].strip() in ("gzip", "*") and "q=0" not in offer.replace(" ", "").split(";")
        for offer in offers
    )


async def zipped(body: bytes) -> bytes:
    """Compress a body piece by piece: the operator under test may share the loop."""
    packer = zlib.compressobj(1, wbits=31)
    parts = []
    for start in range(0, len(body), BLOCK):
        parts.append(packer.compress(body[start : start + BLOCK]))
        await asyncio.sleep(0)
    return b"".join((*parts, packer.flush()))


def break_off(raw: web.BaseRequest, data: bytes, end: End) -> None:
    """Write the remaining bytes as the start of a longer chunk, and close or reset the connection."""
    transport = raw.transport
    if transport is None:
        return
    if data:
        transport.write(b"%x\r\n%b" % (len(data) + 1, data))
    if end is End.RESET:
        connection = transport.get_extra_info("socket")
        # A linger time of zero makes the kernel send an RST.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()
