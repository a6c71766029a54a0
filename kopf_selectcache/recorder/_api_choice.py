"""ApiChoice: the API in which Events are written, by what the server serves and the permissions allow."""

from __future__ import annotations

from collections.abc import Callable

from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import JSON, WritingTransport
from kopf_selectcache.core.protocol.lost_answer import NOT_FOUND
from kopf_selectcache.informer.access_review import Reviewer, Unreviewed

from ._log import EventLog
from .api import Api

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
