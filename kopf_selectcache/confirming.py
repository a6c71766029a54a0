"""Asks the server about objects that no branch of a filter holds any more, and that a slower branch may be about to.

Mostly the slower branch is just behind, and says so itself. Where it is not, one read of the object's metadata ends the
doubt (contract 12): it must be a list, since only of a list it is known as of which version it is true. One request is
under way at a time, however many objects are in doubt.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from heapq import nsmallest

from .core.backoff import delay
from .core.merging import Doubt, Merging
from .core.paging import Paging
from .core.problems import Garbled
from .core.record import Record
from .core.resources import Resource
from .core.store import Change
from .metadata import page_of_metadata
from .planning import Stream
from .texts import FieldSelector
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
        self.look()
        while True:
            await self._doubtful.wait()
            self._doubtful.clear()
            asked: dict[Doubt, tuple[int, float]] = {}   # How often about each, and when it is to be asked again.
            failures, pause = 0, SOON
            while self._merging.doubts:
                await self._world.sleep(pause)
                now, doubts, pause = self._world.clock(), self._merging.doubts, SOON
                asked = {doubt: asked.get(doubt, (0, 0.0)) for doubt in doubts}
                due = (doubt for doubt, (_, at) in asked.items() if at <= now)
                # One that cannot be asked about must not keep the others waiting.
                for doubt in nsmallest(AT_ONCE, due, key=lambda doubt: asked[doubt]):
                    if not self._merging.is_in_doubt(doubt):
                        continue   # A branch has said it meanwhile.
                    times = asked[doubt][0] + 1
                    asked[doubt] = times, now + delay(times, self._world.chance())
                    try:
                        await self._settle(doubt)
                    except (Refused, Unreachable, Garbled) as error:
                        # Whatever it is, the next answer would be the same.
                        at_least = error.refusal.retry_after if isinstance(error, Refused) else None
                        pause, failures = delay(failures, self._world.chance(), at_least=at_least or 0.0) + SOON, failures + 1
                        break
                    failures = 0

    async def _settle(self, doubt: Doubt) -> None:
        """Ask about one object; raise Refused, Unreachable or Garbled."""
        newer = {"resourceVersion": doubt.version, "resourceVersionMatch": "NotOlderThan"} if doubt.version else None
        paging = Paging({"fieldSelector": str(FieldSelector.from_dict({"metadata.name": doubt.name}))}, first=newer)
        found: Record | None = None
        while paging.query is not None:
            page = await page_of_metadata(self._world.transport, self._resource, self._resource.path(doubt.namespace), paging.query)
            paging.turn(page)
            found = next((record for record in page.records if record.name == doubt.name), found)
        outside = found is not None and not any(stream.may_hold(found) for stream in self._streams)
        uid = found.uid if found is not None else ""
        self._notify(self._merging.confirmed(doubt, version=paging.version, uid=uid, outside=outside))
