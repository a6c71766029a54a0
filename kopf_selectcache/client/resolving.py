"""Resources of kinds that no cache has, for reads: resolved once, and shared by concurrent callers.

Discovery sends many requests for one key, so they are joined and paced like others. A resource is remembered
as long as the operator runs. A kind that is not served is remembered for a few seconds, since it may be
installed; so is a provisional resource, since the key may mean another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import random
from time import monotonic

from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.selection.resource import Resource

from .discovery import NotServed, search, settle
from .fetcher import Fetcher
from .shared import Shared

REMEMBERED = 5.0
"""Seconds until the server is asked again for a kind that it does not serve, or for a provisional one."""


class Kinds:
    """The kinds that one operator has asked for. Used on its event loop only."""

    def __init__(
        self,
        fetches: Fetcher,
        *,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random,
    ) -> None:
        self._fetches = fetches
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._found: dict[KindKey, Resource] = {}
        self._provisional: dict[KindKey, tuple[float, Resource]] = {}
        self._missed: dict[KindKey, tuple[float, str]] = {}
        self._asked: dict[KindKey, Shared[Resource]] = {}

    async def resolve(self, key: KindKey) -> Resource:
        """Return the resource of a key. Raise NotServed, Refused, Unreachable or Garbled."""
        if (found := self._found.get(key)) is not None:
            return found
        if key in self._provisional and self._clock() - self._provisional[key][0] < REMEMBERED:
            return self._provisional[key][1]
        self._missed = {
            each: missed for each, missed in self._missed.items() if self._clock() - missed[0] < REMEMBERED
        }
        if key in self._missed:
            raise NotServed(self._missed[key][1])
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = Shared(self._ask(key))
        try:
            return await asked.result()
        finally:
            if asked.given_up and self._asked.get(key) is asked:
                del self._asked[key]

    async def _ask(self, key: KindKey) -> Resource:
        try:
            # Without further tries if the group did not answer before: it may never do.
            found = (
                await search(self._fetches, key)
                if key in self._provisional
                else await settle(self._fetches, key, sleep=self._sleep, chance=self._chance)
            )
        except NotServed as error:
            self._missed[key] = self._clock(), str(error)
            raise
        if found.refused:
            self._provisional[key] = self._clock(), found.resource
        else:
            self._found[key] = found.resource
            self._provisional.pop(key, None)
        return found.resource
