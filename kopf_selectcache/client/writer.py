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
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.protocol.lost_answer import (
    NOT_FOUND,
    TOO_MANY,
    Done,
    ReadBack,
    Refuse,
    Repeat,
    Step,
    Unknown,
    Verb,
    Write,
    after_lost_answer,
    after_reading,
    after_refusal,
)
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.recursion import decoded, with_room

from .fence import FENCE, may_be_executed, time_left
from .reading import Refused, Unreachable
from .transport import JSON, Warned, WritingTransport

MOST_DOUBLED = 3
"""The wait between tries doubles this many times, to at most 4 seconds."""

MOST_REPLACED = 1000
"""The number of versions that a writer remembers to have replaced."""

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
        self._replaced: dict[tuple[str, str], None] = {}
        """The paths of objects, and the versions of them that writes here have replaced, the newest last."""

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

    def remember(self, call: WriteCall, write: Write, answer: bytes) -> None:
        """Note that a write with a version has been executed. A later one of this version never will be."""
        if write.version and not write.dry_run and _version(answer) not in ("", write.version):
            self._replaced[call.object_path, write.version] = None
            if len(self._replaced) > MOST_REPLACED:
                del self._replaced[next(iter(self._replaced))]

    def has_replaced(self, call: WriteCall) -> bool:
        """Return True if another write here has replaced the version that this one needs."""
        return (call.object_path, call.write.version) in self._replaced

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
        self._is_repeat = False
        """True if the answer to a try was lost."""
        self._is_settled = True
        """False if a try may have been executed."""
        self._is_answered = True
        """False if a try may still be under way."""
        self._conflict: Refusal | None = None
        self._last: Refused | Unreachable | None = None
        """The last failure of a try."""
        self._answer = b""

    async def run(self) -> bytes:
        step: Step = await self._try(self._call.write)
        while True:
            match step:
                case Repeat(write, is_settled):
                    self._is_settled = self._is_settled or is_settled
                    await self._pause()
                    step = await self._try(write)
                case ReadBack():
                    step = await self._read_back()
                case Done():
                    return self._answer
                case Refuse(refusal):
                    raise Refused(refusal)
                case _:
                    raise self._unsettled(step.why)

    async def _try(self, write: Write) -> Step:
        """Send the write; return what follows."""
        if (left := time_left()) <= 0.0:
            raise (
                Fenced
                if self._is_settled
                else self._unsettled("this replica does not handle its object any more")
            )
        limit = asyncio.timeout(min(left, self._writer.left(self._end)))
        try:
            async with limit:
                self._answer = await self._sent(write, left)
                self._writer.remember(self._call, write, self._answer)
                return Done()
        except Refused as refused:
            refusal, self._last = refused.refusal, refused
            if refusal.code == TOO_MANY:
                return Repeat(write)
            if refusal.is_of_schema or not may_be_executed(refusal.code):
                return self._after_refusal(refusal)
            is_answered = refusal.code != _GATEWAY_TIMEOUT
        except Unreachable as error:
            self._last, is_answered = error, False
            if not error.may_have_arrived:
                return Repeat(write)
        except Garbled as error:  # The answer is too large.
            self._last, is_answered = Unreachable(str(error)), False
        except TimeoutError:
            if not limit.expired():
                raise
            self._last, is_answered = Unreachable("no answer came in time"), False
        if not write.dry_run:
            self._is_repeat, self._is_settled = True, False
            self._is_answered = self._is_answered and is_answered
        return after_lost_answer(write)

    async def _sent(self, write: Write, left: float) -> bytes:
        """Send the write once; let the fence know how it ends."""
        if (fence := FENCE.get()) is None:
            return await self._writer.send(self._call, write, left)
        is_answered = False
        fence.begin()
        try:
            answer = await self._writer.send(self._call, write, left)
            is_answered = True
        except Refused as refused:
            is_answered = not may_be_executed(refused.refusal.code)
            raise
        except Unreachable as error:
            is_answered = not error.may_have_arrived
            raise
        finally:
            fence.end(is_answered=is_answered)
        return answer

    def _after_refusal(self, refusal: Refusal) -> Step:
        is_settled = self._is_settled or self._writer.has_replaced(self._call)
        step = after_refusal(self._call.write, refusal, is_repeat=self._is_repeat, is_settled=is_settled)
        if isinstance(step, ReadBack):
            self._conflict = refusal
        return step

    async def _read_back(self) -> Step:
        """Read the object; return what follows."""
        try:
            async with asyncio.timeout(self._writer.left(self._end)):
                data = await self._writer.read(self._call)
            found = _object(data)
        except Refused as refused:
            if not _is_passing(refused.refusal.code):
                return Unknown(f"the object can't be read back: {_describe(refused.refusal)}")
            await self._pause(refused.refusal.retry_after)
            return ReadBack()
        except (Unreachable, Garbled, TimeoutError):
            await self._pause()
            return ReadBack()
        self._answer = data or b""
        return after_reading(self._call.write, found, refusal=self._conflict, is_answered=self._is_answered)

    async def _pause(self, at_least: float | None = None) -> None:
        """Wait before the next request. If there is no time for one, raise the last failure, or Unsettled if
        a try may have been executed.
        """
        failures, self._failures = self._failures, self._failures + 1
        last = self._last
        assert last is not None, "nothing has failed"
        if at_least is None and isinstance(last, Refused):
            at_least = last.refusal.retry_after
        if not await self._writer.pause(failures, self._end, at_least):
            raise last if self._is_settled else self._unsettled("the time for the write has ended")

    def _unsettled(self, why: str) -> Unsettled:
        last = self._last
        return Unsettled(why, last.refusal) if isinstance(last, Refused) else Unsettled(f"{last}; {why}")


def _is_passing(code: int) -> bool:
    return code == TOO_MANY or may_be_executed(code)


def _describe(refusal: Refusal) -> str:
    return f"{refusal.code} {refusal.reason}".rstrip()


class _Metadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815  # The server's name.


class _Versioned(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def _version(answer: bytes) -> str:
    """Return the version of the object that the server has answered; empty if there is none."""
    try:
        return msgspec.json.decode(answer, type=_Versioned).metadata.resourceVersion
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""


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
