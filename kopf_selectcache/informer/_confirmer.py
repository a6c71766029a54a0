"""Confirmer: asks the server about unconfirmed leaves, objects that left one stream and may be in another.

The other stream usually delivers the object within a second. If it does not (contract 12), up to `FEW` leaves
are confirmed one by one, each by a metadata list of that name. More leaves, and leaves that metadata cannot
decide, are confirmed together by joined lists: the metadata of all objects of each stream that has not
reported yet (`core.store.unconfirmed`). Every request is a list, because only a list has the version as of
which it is true. One request is under way at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from kopf_selectcache.client.partial_metadata import pages_of_metadata
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.protocol.query import exactly, not_older_than
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.own_writes import OwnWrites
from kopf_selectcache.core.store.record import ObjectKey, Record
from kopf_selectcache.core.store.unconfirmed import JoinedLists, UnconfirmedLeave
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.text import FieldSelector
from kopf_selectcache.settings.planner import Stream

from .environment import Environment

SOON = 1.0
"""Seconds that the other streams get to settle a leave themselves; also the pause between two rounds."""

FEW = 10
"""Maximum of leaves that one round confirms one by one. More use joined lists. For a list of one name the
server reads one key; for a list with a selector it scans all objects of the kind."""

REST = 10.0
"""Minimum pause after joined lists, as a multiple of their duration: they take at most a tenth of the
time."""

_FAILURES = (Refused, Unreachable, Garbled)


@dataclass(slots=True)
class _Asked:
    """The requests about one leave so far."""

    times: int = 0
    again: float = 0.0
    """The time of the next request."""
    by_list: bool = False
    """True if metadata cannot decide it, since a stream that may hold the object selects by a field."""


class Confirmer:
    """Settles the unconfirmed leaves of one filter."""

    def __init__(
        self,
        union: Union,
        streams: Collection[Stream],
        resource: Resource,
        *,
        environment: Environment,
        own_writes: OwnWrites,
        notify: Callable[[Sequence[Change]], None],
    ) -> None:
        self._union = union
        self._own_writes = own_writes
        self._streams = tuple(streams)
        self._resource = resource
        self._environment = environment
        self.notify = notify
        """Called with the changes of each answer."""
        self._has_unconfirmed = asyncio.Event()
        self._failures = 0
        self._failed_lists = 0
        self._next_lists = 0.0
        """The earliest time of the next joined lists."""

    def look(self) -> None:
        """Wake `run` if there are unconfirmed leaves. Call it after each change of a substore."""
        if self._union.unconfirmed:
            self._has_unconfirmed.set()

    async def run(self) -> None:
        """Confirm leaves until cancelled."""
        self.look()
        while True:
            await self._has_unconfirmed.wait()
            self._has_unconfirmed.clear()
            asked: dict[UnconfirmedLeave, _Asked] = {}
            pause = SOON
            while self._union.unconfirmed:
                await self._environment.sleep(pause)
                asked = {leave: asked.get(leave) or _Asked() for leave in self._union.unconfirmed}
                pause = SOON + await self._confirm(asked)

    async def _confirm(self, asked: dict[UnconfirmedLeave, _Asked]) -> float:
        """Ask about the leaves that are due; return the seconds to wait if the server has failed, else 0."""
        now = self._environment.clock()
        due = {leave: each for leave, each in asked.items() if each.again <= now}
        if now >= self._next_lists and _wants_lists(due):
            for lists in self._union.joined_lists():
                if _wants_lists(together := {leave: due[leave] for leave in lists.leaves if leave in due}):
                    try:
                        await self._confirm_together(lists)
                    except _FAILURES as error:
                        # The server may not support lists as of a version: the next round asks one by one.
                        self._failed_lists += 1
                        self._next_lists = self._environment.clock() + delay(
                            self._failed_lists + 1, self._environment.chance(), at_least=_at_least(error)
                        )
                        return _at_least(error)
                    # A leave that is still unconfirmed is in the lists, and a stream will deliver the object.
                    for leave, each in together.items():
                        self._count(each)
                        del due[leave]
        # A leave that cannot be confirmed must not delay the others.
        for leave in nsmallest(FEW, due, key=lambda leave: (due[leave].times, due[leave].again)):
            if self._union.is_still_unconfirmed(leave):  # A stream may have settled it meanwhile.
                self._count(due[leave])
                try:
                    due[leave].by_list = await self._confirm_one(leave)
                except _FAILURES as error:  # The next request would fail as well.
                    self._failures += 1
                    return delay(self._failures - 1, self._environment.chance(), at_least=_at_least(error))
                self._failures = 0
        return 0.0

    def _count(self, asked: _Asked) -> None:
        asked.times += 1
        asked.again = self._environment.clock() + delay(asked.times, self._environment.chance())

    async def _confirm_one(self, leave: UnconfirmedLeave) -> bool:
        """Ask about one object; return True if only joined lists can decide it.

        Raise Refused, Unreachable or Garbled.
        """
        newer = not_older_than(leave.version) if leave.version else None
        paging = Paging(
            {"fieldSelector": str(FieldSelector.from_dict({"metadata.name": leave.name}))},
            page_limit=None,
            patience=self._environment.settings.sync_timeout,
            first=newer,
        )
        found: Record | None = None
        async for records in pages_of_metadata(
            self._environment.transport,
            self._resource,
            self._resource.path(leave.namespace),
            paging,
            chance=self._environment.chance,
            sleep=self._environment.sleep,
        ):
            found = next((record for record in records if record.name == leave.name), found)
        inside = [stream for stream in self._streams if found is not None and stream.may_hold(found)]
        uid = found.uid if found is not None else ""
        with self._own_writes.lock:
            changes = self._union.confirmed(
                leave, version=paging.version, uid=uid, outside=uid != "" and not inside
            )
            if not inside:
                self._confirm_own(leave.key, paging.version)
                self._own_writes.settle(self._union.shown)
        self.notify(changes)
        return any(stream.needs_fields for stream in inside)

    def _confirm_own(self, key: ObjectKey, version: str) -> None:
        """Drop an own write from before the answer, unless the answer has settled nothing: the object has
        left once more meanwhile. Without the write, readers would see its older state until that is settled.
        """
        if not self._union.is_unconfirmed(key):
            self._own_writes.confirm(key, version)

    async def _confirm_together(self, lists: JoinedLists) -> None:
        """Confirm leaves by lists of all streams that have not reported yet.

        Raise Refused, Unreachable or Garbled; then no leave is settled.
        """
        began = self._environment.clock()
        keys, uids = {leave.key for leave in lists.leaves}, dict[ObjectKey, str]()
        for stream in map(self._streams.__getitem__, lists.substores):
            paging = Paging(
                stream.query(),
                page_limit=self._environment.settings.page_limit,
                patience=self._environment.settings.sync_timeout,
                first=exactly(lists.version),
                version=lists.version,
            )
            async for records in pages_of_metadata(
                self._environment.transport,
                self._resource,
                stream.path(self._resource),
                paging,
                chance=self._environment.chance,
                sleep=self._environment.sleep,
            ):
                uids |= {record.key: record.uid for record in stream.within(records) if record.key in keys}
        self._failed_lists = 0
        self._next_lists = self._environment.clock() + REST * (self._environment.clock() - began)
        with self._own_writes.lock:
            changes = self._union.confirmed_by_lists(lists, uids)
            for key in keys - uids.keys():
                self._confirm_own(key, lists.version)
            self._own_writes.settle(self._union.shown)
        self.notify(changes)


def _wants_lists(due: dict[UnconfirmedLeave, _Asked]) -> bool:
    return len(due) > FEW or any(each.by_list for each in due.values())


def _at_least(error: Exception) -> float:
    return (error.refusal.retry_after or 0.0) if isinstance(error, Refused) else 0.0
