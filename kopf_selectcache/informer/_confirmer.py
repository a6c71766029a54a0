"""Confirms leaves that no stream has settled: asks the server about objects that one stream let go, and
another may hold.

Mostly the other stream says so itself within a second. Where it does not (contract 12), a few leaves are
confirmed one by one, each by a list of the metadata of that name. More of them, and those that metadata
cannot decide, are confirmed together by joined lists: of each stream that has not told yet, the metadata of
all its objects (`core.store.unconfirmed`). Lists they must be: only of a list it is known as of which version
it is true. One request is under way at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from kopf_selectcache.client.partial_metadata import pages_of_metadata
from kopf_selectcache.client.transport import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.protocol.query import exactly, not_older_than
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Change
from kopf_selectcache.core.store.substore import Key
from kopf_selectcache.core.store.unconfirmed import Doubt, JoinedLists
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.text import FieldSelector
from kopf_selectcache.settings.planner import Stream

from .environment import World

SOON = 1.0
"""The other streams get this many seconds to settle a leave themselves. Also the time between two rounds of
questions."""

FEW = 10
"""At most this many leaves are confirmed one by one in a round. More take joined lists: a server answers a
list of one name from one key, but a list with a selector only by a look at all objects of the kind."""

REST = 10.0
"""After joined lists come at least this many times their duration without any: they take at most a tenth of
the time."""

_FAILURES = (Refused, Unreachable, Garbled)


@dataclass(slots=True)
class _Asked:
    """The questions about one leave so far."""

    times: int = 0
    again: float = 0.0
    """When to ask again."""
    by_list: bool = False
    """Whether its metadata cannot decide it: a stream that may hold it selects by a field."""


class Confirmer:
    """Settles the unconfirmed leaves of one filter."""

    def __init__(
        self,
        union: Union,
        streams: Collection[Stream],
        resource: Resource,
        *,
        world: World,
        notify: Callable[[Sequence[Change]], None],
    ) -> None:
        self._union = union
        self._streams = tuple(streams)
        self._resource = resource
        self._world = world
        self._notify = notify
        self._doubtful = asyncio.Event()
        self._failures = 0
        self._failed_lists = 0
        self._next_lists = 0.0
        """When the next joined lists may begin."""

    def look(self) -> None:
        """Look for unconfirmed leaves: to be called whenever a branch has taken something in."""
        if self._union.doubts:
            self._doubtful.set()

    async def run(self) -> None:
        """Confirm leaves until cancelled."""
        self.look()
        while True:
            await self._doubtful.wait()
            self._doubtful.clear()
            asked: dict[Doubt, _Asked] = {}
            pause = SOON
            while self._union.doubts:
                await self._world.sleep(pause)
                asked = {doubt: asked.get(doubt) or _Asked() for doubt in self._union.doubts}
                pause = SOON + await self._confirm(asked)

    async def _confirm(self, asked: dict[Doubt, _Asked]) -> float:
        """Ask about the leaves that are due; return how long to leave a server alone that has failed."""
        now = self._world.clock()
        due = {doubt: each for doubt, each in asked.items() if each.again <= now}
        if now >= self._next_lists and _wants_lists(due):
            for lists in self._union.joined_lists():
                if _wants_lists(together := {doubt: due[doubt] for doubt in lists.doubts if doubt in due}):
                    try:
                        await self._confirm_together(lists)
                    except _FAILURES as error:
                        # Perhaps the server has no lists as of a version, or not for us: the next round asks
                        # one by one.
                        self._failed_lists += 1
                        self._next_lists = self._world.clock() + delay(
                            self._failed_lists + 1, self._world.chance(), at_least=_at_least(error)
                        )
                        return _at_least(error)
                    for doubt, each in together.items():
                        self._count(
                            each
                        )  # If it is still unconfirmed, the lists have it, and a stream will deliver it.
                        del due[doubt]
        # A leave that cannot be confirmed must not delay the others.
        for doubt in nsmallest(FEW, due, key=lambda doubt: (due[doubt].times, due[doubt].again)):
            if self._union.is_in_doubt(doubt):  # A stream may have settled it meanwhile.
                self._count(due[doubt])
                try:
                    due[doubt].by_list = await self._confirm_one(doubt)
                except _FAILURES as error:  # The next answer would be the same.
                    self._failures += 1
                    return delay(self._failures - 1, self._world.chance(), at_least=_at_least(error))
                self._failures = 0
        return 0.0

    def _count(self, asked: _Asked) -> None:
        asked.times += 1
        asked.again = self._world.clock() + delay(asked.times, self._world.chance())

    async def _confirm_one(self, doubt: Doubt) -> bool:
        """Ask about one object; return whether only joined lists can decide it. Raise Refused, Unreachable or
        Garbled.
        """
        newer = not_older_than(doubt.version) if doubt.version else None
        paging = Paging(
            {"fieldSelector": str(FieldSelector.from_dict({"metadata.name": doubt.name}))},
            page_limit=None,
            patience=self._world.settings.sync_timeout,
            first=newer,
        )
        found: Record | None = None
        async for records in pages_of_metadata(
            self._world.transport,
            self._resource,
            self._resource.path(doubt.namespace),
            paging,
            chance=self._world.chance,
            sleep=self._world.sleep,
        ):
            found = next((record for record in records if record.name == doubt.name), found)
        inside = [stream for stream in self._streams if found is not None and stream.may_hold(found)]
        uid = found.uid if found is not None else ""
        self._notify(
            self._union.confirmed(doubt, version=paging.version, uid=uid, outside=uid != "" and not inside)
        )
        return any(stream.selector.terms for stream in inside)

    async def _confirm_together(self, lists: JoinedLists) -> None:
        """Confirm leaves by the lists of all streams that have not told yet; raise Refused, Unreachable or
        Garbled, and settle nothing then.
        """
        began = self._world.clock()
        keys, uids = {doubt.key for doubt in lists.doubts}, dict[Key, str]()
        for stream in map(self._streams.__getitem__, lists.branches):
            paging = Paging(
                stream.query(),
                page_limit=self._world.settings.page_limit,
                patience=self._world.settings.sync_timeout,
                first=exactly(lists.version),
                version=lists.version,
            )
            async for records in pages_of_metadata(
                self._world.transport,
                self._resource,
                stream.path(self._resource),
                paging,
                chance=self._world.chance,
                sleep=self._world.sleep,
            ):
                uids |= {record.key: record.uid for record in stream.within(records) if record.key in keys}
        self._failed_lists = 0
        self._next_lists = self._world.clock() + REST * (self._world.clock() - began)
        self._notify(self._union.confirmed_by_lists(lists, uids))


def _wants_lists(due: dict[Doubt, _Asked]) -> bool:
    return len(due) > FEW or any(each.by_list for each in due.values())


def _at_least(error: Exception) -> float:
    return (error.refusal.retry_after or 0.0) if isinstance(error, Refused) else 0.0
