"""The objects of one kind: one writer, many readers, in generations. A relist is seen as a whole or not at
all.

The writer's methods return what they changed. It is the protocol (`core.protocol.machine`) that says when to
call them; what is guarded here is that an object never goes back: servers replay, duplicate and reorder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import Protocol

from .accounting import Tally, weight
from .generation import all_of, differing
from .index_spec import Indexed, note
from .indexes import AT_ONCE, Chosen, Indexes, Lookup
from .postings import room
from .record import Record, Unreadable, is_newer, is_older

Records = dict[str, dict[str, Record]]
"""By namespace and name."""


class Cause(StrEnum):
    """Why subscribers receive a change. The last four are departures."""

    ENTERED = "entered"
    UPDATED = "updated"
    LEFT = "left"
    """No stream selects the object any more. It may still exist."""
    GONE = "gone"
    """The object does not exist any more."""
    REPLACED = "replaced"
    """Another object of the same name exists now, or the informer has replaced its store by an empty one."""
    EVICTED = "evicted"
    """The informer has dropped its store, because it is larger than it may be."""


@dataclass(frozen=True, slots=True)
class Change:
    """One object enters the store, is updated, or departs. `before` of a departure is its last known
    record.
    """

    before: Record | None
    after: Record | None
    cause: Cause


class Readable(Protocol):
    """What answers readers, in any thread."""

    @property
    def version(self) -> str: ...
    def get(self, namespace: str, name: str) -> tuple[Record | None, str]: ...
    def records(self) -> tuple[list[Record], str]: ...
    def chosen(
        self, lookup: Lookup, key: tuple[str, str] | None = None, *, asking: bool = True
    ) -> Chosen: ...
    def weights(self) -> dict[str, int]: ...


class Store:
    """What is held of one kind. Readers may be in any thread; the writer is one task.

    `wanted` is called, in a reader's thread perhaps, when there is an index to `build`. A `tally` is told of
    what is held. `departure` is the cause of departures that have no other.
    """

    def __init__(
        self,
        *,
        wanted: Callable[[], None] = lambda: None,
        tally: Tally | None = None,
        departure: Cause = Cause.LEFT,
    ) -> None:
        self._lock = Lock()
        self._departure = departure
        self._tally = tally
        self._wanted = wanted
        self._indexes = Indexes()
        self._held: Records = {}
        self._staged: Records | None = None
        self._gone: dict[tuple[str, str], Record] = {}
        """What was staged and has left, so that a late replay does not bring it back."""
        self._version = ""
        self.unreadable: Mapping[tuple[str, str], Unreadable] = {}
        """Those held objects that are unreadable, by namespace and name. It is replaced as a whole."""

    # ---- Reading: a lock is held while references are picked, never while they are decoded.

    @property
    def version(self) -> str:
        """The resourceVersion as of which reads answer; empty until there was a first complete list."""
        return self._version

    def get(self, namespace: str, name: str) -> tuple[Record | None, str]:
        """Return the object, if it is held, and the version as of which that is so."""
        with self._lock:
            return self._held.get(namespace, {}).get(name), self._version

    def peek(self, namespace: str, name: str) -> Record | None:
        """Return the object, if it is held, for those who need no version: what is found is true, whatever is
        written meanwhile.
        """
        named = self._held.get(namespace)
        return named.get(name) if named is not None else None

    def records(self) -> tuple[list[Record], str]:
        """Return all objects of one generation, and the version as of which there are no more."""
        with self._lock:
            return list(all_of(self._held)), self._version

    def chosen(self, lookup: Lookup, key: tuple[str, str] | None = None, *, asking: bool = True) -> Chosen:
        """Return what must be looked at to find this, of one generation, and what is held under the key as
        well.

        With `asking`, an index that would help is wanted from now on.
        """
        with self._lock:
            chosen = self._chosen(lookup, key, asking=asking)._replace(version=self._version)
        if asking and chosen.wanted is not None:
            self._wanted()
        return chosen

    def _chosen(self, lookup: Lookup, key: tuple[str, str] | None, *, asking: bool) -> Chosen:
        chosen = self._indexes.chosen(self._held, lookup, asking=asking)
        if self.unreadable:
            chosen = chosen._replace(
                records=[record for record in chosen.records if record.stored],
                unreadable=tuple(self.unreadable.values()),
            )
        return chosen._replace(beside=self._held.get(key[0], {}).get(key[1])) if key is not None else chosen

    def weights(self) -> dict[str, int]:
        """Return about how many bytes each index takes, and the tables of what is held: their containers
        alone.
        """
        with self._lock:
            containers = {"": [self._held, *self._held.values()], **self._indexes.containers()}
        return {what: room(each) for what, each in containers.items()}

    # ---- Writing.

    def declare(self, indexed: Indexed) -> None:
        """Have a declared index made."""
        with self._lock:
            self._indexes.declare(indexed)
        self._wanted()

    @property
    def indexed(self) -> tuple[Indexed, ...]:
        """The declared indexes."""
        return self._indexes.declared

    def build(self, most: int) -> bool:
        """Take so many records into an index that is wanted; return whether there is more to do."""
        with self._lock:
            index = self._indexes.unready()
        # Until it is ready, no reader looks into it.
        if index is not None and index.build(lambda: list(all_of(self._held)), self._is_to_index, most):
            with self._lock:
                index.ready = True
        return index is not None

    def _is_to_index(self, record: Record) -> bool:
        if self._indexes.declared:
            self._note(record)
        return self._held.get(record.namespace, {}).get(record.name) is record

    def writing(self) -> list[Record]:
        """Return all objects of the generation that is written: the one that was begun, or else the one that
        is read.
        """
        return list(all_of(self._held if self._staged is None else self._staged))

    def begin(self) -> None:
        """Start a new generation beside the one that is read."""
        self.abandon()
        self._staged = {}

    def abandon(self) -> None:
        """Forget the generation that was begun."""
        if self._tally is not None and self._staged is not None:
            self._tally.drop_all(all_of(self._staged))
        self._staged, self._gone = None, {}

    def release(self) -> None:
        """Count the objects no more: nothing is written any more, and the last reader frees them."""
        self.abandon()
        if self._tally is not None:
            self._tally.drop_all(all_of(self._held))
            self._tally = None

    def put(self, record: Record) -> list[Change]:
        """Take an object in: into the generation that was begun, or else for readers to see at once."""
        if self._indexes.declared:
            self._note(record)
        if self._staged is not None:
            same = self._held.get(record.namespace, {}).get(record.name)
            if same is not None and same.is_same(record):
                record = same  # Unchanged objects are held once, not once a generation.
            staged = self._staged.setdefault(record.namespace, {})
            earlier = staged.get(record.name)
            if _supersedes(record, earlier) and _supersedes(record, self._gone.get(record.key)):
                staged[record.name] = record
                self._count(earlier, record)
            return []
        with self._lock:
            held = self._held.setdefault(record.namespace, {})
            before = held.get(record.name)
            if before is not None and not is_newer(record.version, before.version):
                return []
            held[record.name] = record
            if self._indexes.made:
                self._indexes.change(before, record)
            if before is None:
                changes = [Change(None, record, Cause.ENTERED)]
            elif before.uid == record.uid:
                changes = [Change(before, record, Cause.UPDATED)]
            else:
                changes = [Change(before, None, Cause.REPLACED), Change(None, record, Cause.ENTERED)]
            if self.unreadable or not record.stored:
                self._separate(changes)
        if self._tally is not None:
            self._count(before, record)
        return changes

    def leave(self, record: Record) -> list[Change]:
        """Let an object go, unless what is held under its name is another one, or newer."""
        if self._staged is not None:
            staged = self._staged.get(record.namespace, {})
            if _departs(record, staged.get(record.name)):
                self._count(staged.pop(record.name, None), None)
                self._gone[record.key] = record
            return []
        with self._lock:
            held = self._held.get(record.namespace, {})
            before = held.get(record.name)
            if before is None or not _departs(record, before):
                return []
            del held[record.name]
            if not held:
                self._held.pop(record.namespace, None)
            self._indexes.change(before, None)
            changes = [Change(before, None, self._departure)]
            if self.unreadable:
                self._separate(changes)
        self._count(before, None)
        return changes

    def commit(self, version: str) -> list[Change]:
        """Show the generation that was begun to readers, at once and whole, and return how it differs from
        the last.
        """
        staged = self._staged
        assert staged is not None, "nothing was begun"
        self._staged, self._gone = None, {}
        before = self._held
        changes = self._changes_to(staged)
        self._note_all(changes)
        with self._lock:
            self._held, self._version = staged, version
            forgotten = self._index(changes)
        if self._tally is not None:
            self._tally.drop_all(all_of(before))
        if forgotten:
            self._wanted()
        return changes

    def _changes_to(self, staged: Records) -> list[Change]:
        """Return how a generation differs from the one that is read."""
        changes: list[Change] = []
        for before, after in differing(self._held, staged):
            if before is None:
                cause = Cause.ENTERED
            elif after is not None:
                cause = Cause.UPDATED
            elif before.name in staged.get(before.namespace, {}):
                cause = Cause.REPLACED
            else:
                cause = self._departure
            changes.append(Change(before, after, cause))
        return changes

    def _count(self, before: Record | None, after: Record | None) -> None:
        """Take note that this is held instead of that."""
        if self._tally is not None:
            if after is not None:
                self._tally.take(after)
            self._tally.drop(before)

    def _note(self, record: Record) -> None:
        """Have the values of declared indexes beside a record before it is indexed, which happens under the
        lock. Most have come with them.
        """
        before = weight(record)
        note(record, self._indexes.declared)
        if self._tally is not None:
            self._tally.reweigh(record, before)

    def _note_all(self, changes: list[Change]) -> None:
        """Do so for what is indexed at once: where there is more of it, indexes are built anew."""
        for change in changes if self._indexes.declared and len(changes) <= AT_ONCE else ():
            if change.after is not None:
                self._note(change.after)

    def _index(self, changes: list[Change]) -> bool:
        """Keep the indexes true, and the unreadable objects apart; return whether so much changed that
        indexes have to be built anew.
        """
        self._separate(changes)
        if len(changes) > AT_ONCE:
            return self._indexes.forget()
        for change in changes if self._indexes.made else ():
            self._indexes.change(change.before, change.after)
        return False

    def _separate(self, changes: list[Change]) -> None:
        """Take note of which objects are unreadable now."""
        found: dict[tuple[str, str], Unreadable] | None = None
        for change in changes:
            before, after = change.before, change.after
            if (after is not None and not after.stored) or (before is not None and not before.stored):
                found = {**self.unreadable} if found is None else found
                if before is not None:
                    found.pop(before.key, None)
                if isinstance(after, Unreadable):
                    found[after.key] = after
        if found is not None:
            self.unreadable = found

    def progress(self, version: str) -> None:
        """Everything up to this version has been taken in."""
        if is_newer(version, self._version):
            self._version = version


def _supersedes(record: Record, held: Record | None) -> bool:
    return held is None or is_newer(record.version, held.version)


def _departs(record: Record, held: Record | None) -> bool:
    return held is None or (held.uid == record.uid and not is_older(record.version, held.version))
