"""Delivery: writes one Event after another, with the tries of each.

`client.writer.Writer` is not used. Its pauses and its deadline are those of a caller who waits. Here nobody
waits: the tries and pauses are client-go's, a newer state of the Event replaces the one that is tried, and a
lost answer needs no read back. A patch contains the whole count, so that it can be repeated; an Event that is
created has a name of its own, so that a repeat is answered with 409.

`ApiChoice` is the API in which Events are written, by what the server serves and the permissions allow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import JSON, WritingTransport
from kopf_selectcache.client.writer import METHODS
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.backoff import ASKED
from kopf_selectcache.core.protocol.lost_answer import CONFLICT, NOT_FOUND, TOO_MANY, Verb
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.informer.checks import Reviewer, Unreviewed
from kopf_selectcache.recorder import _writing

from ._log import EventLog
from ._queue import WaitingWrite
from ._writing import ServerEvent
from .events import Api

AGAIN = 60.0
"""Seconds until the permissions are asked for again if none of them suffices."""


class ApiChoice:
    """The API of one recorder. It is chosen before the first write; the core API is preferred."""

    def __init__(
        self, api: Api | None, transport: WritingTransport, log: EventLog, *, clock: Callable[[], float]
    ) -> None:
        self._decided = api
        self._transport = transport
        self._log = log
        self._clock = clock
        self._due = float("-inf")
        self._reviewer = Reviewer(self._ask)

    @property
    def used(self) -> Api:
        """The API that is used now."""
        return self._decided or Api.CORE

    async def api(self, namespace: str) -> Api:
        """Return the API; raise Refused or Unreachable if the server does not say."""
        if self._decided is None and self._clock() >= self._due:
            await self._decide(namespace)
        return self.used

    async def _decide(self, namespace: str) -> None:
        try:
            for api in Api:
                if not await self._reviewer.lacks(api.right(namespace)) and await self._is_served(api):
                    self._decided = api
                    self._log.chosen(api)
                    return
        except Unreviewed:
            self._decided = Api.CORE  # The writes themselves tell if a permission is missing.
            return
        self._due = self._clock() + AGAIN
        self._log.lacks(Api.CORE.right(namespace))

    async def _is_served(self, api: Api) -> bool:
        if api is Api.CORE:
            return True
        try:
            await self._transport.get(api.root, {})
        except Refused as refused:
            if refused.refusal.code != NOT_FOUND:
                raise
            return False
        return True

    async def _ask(self, path: str, question: bytes) -> bytes:
        return await self._transport.send("POST", path, {}, question, JSON)


TRIES = 12
"""The number of times that a write is tried, as in client-go."""

PAUSE = 10.0
"""Seconds between two tries. The first pause is a random part of it, so that the clients of a server that was
down do not all come back at once."""

_TIMEOUT, _NOT_IMPLEMENTED = 408, 501


class Outcome(StrEnum):
    """Outcomes of Events that were recorded."""

    CREATED = "created"
    """It is an Event of its own on the server."""
    PATCHED = "patched"
    """It is counted in an Event of the server."""
    HANDED = "handed"
    """It was given to the functions or the log that take the server's place."""
    SPAM = "spam"
    """Too many of its object came. They are counted in a summary."""
    COALESCED = "coalesced"
    """A newer state of the same Event was written instead."""
    OVERFLOW = "overflow"
    """Too many waited."""
    REJECTED = "rejected"
    """The server refused it."""
    FAILED = "failed"
    """All tries have failed, or a function of the operator raised an error."""
    UNSENT = "unsent"
    """The operator ended before it could be written, or another replica handled the object by then."""
    IGNORED = "ignored"
    """It is about an Event."""


class Delivery:
    """The writes of one recorder. Used on the operator's event loop only."""

    def __init__(
        self,
        transport: WritingTransport,
        choice: ApiChoice,
        log: EventLog,
        *,
        sleep: Callable[[float], Awaitable[None]],
        chance: Callable[[], float],
        take_turn: Callable[[], Awaitable[None]],
        renew: Callable[[WaitingWrite], None],
        adopt: Callable[[WaitingWrite, ServerEvent], None],
        is_reference: bool,
    ) -> None:
        self._transport = transport
        self._choice = choice
        self._log = log
        self._sleep = sleep
        self._chance = chance
        self._take_turn = take_turn
        """Waits until the rate allows a request."""
        self._renew = renew
        """Puts the newest state of the Event in the place of the one that failed."""
        self._adopt = adopt
        """Adds the count that an Event of an earlier run has on the server."""
        self._is_reference = is_reference
        self.answer: Mapping[str, Any] = {}
        """The server's last answer to a write that succeeded."""

    async def run(self, item: WaitingWrite) -> Outcome:
        """Write an Event, with up to 12 tries."""
        for failures in range(TRIES):
            if failures:
                self._renew(item)
            asked: float | None = None
            try:
                outcome = await self._try(item)
            except Refused as refused:
                refusal = refused.refusal
                if not self._is_passing(refusal):
                    self._log.rejected(refusal, self._choice.used, item)
                    return Outcome.REJECTED
                asked = refusal.retry_after
                self._log.failed(f"{refusal.code} {refusal.reason}".rstrip())
            except (Unreachable, Garbled) as error:
                self._log.failed(str(error))
            else:
                self._log.succeeded(item.event.namespace)
                return outcome
            if failures + 1 < TRIES:
                usual = PAUSE if failures else PAUSE * self._chance()
                await self._sleep(usual if asked is None else min(max(asked, 0.0), ASKED))
        return Outcome.FAILED

    def _is_passing(self, refusal: Refusal) -> bool:
        """Return True if a later try may succeed."""
        if self._is_reference:
            return refusal.retry_after is not None  # So does the client below client-go's recorder.
        return refusal.code in (_TIMEOUT, TOO_MANY) or (
            refusal.code >= 500 and refusal.code != _NOT_IMPLEMENTED
        )

    async def _try(self, item: WaitingWrite) -> Outcome:
        api = await self._choice.api(item.event.namespace)
        if not item.is_new:
            try:
                await self._patch(api, item, self._change(api, item))
            except Refused as refused:
                if refused.refusal.code != NOT_FOUND:
                    raise
                item.is_new = True  # It has expired, or somebody has deleted it.
            else:
                return Outcome.PATCHED
        return await self._create(api, item)

    async def _create(self, api: Api, item: WaitingWrite) -> Outcome:
        try:
            await self._send(Verb.CREATE, api, item, _writing.created(api, item.event))
        except Refused as refused:
            refusal = refused.refusal
            if refusal.code == CONFLICT and not self._is_reference:
                return await self._continue(api, item)
            item.may_be_created = item.may_be_created or refusal.code >= 500 or refusal.code == _TIMEOUT
            raise
        except Unreachable as error:
            item.may_be_created = item.may_be_created or error.may_have_arrived
            raise
        except Garbled:
            item.may_be_created = True
            raise
        item.is_new = False
        return Outcome.CREATED

    async def _continue(self, api: Api, item: WaitingWrite) -> Outcome:
        """Continue the Event of this name: it is that of an earlier run of the operator, or that of a try
        whose answer was lost. Meanwhile the Event may have occurred again.
        """
        try:
            # An empty patch needs no other permission than the patch that follows.
            found = _writing.found(await self._patch(api, item, {}))
            is_own = item.may_be_created and found.is_begun_with(item.event)
            item.is_new = item.may_be_created = False
            item.had_series = found.has_series
            if not is_own:
                self._adopt(item, found)
            elif found.count == item.event.count:
                return Outcome.CREATED
            await self._patch(api, item, self._change(api, item))
        except Refused as refused:
            if refused.refusal.code != NOT_FOUND:
                raise
            raise Unreachable("the Event was deleted meanwhile", may_have_arrived=False) from None
        return Outcome.PATCHED

    def _change(self, api: Api, item: WaitingWrite) -> dict[str, Any]:
        return _writing.changed(api, item.event, had_series=item.had_series)

    async def _patch(self, api: Api, item: WaitingWrite, body: dict[str, Any]) -> Mapping[str, Any]:
        return await self._send(Verb.MERGE, api, item, body)

    async def _send(
        self, verb: Verb, api: Api, item: WaitingWrite, body: dict[str, Any]
    ) -> Mapping[str, Any]:
        method, content_type = METHODS[verb]
        path = _writing.path_of(api, item.event, is_new=verb is Verb.CREATE)
        await self._take_turn()
        data = await self._transport.send(
            method, path, _writing.query(), msgspec.json.encode(body), content_type
        )
        try:
            self.answer = msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Garbled("the server's answer isn't an Event") from error
        return self.answer
