"""Brake: slows down the calls for an object that go on without end, because they write.

A handler that writes in each call may be called by its own writes. Or somebody else undoes what it writes, so
that it writes again. Both are as fast as the server, and each call succeeds. The brake counts such calls in a
row for each object, and delays further ones. A call that somebody else has caused begins a row, one that
writes nothing ends it, and one that writes an object for the first time does not count: it makes progress.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from kopf_selectcache.cache.noting import Target, Written, notes
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.reconciler.queue import MOST_CAUSES, Key

LIMIT = 20
"""Calls in a row for one object that its own writes have caused, or undone writes in a row to one object,
until further calls are delayed."""

QUIET = 2.0
"""Seconds without such a call that end a row."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until the next call. Each further call of the row doubles them."""

REMINDER = 3600.0
"""Seconds until the log says it again."""

MOST_TARGETS = 1_000
"""The written objects, and their versions, that are remembered for each object. A row that writes to more
counts: it makes no progress."""

SHOWN = 3
"""The written objects that a warning names."""

_MOST_DOUBLED = 10  # Far beyond the longest pause.

Caller: TypeAlias = tuple[Key | None, str]
"""A change that has led to a call: the namespace and name of an object, and its version, which is empty for a
departure."""

_logger = logging.getLogger("kopf_selectcache")


@dataclass(slots=True)
class _Last:
    """The last write to one object."""

    written: Written
    undone: int = 0
    """The writes in a row each of which repeats one that somebody has undone."""
    at: float = 0.0
    """The time of the last of these."""


@dataclass(slots=True)
class _Row:
    """The last calls for one object."""

    at: float
    """The time of the last call that has written."""
    targets: dict[Target, _Last] = field(default_factory=dict)
    versions: dict[Caller, None] = field(default_factory=dict)
    """The changes that the writes have led to."""
    own: int = 0
    """The calls in a row that own writes alone have caused, and that have written nothing new."""
    seen: set[Target] = field(default_factory=set)
    """The objects that these have written."""
    pauses: int = 0
    until: float = 0.0
    """The time of the next call."""
    warned: float | None = None
    heard: deque[Caller] = field(default_factory=lambda: deque(maxlen=MOST_CAUSES))

    def is_over(self, at: float, now: float) -> bool:
        return max(at, self.until) + QUIET < now

    def undone(self, now: float) -> list[Target]:
        """Return the objects in which somebody undoes the writes without end."""
        return [
            target
            for target, last in self.targets.items()
            if last.undone >= LIMIT and not self.is_over(last.at, now)
        ]

    def end(self) -> None:
        """Begin the next row of calls that own writes cause."""
        self.own = 0
        self.seen.clear()

    def has_called(self, callers: Collection[Caller]) -> bool:
        """Return True if own writes alone have led to a call."""
        return bool(callers) and all(each in self.versions for each in callers)

    def note(self, written: Written, now: float) -> bool:
        """Note a write; return True if it repeats one that somebody has undone."""
        last = self.targets.pop(written.target, None)
        note = self.targets[written.target] = _Last(written)
        self.versions[written.obj, written.version] = None
        if written.is_deletion:
            self.versions[written.obj, ""] = None
        for noted in (self.targets, self.versions):
            for oldest in list(islice(noted, max(0, len(noted) - MOST_TARGETS))):
                del noted[oldest]  # type: ignore[arg-type]  # It is a key of it.
        if last is None:
            return False
        is_undone = written.repeats(last.written)
        if not self.is_over(last.at, now):
            note.undone, note.at = last.undone, last.at
        if is_undone:
            note.undone, note.at = note.undone + 1, now
        return is_undone


class Brake:
    """The brake of one handler."""

    def __init__(self, handler: str, resource: str, clock: Callable[[], float]) -> None:
        self._handler, self._clock = handler, clock
        self.resource = resource
        """The resource of the objects with which the handler is called."""
        self._rows: dict[Key, _Row] = {}
        """The rows that are not over, and few that are, the oldest first."""

    def hear(self, key: Key, version: str) -> None:
        """Note that a change of an object will lead to a call with it."""
        if (row := self._rows.get(key)) is not None:
            row.heard.append((key, version))

    def heard(self, key: Key) -> Collection[Caller]:
        """Return the changes of an object since the last call began."""
        row = self._rows.get(key)
        return () if row is None else tuple(row.heard)

    def pause(self, key: Key, callers: Collection[Caller]) -> float:
        """Return the seconds until the handler may be called with an object.

        If it is called by its own writes, whatever others do is not delayed. If others undo its writes, only
        their changes of the object itself are not, unless that is where they undo them.
        """
        now, row = self._clock(), self._rows.get(key)
        if row is None or row.until <= now:
            return 0.0
        others = [obj for obj, version in callers if (obj, version) not in row.versions]
        if undone := row.undone(now):
            is_free = key in others and not any(each.is_of(self.resource, key) for each in undone)
        else:
            is_free = bool(others)
        return 0.0 if is_free else row.until - now

    @contextmanager
    def watching(self, key: Key, callers: Collection[Caller]) -> Iterator[None]:
        """Count the writes of a call that begins now."""
        if (row := self._rows.get(key)) is not None:
            row.heard.clear()
        # Bounded, since tasks that the call has started may go on to write.
        writes = deque[Written](maxlen=MOST_TARGETS)
        token = notes.set(writes.append)
        try:
            yield
        finally:
            notes.reset(token)
            self._count(key, callers, list(writes))

    def _count(self, key: Key, callers: Collection[Caller], writes: Collection[Written]) -> None:
        now = self._clock()
        self._forget_old(now)
        row = self._rows.get(key)
        if row is not None and row.is_over(row.at, now):
            del self._rows[key]
            row = None
        if not writes:
            if row is not None:
                row.end()
            return
        row = self._rows.pop(key, None) or _Row(now)
        self._rows[key] = row
        row.at = now
        if row.own < LIMIT and not row.has_called(callers):
            row.end()
        targets = {each.target for each in writes}
        is_own = row.has_called(callers) and (len(row.seen) >= MOST_TARGETS or targets <= row.seen)
        row.own += is_own
        row.seen |= targets
        repeated = [each.target for each in writes if row.note(each, now)]
        undone = [each for each in row.undone(now) if each in repeated]
        if undone or (is_own and row.own >= LIMIT):
            row.until = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(row.pauses, _MOST_DOUBLED))
            row.pauses += 1
            self._warn(key, row, now, undone or targets, by_others=bool(undone))
        elif row.own < LIMIT and not row.undone(now):
            row.pauses = 0

    def _forget_old(self, now: float) -> None:
        """Look at the two oldest rows, in each call: so each row that is over is forgotten."""
        for key in list(islice(self._rows, 2)):
            row = self._rows.pop(key)
            if not row.is_over(row.at, now):
                self._rows[key] = row

    def _warn(self, key: Key, row: _Row, now: float, targets: Collection[Target], *, by_others: bool) -> None:
        """Say it once, and again after an hour."""
        if row.warned is not None and now < row.warned + REMINDER:
            return
        row.warned = now
        named = list(dict.fromkeys(map(str, targets)))
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        values = {
            "handler": self._handler,
            "object": f"{self.resource} {printable_name(key[0] or '', key[1])}",
            "written": ", ".join(named[:SHOWN]) + more,
            "count": LIMIT,
            "seconds": LONGEST_PAUSE,
        }
        if by_others:
            _logger.warning(
                "Somebody undoes what %(handler)s writes for %(object)s: %(count)d writes in a row to"
                " %(written)s. Further calls are delayed, by up to %(seconds)d s. The metadata.managedFields"
                " of an object name its writers. If it is deleted each time, look whether its ownerReferences"
                " have the uid of its owner.",
                values,
            )
        else:
            _logger.warning(
                "%(handler)s calls itself for %(object)s: %(count)d calls in a row, each caused by its own"
                " write to %(written)s. Further calls are delayed, by up to %(seconds)d s. Write only what"
                " differs.",
                values,
            )
