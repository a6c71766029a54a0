"""Executes writes, with bounded retries. A write whose answer was lost is never repeated blindly: the rules
are those of `core.protocol.lost_answer`.

429 is not executed, and is repeated after the time that the server asks for. A request that was certainly not
sent is repeated with backoff. All else is raised, or settled by a read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import random
from time import monotonic
from typing import Any

import msgspec

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.json_text import decoded, with_room
from kopf_selectcache.core.protocol.lost_answer import (
    CONFLICT,
    NOT_FOUND,
    TOO_MANY,
    Again,
    Done,
    Refuse,
    Verb,
    Write,
    judge,
    why_unreadable,
)
from kopf_selectcache.core.protocol.messages import Refusal, delay

from .fence import FENCE, may_be_executed, time_left
from .reading import Refused, Unreachable
from .transport import JSON, Warned, WritingTransport

MOST_DOUBLED = 3
"""The wait between tries doubles this many times, to at most 4 seconds."""

METHODS: Mapping[Verb, tuple[str, str]] = {
    Verb.CREATE: ("POST", JSON),
    Verb.REPLACE: ("PUT", JSON),
    Verb.MERGE: ("PATCH", "application/merge-patch+json"),
    Verb.STRATEGIC: ("PATCH", "application/strategic-merge-patch+json"),
    Verb.JSON: ("PATCH", "application/json-patch+json"),
    Verb.APPLY: ("PATCH", "application/apply-patch+yaml"),
    Verb.DELETE: ("DELETE", JSON),
}
"""The method and the type of the body of each kind of write."""

_GATEWAY_TIMEOUT = 504


class Unsettled(Exception):
    """The write may have been executed. `refusal` is the server's last answer, if there was one."""

    def __init__(self, why: str, refusal: Refusal | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.refusal = refusal


class Fenced(Unreachable):
    """Nothing was sent: this replica handles the object no more for which the running code writes."""

    def __init__(self) -> None:
        super().__init__(
            "this replica does not handle its object any more, so nothing was sent", may_have_arrived=False
        )


@dataclass(frozen=True, slots=True)
class WriteCall:
    """A write and where it is sent."""

    write: Write
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    object_path: str = ""
    """The path of the object, to read it back. Empty if the server makes its name."""
    warned: Warned | None = None
    """Called with each warning of the server."""


class Writer:
    """The writes of one operator. Used on its event loop only."""

    def __init__(
        self,
        transport: WritingTransport,
        *,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._sleep = sleep
        self._chance = chance

    async def run(self, call: WriteCall, *, timeout: float) -> bytes:  # All tries are within it.  # noqa: ASYNC109
        """Execute a write within `timeout` seconds; return the server's answer, or the object as it was read
        back. The answer is empty if an object is deleted, and the answer that says so was lost.

        Raise Refused, Unreachable if nothing was sent, or Unsettled; Fenced if nothing may be sent.
        """
        return await _Attempts(self, call, self.end_of(timeout)).run()

    async def send(self, call: WriteCall, write: Write, fence: float) -> bytes:
        """Send a write once. The server must not execute it after the fence either."""
        method, content_type = METHODS[write.verb]
        body = with_room(partial(msgspec.json.encode, write.body))
        query = call.query if fence == inf else {**call.query, "timeout": f"{fence:.3f}s"}
        return await self._transport.send(method, call.path, query, body, content_type, call.warned)

    async def read(self, call: WriteCall) -> bytes | None:
        """Return the object; None if it is absent."""
        try:
            return await self._transport.get(call.object_path, {})
        except Refused as refused:
            # If the kind itself is not served, a server answers 404 without that reason.
            if (refused.refusal.code, refused.refusal.reason) == (NOT_FOUND, "NotFound"):
                return None
            raise

    def end_of(self, timeout: float) -> float:
        """Return the time at which a timeout that begins now ends."""
        return self._clock() + timeout

    def left(self, end: float) -> float:
        """Return the seconds until a time."""
        return end - self._clock()

    async def pause(self, failures: int, end: float, at_least: float | None) -> bool:
        """Wait before the next try; return False if there is no time left for one."""
        pause = delay(min(failures, MOST_DOUBLED), self._chance(), at_least=at_least or 0.0)
        if pause >= self.left(end):
            return False
        await self._sleep(pause)
        return True


class _Attempts:
    """The tries of one write."""

    def __init__(self, writer: Writer, call: WriteCall, end: float) -> None:
        self._writer = writer
        self._call = call
        self._end = end
        self._failures = 0
        self._is_in_doubt = False
        """True if a try may have been executed."""
        self._is_under_way = False
        """True if a try was not answered, so that it may still be executed."""
        self._last: Refused | Unreachable = Unreachable("nothing was sent")
        """The last failure of a try."""

    async def run(self) -> bytes:
        given = write = self._call.write
        while True:
            if (left := time_left()) <= 0.0:
                gone = "this replica does not handle its object any more"
                raise self._unsettled(gone) if self._is_in_doubt else Fenced()
            try:
                return await self._send(write, left)
            except Refused as refused:
                self._last, refusal = refused, refused.refusal
                is_lost = may_be_executed(refusal.code) and not refusal.is_of_schema
                is_answered = refusal.code != _GATEWAY_TIMEOUT
                if not is_lost and refusal.code != TOO_MANY:
                    if not self._is_in_doubt:
                        raise
                    if refusal.code == NOT_FOUND and given.verb is Verb.DELETE:
                        return b""
                    if refusal.code == NOT_FOUND and given.verb is not Verb.CREATE:
                        raise
                    is_lost = refusal.code == CONFLICT and write.version != given.version
                    if not is_lost:  # Else it has changed since it was read.
                        raise self._unsettled("a second attempt was refused") from None
            except Unreachable as error:
                self._last, is_lost, is_answered = error, error.may_have_arrived, False
            settled: bytes | Write = write
            if is_lost and not write.dry_run:
                self._is_in_doubt = True
                self._is_under_way |= not is_answered
                settled = await self._settle()
            if isinstance(settled, bytes):
                return settled
            write = settled
            await self._pause()

    async def _send(self, write: Write, left: float) -> bytes:
        """Send the write once, within the time that is left; raise Refused or Unreachable."""
        limit = asyncio.timeout(min(left, self._writer.left(self._end)))
        fence, is_answered = FENCE.get(), False
        if fence is not None:
            fence.begin()
        try:
            async with limit:
                answer = await self._writer.send(self._call, write, left)
        except Refused as refused:
            is_answered = not may_be_executed(refused.refusal.code)
            raise
        except Unreachable as error:
            is_answered = not error.may_have_arrived
            raise
        except Garbled as error:  # The answer is too large.
            raise Unreachable(str(error)) from error
        except TimeoutError:
            if not limit.expired():
                raise
            raise Unreachable("no answer came in time") from None
        else:
            is_answered = True
            return answer
        finally:
            if fence is not None:
                fence.end(is_answered=is_answered)

    async def _settle(self) -> bytes | Write:
        """Read the object; return it if the write is done, else the write that may be sent again. Raise
        Refused or Unsettled.
        """
        given = self._call.write
        if why := why_unreadable(given):
            raise self._unsettled(why)
        data, found = await self._read_back()
        match judge(given, found):
            case Done():
                return data
            case Again(write, is_proved):
                self._is_in_doubt = self._is_under_way or not is_proved
                return write
            case Refuse(refusal):
                raise Refused(refusal)
            case unknown:
                raise self._unsettled(unknown.why)

    async def _read_back(self) -> tuple[bytes, Mapping[str, Any] | None]:
        """Return the object as it came and decoded. A read that fails is repeated until the timeout."""
        while True:
            at_least: float | None = None
            try:
                async with asyncio.timeout(self._writer.left(self._end)):
                    data = await self._writer.read(self._call)
                return data or b"", _object(data)
            except Refused as refused:
                refusal = refused.refusal
                if refusal.code != TOO_MANY and not may_be_executed(refusal.code):
                    answer = f"{refusal.code} {refusal.reason}".rstrip()
                    raise self._unsettled(f"the object can't be read back: {answer}") from None
                at_least = refusal.retry_after
            except (Unreachable, Garbled, TimeoutError):
                pass
            await self._pause(at_least)

    async def _pause(self, at_least: float | None = None) -> None:
        """Wait before the next request. If there is no time for one, raise the last failure, or Unsettled if
        a try may have been executed.
        """
        failures, self._failures = self._failures, self._failures + 1
        if at_least is None and isinstance(self._last, Refused):
            at_least = self._last.refusal.retry_after
        if not await self._writer.pause(failures, self._end, at_least):
            raise self._unsettled("the time for the write has ended") if self._is_in_doubt else self._last

    def _unsettled(self, why: str) -> Unsettled:
        last = self._last
        return Unsettled(why, last.refusal) if isinstance(last, Refused) else Unsettled(f"{last}; {why}")


def _object(data: bytes | None) -> Mapping[str, Any] | None:
    """Decode an object; raise Garbled if it is none."""
    if data is None:
        return None
    try:
        found = decoded(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Garbled("the object can't be read back")
    return found
