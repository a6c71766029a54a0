"""Open watches: send their lines, through the active faults, to the client. Each watch has one task, which
waits to be woken. Below them: what faults do to requests and responses of aiohttp.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from .api.request import Request
from .api.watching import Watch
from .faults.fault import End, Piece
from .faults.injector import Planned, Stage
from .request_log import Asked

ENDLESS = b"x" * 64 * 1024


class Timer(Protocol):
    """The result of `loop.call_later`."""

    def cancel(self) -> None: ...


Later: TypeAlias = Callable[[float, Callable[[], None]], Timer]
"""Call a function after a number of seconds, as `loop.call_later` does."""


class Stream:
    """One open watch."""

    def __init__(self, watch: Watch, asked: Asked, planned: Iterable[Planned]) -> None:
        self.asked = asked
        self._watch = watch
        self._woken = asyncio.Event()
        self._end: End | None = None
        self._over = False
        self._planned: list[Planned] = []
        self._stages: list[Stage] = []
        self._forget: list[Callable[[], None]] = []
        for plan in planned:
            self.inject(plan)
        watch.on_ready(self._woken.set)

    def inject(self, planned: Planned) -> None:
        """Apply a fault from now on."""
        self._planned.append(planned)
        self._stages.append(Stage(planned, self.asked, self._watch.version_before))
        self._forget.append(planned.on_release(self._released))
        self._woken.set()

    def bookmark(self) -> None:
        self._watch.bookmark()
        self._woken.set()

    def end(self, how: End = End.END) -> None:
        """End the watch after the pending lines."""
        self._end = how
        self._woken.set()

    def close(self) -> None:
        self._watch.close()
        for forget in self._forget:
            forget()

    async def write_to(
        self, raw: web.BaseRequest, *, later: Later, lasts: float, opened: Callable[[], None]
    ) -> web.StreamResponse:
        """Write lines until the end, or until the client goes."""
        response = web.StreamResponse(
            headers={"Content-Type": self._watch.content_type, "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        packer = None
        if accepts_gzip(raw) and any(plan.fault.encoding == "gzip" for plan in self._planned):
            response.headers["Content-Encoding"] = "gzip"
            packer = zlib.compressobj(1, wbits=31)
        await response.prepare(raw)
        opened()
        deadline = later(lasts, self.end)
        idle = self._watch_idleness(later)
        self._woken.set()
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                data, end = self._take()
                if data:
                    idle.cancel()
                    idle = self._watch_idleness(later)
                if end in (End.CLOSE, End.RESET):
                    break_off(raw, b"".join(data), end)
                    return response
                for block in _blocks(data):
                    packed = packer.compress(block) if packer is not None else block
                    if packed:
                        await response.write(packed)
                        await asyncio.sleep(0)  # Between the lines, the end of the connection is noticed.
                while end is End.ENDLESS:
                    await response.write(ENDLESS)
                    await asyncio.sleep(0)
                if end is End.END:
                    if packer is not None:
                        await response.write(packer.flush())
                    return response
        finally:
            deadline.cancel()
            idle.cancel()

    def _take(self) -> tuple[list[bytes], End | None]:
        """Return the lines that pass all faults, and the end, if it passes."""
        pieces: list[Piece] = [*self._watch.lines()]
        end = End.END if self._watch.ended else self._end
        if end is not None and not self._over:
            self._over = True
            pieces.append(end)
        for stage in self._stages:
            pieces = stage.pass_on(pieces)
        data: list[bytes] = []
        for piece in pieces:
            if isinstance(piece, End):
                return data, piece
            data.append(piece)
        return data, None

    def _released(self) -> None:
        if any(plan.released and plan.fault.seen is not None for plan in self._planned):
            self._watch.catch_up()
        self._woken.set()

    def _watch_idleness(self, later: Later) -> Timer:
        patient = [plan for plan in self._planned if plan.fault.idle is not None and not plan.released]
        if not patient:
            return _NEVER

        def cut() -> None:
            patient[0].hits.add(self.asked)
            self.end(End.CLOSE)

        return later(patient[0].fault.idle or 0.0, cut)


class _Never:
    def cancel(self) -> None:
        pass


_NEVER = _Never()


def _blocks(lines: list[bytes]) -> Iterable[bytes]:
    """Join lines to blocks that are written at once."""
    start, size = 0, 0
    for index, line in enumerate(lines):
        size += len(line)
        if size >= BLOCK:
            yield b"".join(lines[start : index + 1])
            start, size = index + 1, 0
    if start < len(lines):
        yield b"".join(lines[start:])


# ---- HTTP of the embedded server: read requests, compress responses, break connections. It knows nothing
# of Kubernetes.

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
