"""Knowledge: what Kopf was told of the objects of a kind, by the feed of its cache and by its own watch.

Kopf knows objects by their uids. Kopf's own watch begins where the cache cannot go on, and ends where the
cache can (`OwnWatch`). Neither repeats what the other has told. Only `Departures` asks the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from kopf_selectcache import _kopf
from kopf_selectcache.client.fetcher import pages_of_metadata
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import delay
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.record import EvictedRecord, ObjectKey, Record, is_newer
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime

NEVER = "~"
"""Comes after each time."""


def key_of(body: Any) -> tuple[ObjectKey, str]:
    """Return the key and the uid of an object."""
    metadata = body["metadata"]
    return (metadata.get("namespace") or "", metadata.get("name") or ""), metadata.get("uid") or ""


class Knowledge:
    """The objects that Kopf was told of, and when. Times are as `creationTimestamp` has them."""

    def __init__(self) -> None:
        self.known: dict[str, Record] = {}
        """The objects by uid, as Kopf was told of them last."""
        self.is_listed = False
        """True once Kopf was told of all objects that are there."""
        self.was_paused = False
        """True if Kopf was paused since, so that it must be told of all objects again."""
        self.pauses = 0
        """The number of pauses so far."""
        self._unseen: list[tuple[str, str]] = [("", NEVER)]
        """The times before the first list, and of each pause up to the list after it."""
        self._forgotten: set[str] = set()
        """The uids of objects that were listed, and that Kopf has forgotten: it resumes an object once."""

    def pause(self, now: str) -> None:
        if self.is_listed and not self.was_paused:
            self._unseen.append((now, NEVER))
        self.was_paused = True

    def end_list(self, began: str, *, was_paused: bool = False) -> None:
        """Note that Kopf was told of all objects that were there at this time; `was_paused` if it was paused
        since.
        """
        since, until = self._unseen[-1]
        self._unseen[-1] = since, min(until, began)
        self.is_listed, self.was_paused = True, was_paused

    def was_there(self, body: dict[str, Any]) -> bool:
        """Return True if Kopf's own watch would have shown an object in a list first, so that `on.resume` is
        called for it, and if that has not happened yet.
        """
        created = body["metadata"].get("creationTimestamp", NEVER)
        is_listed = any(since <= created < until for since, until in self._unseen)
        return is_listed and body["metadata"]["uid"] not in self._forgotten

    def forget(self, body: dict[str, Any]) -> None:
        """Note that Kopf forgets an object that exists."""
        uid = body["metadata"]["uid"]
        if self.was_there(body):
            self._forgotten.add(uid)
        del self.known[uid]


class OwnWatch:
    """Kopf's own watch, from where the cache cannot go on.

    Of its first list, Kopf gets what has changed since it was told of an object, and the deletions of those
    that the list lacks. Then it gets each event.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        may_return: bool,
        began: str,
        departed: Callable[[Record], dict[str, Any]],
        handles: Callable[[ObjectKey], bool] | None = None,
        has_gained: Callable[[ObjectKey], bool] = lambda _: False,
    ) -> None:
        """`departed` returns an object that does not exist any more, `handles` whether this replica handles a
        key, and `has_gained` whether it has just got it. Without `handles`, there are no other replicas.
        """
        self.version = ""
        """The version of the last event."""
        self.gone: list[Record] = []
        """The objects that its first list has shown to be gone."""
        self._knowledge = knowledge
        self._may_return = may_return
        self._began = began
        self._departed = departed
        self._handles, self._has_gained = handles or (lambda _: True), has_gained
        self._is_alone = handles is None
        self._absent: dict[str, Record] | None = (
            {**knowledge.known} if knowledge.is_listed or knowledge.known else None
        )
        """The objects that its first list has not shown yet; None if there is nothing to compare."""
        self._pauses, self._is_listing = knowledge.pauses, False
        """The number of pauses when its last list began."""

    @property
    def may_end(self) -> bool:
        """True if the cache may go on from here: a list that has begun must be told to its end, and another
        one follows a pause.
        """
        return self._may_return and not self._is_listing and self._pauses == self._knowledge.pauses

    def take(self, event: Any) -> Iterator[Any]:
        """Yield what Kopf is told at an event."""
        if event is _kopf.LISTED:
            yield event
            yield from self._end_list()
        elif event["type"] == "BOOKMARK" or (self._absent is None and not self._keeps):
            yield event
        else:
            if event["type"] is None and not self._is_listing:
                self._is_listing, self._pauses = True, self._knowledge.pauses
            try:
                kind = self._note(event)
            except (KeyError, TypeError):  # The object lacks what it must have. Kopf takes it.
                self._may_return, kind = False, event["type"]
                if self._absent is None and not self._keeps:
                    self._knowledge.known.clear()
            if kind != "":
                yield event if kind == event["type"] else {"type": kind, "object": event["object"]}

    def _end_list(self) -> Iterator[Any]:
        knowledge = self._knowledge
        for uid, record in (self._absent or {}).items():
            if uid not in knowledge.known or not self._handles((record.namespace, record.name)):
                continue  # Another replica handles it, or has meanwhile.
            del knowledge.known[uid]
            self.gone.append(record)
            yield {"type": "DELETED", "object": self._departed(record)}
        if not self._is_listing:  # The list was empty.
            self._pauses = knowledge.pauses
        self._absent, self._is_listing = None, False
        knowledge.end_list(self._began, was_paused=self._pauses != knowledge.pauses)
        if not self._keeps:
            knowledge.known.clear()

    @property
    def _keeps(self) -> bool:
        """True if the knowledge is needed: the cache may go on from here, or ranges of keys may move."""
        return self._may_return or not self._is_alone

    def _note(self, event: Any) -> str | None:
        """Note an object; return the type of the event that Kopf gets of it, empty for none."""
        kind, metadata, knowledge = event["type"], event["object"]["metadata"], self._knowledge
        if self._absent is not None:
            self._absent.pop(metadata.get("uid"), None)
        uid, version, labels = metadata["uid"], metadata["resourceVersion"], metadata.get("labels") or {}
        noted = EvictedRecord(
            metadata.get("namespace", ""), metadata["name"], uid, version, {**labels}, (), b""
        )
        if kind is not None or is_newer(version, self.version):
            self.version = version
        key = noted.namespace, noted.name
        if not self._handles(key):
            return ""
        known = knowledge.known.pop(uid, None)
        if kind != "DELETED":
            knowledge.known[uid] = noted
        if self._absent is None or kind is not None or knowledge.was_paused:
            return kind  # type: ignore[no-any-return]  # It is a text.
        if known is None:
            return "ADDED" if knowledge.is_listed and not self._has_gained(key) else None
        return "" if known.version == version else "MODIFIED"


# ---- Departures: asks the server what has become of objects that have left the filter of a cache.

SINGLE_REQUESTS = 10
"""The most departures of one round that are asked about one by one."""

ASK_AGAIN_SECONDS = 1.0
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
        environment, pause = self._informer.environment, ASK_AGAIN_SECONDS
        if len(self._asked) > SINGLE_REQUESTS:
            began = environment.clock()
            await self._drop_deleted()
            pause = max(ASK_AGAIN_SECONDS, PAUSE_FACTOR * (environment.clock() - began))
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
