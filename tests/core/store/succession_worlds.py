"""Small worlds in which the filter of a cache changes: a server with a history, the streams of two filters,
and all that can happen next. Each world judges itself.

A stream selects the objects in whose state its letter is: an object in the state `AB` is in the streams A and
B, `-` is in none, and `x` does not exist. The outer stream `~AB` of a split cache has those that exist and
are in neither. Each write has a version of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple

from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.probe import Probe
from kopf_selectcache.core.store.record import ObjectKey, OutsideRecord, Record
from kopf_selectcache.core.store.substore import Keys
from kopf_selectcache.core.store.succession import Succession
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer

FIRST = 10
"""The version of the first state."""

Choose = Callable[[int], int]
"""Returns a number from 0, less than its argument."""

Path = list[str]


class Wrong(AssertionError):
    """The world has broken a rule."""


class Write(NamedTuple):
    """One object in one state, at one version."""

    name: str
    state: str
    uid: str
    version: int

    def as_of(self, version: int, stream: str) -> Record:
        """Return the record of a stream."""
        labels = {letter: "" for letter in self.state if letter.isupper()}
        kind = OutsideRecord if is_outer(stream) else Record
        return kind("", self.name, self.uid, str(version), labels, (), b"")

    def is_in(self, stream: str) -> bool:
        if is_outer(stream):
            return self.state != "x" and set(self.state).isdisjoint(stream)
        return stream in self.state


def is_outer(stream: str) -> bool:
    return stream.startswith("~")


@dataclass(frozen=True)
class Rules:
    """The filters, and the rare events of a world."""

    before: str
    after: str
    later: tuple[str, ...] = ()
    """The filters after those: there are several changes."""
    splits: tuple[bool, ...] = (False, False)
    """If the cache of each filter is split."""
    vague: bool = False
    """True if a deletion has the version of the deleted object."""
    relists: int = 0
    probes: int = 0
    """The number of lists before the end that streams are compared with."""
    knows: bool = True
    """False if no filter can be compared with stored objects."""

    @property
    def filters(self) -> tuple[str, ...]:
        return (self.before, self.after, *self.later)

    @property
    def changes(self) -> int:
        """The number of changes of the filter."""
        return len(self.filters) - 1

    def streams(self, step: int) -> tuple[str, ...]:
        """Return the streams of the filter after a number of changes."""
        letters = self.filters[step]
        return (*letters, *([f"~{letters}"] if self.splits[step] else []))


class Server:
    """The history of all objects."""

    def __init__(self, histories: Sequence[Sequence[str]], order: Sequence[int]) -> None:
        self.writes: list[Write] = []
        """All writes; those of the first state have its version."""
        self.states: dict[str, list[Write]] = {}
        counts, version = [1] * len(histories), FIRST
        for number, history in enumerate(histories):
            self._write(f"o{number}", history[0], FIRST)
        for number in order:
            version += 1
            self._write(f"o{number}", histories[number][counts[number]], version)
            counts[number] += 1
        self.version = version

    def _write(self, name: str, state: str, version: int) -> None:
        known = self.states.setdefault(name, [])
        is_new = not known or (known[-1].state == "x" and state != "x")
        uid = f"{name}-{version}" if is_new else known[-1].uid
        known.append(Write(name, state, uid, version))
        self.writes.append(known[-1])

    def at(self, name: str, version: int) -> Write:
        return next(each for each in reversed(self.states[name]) if each.version <= version)

    def selected(self, streams: Sequence[str], version: int) -> dict[ObjectKey, Write]:
        found = (self.at(name, version) for name in self.states)
        return {("", each.name): each for each in found if any(map(each.is_in, streams))}

    def since(self, record: Record) -> Iterator[Write]:
        """Yield the states of the object of that name after this one."""
        return (each for each in self.states[record.name] if each.version > int(record.version))


@dataclass(eq=False)
class Leg:
    """One stream, and the substores that it writes to."""

    letter: str
    writers: list[Writer]
    cursor: int = 0
    """The version up to which it has reported; 0 before its list."""

    def each(
        self, act: Callable[[Writer], list[Change]], seen: Callable[[Writer, list[Change]], None]
    ) -> None:
        for writer in self.writers:
            seen(writer, act(writer))

    def relist(self, server: Server, version: int, seen: Callable[[Writer, list[Change]], None]) -> None:
        for writer in self.writers:
            writer.begin()
            for found in server.selected([self.letter], version).values():
                writer.put(found.as_of(found.version, self.letter))
            seen(writer, writer.commit(str(version)))
        self.cursor = version

    def advance(self, server: Server, seen: Callable[[Writer, list[Change]], None], *, vague: bool) -> None:
        """Report the next version."""
        self.cursor += 1
        write = next(each for each in server.writes if each.version == self.cursor)
        former = server.at(write.name, self.cursor - 1)
        if write.is_in(self.letter):
            self.each(lambda writer: writer.put(write.as_of(write.version, self.letter)), seen)
        elif former.is_in(self.letter):
            is_vague = vague and write.state == "x"
            record = former.as_of(former.version if is_vague else self.cursor, self.letter)
            self.each(lambda writer: writer.leave(record), seen)
            if is_vague:
                return  # The next event or bookmark shows the version.
        self.each(lambda writer: writer.progress(str(self.cursor)), seen)


@dataclass(eq=False)
class World:
    """A server, the present union, the next one, and a reader."""

    rules: Rules
    server: Server
    path: Path = field(default_factory=list)
    steps: int = 0
    """The number of changes of the filter that were made."""

    def __post_init__(self) -> None:
        streams = self.rules.streams(0)
        self.union = Union([Keys(are_outside=is_outer(each)) for each in streams])
        self.legs = {
            letter: Leg(letter, [Writer(self.union, substore)])
            for letter, substore in zip(streams, self.union.substores, strict=True)
        }
        self.shown: dict[ObjectKey, Record] = {}
        self.newest: dict[ObjectKey, Record] = {}
        self.view: dict[ObjectKey, Record] = {}
        self.gone: set[str] = set()
        """The uids of objects that are said to be gone."""
        self.located: dict[str, int] = {}
        """The version in which each object was seen last, inside or outside."""
        self.excluded: dict[ObjectKey, int] = {}
        """The version of each object that a change of the filter has excluded, which the next may select."""
        for leg in self.legs.values():
            leg.relist(self.server, FIRST, lambda *_: None)
        self.succession: Succession | None = None
        self.held = False
        self.tries = 1
        """The number of times that streams may be held, before the end."""
        self.relists, self.probes = self.rules.relists, self.rules.probes
        self._look()
        self.view = dict(self.shown)

    # ---- What can happen.

    def actions(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield all that can happen next."""
        for letter, leg in sorted(self.legs.items()):
            if leg.cursor == 0:
                kept = [each.cursor for each in self.legs.values() if len(each.writers) > 1]
                oldest = min(kept or [max(each.cursor for each in self.legs.values())])
                seen = min(int(self.union.seen or 0), self.server.version)  # By readers of earlier filters.
                oldest = max(oldest, seen)
                for version in range(oldest, self.server.version + 1):
                    yield (
                        f"list {letter} at {version}",
                        partial(self._list, leg, version),
                    )
                continue
            if self.held and letter not in self.rules.streams(self.steps + 1):
                continue
            if leg.cursor < self.server.version:
                yield (
                    f"{letter} reports {leg.cursor + 1}",
                    partial(leg.advance, self.server, self._note, vague=self.rules.vague),
                )
            if self.relists and leg.cursor < self.server.version:
                yield f"relist {letter}", partial(self._relist, leg)
        if self.succession is None and not self.is_over:
            yield "prepare", self._prepare
        elif self.held:
            yield "step", self._step
        elif self.succession is not None and self.succession.is_complete and self.tries:
            yield "hold", self._hold
        if self.probes:
            for leg, version in self._quiet():
                yield f"probe {leg.letter} at {version}", partial(self._probe, leg, version)

    @property
    def is_over(self) -> bool:
        """True once all changes of the filter are made."""
        return self.steps == self.rules.changes

    def _unions(self) -> tuple[Union, ...]:
        return (self.union,) if self.succession is None else (self.union, self.succession.after)

    def _list(self, leg: Leg, version: int) -> None:
        leg.relist(self.server, version, self._note)

    def _relist(self, leg: Leg) -> None:
        self.relists -= 1
        self._list(leg, self.server.version)

    def _quiet(self) -> Iterator[tuple[Leg, int]]:
        """Yield the streams that hold exactly what a list has that leaves wait for, with its version."""
        for union in self._unions():
            for substore, wanted in union.awaited.items():
                leg = next(
                    leg for leg in self.legs.values() if substore in [each.substore for each in leg.writers]
                )
                if self.held and leg.letter not in self.rules.streams(self.steps + 1):
                    continue
                version = min(int(wanted or self.server.version), self.server.version)
                selected = self.server.selected([leg.letter], version)
                listed = {key: (write.uid, str(write.version)) for key, write in selected.items()}
                of_reports = leg.writers[0].substore  # As the stream compares itself.
                if int(of_reports.version) < version and Probe(of_reports, str(version), listed).counts():
                    yield leg, version

    def _probe(self, leg: Leg, version: int) -> None:
        self.probes -= 1
        self._jump(leg, version)

    def _jump(self, leg: Leg, version: int) -> None:
        leg.cursor = max(leg.cursor, version)
        leg.each(lambda writer: writer.jump(str(version)), self._note)

    def _selects(self, streams: str) -> Callable[[Record], bool | None]:
        return lambda record: any(letter in record.labels for letter in streams) if self.rules.knows else None

    def _prepare(self) -> None:
        streams = self.rules.streams(self.steps + 1)
        union = Union([Keys(are_outside=is_outer(each)) for each in streams])
        substores = dict(zip(streams, union.substores, strict=True))
        kept = {letter: self.legs[letter] for letter in streams if letter in self.legs}
        self.succession = Succession(
            self.union,
            union,
            {leg.writers[0].substore: substores[letter] for letter, leg in kept.items()},
            selects=self._selects(self.rules.filters[self.steps + 1]),
            selected=self._selects(self.rules.filters[self.steps]),
        )
        for letter, substore in substores.items():
            if letter in kept:
                kept[letter].writers.append(Writer(union, substore))
            else:
                self.legs[letter] = Leg(letter, [Writer(union, substore)])

    def _hold(self) -> None:
        assert self.succession is not None
        self.held = True
        self.tries -= 1
        self.succession.restart()
        self.succession.has_arrived()

    def _step(self) -> None:
        succession = self.succession
        assert succession is not None
        self.held = False
        succession.has_arrived()
        succession.restart()
        if not succession.has_arrived():
            return
        changes = succession.differences()
        causes = [0 if each.after is None else 1 if each.before is not None else 2 for each in changes]
        self._require(causes == sorted(causes), "departures do not come first")
        for each in changes:
            self._judge_cause(each)
        self.union, self.succession, self.steps = succession.after, None, self.steps + 1
        self.tries = max(self.tries, 1)
        self._apply(changes)
        self.excluded |= {
            each.before.key: int(each.before.version)
            for each in changes
            if each.before is not None and each.after is None
        }
        for letter, leg in list(self.legs.items()):
            leg.writers = [each for each in leg.writers if each.union is self.union]
            if not leg.writers:
                del self.legs[letter]

    # ---- What must hold.

    def _note(self, writer: Writer, changes: list[Change]) -> None:
        if writer.union is self.union:
            self._apply(changes)
            self._tell(changes)

    def _tell(self, changes: list[Change]) -> None:
        if self.succession is not None:
            self.succession.note(changes)

    def _apply(self, changes: list[Change]) -> None:
        for change in changes:
            record = change.after or change.before
            assert record is not None
            known = self.view.get(record.key)
            self._require((change.before is None) == (known is None), f"{record.key} enters or departs twice")
            if change.after is None:
                self._judge_departure(record, change)
                del self.view[record.key]
                self.excluded.pop(record.key, None)
            else:
                self._require(record.uid not in self.gone, f"{record} enters after it was gone")
                self.view[record.key] = change.after

    def _judge_departure(self, record: Record, change: Change) -> None:
        """Require that the cause of a departure and its evidence are true."""
        since = [self.server.at(record.name, int(record.version)), *self.server.since(record)]
        has_ended = any(each.uid != record.uid or each.state == "x" for each in since)
        letters = self.rules.filters[self.steps]
        is_outside = change.filter_changed or any(
            each.uid == record.uid and each.is_in(f"~{letters}") for each in since
        )
        if change.cause is ChangeCause.DELETED:
            self.gone.add(record.uid)
            self._require(has_ended, f"{record} is said to be gone, by {change.known_by}")
            self._require(change.known_by in ("metadata", "confirmed"), f"{record} is gone without a proof")
        elif change.known_by is not None:
            self._require(is_outside, f"{record} is said to be outside, by {change.known_by}")
        if self.rules.splits[self.steps] and not change.filter_changed:
            self._require(change.known_by is not None, f"it is not known how {record} has departed")

    def _judge_cause(self, change: Change) -> None:
        if change.filter_changed and (record := change.after or change.before) is not None:
            other = self.rules.filters[self.steps + (change.before is not None)]
            self._require(
                not any(each in record.labels for each in other), f"{record} is no change by the filter"
            )

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise Wrong(f"{what}: {'; '.join(self.path)}; {self.server.writes}, {self.rules}")

    def _look(self) -> None:
        """Read all objects, and compare them with what was read before and with the server."""
        now = {record.key: record for record in self.union.store.records()[0]}
        for key, record in now.items():
            known = self.newest.get(key)
            if known is not None:
                self._require(int(record.version) >= int(known.version), f"{key} went back")
                self._require(
                    key in self.shown
                    or int(record.version) > int(known.version)
                    or int(record.version) == self.excluded.get(key),
                    f"{key} has returned as it was",
                )
            self.newest[key] = record
        self._look_on_both_sides(now)
        for name, writes in self.server.states.items():
            if all(set(each.state) & set(streams) for each in writes for streams in self.rules.filters):
                self._require(("", name) in now, f"{name} is absent, and all filters select it")
        self.shown = now

    def _look_on_both_sides(self, inside: dict[ObjectKey, Record]) -> None:
        """Require that the present cache, if it is split, has each object that exists all the time, and on
        the side where it was as of its version.
        """
        letters = self.rules.filters[self.steps]
        for name, writes in self.server.states.items():
            found = self.union.store.locate("", name)[0] if self.rules.splits[self.steps] else None
            found = found or inside.get(("", name))
            if found is None:
                is_due = self.rules.splits[self.steps] and all(each.state != "x" for each in writes)
                self._require(not is_due, f"{name} is in neither")
                continue
            version = int(found.version)
            self._require(version >= self.located.get(name, 0), f"{name} went back")
            self.located[name] = version
            side = self.server.at(name, version).is_in(f"~{letters}")
            self._require(isinstance(found, OutsideRecord) is side, f"{found} is on the wrong side")

    def act(self, choose: Choose) -> bool:
        """Let one thing happen; return False if nothing can."""
        actions = list(self.actions())
        if not actions:
            return False
        name, action = actions[choose(len(actions))]
        self.path.append(name)
        action()
        self._look()
        if self.steps or self.succession is None:
            self._require(
                {key: (each.uid, each.version) for key, each in self.view.items()}
                == {key: (each.uid, each.version) for key, each in self.shown.items()},
                "the changes do not lead to the view",
            )
        return True

    def finish(self) -> None:
        """Let all streams report everything, and settle all leaves: the filter has changed."""
        self.tries = 100
        while not self.is_over or any(leg.cursor < self.server.version for leg in self.legs.values()):
            self._progress()
            before = (self.steps, self.held, [leg.cursor for leg in self.legs.values()], self.succession)
            for name, action in list(self.actions()):
                if not name.startswith(("relist", "probe")):
                    self.path.append(name)
                    action()
                    self._look()
                    break
            self._progress()
            self._look()
            after = (self.steps, self.held, [leg.cursor for leg in self.legs.values()], self.succession)
            self._require(before != after or self.held, "the change does not end")
        self._progress()
        self._look()
        selected = self.server.selected(self.rules.filters[-1], self.server.version)
        self._require(
            {key: int(record.version) for key, record in self.shown.items()}
            == {key: write.version for key, write in selected.items()},
            "the view is not that of the new filter",
        )
        self._require(
            {key: (each.uid, each.version) for key, each in self.view.items()}
            == {key: (each.uid, each.version) for key, each in self.shown.items()},
            "the changes do not lead to the view",
        )

    def _progress(self) -> None:
        """Let all streams that have reported everything receive a bookmark."""
        for leg in self.legs.values():
            if leg.cursor == self.server.version:
                leg.each(lambda writer: writer.progress(str(self.server.version + 1)), self._note)


def walks(rules: Rules, histories: Sequence[Sequence[str]], order: Sequence[int]) -> Iterator[World]:
    """Yield a world for each order of all that can happen."""
    choices: list[tuple[int, int]] = []
    while True:
        made, world = 0, World(rules, Server(histories, order))

        def choose(most: int) -> int:
            nonlocal made
            if made == len(choices):
                choices.append((0, most))
            made += 1
            return choices[made - 1][0]

        while not world.steps and world.act(choose):
            pass
        world.finish()
        yield world
        del choices[made:]
        while choices and choices[-1][0] + 1 == choices[-1][1]:
            choices.pop()
        if not choices:
            return
        choices[-1] = (choices[-1][0] + 1, choices[-1][1])


def always(number: int) -> Choose:
    return lambda _: number


def walk(
    random: Random,
    rules: Rules,
    histories: Sequence[Sequence[str]],
    order: Sequence[int],
    *,
    asks: float = 0.0,
) -> World:
    """Return a world after one order of all that can happen. `asks` is the chance of a probe wherever one can
    come.
    """
    world = World(rules, Server(histories, order))
    for _ in range(200):
        probes = [number for number, (name, _) in enumerate(world.actions()) if name.startswith("probe")]
        if not world.act(
            always(probes[0]) if asks and probes and random.random() < asks else random.randrange
        ):
            break
    world.finish()
    return world
