"""Compares what is read with the history of the server. Knows no cache: a read is what it asked for, and what
it was shown, at which version.

Each object of an answer must be as it was at some version that is not older than

- the version of the answer (promises 3 and 11),
- the body of the handler that reads (promise 9),
- the own writes whose answers have come (promise 9),
- what a reader has seen of it before (promise 4).

An object that is not shown must not have been selected at such a version (promises 1 and 12). While a filter
changes, the whole answer fits one of both filters (promise 16)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .history import EVERYTHING, Filter, History, Key, State, contains

Shown: TypeAlias = Mapping[Key, State]


class Lie(AssertionError):
    """A read that contradicts the history. Its text begins with the number of the promise."""


@dataclass(frozen=True)
class Read:
    """One read, and its answer."""

    reader: str
    shown: Shown
    version: int = 0
    """The version of the answer; 0 if it has none."""
    request: Filter = EVERYTHING
    """The objects that were asked for."""
    keys: tuple[Key, ...] | None = None
    """The keys that were asked for; None for all."""
    complete: bool = False
    """True if the answer says that there are no others: not only that no others are cached."""
    body: int = 0
    """The version of the handler's body; 0 if no handler reads."""
    own: Key | None = None
    """The object of which the answer may be newer than the store: a handler's own, or a server's answer."""


@dataclass
class Judge:
    """What readers may see from now on."""

    history: History
    possible: list[Filter]
    """The filters that may be in force; the first has been declared last."""
    floors: dict[Key, int] = field(default_factory=dict)
    written: dict[Key, int] = field(default_factory=dict)
    """The version of the last own write of each object."""
    compared: int = 0
    present: dict[Key, State] = field(default_factory=dict)
    """What a subscriber knows by the changes that it has received."""
    departed: dict[Key, int] = field(default_factory=dict)
    """The version of the last state of each object of which a subscriber has received the departure."""

    # ---- Reads.

    def judge(self, read: Read) -> None:
        """Compare a read; raise Lie."""
        self.compared += 1
        lies: list[Lie] = []
        for filter_ in self.possible:
            try:
                floors = self._fits(read, filter_)
            except Lie as lie:
                lies.append(lie)
            else:
                self.floors.update(floors)
                return
        if len(lies) > 1:
            raise Lie(
                f"16: {read.reader} fits none of {len(lies)} possible filters: {'; '.join(map(str, lies))}"
            )
        raise lies[0]

    def _fits(self, read: Read, filter_: Filter) -> dict[Key, int]:
        is_list = read.complete and read.keys is None
        if is_list and not contains(filter_, read.request) and not any(each.teams for each in filter_):
            raise Lie(f"1: {read.reader} is answered as complete: {read.request} with the filter {filter_}")
        keys = {*self.history.objects(), *read.shown} if read.keys is None else read.keys
        return {
            key: at
            for key in sorted(keys)
            if (at := self._at(read, filter_, key, read.shown.get(key))) and key != read.own
        }

    def _at(self, read: Read, filter_: Filter, key: Key, shown: State | None) -> int:
        """Return the oldest allowed version at which an object is as shown."""
        bounds = {
            "4: it goes back behind what was read before": self.floors.get(key, 0),
            "9: it ignores an own write": self.written.get(key, 0),
            "9: it is older than the handler's body": read.body,
            "3: it is older than the version of the answer": read.version,
        }
        seen, least = max(self.floors.get(key, 0), self.written.get(key, 0)), max(bounds.values())
        first, newest = None, 0
        for since, until, state in self.history.spans(key):
            if self._shows(read, filter_, key, state, shown):
                newest = until
                if first is None and until >= seen:
                    first = max(since, seen)
        if first is not None and newest >= least:
            return first
        what = f"{read.reader} is shown {'/'.join(key)} as {shown}"
        if newest:
            (why, bound) = max(bounds.items(), key=lambda each: each[1])
            raise Lie(f"{why}: {what}, which was so until {newest}, and {bound} is known")
        raise Lie(f"1: {what}, which it never was in {filter_}: {self.history.states.get(key)}")

    def _shows(self, read: Read, filter_: Filter, key: Key, state: State | None, shown: State | None) -> bool:
        """Return True if an object in this state may be shown like that."""
        teams = self.history.teams_since(key[0], self.floors.get(("", key[0]), 0))

        def is_in(which: Filter, team: str) -> bool:
            return state is not None and any(each.fits(key[0], state.labels, team) for each in which)

        is_proved = read.complete and read.keys is not None
        if is_proved or (shown is not None and key == read.own):  # Whatever the filter is.
            return shown == state
        return any(
            shown == (state if is_in(filter_, team) and is_in(read.request, team) else None) for team in teams
        )

    # ---- Own writes.

    def note_write(self, key: Key, version: int) -> None:
        """Note that an own write has been answered, or handed over."""
        self.written[key] = max(self.written.get(key, 0), version)

    def judge_write(self, caller: str, *, done: bool, once: bool = True) -> None:
        """Compare what a call has said with what was written; raise Lie."""
        versions = [write.version for write in self.history.writes if write.writer == caller]
        if done and not versions:
            raise Lie(f"14: {caller} says that it is done, and nothing of it was written")
        if once and len(versions) > 1:
            raise Lie(f"14: {caller} was executed {len(versions)} times")

    # ---- Changes that a subscriber receives.

    def judge_change(self, key: Key, before: State | None, after: State | None) -> None:
        """Compare a change with those before it; raise Lie. Joined changes leave out entries, and no
        departures.
        """
        known = self.present.get(key)
        is_joined = before and after is None and before.version > self.departed.get(key, 0)
        if (known is None) != (before is None) and not is_joined:
            raise Lie(f"15: a change of {'/'.join(key)} from {before} to {after}, and it was {known}")
        if after is None:
            self.departed[key] = before.version if before else 0
            self.present.pop(key, None)
        else:
            if known is not None and known.version > after.version:
                raise Lie(f"4: a change of {'/'.join(key)} goes back from {known} to {after}")
            self.present[key] = after

    def resume(self, shown: Shown) -> None:
        """Note that the subscriber was told what there is, and not what has changed."""
        self.present = {**shown}

    # ---- The end.

    def judge_end(self, shown: Shown) -> None:
        """Compare what is shown once faults have stopped; raise Lie."""
        wanted = self.wanted()
        if dict(shown) != wanted:
            raise Lie(f"5: in the end {differences(shown, wanted)}")

    def judge_end_of_changes(self) -> None:
        """Compare what the subscriber knows in the end; raise Lie."""
        wanted = self.wanted()
        if self.present != wanted:
            raise Lie(f"15: in the end the subscriber knows {differences(self.present, wanted)}")

    def wanted(self) -> dict[Key, State]:
        """Return what the filter selects now."""
        (filter_, *others) = self.possible
        assert not others, "a filter is in force in the end"
        found = {}
        for key in self.history.objects():
            state, namespace = self.history.now(key), self.history.now(("", key[0]))
            team = dict(namespace.labels).get("team", "") if namespace else ""
            if state and any(each.fits(key[0], state.labels, team) for each in filter_):
                found[key] = state
        return found


def differences(shown: Shown, wanted: Shown) -> str:
    """Return in words how two states differ."""
    parts: list[Any] = [
        f"{'/'.join(key)} is {shown.get(key)}, and must be {wanted.get(key)}"
        for key in sorted({*shown, *wanted})
        if shown.get(key) != wanted.get(key)
    ]
    return "; ".join(parts)
