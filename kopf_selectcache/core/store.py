"""The objects of one kind: one writer, many readers, in generations. A relist is seen as a whole or not at all.

The writer's methods return what they changed. It is the protocol (`core.protocol`) that says when to call them; what is
guarded here is that an object never goes back: servers replay, duplicate and reorder.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from .record import Record, is_newer, is_older

Records = dict[str, dict[str, Record]]
"""By namespace and name."""


@dataclass(frozen=True, slots=True)
class Change:
    """An object came, changed or left. It left the filter: whether it was deleted as well is another question."""

    before: Record | None
    after: Record | None


class Readable(Protocol):
    """What answers readers, in any thread."""

    @property
    def version(self) -> str: ...
    def get(self, namespace: str, name: str) -> tuple[Record | None, str]: ...
    def records(self, namespace: str | None = None) -> tuple[list[Record], str]: ...


class Store:
    """What is held of one kind. Readers may be in any thread; the writer is one task."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: Records = {}
        self._staged: Records | None = None
        self._gone: dict[tuple[str, str], Record] = {}
        """What was staged and has left, so that a late replay does not bring it back."""
        self._version = ""

    # ---- Reading: a lock is held while references are picked, never while they are decoded.

    @property
    def version(self) -> str:
        """The resourceVersion as of which reads answer; empty until there was a first complete list."""
        return self._version

    def get(self, namespace: str, name: str) -> tuple[Record | None, str]:
        """Return the object, if it is held, and the version as of which that is so."""
        with self._lock:
            return self._held.get(namespace, {}).get(name), self._version

    def records(self, namespace: str | None = None) -> tuple[list[Record], str]:
        """Return all objects, or those of one namespace, of one generation, and the version as of which there are no more."""
        with self._lock:
            return list(self._picked(namespace)), self._version

    def _picked(self, namespace: str | None) -> Iterable[Record]:
        return _all(self._held) if namespace is None else self._held.get(namespace, {}).values()

    # ---- Writing.

    def begin(self) -> None:
        """Start a new generation beside the one that is read."""
        self._staged, self._gone = {}, {}

    def abandon(self) -> None:
        """Forget the generation that was begun."""
        self._staged, self._gone = None, {}

    def put(self, record: Record) -> list[Change]:
        """Take an object in: into the generation that was begun, or else for readers to see at once."""
        if self._staged is not None:
            same = self._held.get(record.namespace, {}).get(record.name)
            if same is not None and _identical(same, record):
                record = same   # Unchanged objects are held once, not once a generation.
            staged = self._staged.setdefault(record.namespace, {})
            if _supersedes(record, staged.get(record.name)) and _supersedes(record, self._gone.get(record.key)):
                staged[record.name] = record
            return []
        with self._lock:
            held = self._held.setdefault(record.namespace, {})
            before = held.get(record.name)
            if not _supersedes(record, before):
                return []
            held[record.name] = record
        if before is not None and before.uid != record.uid:
            return [Change(before, None), Change(None, record)]
        return [Change(before, record)]

    def leave(self, record: Record) -> list[Change]:
        """Let an object go, unless what is held under its name is another one, or newer."""
        if self._staged is not None:
            staged = self._staged.get(record.namespace, {})
            if _departs(record, staged.get(record.name)):
                staged.pop(record.name, None)
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
        return [Change(before, None)]

    def commit(self, version: str) -> list[Change]:
        """Show the generation that was begun to readers, at once and whole, and return how it differs from the last."""
        staged = self._staged
        assert staged is not None, "nothing was begun"
        self.abandon()
        with self._lock:
            before, self._held, self._version = self._held, staged, version
        return list(_difference(before, staged))

    def progress(self, version: str) -> None:
        """Everything up to this version has been taken in."""
        if is_newer(version, self._version):
            self._version = version


def _all(records: Records) -> Iterator[Record]:
    return (record for named in records.values() for record in named.values())


def _supersedes(record: Record, held: Record | None) -> bool:
    return held is None or is_newer(record.version, held.version)


def _departs(record: Record, held: Record | None) -> bool:
    return held is None or (held.uid == record.uid and not is_older(record.version, held.version))


def _identical(one: Record, two: Record) -> bool:
    # A server that was restored from a backup gives the same versions out again, for other contents.
    return (one.uid, one.version, one.data, one.fields) == (two.uid, two.version, two.data, two.fields)


def _difference(before: Records, after: Records) -> Iterator[Change]:
    for old in _all(before):
        new = after.get(old.namespace, {}).get(old.name)
        if new is None or new.uid != old.uid:
            yield Change(old, None)
    for new in _all(after):
        same = before.get(new.namespace, {}).get(new.name)
        if same is None or same.uid != new.uid:
            yield Change(None, new)
        elif same is not new:
            yield Change(same, new)
