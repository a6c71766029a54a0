"""Brake: slows down a handler that writes the same object again and again, because each of its writes calls
it again or is undone by somebody else. Pure.

A handler whose calls come to an end is not slowed down: neither one that writes many objects, one in each
call, nor one that is called seldom.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_CALLS = 20
"""Calls in a row that may write the same object without a pause between them."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds from such a call to the next one."""

CALLS_PER_PAUSE = 30
"""Delayed calls after which the pause is doubled."""

QUIET = 10.0
"""Seconds without a call after which those before do not count any more."""

MOST_REMEMBERED = 1000
"""Streaks that are remembered before those that have ended are dropped."""


class Loop(NamedTuple):
    """The calls in a row that have written one object."""

    written: str
    calls: int


@dataclass
class _Streak:
    """The calls for one object, each of which has written something."""

    counts: dict[str, int]
    """The objects that the last call has written, with the number of calls in a row."""
    last: float
    """The end of the last call."""
    delayed: int = 0
    due: float | None = None
    """The time of the next call, if that is delayed."""

    @property
    def pause(self) -> float:
        if max(self.counts.values()) < MOST_CALLS:
            return 0.0
        doubled: float = 2.0 ** min(self.delayed // CALLS_PER_PAUSE, 10)
        return min(LONGEST_PAUSE, FIRST_PAUSE * doubled)

    def has_ended(self, now: float) -> bool:
        return now - self.last > QUIET + self.pause


@dataclass
class Brake:
    """The brake of one handler, for each of its objects."""

    clock: Callable[[], float]
    _streaks: dict[Hashable, _Streak] = field(default_factory=dict)
    _most: int = MOST_REMEMBERED

    def note(self, key: Hashable, written: Collection[str]) -> None:
        """Note the objects that a call has written."""
        now, streak = self.clock(), self._streaks.get(key)
        if not written:
            self.forget(key)
            return
        if streak is None or streak.has_ended(now):
            streak = self._streaks[key] = _Streak({}, now)
        streak.counts = {each: streak.counts.get(each, 0) + 1 for each in written}
        streak.last = now
        if len(self._streaks) > self._most:
            self._streaks = {key: each for key, each in self._streaks.items() if not each.has_ended(now)}
            self._most = 2 * len(self._streaks) + MOST_REMEMBERED

    def pause(self, key: Hashable) -> tuple[float, Loop | None]:
        """Return the seconds until the handler may be called for an object, and the loop that is slowed down,
        the first time that it is.
        """
        streak, now = self._streaks.get(key), self.clock()
        if streak is None or streak.has_ended(now):
            return 0.0, None
        seconds = streak.last + streak.pause - now
        if seconds <= 0.0:
            return 0.0, None
        if streak.due == (due := streak.last + streak.pause):
            return seconds, None
        streak.due = due
        streak.delayed += 1
        if streak.delayed > 1:
            return seconds, None
        written = max(streak.counts, key=streak.counts.__getitem__)
        return seconds, Loop(written, streak.counts[written])

    def forget(self, key: Hashable) -> None:
        """Forget the calls for an object."""
        self._streaks.pop(key, None)
