"""The first lists of watches that could hold the same objects: all as of one version. Knows no protocol, and stores nothing.

What such watches hold can be read together once each has reached the newest of their lists. While a cluster writes, every
list is of another version; and a watch to which nothing happens learns only by a bookmark, within a minute, that it has
come so far. Where all are listed as of the version of the first that answers, there is nothing to wait for.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from .core.merging import Merging
from .core.wire import Page, Refusal
from .transport import Refused

REFUSED = frozenset({400, 410, 422, 504})
"""How servers refuse a version: it is none to them, it is forgotten, or it has yet to come. The newest list will do then."""


class Together:
    """What the watches of one group have agreed upon: the version as of which they are listed."""

    def __init__(self) -> None:
        self._first = asyncio.Lock()
        self._version = ""

    async def listed(self, ask: Callable[[Mapping[str, str]], Awaitable[Page | Refusal]]) -> Page | Refusal:
        """Return the first page of a list as of that version, or why there is none.

        Whoever comes first asks for the newest, and all others wait for that answer; if it is none, the next one is the first.
        """
        async with self._first:
            if not self._version:
                return await self._newest(ask)
        try:
            answer = await ask({"resourceVersion": self._version, "resourceVersionMatch": "Exact"})
        except Refused as refused:
            answer = refused.refusal
        if isinstance(answer, Refusal) and answer.code in REFUSED:
            return await self._newest(ask)
        return answer

    async def _newest(self, ask: Callable[[Mapping[str, str]], Awaitable[Page | Refusal]]) -> Page | Refusal:
        answer = await ask({})
        if isinstance(answer, Page):
            self._version = answer.version
        return answer


def listed_together(merging: Merging) -> tuple[Together | None, ...]:
    """Return for each branch with which it is listed first: None where no other could hold the same objects."""
    near = [frozenset(merging.near([branch])) for branch in merging.branches]
    groups = {group: Together() if len(group) > 1 else None for group in near}
    return tuple(groups[group] for group in near)
