"""The version as of which watches that could hold the same objects are first listed. Knows no state of
theirs, and stores no objects.

What such watches hold can be read together once each has reached the newest of their lists. While a cluster
writes, every list is of another version; and a watch to which nothing happens learns only by a bookmark,
within a minute, that it has come so far. Where all are listed as of the version of the first that answers,
there is nothing to wait for.

It is for the first list that each asks for, and no other: what was agreed upon minutes ago is no state to
begin with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from kopf_selectcache.client.transport import Refused, Unreachable
from kopf_selectcache.core.protocol.messages import Page, Refusal
from kopf_selectcache.core.protocol.query import exactly, is_beyond_server
from kopf_selectcache.core.store.union import Union

REFUSED = frozenset({400, 410, 422, 504})
"""How servers refuse a version, and perhaps nothing else: it is none to them, it is forgotten, or it has yet
to come."""


class AgreedVersion:
    """The version that the first of several was listed at."""

    def __init__(self) -> None:
        self._asking = asyncio.Lock()
        self._version = ""
        self._unreachable = False

    async def page(self, ask: Callable[[Mapping[str, str]], Awaitable[Page | Refusal]]) -> Page | Refusal:
        """Return the first page of a list as of that version; raise what `ask` raises.

        Whoever comes first asks for the newest, and all others wait for that answer. If it is a refusal, the
        next one is the first. If there is none, which may have taken long, nobody waits for another.
        """
        async with self._asking:
            if not (self._version or self._unreachable):
                return await self._first(ask)
        if self._version:
            try:
                answer = await ask(exactly(self._version))
            except Refused as refused:
                answer = refused.refusal
            # One request more, once: then it is as if nothing had been agreed upon.
            if (
                not isinstance(answer, Refusal)
                or not _refuses_version(answer)
                or answer.retry_after is not None
            ):
                return answer
        return await ask({})

    async def _first(self, ask: Callable[[Mapping[str, str]], Awaitable[Page | Refusal]]) -> Page | Refusal:
        try:
            answer = await ask({})
        except Unreachable:
            self._unreachable = True
            raise
        if isinstance(answer, Page):
            self._version = answer.version
        return answer


def _refuses_version(refusal: Refusal) -> bool:
    return refusal.code in REFUSED or is_beyond_server(refusal)


def agreed_versions(union: Union) -> tuple[AgreedVersion | None, ...]:
    """Return for each branch what it shares with those that could hold the same objects: None where there are
    no others.
    """
    near = [frozenset(union.near([branch])) for branch in union.branches]
    groups = {group: AgreedVersion() if len(group) > 1 else None for group in near}
    return tuple(groups[group] for group in near)
