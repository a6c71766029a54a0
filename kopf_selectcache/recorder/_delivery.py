"""Delivery: writes one Event after another, with the tries of each.

`client.writer.Writer` is not used. Its pauses and its deadline are those of a caller who waits. Here nobody
waits: the tries and pauses are client-go's, a newer state of the Event replaces the one that is tried, and a
lost answer needs no read back. A patch contains the whole count, so that it can be repeated; an Event that is
created has a name of its own, so that a repeat is answered with 409.

`ApiChoice` is the API in which Events are written, by what the server serves and the permissions allow.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from kopf_selectcache.cache.server_writes import MANAGER
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import JSON, WritingTransport
from kopf_selectcache.client.writer import METHODS
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.lost_answer import CONFLICT, NOT_FOUND, TOO_MANY, Verb
from kopf_selectcache.core.protocol.messages import LONGEST_ASKED_SECONDS, Refusal
from kopf_selectcache.core.redact import printable
from kopf_selectcache.informer.checks import Reviewer, Unreviewed
from kopf_selectcache.settings.planner import Right

from ._queue import WaitingWrite
from .events import Api, ServerEvent, changed_body, created_body, path_of, server_event

TRIES = 12
"""The number of times that a write is tried, as in client-go."""

PAUSE_SECONDS = 10.0
"""The pause between two tries. The first pause is a random part of it, so that the clients of a server that
was down do not all come back at once."""

_REVIEW_SECONDS = 60.0
"""The time until the permissions are asked for again if none of them suffices."""

_TIMEOUT, _FORBIDDEN, _NOT_IMPLEMENTED = 408, 403, 501
_LOGGED_CHARACTERS = 300

_MOST_NAMESPACES = 1_000
"""Maximum of namespaces that are remembered. Names that are made up at run time would have no end."""

_TERMINATING = "NamespaceTerminating"
"""The reason of the cause with which the server refuses new objects in a namespace that is being deleted."""


class EventLog:
    """The log of one recorder. The texts of Events, and of the server about them, are logged at the level
    DEBUG only.
    """

    def __init__(self, component: str, logger: logging.Logger) -> None:
        self._component = component
        self._logger = logger
        self._told: set[tuple[object, ...]] = set()
        self._namespaces: set[str] = set()  # Those that exist or did, and those that the log has named.
        self._is_failing = False

    def chosen(self, api: Api) -> None:
        self._logger.info(
            "The Events of %(component)s are written in the API %(api)s.",
            {"component": self._component, "api": api.value},
        )

    def lacks(self, right: Right) -> None:
        """Tell once that there is no permission to write Events in either API."""
        if self._is_first(_FORBIDDEN):
            self._logger.warning(
                "The Events of %(component)s can't be written without permission to %(permission)s. Add to"
                " %(role)s: %(rule)s. `selectcache rbac` prints all permissions that the operator needs.",
                {
                    "component": self._component,
                    "permission": right,
                    "role": right.role,
                    "rule": right.written(),
                },
            )

    def rejected(self, refusal: Refusal, api: Api, item: WaitingWrite) -> None:
        """Tell once for each reason that the server refuses Events."""
        reason = f"{refusal.code} {refusal.reason}".rstrip()
        self._logger.debug(
            "The server rejects an Event of %(component)s: %(reason)s: %(message)s",
            {
                "component": self._component,
                "reason": reason,
                "message": printable(refusal.message, _LOGGED_CHARACTERS),
            },
        )
        namespace = item.event.namespace
        if any(cause.reason == _TERMINATING for cause in refusal.causes):
            self._is_new(namespace)
        elif refusal.code == NOT_FOUND and f'namespaces "{namespace}" not found' in refusal.message:
            if self._is_new(namespace):  # Else it was deleted, or the log has named it.
                self._logger.warning(
                    "The namespace %(namespace)s does not exist. The Events of %(component)s there are"
                    " dropped and counted.",
                    {"namespace": repr(namespace), "component": self._component},
                )
        elif refusal.code == _FORBIDDEN:
            self.lacks(api.right(namespace))
        elif self._is_first(refusal.code, refusal.reason):
            fields = ", ".join(sorted({cause.field for cause in refusal.causes if cause.field}))
            self._logger.warning(
                "The server rejects Events of %(component)s: %(reason)s. They are dropped and counted.",
                {
                    "component": self._component,
                    "reason": printable(f"{reason}, for {fields}" if fields else reason, _LOGGED_CHARACTERS),
                },
            )

    def failed(self, why: str) -> None:
        """Tell once that Events cannot be written, until one is."""
        if not self._is_failing:
            self._is_failing = True
            self._logger.warning(
                "The Events of %(component)s can't be written yet: %(why)s. They are retried.",
                {"component": self._component, "why": printable(why, _LOGGED_CHARACTERS)},
            )

    def succeeded(self, namespace: str) -> None:
        """Note that an Event is written: its namespace exists. Tell the end of a failure."""
        self._is_new(namespace)
        if self._is_failing:
            self._is_failing = False
            self._logger.info(
                "The Events of %(component)s are written again.", {"component": self._component}
            )

    def raised(self, error: BaseException) -> None:
        """Tell once for each type that a function of the operator, such as a sink, has failed."""
        if self._is_first(type(error)):
            # The text of the exception may have parts of objects.
            self._logger.warning(
                "An Event of %(component)s is lost, because it raised %(error)s. It is counted as failed.",
                {"component": self._component, "error": type(error).__name__},
            )

    def unsent(self, count: int) -> None:
        self._logger.warning(
            "%(count)d Events of %(component)s were not written before the operator ended.",
            {"component": self._component, "count": count},
        )

    def _is_new(self, namespace: str) -> bool:
        if namespace in self._namespaces or len(self._namespaces) >= _MOST_NAMESPACES:
            return False
        self._namespaces.add(namespace)
        return True

    def _is_first(self, *reason: object) -> bool:
        if reason in self._told:
            return False
        self._told.add(reason)
        return True


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
        self._due = self._clock() + _REVIEW_SECONDS
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
                if not _is_passing(refusal):
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
                usual = PAUSE_SECONDS if failures else PAUSE_SECONDS * self._chance()
                await self._sleep(usual if asked is None else min(max(asked, 0.0), LONGEST_ASKED_SECONDS))
        return Outcome.FAILED

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
            await self._send(Verb.CREATE, api, item, created_body(api, item.event))
        except Refused as refused:
            refusal = refused.refusal
            if refusal.code == CONFLICT:
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
            found = server_event(await self._patch(api, item, {}))
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
        return changed_body(api, item.event, had_series=item.had_series)

    async def _patch(self, api: Api, item: WaitingWrite, body: dict[str, Any]) -> Mapping[str, Any]:
        return await self._send(Verb.MERGE, api, item, body)

    async def _send(
        self, verb: Verb, api: Api, item: WaitingWrite, body: dict[str, Any]
    ) -> Mapping[str, Any]:
        method, content_type = METHODS[verb]
        path = path_of(api, item.event, is_new=verb is Verb.CREATE)
        await self._take_turn()
        query, sent = {"fieldManager": MANAGER}, msgspec.json.encode(body)
        data = await self._transport.send(method, path, query, sent, content_type)
        try:
            return msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Garbled("the server's answer isn't an Event") from error


def _is_passing(refusal: Refusal) -> bool:
    """Return True if a later try may succeed."""
    if refusal.code in (_TIMEOUT, TOO_MANY):
        return True
    return refusal.code >= 500 and refusal.code != _NOT_IMPLEMENTED
