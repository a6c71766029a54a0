"""Brake: slows down the calls for an object that go on without end, because they write.

A handler that writes in each call may be called by its own writes, or two handlers may call each other by
theirs. Or somebody else undoes what a handler writes, so that it writes again. All are as fast as the server,
and each call succeeds. The brake counts such calls in a row for each object, and delays further ones. A call
that somebody else has caused begins a row. One that writes nothing does not count, nor does one that writes
an object for the first time: it makes progress.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import TypeAlias

from kopf_selectcache.cache.noting import WriteTarget, Written, notes
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.reactions.queue import MOST_CAUSES
from kopf_selectcache.selectors.object_key import Key

LIMIT_CALLS = 20
"""Calls in a row for one object to each of which the one before has led, or undone writes in a row to one
object, until further calls are delayed."""

QUIET_SECONDS = 2.0
"""Seconds without such a call that end a row."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""Seconds until the next call. Each further call of the row doubles them."""

REMINDER_SECONDS = 3600.0
"""Seconds until the log says it again."""

MOST_TARGETS = 1_000
"""The written objects that are remembered for each object. A row that writes to more counts: it makes no
progress."""

MOST_CHANGES, MOST_STEPS = 2_000, 100
"""The changes by handlers that are remembered, and the calls that have led to each."""

SHOWN_TARGETS = 3
"""The written objects that a warning names."""

_MOST_DOUBLED = 10  # Far beyond the longest pause.

Caller: TypeAlias = tuple[Key | None, str]
"""A change that has led to a call: the namespace and name of an object, and its version, which is empty for a
departure."""

Step: TypeAlias = tuple["Brake", Key]
"""The calls of a handler with an object."""

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
    targets: dict[WriteTarget, _Last] = field(default_factory=dict)
    own: int = 0
    """The calls in a row to which only earlier ones have led, and that have written nothing new."""
    seen: set[WriteTarget] = field(default_factory=set)
    """The objects that these have written."""
    pauses: int = 0
    until: float = 0.0
    """The time of the next call."""
    warned: float | None = None
    heard: deque[Caller] = field(default_factory=lambda: deque(maxlen=MOST_CAUSES))

    def is_over(self, at: float, now: float) -> bool:
        return max(at, self.until) + QUIET_SECONDS < now

    def undone(self, now: float) -> list[WriteTarget]:
        """Return the objects in which somebody undoes the writes without end."""
        return [
            target
            for target, last in self.targets.items()
            if last.undone >= LIMIT_CALLS and not self.is_over(last.at, now)
        ]

    def note(self, written: Written, now: float) -> bool:
        """Note a write; return True if it repeats one that somebody has undone."""
        last = self.targets.pop(written.target, None)
        note = self.targets[written.target] = _Last(written)
        if len(self.targets) > MOST_TARGETS:
            del self.targets[next(iter(self.targets))]
        if last is None:
            return False
        is_undone = written.repeats(last.written)
        if not self.is_over(last.at, now):
            note.undone, note.at = last.undone, last.at
        if is_undone:
            note.undone, note.at = note.undone + 1, now
        return is_undone


class Chains:
    """The changes that the handlers of one operator have made, with the calls that have led to each."""

    def __init__(self, _: object = None) -> None:
        self._steps: dict[Caller, tuple[float, frozenset[Step]]] = {}
        """With the time of each change, the oldest first."""

    def close(self) -> None:
        """Forget all."""
        self._steps.clear()

    def steps(self, change: Caller) -> frozenset[Step]:
        """Return the calls that have led to a change; none if somebody else has made it."""
        return self._steps.get(change, (0.0, frozenset[Step]()))[1]

    def note(self, written: Written, step: Step, callers: Collection[Caller], now: float) -> None:
        """Note a write of a call. A chain begins with it if somebody else has caused the call as well, or if
        no caller is given.
        """
        before = [self.steps(each) for each in callers]
        steps = frozenset[Step]().union(*before) if all(before) else frozenset[Step]()
        steps = frozenset(islice(steps, MOST_STEPS)) | {step}
        for version in {written.version, "" if written.is_deletion else written.version}:
            self._steps.pop((written.obj, version), None)
            self._steps[written.obj, version] = now, steps
        self.forget_old(now)

    def forget_old(self, now: float) -> None:
        """Forget the changes that have led to their calls, and the oldest of too many."""
        if not self._steps:
            return
        over = now - LONGEST_PAUSE_SECONDS - QUIET_SECONDS
        old = [each for each, _ in takewhile(lambda item: item[1][0] < over, self._steps.items())]
        for oldest in old or list(islice(self._steps, max(0, len(self._steps) - MOST_CHANGES))):
            del self._steps[oldest]


class Brake:
    """The brake of one handler."""

    def __init__(self, handler: str, resource: str, clock: Callable[[], float], chains: Chains) -> None:
        self._clock, self._chains = clock, chains
        self.handler = handler
        """Its name, in the log."""
        self.resource = resource
        """The resource of the objects with which the handler is called."""
        self.rows: dict[Key, _Row] = {}
        """The rows that are not over, and few that are, the oldest first."""

    def hear(self, key: Key, version: str) -> None:
        """Note that a change of an object will lead to a call with it."""
        if (row := self.rows.get(key)) is not None:
            row.heard.append((key, version))

    def heard(self, key: Key) -> Collection[Caller]:
        """Return the changes of an object since the last call began."""
        row = self.rows.get(key)
        return () if row is None else tuple(row.heard)

    def pause(self, key: Key, callers: Collection[Caller]) -> float:
        """Return the seconds until the handler may be called with an object.

        If its own writes lead to its calls, whatever others do is not delayed. If others undo its writes,
        only their changes of the object itself are not, unless that is where they undo them.
        """
        now, row = self._clock(), self.rows.get(key)
        if row is None or row.until <= now:
            return 0.0
        others = [each[0] for each in callers if (self, key) not in self._chains.steps(each)]
        if undone := row.undone(now):
            is_free = key in others and not any(each.is_of(self.resource, key) for each in undone)
        else:
            is_free = bool(others)
        return 0.0 if is_free else row.until - now

    @contextmanager
    def watching(self, key: Key, callers: Collection[Caller]) -> Iterator[None]:
        """Count the writes of a call that begins now."""
        if (row := self.rows.get(key)) is not None:
            row.heard.clear()
        # Bounded, since tasks that the call has started may go on to write.
        writes = deque[Written](maxlen=MOST_TARGETS)

        def note(written: Written) -> None:
            writes.append(written)
            row = self.rows.get(key)
            is_new = row is None or written.target not in row.seen
            self._chains.note(written, (self, key), [] if is_new else callers, self._clock())

        token = notes.set(note)
        try:
            yield
        finally:
            notes.reset(token)
            self._count(key, callers, list(writes))

    def _count(self, key: Key, callers: Collection[Caller], writes: Collection[Written]) -> None:
        now = self._clock()
        self._forget_old(now)
        row = self.rows.get(key)
        if row is not None and row.is_over(row.at, now):
            del self.rows[key]
            row = None
        if not writes:
            return
        row = self.rows.pop(key, None) or _Row(now)
        self.rows[key] = row
        row.at = now
        led = [self._chains.steps(each) for each in callers]
        is_led = bool(led) and all((self, key) in each for each in led)
        if not is_led and (row.own < LIMIT_CALLS or row.until + QUIET_SECONDS < now):
            row.own = 0
            row.seen.clear()
        targets = {each.target for each in writes}
        is_own = is_led and (len(row.seen) >= MOST_TARGETS or targets <= row.seen)
        row.own += is_own
        row.seen |= targets
        repeated = [each.target for each in writes if row.note(each, now)]
        undone = [each for each in row.undone(now) if each in repeated]
        if undone or (is_own and row.own >= LIMIT_CALLS):
            row.until = now + min(
                LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(row.pauses, _MOST_DOUBLED)
            )
            row.pauses += 1
            self._warn(key, row, now, undone, frozenset().union(*led) if is_led else frozenset())
        elif row.own < LIMIT_CALLS and not row.undone(now):
            row.pauses = 0

    def _forget_old(self, now: float) -> None:
        """Look at the two oldest rows, in each call: so each row that is over is forgotten."""
        self._chains.forget_old(now)
        for key in list(islice(self.rows, 2)):
            row = self.rows.pop(key)
            if not row.is_over(row.at, now):
                self.rows[key] = row

    def _warn(
        self, key: Key, row: _Row, now: float, undone: Collection[WriteTarget], steps: frozenset[Step]
    ) -> None:
        """Say it once for the rows of a chain, and again after an hour."""
        if row.warned is not None and now < row.warned + REMINDER_SECONDS:
            return
        row.warned = now
        handlers, targets = {self.handler}, set(undone) or row.seen
        for brake, each in steps:
            other = None if brake is self else brake.rows.get(each)
            if other is not None and other.own:
                other.warned = now
                handlers.add(brake.handler)
                targets = targets | other.seen
        named = sorted(set(map(str, targets)))
        more = f" and {len(named) - SHOWN_TARGETS} more" if len(named) > SHOWN_TARGETS else ""
        values = {
            "handler": " and ".join(sorted(handlers)),
            "object": f"{self.resource} {printable_name(*key.pair)}",
            "written": ", ".join(named[:SHOWN_TARGETS]) + more,
            "count": LIMIT_CALLS,
            "seconds": LONGEST_PAUSE_SECONDS,
        }
        if len(handlers) > 1:
            _logger.warning(
                "%(handler)s call each other for %(object)s: %(count)d calls in a row, each caused only by"
                " their writes to %(written)s. Further calls are delayed by up to %(seconds)d s. Write only"
                " what differs, and nothing that depends on what the other handler writes.",
                values,
            )
        elif undone:
            _logger.warning(
                "Something undoes what %(handler)s writes for %(object)s: %(count)d writes in a row to"
                " %(written)s. Further calls are delayed by up to %(seconds)d s. To see who writes, look at"
                " metadata.managedFields. If the object is deleted each time, check that its ownerReferences"
                " have the uid of an existing owner.",
                values,
            )
        else:
            _logger.warning(
                "%(handler)s calls itself for %(object)s: %(count)d calls in a row, each caused by its own"
                " write to %(written)s. Further calls are delayed by up to %(seconds)d s. Write only what"
                " differs.",
                values,
            )
