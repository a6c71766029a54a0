"""Resources of kinds that no cache has, for reads: resolved once, and shared by concurrent callers.

Discovery sends many requests for one key, so they are joined and paced like others. A resource is remembered
as long as the operator runs. A kind that is not served is remembered for a few seconds, since it may be
installed.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.selection.resource import Resource

from .discovery import NotServed, resolve
from .fetcher import Fetcher, Shared

REMEMBERED = 5.0
"""Seconds until the server is asked again for a kind that it does not serve."""


class Kinds:
    """The kinds that one operator has asked for. Used on its event loop only."""

    def __init__(self, fetches: Fetcher, *, clock: Callable[[], float] = monotonic) -> None:
        self._fetches = fetches
        self._clock = clock
        self._found: dict[KindKey, Resource] = {}
        self._missed: dict[KindKey, tuple[float, str]] = {}
        self._asked: dict[KindKey, Shared[Resource]] = {}

    async def resolve(self, key: KindKey) -> Resource:
        """Return the resource of a key. Raise NotServed, Refused, Unreachable or Garbled."""
        if (found := self._found.get(key)) is not None:
            return found
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
            self._found[key] = found = await resolve(self._fetches, key)
        except NotServed as error:
            self._missed[key] = self._clock(), str(error)
            raise
        return found
