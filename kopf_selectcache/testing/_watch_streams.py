"""Open watches: send their lines, through the active faults, to the client. Each watch has one task, which
waits to be woken.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from aiohttp import web

from ._http_messages import BLOCK, accepts_gzip, break_off
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
