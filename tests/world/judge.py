"""Compares what is read with the history of the server. Knows no cache: a read is what it asked for, and what
it was shown, at which version.

Each object of an answer must be as it was at some version that is not older than

- the version of the answer (promises 3 and 11),
- the body of the handler that reads (promise 9), or the version that was asked for (promise 11),
- the own writes whose answers have come, unless streams did not report them in time (promise 9),
- what a reader has seen of it before (promise 4).

An object that is not shown must not have been selected at such a version (promises 1 and 12). While a filter
changes, the whole answer fits one of both filters (promise 16). An object that is said to be outside of a
split cache exists there (promise 12), and one that is said to be unreadable is (promise 8).

Whatever a server does, it is asked at a bounded rate (promise 8).

After a restore of the server, an object may also be in a state from before, until all faults have ended and
an audit has found what is left."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from .history import EVERYTHING, NAMESPACES, Filter, History, Key, Labels, State, contains, tag_of, team_of

Shown: TypeAlias = Mapping[Key, State]
MOST_REQUESTS = 242
"""In a minute, of one list and its watch: docs/dev/protocol.md."""


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
    at_least: int = 0
    """The version that was asked for; 0 if none was."""
    unreadable: frozenset[Key] = frozenset()
    """The objects that are said to be unreadable."""
    outside: Mapping[Key, Labels] | None = None
    """The labels of the objects that are said to be outside; None if nothing was said about that."""
    is_vague: bool = False
    """True if the answer says that there may be objects outside."""
    own: Key | None = None
    """The object of which the answer may be newer than the store: a handler's own, or a server's answer."""


class Cause(NamedTuple):
    """What a change says of itself."""

    name: str
    filter_changed: bool
    known_by: str | None


@dataclass
class Judge:
    """What readers may see from now on."""

    history: History
    possible: list[Filter]
    """The filters that may be in force; the first has been declared last."""
    floors: dict[Key, int] = field(default_factory=dict)
    """The version of each object as of which it was read last."""
    narrow: dict[Filter, dict[Key, int]] = field(default_factory=dict)
    """The same of lists of a split cache, which need other streams than reads of all that is cached."""
    written: dict[Key, int] = field(default_factory=dict)
    """The version of the last own write of each object."""
    reported: int = 0
    """The version up to which the watch of namespaces has told what labels they have."""
    lost: set[Key] = field(default_factory=set)
    """The objects of which an event was lost: nothing is promised about them before an audit."""
    asked: dict[object, deque[float]] = field(default_factory=dict)
    """When each list and its watch were requested, for a minute."""
    compared: int = 0
    declared: list[Filter] = field(default_factory=list)
    """All filters that there were; those in `possible` are among them."""
    present: dict[Key, State] = field(default_factory=dict)
    """What a subscriber knows by the changes that it has received."""
    departed: dict[Key, int] = field(default_factory=dict)
    """The version of the last state of each object of which a subscriber has received the departure."""

    @property
    def is_restoring(self) -> bool:
        """True while answers may be from before a restore of the server."""
        return bool(self.history.former)

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
                self._floors(read).update(floors)
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
        is_split = any(each.is_outer for each in filter_) and not any(each.teams for each in filter_)
        if read.is_vague and is_split:
            raise Lie(f"12: {read.reader} does not know if {read.keys} is outside of {filter_}")
        keys = {*self.history.objects(), *read.shown} if read.keys is None else read.keys
        return {
            key: at
            for key in sorted(keys)
            if (at := self._at(read, filter_, key, read.shown.get(key))) and key != read.own
        }

    def _floors(self, read: Read) -> dict[Key, int]:
        is_split = any(each.is_outer for filter_ in self.possible for each in filter_)
        if is_split and read.complete and read.keys is None:
            return self.narrow.setdefault(read.request, {})
        return self.floors

    def restore(self) -> None:
        """Note that the server was restored: versions mean something else."""
        self.reported = 0
        self.floors.clear()
        self.narrow.clear()
        self.written.clear()
        self.departed.clear()

    def rest(self) -> None:
        """Note that answers are of now from here on."""
        self.history.former.clear()
        self.lost.clear()
        for namespace in NAMESPACES:
            self.floors["", namespace] = self.history.version

    def _at(self, read: Read, filter_: Filter, key: Key, shown: State | None) -> int:
        """Return the oldest allowed version at which an object is as shown."""
        if key in self.lost:
            return 0
        floor = self._floors(read).get(key, 0)
        bounds = {
            "4: it goes back behind what was read before": floor,
            "9: it ignores an own write": self.written.get(key, 0),
            "9: it is older than the handler's body": read.body,
            "11: it is older than was asked for": read.at_least,
            "3: it is older than the version of the answer": read.version,
        }
        if self.is_restoring:
            bounds = {}
            if any(
                self._shows(read, filter_, key, state, shown)
                for state in self.history.former.get(key, [None])
            ):
                return 0
        seen, least = max(floor, self.written.get(key, 0)), max(bounds.values(), default=0)
        first, newest = None, 0
        for since, until, state in self.history.spans(key):
            if self._shows(read, filter_, key, state, shown):
                newest = until
                if first is None and until >= seen:
                    first = max(since, seen)
        if first is not None and newest >= least:
            return first
        what = f"{read.reader} is shown {'/'.join(key)} as {shown}"
        if key in read.unreadable:
            what += ", unreadable"
        if read.outside is not None and key in read.outside:
            what += f", outside with {read.outside[key]}"
        if newest:
            (why, bound) = max(bounds.items(), key=lambda each: each[1])
            raise Lie(f"{why}: {what}, which was so until {newest}, and {bound} is known")
        raise Lie(f"1: {what}, which it never was in {filter_}: {self.history.states.get(key)}")

    def _shows(self, read: Read, filter_: Filter, key: Key, state: State | None, shown: State | None) -> bool:
        """Return True if an object in this state may be shown like that."""
        if state is None:
            is_said = key in read.unreadable or (read.outside is not None and key in read.outside)
            return shown is None and not is_said
        if (read.complete and read.keys is not None) or (shown is not None and key == read.own):
            return shown is not None and shown._replace(tag="") == state  # Whatever the filter is.
        if (key in read.unreadable) != (state.form == "broken") and (shown or key in read.unreadable):
            return False
        teams = self._teams(key[0])
        return any(self._shows_in(team, read, filter_, key, state, shown) for team in teams)

    def _teams(self, namespace: str) -> set[str]:
        """Return the teams that a namespace may be read as one of. One that has lost its label is not served
        any more once that is reported; one that has gained it is, once its objects are listed.
        """
        teams = self.history.teams_since(namespace, self.floors.get(("", namespace), 0))
        return self.history.teams_since(namespace, self.reported) | (teams & {""})

    def _shows_in(
        self, team: str, read: Read, filter_: Filter, key: Key, state: State, shown: State | None
    ) -> bool:
        """Return True if that is so while the namespace is one of a team."""
        is_in = any(each.fits(key, state.labels, team) for each in filter_)
        is_wanted = is_in and any(each.fits(key, state.labels, team) for each in read.request)
        is_outside = not is_in and any(each.covers(key[0], team) for each in filter_)
        if read.outside is not None:
            told = read.outside.get(key)
            # Of an object whose namespace has lost its label, it may be known that it is there.
            if is_outside if told is None else is_in or told != state.labels:
                return False
        if state.form == "broken":
            return (key in read.unreadable) == is_wanted and shown is None
        return shown == (state._replace(tag=tag_of(filter_)) if is_wanted else None)

    # ---- Own writes.

    def note_write(self, key: Key, version: int) -> None:
        """Note that an own write has been answered, or handed over."""
        self.written[key] = max(self.written.get(key, 0), version)

    def expire(self, key: Key) -> None:
        """Note that an own write need not be shown any more: no stream has reported it in time."""
        for versions in (self.written, self.floors, *self.narrow.values()):
            versions.pop(key, None)

    def judge_write(self, caller: str, *, done: bool, once: bool = True) -> None:
        """Compare what a call has said with what was written; raise Lie."""
        versions = [write.version for write in self.history.writes_of(caller)]
        if done and not versions:
            raise Lie(f"14: {caller} says that it is done, and nothing of it was written")
        if once and len(versions) > 1:
            raise Lie(f"14: {caller} was executed {len(versions)} times")

    # ---- Requests.

    def judge_request(self, what: object, now: float) -> None:
        """Count the requests of one list and its watch, pages as well; raise Lie if there are too many."""
        times = self.asked.setdefault(what, deque())
        times.append(now)
        while times[0] < now - 60:
            times.popleft()
        if len(times) > MOST_REQUESTS:
            raise Lie(f"8: {what} is requested {len(times)} times in a minute")

    # ---- Changes that a subscriber receives.

    def judge_change(
        self, key: Key, before: State | None, after: State | None, cause: Cause | None = None
    ) -> None:
        """Compare a change with those before it, and its cause with what has happened; raise Lie. Joined
        changes leave out entries, and no departures.
        """
        is_certain = not self.is_restoring and key not in self.lost
        if cause is not None and before is not None and after is None and is_certain:
            self._judge_cause(key, before, cause)
        known = self.present.get(key)
        is_joined = before and after is None and before.version > self.departed.get(key, 0)
        is_joined = is_joined or (not is_certain and after is None and known is None)
        if (known is None) != (before is None) and not is_joined:
            raise Lie(f"15: a change of {'/'.join(key)} from {before} to {after}, and it was {known}")
        if after is None:
            self.departed[key] = before.version if before else 0
            self.present.pop(key, None)
        else:
            if known is not None and known.version > after.version and is_certain:
                raise Lie(f"4: a change of {'/'.join(key)} goes back from {known} to {after}")
            self.present[key] = after

    def _judge_cause(self, key: Key, before: State, cause: Cause) -> None:
        """Require that an object was deleted since this state, or has left a filter, as it is said."""
        states = [state for _, until, state in self.history.spans(key) if until >= before.version]
        is_true = any(each is None or each.uid != before.uid for each in states)
        if cause.name == "left":  # A deletion may be told as that, as long as nobody knows.
            is_vague = not cause.filter_changed and cause.known_by is None
            is_true = (is_true and is_vague) or any(
                any(alternative.teams for alternative in filter_)
                or not any(alternative.fits(key, each.labels, "") for alternative in filter_)
                for filter_ in self.declared
                for each in (before, *(() if cause.filter_changed else states))
                if each is not None
            )
        elif cause.known_by is None:
            raise Lie(f"6: {'/'.join(key)} is said to be deleted, and not why that is known")
        if not is_true:
            raise Lie(f"6: {'/'.join(key)} departs from {before} by {cause}, and its states are {states}")

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
        wanted, present = self.wanted(), {**self.present}
        for key in self.history.objects():
            now = self.history.now(key)
            if now is not None and now.form == "broken":
                present.pop(key, None)  # A subscriber hears nothing of an object that cannot be read.
        wanted = {key: state._replace(tag="") for key, state in wanted.items()}
        if present != wanted:
            raise Lie(f"15: in the end the subscriber knows {differences(present, wanted)}")

    def serves(self, namespace: str) -> bool:
        """Return True if there are streams of a namespace now."""
        team = team_of(self.history.now(("", namespace)))
        return any(each.covers(namespace, team) for each in self.possible[0])

    def wanted(self) -> dict[Key, State]:
        """Return what the filter selects now."""
        (filter_, *others) = self.possible
        assert not others, "a filter is in force in the end"
        found = {}
        for key in self.history.objects():
            state, team = self.history.now(key), team_of(self.history.now(("", key[0])))
            if (
                state
                and state.form != "broken"
                and any(each.fits(key, state.labels, team) for each in filter_)
            ):
                found[key] = state._replace(tag=tag_of(filter_))
        return found


def differences(shown: Shown, wanted: Shown) -> str:
    """Return in words how two states differ."""
    parts: list[Any] = [
        f"{'/'.join(key)} is {shown.get(key)}, and must be {wanted.get(key)}"
        for key in sorted({*shown, *wanted})
        if shown.get(key) != wanted.get(key)
    ]
    return "; ".join(parts)
