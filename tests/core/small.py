"""A system small enough to be explored: up to three objects, two branches and two faults; all that can happen
next, as data.

It does what the shell does with `step` and `Union`, message by message. Two systems that differ only in
which object is which are one: see `System.frozen`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from kopf_selectcache.core.protocol import machine
from kopf_selectcache.core.protocol.messages import Bookmark, Event, Page, Refusal
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.claims import Listed, Probe
from kopf_selectcache.core.store.record import ObjectKey, Record
from kopf_selectcache.core.store.union import Union

from .client import carried_out
from .cluster import Cluster, Filter, Thing
from .copying import Part, as_a_whole, copied, of_key, part
from .guarantees import Judge, Observer, Taken, Violation, equal
from .writers import Writer

FILTERS = (Filter(app="web"), Filter(gold=True))
NAMES = ("a", "b", "c")
FIRST = 8
"""The version of the first state, of which there is a backup: the second after it has a digit more."""

_WRITES: dict[str, tuple[str, bool] | None] = {
    "A": ("web", False),
    "B": ("db", True),
    "AB": ("web", True),
    "-": ("db", False),
    "x": None,
}


class Action(NamedTuple):
    what: str
    who: int | str = 0
    how: str | int = ""
    fault: bool = False


@dataclass(slots=True, eq=False)
class Leg:
    """One stream: its state, what was asked for, and, if a watch is open, what is to come."""

    number: int
    filter: Filter
    state: machine.State
    command: machine.Effect | None = None
    cursor: int = 0
    lines: tuple[Event | Bookmark, ...] = ()
    last: Event | None = None
    epoch: int = 0
    beyond: bool = False
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """What may happen, and in how large a system."""

    objects: int = 3
    writes: int = 3
    faults: int = 2
    streaming: bool = False
    synced: bool = True
    """Whether both branches have been listed before anything is explored."""
    page: int = 2


class System:
    """A cluster, and a client of two branches."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.writes, self.faults = rules.writes, rules.faults
        self.cluster = Cluster(FILTERS, FIRST - 2)
        for name, how in zip(NAMES[: rules.objects], ("A", "x", "x"), strict=False):
            self._write(name, how)
        while self.cluster.version < FIRST:
            self.cluster.pass_()
        self.cluster.compacted = FIRST
        self.union = Union([each.keys for each in FILTERS])
        self.judge = Judge(self.cluster)
        self.observer = Observer()
        self.outdated: list[Leg] = []
        self.probe: tuple[int, int, int, Listed] | None = None
        """The list that has not counted yet: its branch, its version and epoch, and its objects."""
        known = machine.Known(streaming=rules.streaming)
        self.legs = [Leg(number, each, machine.Idle(known)) for number, each in enumerate(FILTERS)]
        for leg in self.legs:
            self._feed(leg, machine.Start())
        while rules.synced and not all(leg.state.known.marked for leg in self.legs):
            self.settle_a_little()

    # ---- Which system it is.

    def copy(self) -> System:
        made = System.__new__(System)
        made.rules, made.writes, made.faults = self.rules, self.writes, self.faults
        made.cluster, made.union = self.cluster.copy(), copied(self.union)
        made.judge, made.observer = self.judge.copy(made.cluster), self.observer.copy()
        made.legs, made.outdated, made.probe = [replace(leg) for leg in self.legs], [], self.probe
        return made

    def frozen(self) -> Part:
        """Return what makes two systems one. Of objects, only what happened to them counts, not which is
        which."""
        cluster = self.cluster
        return (
            self.writes,
            self.faults,
            cluster.version,
            cluster.epoch,
            cluster.compacted,
            as_a_whole(self.union),
            self.judge.version,
            self.observer.epoch,
            self.probe and self.probe[:3],
            *sorted(self.observer.known.items()),
            *sorted(self.observer.begun.items()),
            *sorted(self.observer.before.items()),
            *(
                (
                    leg.state,
                    leg.command,
                    leg.cursor,
                    len(leg.lines),
                    leg.last is None,
                    leg.epoch,
                    leg.beyond,
                    leg.offset,
                )
                for leg in self.legs
            ),
            *sorted(repr(self._of_key(("", name))) for name in NAMES[: self.rules.objects]),
        )

    def _of_key(self, key: ObjectKey) -> Part:
        cluster, judge = self.cluster, self.judge
        writes = tuple(
            (entry.version, entry.after and (entry.after.uid, entry.after.app, entry.after.gold))
            for entry in cluster.log
            if key in (entry.before and entry.before.key, entry.after and entry.after.key)
        )
        entries = tuple(
            (entry.epoch, entry.version, entry.thing and entry.thing.serial)
            for entry in cluster.history.get(key, ())
        )
        coming = tuple(
            (leg.number, at, line.type, part(line.record))
            for leg in self.legs
            for at, line in enumerate((leg.last, *leg.lines))
            if isinstance(line, Event) and line.record.key == key
        )
        return (
            writes,
            entries,
            coming,
            of_key(self.union, key),
            judge.places.get(key),
            judge.newest.get(key),
            part(judge.shown.get(key)),
            cluster.contents.get(key) is None,
            self.probe and self.probe[3].get(key),
        )

    # ---- What can happen next.

    def actions(self) -> list[Action]:
        found = [
            Action("write", name, how)
            for name in NAMES[: self.rules.objects if self._writable() else 0]
            for how in _WRITES
            if how != self._shown_as(name)
        ]
        for number, leg in enumerate(self.legs):
            found += self._good(number, leg)
            if self.faults:
                found += self._bad(number, leg)
        found += [Action("probe", number) for number in self._awaited()] if self.probe is None else []
        found += [Action("count")] if self.probe is not None and self._counts() else []
        if self.faults and not self.cluster.epoch and self.cluster.version > FIRST:
            found += [
                Action("restore", how=how, fault=True)
                for how in ("as it was", "with a bump")
                if how != "as it was" or self._noticeable()
            ]
        return found

    def _writable(self) -> bool:
        # A server that outgrows what was seen before its restoration is noticed wants an audit, not a watch.
        unaware = [leg for leg in self.legs if leg.epoch < self.cluster.epoch]
        return self.writes > 0 and all(
            self.cluster.version + 1 < int(leg.state.known.floor or 0) for leg in unaware
        )

    def _noticeable(self) -> bool:
        """Whether each branch can find out: silence tells nothing of a server that has not sent bookmarks
        before."""
        behind = [leg for leg in self.legs if int(leg.state.known.floor or 0) <= FIRST]
        # Nor is there anything to notice for one that is behind; but what it was told to be deleted may be
        # there again.
        return all(not leg.beyond if leg in behind else leg.state.known.marked for leg in self.legs)

    def _shown_as(self, name: str) -> str:
        thing = self.cluster.contents.get(("", name))
        return (
            "x"
            if thing is None
            else next(how for how, wrote in _WRITES.items() if wrote == (thing.app, thing.gold))
        )

    def _good(self, number: int, leg: Leg) -> list[Action]:
        match leg.command:
            case machine.Wait():
                return [Action("due", number)]
            case machine.List(floor, token):
                if token:
                    return [Action("answer", number, self.cluster.version)]
                if (
                    not floor
                ):  # The first list that each of several asks for may be as of the version of another.
                    begins = not (self.union.substores[number].version or leg.state.known.failures)
                    listed = {
                        int(branch.listed) for branch in self.union.substores if branch.listed and begins
                    }
                    return [
                        Action("answer", number, version)
                        for version in {self.cluster.version, *listed}
                        if version in self.cluster.contents_by_version
                    ]
                # A replica may lag, but not behind what it was asked for.
                return [
                    Action("answer", number, version)
                    for version in {int(floor), self.cluster.version}
                    if version in self.cluster.contents_by_version
                ]
            case _:
                return [Action("next", number)] if self._next(leg) is not None else []

    def _bad(self, number: int, leg: Leg) -> list[Action]:
        if isinstance(leg.command, machine.Wait):
            return []
        hows = ["lost", "410"]
        hows += ["ended"] if isinstance(leg.command, machine.Watch) else []
        match leg.command:
            case machine.List(floor):
                hows += ["stale"] if floor and int(floor) > FIRST else []
            case _:
                hows += ["silent"]
                hows += ["duplicate"] if leg.last is not None else []
                hows += ["early bookmark"] if isinstance(leg.state, machine.Filling) else []
                coming = self._next(leg)
                hows += ["old deletion"] if isinstance(coming, Event) and coming.type == "DELETED" else []
        return [Action("fault", number, how, fault=True) for how in hows]

    def _next(self, leg: Leg) -> Event | Bookmark | None:
        """Return what a stream says next: an event, or a bookmark once there are no more."""
        if leg.lines:
            return leg.lines[0]
        if leg.cursor > self.cluster.version:
            return None  # It was restored, and says nothing until it gets there.
        for entry in self.cluster.log:
            if entry.version <= leg.cursor:
                continue
            was, is_ = leg.filter.selects(entry.before), leg.filter.selects(entry.after)
            if is_ and entry.after is not None:
                return Event("MODIFIED" if was else "ADDED", _record(entry.after))
            if was and entry.before is not None:
                return Event("DELETED", _record(entry.before, entry.version))
        told = (
            isinstance(leg.state, machine.Watching) and leg.state.heard and leg.cursor == self.cluster.version
        )
        return None if told else Bookmark(str(self.cluster.version))

    # ---- What happens.

    def do(self, action: Action) -> None:
        what, who, how, fault = action
        self.faults -= fault
        if what == "write":
            assert isinstance(who, str)
            assert isinstance(how, str)
            self.writes -= 1
            self._write(who, how)
            return
        if what == "count":
            self._count()
            return
        if what == "restore":
            self._restore(bump=how == "with a bump")
            return
        assert isinstance(who, int)
        if what == "probe":
            self._ask(who)
            return
        leg = self.legs[who]
        if what == "due":
            self._feed(leg, machine.Due())
        elif what == "answer":
            assert isinstance(how, int)
            self._answer(leg, how)
        elif what == "next":
            self._hear(leg, self._next(leg))
        else:
            assert isinstance(how, str)
            self._fail(leg, how)

    def _write(self, name: str, how: str) -> None:
        key, wrote = ("", name), _WRITES[how]
        before = self.cluster.contents.get(key)
        if wrote is None and before is None:
            return
        uid = before.uid if before is not None else f"uid-{self.cluster.version + 1}"
        self.cluster.write(key, Thing("", name, uid, *wrote) if wrote is not None else None)

    def _restore(self, *, bump: bool) -> None:
        self.cluster.restore(FIRST, bump=bump)
        for leg in self.legs:
            version = self.union.substores[leg.number].version
            if not bump and max(int(leg.state.known.floor or 0), int(version or 0)) <= FIRST:
                leg.epoch = self.cluster.epoch
                self.observer.hears(leg.epoch, FIRST)
            if not isinstance(leg.command, machine.Wait):
                self._feed(leg, machine.Lost("reset"))

    def _awaited(self) -> dict[int, int]:
        """Return the branches to probe, and the version of each list: a newer one if it is forgotten."""
        cluster, found = self.cluster, dict[int, int]()
        for branch, wanted in self.union.awaited.items():
            number = self.union.substores.index(branch)
            version = int(wanted) if wanted else cluster.version
            if version not in cluster.contents_by_version or version < cluster.compacted:
                version = cluster.version
            is_newer = version >= max(int(wanted or 0), int(branch.version) + 1)
            if is_newer and isinstance(self.legs[number].state, machine.Watching):
                found[number] = version
        return found

    def _ask(self, number: int) -> None:
        version = self._awaited()[number]
        found = self.cluster.selected(FILTERS[number], version=version)
        listed = {key: (thing.uid, str(thing.version)) for key, thing in found.items()}
        self.probe = number, version, self.cluster.epoch, listed

    def _counts(self) -> bool:
        assert self.probe is not None
        number, version, _, listed = self.probe
        return Probe(self.union.substores[number], str(version), listed).counts()

    def _count(self) -> None:
        assert self.probe is not None
        (number, version, epoch, _), self.probe = self.probe, None
        leg = self.legs[number]
        if leg.epoch < epoch:  # As by a list of the restored server.
            leg.epoch = epoch
            self.observer.notices(epoch, version)
        self.observer.hears(leg.epoch, version)
        leg.cursor = max(leg.cursor, version)
        self._feed(leg, machine.Probed(str(version)))

    def _answer(self, leg: Leg, version: int) -> None:
        command = leg.command
        assert isinstance(command, machine.List)
        if command.token:
            epoch, version = map(int, command.token.split(":"))
            if epoch != self.cluster.epoch:
                self._feed(leg, Refusal(410, "Expired"))
                return
        else:
            leg.offset = 0
        if command.not_older_than and int(command.not_older_than) > self.cluster.version:
            self._feed(leg, Refusal(504, "Timeout"))
            return
        things = [thing for _, thing in sorted(self.cluster.selected(leg.filter, version=version).items())][
            leg.offset :
        ]
        leg.offset += self.rules.page
        more = f"{self.cluster.epoch}:{version}" if len(things) > self.rules.page else ""
        self._feed(leg, Page(str(version), more, tuple(map(_record, things[: self.rules.page]))))

    def _hear(self, leg: Leg, message: Event | Bookmark | None) -> None:
        assert message is not None
        leg.lines = leg.lines[1:]
        version = int(message.record.version if isinstance(message, Event) else message.version)
        if isinstance(leg.state, machine.Watching):
            self.observer.hears(leg.epoch, version)
        leg.cursor = max(leg.cursor, version)
        leg.last = message if isinstance(message, Event) else leg.last
        self._feed(leg, message)

    def _fail(self, leg: Leg, how: str) -> None:
        if how == "stale":
            self._answer(leg, FIRST)
        elif how == "duplicate":
            assert leg.last is not None
            self._feed(leg, leg.last)
        elif how == "early bookmark":
            self._feed(leg, Bookmark(str(self.cluster.version)))
        elif how == "old deletion":
            coming = self._next(leg)
            assert isinstance(coming, Event)
            thing = next(
                entry.before for entry in self.cluster.log if str(entry.version) == coming.record.version
            )
            assert thing is not None
            leg.lines, leg.cursor = leg.lines[1:], max(leg.cursor, int(coming.record.version))
            self._feed(leg, Event("DELETED", _record(thing)))
        else:
            failures: dict[str, machine.Input] = {
                "lost": machine.Lost("cut"),
                "ended": machine.Lost("end", clean=True),
                "410": Refusal(410, "Expired"),
                "silent": machine.Silent(),
            }
            self._feed(leg, failures[how])

    # ---- What the shell does.

    def _feed(self, leg: Leg, input_: machine.Input) -> None:
        stepped = machine.step(leg.state, input_)
        leg.state = stepped.state
        leg.beyond = leg.beyond or leg.state.known.beyond
        if self.probe is not None and self.probe[0] == leg.number and self._is_over(leg):
            self.probe = None
        branch = self.union.substores[leg.number]
        for effect in stepped.effects:
            match effect:
                case machine.List() | machine.Watch() | machine.Wait():
                    leg.command, leg.last = effect, None
                case machine.Commit(version, restored):
                    if restored and leg.epoch == self.cluster.epoch:
                        raise Violation(
                            "I4", f"the server was not restored: {version} after {branch.version}"
                        )
                    if leg.epoch < self.cluster.epoch:
                        leg.epoch = self.cluster.epoch
                        self.observer.notices(leg.epoch, int(version))
                    self.observer.hears(leg.epoch, int(version))
                    leg.beyond = False
            changes = carried_out(effect, Writer(self.union, branch))
            for old, why in self.union.pop_streams_to_relist().items():
                self.outdated.append(self.legs[self.union.substores.index(old)])
                if why == "restored":
                    self.outdated[-1].epoch = self.cluster.epoch - 1  # As far as readers are concerned.
            if isinstance(effect, (machine.Commit, machine.Jump, machine.Progress)):
                held = {record.key: record for record in branch.view.records()[0]}
                self.judge.judge(Taken(leg.filter, leg.epoch, int(effect.version), held, leg.beyond))
            self._see(changes)
        if isinstance(leg.command, machine.Watch) and isinstance(
            stepped.effects[-1] if stepped.effects else None, machine.Watch
        ):
            self._open(leg, leg.command)
        outdated, self.outdated = self.outdated, []
        for other in outdated:
            if isinstance(other.state, machine.Watching):
                other.state = machine.Idle(other.state.known.going_beyond())
                self._feed(other, machine.Start())
            elif isinstance(
                other.state, machine.Waiting
            ):  # Which is not cut short. A list that is under way will do.
                other.state = machine.Waiting(other.state.known.going_beyond())

    def _is_over(self, leg: Leg) -> bool:
        """Return True if the probe of a branch is over: it has reached its version, or lists."""
        assert self.probe is not None
        return not isinstance(leg.state, machine.Watching) or int(leg.state.version) >= self.probe[1]

    def _open(self, leg: Leg, command: machine.Watch) -> None:
        """Answer a watch: at once, since nothing else can come of it."""
        version = int(command.version or 0)
        leg.lines, leg.cursor = (), version
        if command.initial and version <= self.cluster.version:
            things = self.cluster.selected(leg.filter).values()
            events = (Event("ADDED", _record(thing)) for thing in things)
            leg.lines, leg.cursor = (
                (*events, Bookmark(str(self.cluster.version), complete=True)),
                self.cluster.version,
            )
        elif command.initial:
            self._feed(leg, Refusal(504, "Timeout"))
            return
        elif version < self.cluster.compacted:
            self._feed(leg, Refusal(410, "Expired"))
            return
        self._feed(leg, machine.Opened())

    def _see(self, changes: list[Change]) -> None:
        store = self.union.store
        self.judge.judge(
            self.observer.sees(
                store,
                changes,
                self.cluster,
                epoch=min(leg.epoch for leg in self.legs),
                version=int(store.version or 0),
                beyond=any(leg.beyond for leg in self.legs),
            )
        )

    # ---- In the end.

    def settle_a_little(self) -> None:
        """Let whatever can happen without a fault or a write happen once."""
        for number, leg in enumerate(self.legs):
            good = self._good(number, leg)
            if good:
                self.do(good[-1])
            elif isinstance(leg.state, machine.Watching) and leg.cursor > self.cluster.version:
                self._feed(leg, machine.Lost("end", lived=True))
        for number in self._awaited() if self.union.unconfirmed else ():
            self._ask(number)
            if self._counts():
                self._count()
                break
            self.probe = None

    def settle(self, most: int = 60) -> None:
        """Let all faults end, and compare."""
        for _ in range(most):
            if self.settled():
                return
            self.settle_a_little()
        held = {record.key: (record.uid, record.version) for record in self.union.store.records()[0]}
        raise Violation(
            "I3", f"{held} in the end instead of {self.cluster.selected()}; {self.union.unconfirmed}"
        )

    def _follows(self) -> bool:
        return not self.union.unconfirmed and all(
            isinstance(leg.state, machine.Watching) and leg.epoch == self.cluster.epoch for leg in self.legs
        )

    def settled(self) -> bool:
        return self._follows() and equal(self.union.store.records()[0], self.cluster.selected())


def _record(thing: Thing, version: int | None = None) -> Record:
    labels = {"app": thing.app, "serial": str(thing.serial)}
    data = b'{"spec":{"serial":%d}}' % thing.serial
    return Record(
        thing.namespace,
        thing.name,
        thing.uid,
        str(thing.version if version is None else version),
        labels,
        (),
        data,
    )
