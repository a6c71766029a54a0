"""One object on its way between the branches of a filter, as each branch's stream tells of it; and what must
hold meanwhile.

A history says in which branches the object is at each version of the server. Each branch tells of it in
order, at a speed of its own, with bookmarks and relists between; a branch is compared with lists as of any
version that they may be. All orders in which that can come are walked through, none is drawn by lot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TypeAlias

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.claims import Listed, Probe, listed_of
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union

from .writers import writers

FIRST = 8
"""The version of a history's first state: its third has a digit more."""

State: TypeAlias = str
"""The branches that hold the object, such as `AB`; `-` if it exists outside of all, `x` if it does not
exist."""
History: TypeAlias = tuple[State, ...]
Action: TypeAlias = tuple[str, int, int]


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


@dataclass(frozen=True)
class Rules:
    """What may happen in a walk, besides the events and bookmarks of each branch."""

    relists: int = 0
    probes: int = 0
    """How many lists may be compared with what a branch holds."""
    vague: bool = False
    """Whether the server says of what has left the version that it had, as some do."""
    late: bool = False
    """Whether the last branch has not seen its first list yet."""
    refused: bool = False
    """Whether the last branch is refused, and says nothing until the end."""


class System:
    """A server with one object, and the branches as they hear of it."""

    def __init__(self, history: History, branches: int, rules: Rules, union: type[Union] = Union) -> None:
        self.history, self.rules = history, rules
        self.letters = "ABC"[:branches]
        self.last = FIRST + len(history) - 1
        self.uids: list[str] = []
        for before, after in pairwise(("x", *history)):
            number = len(set(self.uids))
            self.uids.append(
                f"uid-{number + 1}" if before == "x" else self.uids[-1] if after != "x" else f"uid-{number}"
            )
        self.records = [
            Record("", "it", uid, str(FIRST + at), {}, (), b"") for at, uid in enumerate(self.uids)
        ]
        self.union = union([Keys()] * branches)
        self.at = [FIRST] * branches
        self.staging: list[tuple[int, bool] | None] = [None] * branches
        self.relists, self.probes = rules.relists, rules.probes
        self.probed: dict[int, int] = {}
        """The branches that are compared with a list, and the version of it."""
        self.abandoned = not rules.relists
        self.known = FIRST
        """The newest version of which the cache can have heard."""
        self.model: Record | None = None
        """What the changes that were told amount to."""
        self.embedded, self.newest, self.version, self.lefts = 0, 0, 0, 0
        for branch in range(branches):
            if rules.late and branch == branches - 1:
                self.at[branch] = 0
            else:
                self._list(branch, FIRST)
                self._commit(branch, FIRST)

    def holds(self, branch: int, version: int) -> bool:
        return self.letters[branch] in self.history[version - FIRST]

    def present(self, version: int) -> bool:
        return self.history[version - FIRST] not in ("-", "x")

    # ---- What can happen next.

    def actions(self) -> list[Action]:
        found: list[Action] = []
        for branch in range(len(self.at)):
            if not (self.rules.refused and branch == len(self.at) - 1):
                found += self._actions_of(branch)
        if self.probes:
            for substore, version in self.union.awaited.items():
                branch = self.union.substores.index(substore)
                if self.staging[branch] is None and branch not in self.probed:
                    # A server that has no list as of a version answers as of a newer one.
                    first = int(version) if version else max(self.known, self.at[branch])
                    found += [("probe", branch, each) for each in range(first, self.last + 1)]
        found += [
            ("count", branch, version) for branch, version in self.probed.items() if self._counts(branch)
        ]
        return found

    def _counts(self, branch: int) -> bool:
        version, substore = self.probed[branch], self.union.substores[branch]
        return (
            int(substore.version) < version
            and Probe(substore, str(version), self._listed(branch, version)).counts()
        )

    def _actions_of(self, branch: int) -> Iterator[Action]:
        at, staged = self.at[branch], self.staging[branch]
        if staged is not None:
            version, put = staged
            if not put and self.holds(branch, version):
                yield "stage", branch, version
            else:
                yield "commit", branch, version
            if not self.abandoned:
                yield "abandon", branch, version
            return
        if at == 0 or self.relists:
            # The first list is of the newest version that there is, and each other one as new as what is
            # known.
            yield from (
                ("begin", branch, version)
                for version in range(max(at, FIRST) if at else self.known, self.last + 1)
            )
        if at == 0:
            return
        told = next(
            (version for version in range(at + 1, self.last + 1) if self._tells(branch, version)), None
        )
        if told is not None:
            yield "event", branch, told
        until = self.last if told is None else told - 1
        yield from (("mark", branch, version) for version in {at + 1, until} if at < version <= until)

    def _tells(self, branch: int, version: int) -> bool:
        return self.holds(branch, version) or self.holds(branch, version - 1)

    # ---- What happens.

    def do(self, action: Action) -> None:
        what, branch, version = action
        match what:
            case "event":
                self._event(branch, version)
            case "mark":
                self._reach(branch, version)
            case "begin":
                self.relists -= self.at[branch] > 0
                self.probed.pop(branch, None)
                writers(self.union)[branch].begin()
                self.staging[branch] = version, False
            case "stage":
                self._put(branch, version)
                self.staging[branch] = version, True
            case "commit":
                self._commit(branch, version)
            case "abandon":
                self.abandoned = True
                writers(self.union)[branch].abandon()
                self.staging[branch] = None
            case "probe":
                self.probes -= 1
                self.probed[branch] = version
            case "count":
                self.at[branch] = version = self.probed.pop(branch)
                self.known = max(self.known, version)
                self.note(writers(self.union)[branch].jump(str(version)))
        self.check()

    def _event(self, branch: int, version: int) -> None:
        if self.holds(branch, version):
            self._put(branch, version)
        elif self.rules.vague:
            self.known = max(self.known, version)
            self.note(writers(self.union)[branch].leave(self._copy(version - 1)))
            # The stream is past it, and says so with its next message alone.
            self.at[branch] = version
            return
        else:
            self.known = max(self.known, version)
            was = self.records[version - 1 - FIRST]
            self.at[branch] = version
            self.note(writers(self.union)[branch].leave(Record("", "it", was.uid, str(version), {}, (), b"")))
        self.check()
        self._reach(branch, version)

    def _copy(self, version: int) -> Record:
        # Each stream brings bytes of its own.
        record = self.records[version - FIRST]
        return Record("", "it", record.uid, record.version, {}, (), b"")

    def _put(self, branch: int, version: int) -> None:
        if self.staging[branch] is None:
            self.known = max(self.known, version)
        self.note(writers(self.union)[branch].put(self._copy(version)))

    def _reach(self, branch: int, version: int) -> None:
        self.at[branch] = version
        self.known = max(self.known, version)
        self.note(writers(self.union)[branch].progress(str(version)))

    def _list(self, branch: int, version: int) -> None:
        writers(self.union)[branch].begin()
        if self.holds(branch, version):
            writers(self.union)[branch].put(self._copy(version))

    def _commit(self, branch: int, version: int) -> None:
        self.at[branch] = version
        self.known = max(self.known, version)
        self.staging[branch] = None
        self.note(writers(self.union)[branch].commit(str(version)))

    def _listed(self, branch: int, version: int) -> Listed:
        return listed_of([self._copy(version)] if self.holds(branch, version) else [])

    def finish(self) -> None:
        """Let every branch hear all there is, and compare."""
        for branch in range(len(self.at)):
            if self.rules.refused and branch == len(self.at) - 1:
                self._list(branch, self.last)
                self._commit(branch, self.last)
                self.check()
        for branch in range(len(self.at)):
            self._reach(branch, self.last + 1)
            self.check()
        wanted = self.records[-1] if self.present(self.last) else None
        held, version = self.union.store.get("", "it")
        if version != str(self.last + 1):
            raise Violation("I4", f"the version stays at {version}")
        if (held and (held.uid, held.version)) != (wanted and (wanted.uid, wanted.version)):
            raise Violation("I3", f"{held} is held, and {wanted} is there")
        if self.union.unconfirmed:
            raise Violation("I3", f"{self.union.unconfirmed} in the end")

    # ---- What must hold.

    def note(self, changes: list[Change]) -> None:
        for change in changes:
            one = change.before is None or change.after is None or change.before.uid == change.after.uid
            if change.before is not self.model or change.before is change.after or not one:
                raise Violation("I9", f"{change} is told after {self.model}")
            self.model = change.after
            self.lefts += change.after is None
            self._observe(change.after)

    def _observe(self, seen: Record | None) -> None:
        """Find what is seen in what the server's history still has."""
        if seen is not None:
            version = int(seen.version)
            if version < self.newest:
                raise Violation("I1", f"version {version} after {self.newest}")
            if (
                version < FIRST + self.embedded
                or not self.present(version)
                or self.uids[version - FIRST] != seen.uid
            ):
                raise Violation(
                    "I2", f"{seen} cannot be seen after the state {self.embedded} of {self.history}"
                )
            self.newest, self.embedded = version, version - FIRST
            return
        absent = (
            at
            for at in range(self.embedded, len(self.history))
            if not self.present(FIRST + at) or self._is_another(at)
        )
        found = next(absent, None)
        if found is None or FIRST + found > self.known:
            raise Violation(
                "I8b", f"it is absent after the state {self.embedded} of {self.history}, at {self.known}"
            )
        self.embedded = found

    def _is_another(self, at: int) -> bool:
        return self.uids[at] != self.uids[self.embedded]

    def check(self) -> None:
        held, version = self.union.store.get("", "it")
        if held is not self.model:
            raise Violation("I9", f"{held} is held, and what was told amounts to {self.model}")
        if not all(self.at):
            return
        least = min(self.at)
        if int(version or 0) > least or int(version or 0) < self.version:
            raise Violation(
                "I4",
                f"the version is {version}, after {self.version}, and {least} is the least of the branches'",
            )
        self.version = int(version or 0)
        span = range(min(int(version or FIRST), self.last), min(self.known, self.last) + 1)
        if held is not None and not any(
            self.present(at) and self.uids[at - FIRST] == held.uid for at in span
        ):
            raise Violation("I5", f"{held} is held at {version}, and gone since")
        if held is None and all(self.present(at) for at in span):
            raise Violation("I8b", f"it is absent at {version}, and was there all the time")


def walks(
    history: History,
    branches: int,
    rules: Rules,
    *,
    union: type[Union] = Union,
    story: Callable[[str], None] = lambda _: None,
    of: Callable[[History, int, Rules, type[Union]], System] = System,
) -> Iterator[System]:
    """Walk through all orders of what can happen, and yield the system at the end of each."""
    pending: list[list[Action]] = [[]]
    while pending:
        path = pending.pop()
        try:
            system = of(history, branches, rules, union)
            for action in path:
                system.do(action)
            while found := system.actions():
                pending += [[*path, other] for other in found[1:]]
                path = [*path, found[0]]
                system.do(found[0])
            system.finish()
        except Violation:
            story(f"{history}, {rules}: {path}")
            raise
        yield system


def histories(alphabet: str | tuple[str, ...], length: int) -> Iterator[History]:
    """Return all histories of this many states; of those that differ in the names of the branches alone,
    one."""
    seen = set()
    for states in product(alphabet, repeat=length):
        if ("x", "x") in pairwise(states) or not any(state not in ("-", "x") for state in states):
            continue
        letters = dict.fromkeys(letter for state in states for letter in state if letter not in "-x")
        names = {letter: "ABC"[index] for index, letter in enumerate(letters)}
        plain = tuple("".join(sorted(names.get(letter, letter) for letter in state)) for state in states)
        if plain not in seen:
            seen.add(plain)
            yield states
