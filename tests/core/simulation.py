"""The core against the model server, in virtual time: each stream's `step`, what it does to one `Union`,
and the reads that end doubts.

Nothing here waits: the clock is a number, and every chance comes from a seed. Each operation has a seed of
its own, so that a failing run still fails when operations that do not matter are left out. What readers could
see is recorded, and judged when the run is over."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kopf_selectcache.client.reading import Lines
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol import machine
from kopf_selectcache.core.protocol.backoff import SHORTEST, delay
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Bookmark, Event, Page, Piece, Refusal
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.record import ObjectKey, is_older
from kopf_selectcache.core.store.unconfirmed import JoinedLists, UnconfirmedLeave
from kopf_selectcache.core.store.union import Union

from .client import carried_out
from .cluster import Filter, Thing
from .faults import Hits
from .guarantees import Judge, Observer, Seen, Taken, Violation, equal, facts_of_all, told
from .server import LIMIT, Broken, Server, Stream
from .writers import Writer

WINDOW = 60.0
LASTED = 5.0
MOST_STARTS = int(WINDOW / (SHORTEST / 2)) + 2
"""No two requests are closer than half the first delay, except pages, the watch after a list, and once the
watch after one that ended.

A watch that was open for `LASTED` and is followed by the next at once has taken as long as many waits.
"""


def _most_vain_starts() -> int:
    spent, starts = 0.0, 0
    while spent <= WINDOW:
        spent += delay(starts, 0.0)
        starts += 1
    return starts + 1 + int(WINDOW / LASTED)


MOST_VAIN_STARTS = _most_vain_starts()
"""If the version does not move all the while, each delay is twice the last, up to the longest; and each watch
that lasts is followed at once."""

FILTERS: tuple[tuple[Filter, ...], ...] = (
    (Filter(app="web"),),
    (Filter(app="web", running=True),),
    (Filter(namespace="shop"),),
    (Filter(app="web"), Filter(app="db")),
    (Filter(app="web"), Filter(gold=True)),
    (Filter(app="web", running=True), Filter(app="web", running=False, gold=True)),
    (Filter(app="web", namespace="shop"), Filter(app="web", namespace="blog")),
    (Filter(namespace="shop"), Filter(app="web")),
    (Filter(namespace="shop", name="a"), Filter(namespace="shop", name="b")),
    (Filter(app="web"), Filter(app="db"), Filter(gold=True)),
    (Filter(namespace="shop", name="a"), Filter(app="web", namespace="shop"), Filter(gold=True)),
)
"""Filters of one to three branches: they exclude each other, or overlap; by label, field, namespace and
name."""

_READER = Reader("v1", "Pod")


@dataclass(eq=False)
class Follower:
    """One stream of the client: what the runner does for it."""

    filter: Filter
    number: int
    state: machine.State
    command: machine.Effect | None = None
    stream: Stream | None = None
    lines: Lines = field(default_factory=Lines)
    due: float = 0.0
    epoch: int = 0
    best: int = 0
    """The highest version that any watch of this epoch has told of."""
    missing: bool = False
    beyond: bool = False
    """Whether deletions came, since the last list, that did not say when they had happened."""

    def __post_init__(self) -> None:
        self.starts: deque[float] = deque()
        self.vain: deque[float] = deque()
        self.again: deque[float] = deque()
        """When the same page was asked for."""
        self.listed: set[ObjectKey] = set()
        """The keys that the list under way has brought."""
        self.turned = 0
        """The number of its pages that were followed without a wait."""

    @property
    def where(self) -> str:
        return type(self.state).__name__

    def good(self, input_: machine.Input, version: int) -> None:
        """Take note of what ends a row of failures."""
        if isinstance(self.state, machine.Watching) and version > self.best:
            self.best = version
            self.vain.clear()
        if isinstance(input_, machine.Lost) and input_.lived:
            self.vain.clear()
        if isinstance(input_, Page):
            self.again.clear()

    def asks(self, input_: machine.Input, effects: tuple[machine.Effect, ...], now: float) -> None:
        asked = [effect for effect in effects if isinstance(effect, (machine.List, machine.Watch))]
        if machine.Begin() in effects:
            self.listed.clear()
            self.turned = 0
        if isinstance(input_, (Page, Piece)):
            self.listed |= {record.key for record in input_.records}
            self.turned += any(isinstance(effect, machine.List) for effect in asked)
            # A key that comes again counts as new once, unless it is of the first page: see `Pager`.
            if self.turned > 2 * len(self.listed):
                raise Violation(
                    "I7",
                    f"{self.turned} pages of a list were followed without a wait, and brought"
                    f" {len(self.listed)} keys",
                )
        if isinstance(input_, Page) or not asked:
            return
        # A page is asked for again at its own pace: the others were not in vain.
        vain = self.again if isinstance(asked[0], machine.List) and asked[0].token else self.vain
        for starts, most in ((self.starts, MOST_STARTS), (vain, MOST_VAIN_STARTS)):
            starts.append(now)
            while starts[0] < now - WINDOW:
                starts.popleft()
            if len(starts) > most:
                raise Violation("I7", f"{len(starts)} requests in {WINDOW:.0f} s")


class Run:
    """A client of the model, with one stream for each branch of its filter."""

    def __init__(
        self, seed: int, hits: Hits, seen: Counter[tuple[str, str, str]], *, filters: Sequence[Filter] = ()
    ) -> None:
        rng = self.rng = random.Random(seed)
        filters = filters or rng.choice(FILTERS)
        self.server = Server(rng, hits, filters, opaque=len(filters) == 1 and rng.random() < 0.1)
        self.cluster = self.server.cluster
        self.transitions = seen
        self.union = Union([each.keys for each in filters])
        self.streaming = rng.random() < 0.8
        self.history: list[Seen | Taken] = []
        self.reading: tuple[UnconfirmedLeave, tuple[int, Thing | None] | None] | None = None
        """The read that is under way, and its answer."""
        self.joined: tuple[JoinedLists, dict[ObjectKey, str] | None] | None = None
        """The joined lists that are under way, and their answer."""
        self.settled_by_lists = 0
        """How many changes joined lists have made."""
        self.story: deque[str] = deque(maxlen=80)
        self.observer = Observer()
        self.outdated: list[Follower] = []
        """Those that must be listed anew, since another one has found that the server was restored."""
        self.complete = not self.server.forgetful
        self.followers = [Follower(each, number, self._idle()) for number, each in enumerate(filters)]
        for follower in self.followers:
            self.feed(follower, machine.Start())

    def _idle(self) -> machine.Idle:
        return machine.Idle(machine.Known(streaming=self.streaming))

    # ---- What happens.

    def run(self, operations: Sequence[int], *, settle: int = 300) -> int:
        """Do these operations, let all faults end, and judge; return after how many steps the cache equalled
        the cluster."""
        try:
            for seed in operations:
                self.rng.seed(seed)
                self.operate()
            self.rng.seed(0)
            return self.settle(settle)
        finally:
            self.judge()  # What readers saw tells more than what came of it.

    def operate(self) -> None:
        """Let one thing happen: in the cluster, or between client and server."""
        server, chance = self.server, self.rng.random()
        follower = self.rng.choice(self.followers)
        server.where = follower.where
        noticed = self._noticed()
        rare = 0.2 if "restored" in server.habits and server.where in ("Listing", "Filling") else 0.0
        if chance < 0.25:
            # A server that outgrows what was seen before its restoration is noticed wants an audit, not a
            # watch.
            if noticed or self.cluster.version + 6 < min(
                self._floor(each) for each in self.followers if each.epoch < self.cluster.epoch
            ):
                server.churn()
        elif chance < 0.26:
            server.compact()
        elif chance < 0.27 and noticed:
            server.backup = max(self.cluster.compacted, self.cluster.version)
        elif chance < 0.28 + rare and noticed and not server.opaque:
            self._restore(bump=self.rng.random() < 0.5)
        elif chance < 0.30:
            self._start_again(follower, audit=True)
        elif chance < 0.36:
            server.advance()
        elif chance < 0.45 and (self.union.unconfirmed or self.joined):
            self.read()
        else:
            self.poll(follower)

    def _noticed(self) -> bool:
        return all(each.epoch == self.cluster.epoch for each in self.followers)

    def _floor(self, follower: Follower) -> int:
        version = self.union.substores[follower.number].version
        return max(map(self.server.number, (follower.state.known.floor, version)))

    def _restore(self, *, bump: bool) -> None:
        server = self.server
        behind = [each for each in self.followers if self._floor(each) <= server.backup]
        # Silence cannot tell anything of a server which has not sent bookmarks before. Nor is there anything
        # to notice for a branch that is behind; but what it was told to be deleted may be there again. Only
        # an audit finds that.
        if not bump and not all(
            not each.beyond if each in behind else each.state.known.marked for each in self.followers
        ):
            return
        server.restore(bump=bump)
        self.story.append(f"restored to {self.cluster.version} of epoch {self.cluster.epoch}")
        for follower in behind if not bump else ():
            follower.epoch = (
                self.cluster.epoch
            )  # What it holds, the restored server has as well, at the same versions.
            self.observer.keeps(follower.epoch, self._floor(follower), restored_to=self.cluster.version)
        for follower in self.followers:
            if not isinstance(follower.command, machine.Wait):
                self.feed(follower, machine.Lost("reset"))

    def _start_again(self, follower: Follower, *, audit: bool) -> None:
        """Forget where a stream was: its kind was not served for a while, or an audit has found something."""
        version = self.union.substores[follower.number].version
        known = (
            follower.state.known.going_beyond()
            if audit
            else machine.Known(streaming=self.streaming, floor=version, beyond=version != "")
        )
        self.server.struck("started again")
        follower.state, follower.stream, follower.missing = machine.Idle(known), None, False
        follower.vain.clear()  # Audits are rare, and a kind that is not served is looked for slowly.
        self.feed(follower, machine.Start())

    def settle(self, most: int) -> int:
        """Let all faults end; return after how many steps the store equals the cluster."""
        self.server.rate = 0.0
        self.server.forgetful = False
        for follower in self.followers if not self.complete else ():
            self._start_again(follower, audit=True)
        for count in range(most):
            follower = self.followers[count % len(self.followers)]
            if self.settled():
                return count
            self.server.where = follower.where
            self.server.advance()
            if (self.union.unconfirmed or self.joined) and self.rng.random() < 0.3:
                self.read()
            self.poll(follower)
        held = {record.key: told(record) for record in self.union.store.records()[0]}
        raise Violation(
            "I3", f"after {most} quiet steps: {held} instead of {facts_of_all(self.cluster.selected())}"
        )

    def settled(self) -> bool:
        synced = self._noticed() and all(isinstance(each.state, machine.Watching) for each in self.followers)
        return (
            synced
            and not self.union.unconfirmed
            and equal(self.union.store.records()[0], self.cluster.selected())
        )

    def read(self) -> None:
        """Ask the server about unconfirmed leaves, one by one or by joined lists, or take its answer in: much
        may happen between."""
        if self.joined is not None:
            self._take_joined_lists(*self.joined)
            return
        if self.reading is None:
            if self.rng.random() < 0.5 and (joined := self.union.joined_lists()):
                lists = self.rng.choice(joined)
                self.joined = lists, self.server.look_up_all(lists, self.cluster.filters)
                return
            doubt = self.rng.choice(self.union.unconfirmed)
            self.reading = doubt, self.server.look_up(doubt)
            return
        (doubt, answer), self.reading = self.reading, None
        if answer is None:
            return
        version, thing = answer
        outside = thing is not None and not any(each.may_hold(thing) for each in self.cluster.filters)
        self.story.append(f"{doubt} is answered: {answer}")
        if not is_older(self.server.text(version), doubt.version):
            self.observer.hears(self.cluster.epoch, version)
        self._seen(
            self.union.confirmed(
                doubt,
                version=self.server.text(version),
                uid=thing.uid if thing is not None else "",
                outside=outside,
            )
        )

    def _take_joined_lists(self, lists: JoinedLists, uids: dict[ObjectKey, str] | None) -> None:
        self.joined = None
        if uids is None:
            return
        self.story.append(f"{lists} are answered: {uids}")
        changes = self.union.confirmed_by_lists(lists, uids)
        self.settled_by_lists += len(changes)
        self._seen(changes)

    def poll(self, follower: Follower) -> None:
        """Do what the last command says."""
        server, command = self.server, follower.command
        try:
            if isinstance(command, machine.Wait):
                server.now = max(server.now, follower.due)
                self.feed(follower, machine.Due())
                if follower.missing:
                    for each in self.followers:
                        self._start_again(each, audit=False)
            elif isinstance(command, machine.List):
                server.now += 0.01
                answer = server.page(command, follower.filter)
                self._list(follower, answer if isinstance(answer, Refusal) else _READER.page(answer))
            elif follower.stream is None:
                assert isinstance(command, machine.Watch)
                opened = server.watch(command, follower.filter)
                if isinstance(opened, Stream):
                    follower.stream, follower.lines = opened, Lines(LIMIT)
                self.feed(follower, machine.Opened() if isinstance(opened, Stream) else opened)
            else:
                self._poll(follower, follower.stream)
        except Broken:
            lasted = follower.stream is not None and server.now - follower.stream.opened >= LASTED
            self.feed(follower, machine.Lost("reset", lasted=lasted))
        except TimeoutError:
            self.feed(follower, machine.Silent())
        except Garbled as garbled:
            self.feed(follower, machine.Lost(str(garbled), garbled=True))

    def _list(self, follower: Follower, answer: Page | Refusal) -> None:
        """Feed the answer to a list, some pages in pieces."""
        while isinstance(answer, Page) and answer.records and self.rng.random() < 0.2:
            count = self.rng.randint(1, len(answer.records))
            self.feed(follower, Piece(answer.records[:count]))
            answer = replace(answer, records=answer.records[count:])
            if not isinstance(follower.state, machine.Listing):
                return
            if self.server.fault("cut between pieces"):
                raise Broken
        self.feed(follower, answer)

    def _poll(self, follower: Follower, stream: Stream) -> None:
        server = self.server
        chunk = server.poll(stream)
        if chunk is None:
            age, clean = server.now - stream.opened, not follower.lines.rest
            lost = machine.Lost("end", lived=age > WINDOW, lasted=age >= LASTED, clean=clean)
            self.feed(follower, _READER.rest(follower.lines.rest) or lost)
            return
        server.now += 0.01 if chunk else 10.0
        if not chunk and self.rng.random() < 0.2:
            raise TimeoutError
        for line in follower.lines.feed(chunk):
            self.feed(follower, _READER.line(line))
            if follower.stream is not stream:
                return

    def feed(self, follower: Follower, input_: machine.Input) -> None:
        before, now = follower.state, self.server.now
        after = machine.step(before, input_)
        self.story.append(f"{now:.2f} {follower.number}: {before} {input_} -> {after}")
        names = type(before).__name__, type(input_).__name__, type(after.state).__name__
        assert names[2] in machine.TRANSITIONS[names[:2]]
        self.transitions[names] += 1
        if isinstance(input_, (Event, Bookmark)):
            text = input_.record.version if isinstance(input_, Event) else input_.version
            version = (
                0 if text.startswith("x") else self.server.number(text)
            )  # See the fault "version of another sort".
            if version and isinstance(before, machine.Watching):
                self.observer.hears(follower.epoch, version)
        else:
            version = 0
        follower.good(input_, version)
        follower.asks(input_, after.effects, now)
        follower.state = after.state
        follower.beyond = follower.beyond or after.state.known.beyond
        follower.missing = follower.missing or (isinstance(input_, Refusal) and input_.code == 404)
        for effect in after.effects:
            self._carry_out(follower, effect)
        outdated, self.outdated = self.outdated, []
        for each in outdated:
            self._start_again(each, audit=True)
        if isinstance(input_, Refusal) and follower.due < now + (input_.retry_after or 0.0):
            raise Violation("I7", "the server asked for more patience")

    def _carry_out(self, follower: Follower, effect: machine.Effect) -> None:
        branch = self.union.substores[follower.number]
        match effect:
            case machine.Wait(failures, at_least, slow):
                follower.due = self.server.now + delay(
                    failures, self.rng.random(), at_least=at_least, slow=slow
                )
                follower.command, follower.stream = effect, None
            case machine.List() | machine.Watch():
                follower.command, follower.stream = effect, None
            case machine.Commit(version, restored):
                if restored and follower.epoch == self.cluster.epoch:
                    raise Violation("I4", f"the server was not restored: {version} after {branch.version}")
                if follower.epoch < self.cluster.epoch:
                    follower.epoch, follower.best = self.cluster.epoch, 0
                    self.observer.notices(follower.epoch, self.server.number(version))
                self.observer.hears(follower.epoch, self.server.number(version))
                follower.beyond = False
            case machine.Report():
                return
        changes = carried_out(effect, Writer(self.union, branch))
        for old, why in self.union.pop_streams_to_relist().items():
            self.outdated.append(self.followers[self.union.substores.index(old)])
            if why == "restored":
                self.outdated[-1].epoch = self.cluster.epoch - 1  # As far as readers are concerned.
        if isinstance(effect, (machine.Commit, machine.Progress)):
            self._taken(follower, effect.version)
        self._seen(changes)

    # ---- What is recorded, and judged in the end.

    def _taken(self, follower: Follower, version: str) -> None:
        view = self.union.substores[follower.number].view
        held = {record.key: record for record in view.records()[0]}
        self.history.append(
            Taken(follower.filter, follower.epoch, self.server.number(version), held, follower.beyond)
        )

    def _seen(self, changes: list[Change]) -> None:
        store = self.union.store
        self.history.append(
            self.observer.sees(
                store,
                changes,
                self.cluster,
                epoch=min(each.epoch for each in self.followers),
                version=self.server.number(store.version),
                beyond=any(each.beyond for each in self.followers),
            )
        )

    def judge(self) -> None:
        judge = Judge(self.cluster, complete=self.complete)
        for at, what in enumerate(self.history):
            try:
                judge.judge(what)
            except Violation as violation:
                raise Violation(
                    violation.invariant, f"{violation}, after {at} of {len(self.history)} observations"
                ) from violation
