"""Knowledge: what Kopf was told of the objects of a kind, by the feed of its cache and by its own watch.

Kopf knows objects by their uids. Kopf's own watch begins where the cache cannot go on, and ends where the
cache can (`OwnWatch`). Neither repeats what the other has told. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kopf_selectcache import _kopf
from kopf_selectcache.core.store.record import EvictedRecord, ObjectKey, Record, is_newer

NEVER = "~"
"""Comes after each time."""


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
