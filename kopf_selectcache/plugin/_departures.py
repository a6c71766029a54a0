"""Departures: asks the server what has become of objects that have left the filter of a cache.

A watch under a label selector reports an object that lost the label like one that was deleted, but Kopf must
not take the first for the second. Up to `SINGLE_REQUESTS` objects are asked for one by one, each by a list of
its name. Of more, lists of metadata tell first which do not exist any more. All requests are lists, since
Kopf's handlers need no other permission; they are joined and paced as those of reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kopf_selectcache.client.fetcher import pages_of_metadata
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime

SINGLE_REQUESTS = 10
"""The most departures of one round that are asked about one by one."""

RETRY_SECONDS = 1.0
"""Seconds until an object is asked for again that the filter selects: its stream will report it."""

PAUSE_FACTOR = 10.0
"""The pause after lists of metadata, as a multiple of their duration: they take a tenth of the time."""


class Departures:
    """The objects that have left the filter of one informer, until it is known if they exist."""

    def __init__(self, informer: Informer, runtime: Runtime, settled: Callable[[Change], None]) -> None:
        """`settled` is called with each departure once it is known: `deleted`, or `left` with the object as
        the server has it, in `after`.
        """
        self._informer = informer
        self._runtime = runtime
        self._settled = settled
        self._asked: dict[str, Change] = {}
        self._has_some = asyncio.Event()

    def add(self, change: Change) -> None:
        """Ask about a departure."""
        assert change.before is not None, "it departs"
        self._asked[change.before.uid] = change
        self._has_some.set()

    def discard(self, uid: str) -> None:
        """Do not ask about an object that has come back."""
        self._asked.pop(uid, None)

    async def run(self) -> None:
        """Ask until cancelled."""
        environment, failures = self._informer.environment, 0
        while True:
            await self._has_some.wait()
            self._has_some.clear()
            while self._asked:
                try:
                    pause = await self._ask()
                    failures = 0
                except (Refused, Unreachable, Garbled) as error:
                    at_least = error.refusal.retry_after if isinstance(error, Refused) else None
                    pause = delay(failures, environment.chance(), at_least=at_least or 0.0)
                    failures += 1
                if pause and self._asked:
                    await environment.sleep(pause)

    async def _ask(self) -> float:
        """Ask once about all departures so far; return the seconds until the next round."""
        environment, pause = self._informer.environment, RETRY_SECONDS
        if len(self._asked) > SINGLE_REQUESTS:
            began = environment.clock()
            await self._drop_deleted()
            pause = max(RETRY_SECONDS, PAUSE_FACTOR * (environment.clock() - began))
        changes = list(self._asked.values())[:SINGLE_REQUESTS]
        answers = await asyncio.gather(*map(self._found, changes), return_exceptions=True)
        is_waiting = False
        for change, answer in zip(changes, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            is_back = answer is not None and self.is_selected(answer)
            is_waiting |= is_back
            if not is_back:
                self._settle(change, answer)
        return pause if is_waiting or len(self._asked) > SINGLE_REQUESTS else 0.0

    def is_selected(self, record: Record) -> bool:
        """Return True if the filter selects this state of an object, as far as its metadata tells."""
        plan = self._informer.state.plan
        return plan is not None and any(stream.may_hold(record) for stream in plan.streams)

    def _settle(self, change: Change, found: Record | None) -> None:
        before = change.before
        assert before is not None, "it departs"
        if self._asked.get(before.uid) is not change:
            return  # It came back meanwhile.
        del self._asked[before.uid]
        if found is None:
            self._settled(Change(before, None, ChangeCause.DELETED, known_by="confirmed", last=change.last))
        else:
            self._settled(Change(before, found, ChangeCause.LEFT, known_by="confirmed"))

    async def _found(self, change: Change) -> Record | None:
        """Return the departed object as the server has it; None if it was deleted."""
        before, resource = change.before, self._informer.state.resource
        assert before is not None, "it departs"
        assert resource is not None, "it has objects"
        settings = self._informer.environment.settings
        records = await self._runtime.fetches.pages(
            resource.path(before.namespace or None),
            {"fieldSelector": f"metadata.name={before.name}"},
            Reader.of(resource, self._informer.state.projection),
            page_limit=settings.page_limit,
            patience=settings.sync_timeout,
        )
        return next((record for record in records if record.uid == before.uid), None)

    async def _drop_deleted(self) -> None:
        """Settle the departures of objects that do not exist any more."""
        environment, resource = self._informer.environment, self._informer.state.resource
        assert resource is not None, "it has objects"
        changes = list(self._asked.values())
        for namespace in dict.fromkeys(change.key[0] for change in changes):
            paging = Paging(
                {},
                page_limit=environment.settings.page_limit,
                patience=environment.settings.sync_timeout,
            )
            present = set[str]()
            async for records in pages_of_metadata(
                environment.transport,
                resource,
                resource.path(namespace or None),
                paging,
                chance=environment.chance,
                sleep=environment.sleep,
            ):
                present.update(record.uid for record in records)
            for change in changes:
                if change.key[0] == namespace and change.uid not in present:
                    self._settle(change, None)
