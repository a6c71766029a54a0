"""The shared version of the first lists of streams that could hold the same objects.

Such streams can be read together once each has reached the newest of their lists. While the cluster writes,
each list has another version, and a watch without events reaches that version only by a bookmark, within a
minute. If all streams list as of the version of the first answer, they need not wait.

Each stream uses it for its first list only: minutes later the version is outdated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from kopf_selectcache.client.transport import Refused, Unreachable
from kopf_selectcache.core.protocol.messages import Page, Refusal
from kopf_selectcache.core.protocol.query import exactly, is_beyond_server
from kopf_selectcache.core.store.record import is_older, rank_of
from kopf_selectcache.core.store.substore import Substore, least
from kopf_selectcache.core.store.union import Union

REFUSED = frozenset({400, 410, 422, 504})
"""Codes by which servers refuse a version, and possibly other things: it is invalid, expired, or in the
future."""


class SharedVersion:
    """The version of the first list among several streams."""

    def __init__(self, version: str = "") -> None:
        self._asking = asyncio.Lock()
        self._version = version
        self._unreachable = False

    async def page(self, ask: Callable[[Mapping[str, str]], Awaitable[Page | Refusal]]) -> Page | Refusal:
        """Return the first page of a list as of that version; raise what `ask` raises.

        The first caller asks for the newest version, and all others wait for that answer. After a refusal the
        next caller is the first. If the server is unreachable, which may take long to detect, nobody waits
        any more.
        """
        async with self._asking:
            if not (self._version or self._unreachable):
                return await self._first(ask)
        if self._version:
            try:
                answer = await ask(exactly(self._version))
            except Refused as refused:
                answer = refused.refusal
            # A refused version costs one more request, for the newest version.
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


def shared_versions(union: Union, seen: str = "") -> tuple[SharedVersion | None, ...]:
    """Return for each substore the version that it shares with substores that could hold the same objects;
    None if there are no others. It is known already if some of them are listed, unless it is older than
    `seen`, the version that readers of earlier filters have seen.
    """
    near = [frozenset(union.near([substore])) for substore in union.substores]
    groups = {group: SharedVersion(_reached(group, seen)) if len(group) > 1 else None for group in near}
    return tuple(groups[group] for group in near)


def _reached(substores: Iterable[Substore], seen: str) -> str:
    """Return the oldest version of those that are listed, but none before the newest of their lists, which
    all must reach; empty if none is listed, or if it is older than `seen`.
    """
    listed = [each for each in substores if each.version]
    oldest = least(each.version for each in listed) if listed else ""
    reached = oldest and max(oldest, *(each.listed for each in listed), key=rank_of)
    return reached if not seen or not is_older(reached, seen) else ""
