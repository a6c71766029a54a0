"""Asks the server about objects that no branch of a filter holds any more, and that a slower branch may be about to.

Mostly the slower branch is just behind, and says so itself. Where it is not, one read of the object's metadata ends the
doubt (contract 12): it must be a list, since only of a list it is known as of which version it is true. One request is
under way at a time, however many objects are in doubt.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from .core.backoff import delay
from .core.merging import Doubt, Merging
from .core.problems import Garbled
from .core.resources import Resource
from .core.store import Change
from .metadata import page_of_metadata
from .planning import Stream
from .transport import Refused, Unreachable
from .world import World

SOON = 1.0
"""So many seconds are left to the other branches, to say it themselves."""

AT_ONCE = 20
"""So many objects are asked about in one go, and the next after another `SOON`."""


class Confirming:
    """Settles the doubts of one filter."""

    def __init__(
        self, merging: Merging, streams: Collection[Stream], resource: Resource, *, world: World,
        notify: Callable[[Sequence[Change]], None],
    ) -> None:
        self._merging = merging
        self._streams = streams
        self._resource = resource
        self._world = world
        self._notify = notify
        self._doubtful = asyncio.Event()

    def look(self) -> None:
        """See whether there is anything in doubt: to be called whenever a branch has taken something in."""
        if self._merging.doubts:
            self._doubtful.set()

    async def run(self) -> None:
        """Settle doubts until cancelled."""
        while True:
            await self._doubtful.wait()
            self._doubtful.clear()
            asked: dict[Doubt, tuple[int, float]] = {}   # How often about each, and when it is to be asked again.
            while doubts := self._merging.doubts:
                await self._world.sleep(SOON)
                now = self._world.clock()
                asked = {doubt: asked[doubt] for doubt in doubts if doubt in asked}
                for doubt in [each for each in doubts if each not in asked or asked[each][1] <= now][:AT_ONCE]:
                    await self._settle(doubt)
                    times = asked.get(doubt, (0, 0.0))[0]
                    asked[doubt] = times + 1, now + delay(times + 1, self._world.chance())

    async def _settle(self, doubt: Doubt) -> None:
        query = {"fieldSelector": f"metadata.name={doubt.name}"}
        if doubt.version:
            query |= {"resourceVersion": doubt.version, "resourceVersionMatch": "NotOlderThan"}
        try:
            page = await page_of_metadata(self._world.transport, self._resource, self._resource.path(doubt.namespace), query)
        except (Refused, Unreachable, Garbled):
            return   # It is asked again after a while, as long as there is the doubt.
        found = next((record for record in page.records if record.name == doubt.name), None)
        outside = found is not None and not any(stream.may_hold(found) for stream in self._streams)
        uid = found.uid if found is not None else ""
        self._notify(self._merging.confirmed(doubt, version=page.version, uid=uid, outside=outside))
