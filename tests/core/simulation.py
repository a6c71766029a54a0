"""A client of the model server: `step` and a real Store, in virtual time; after every step, what was promised is judged.

Nothing here waits: the clock is a number, and every chance comes from one seeded generator.
"""
from __future__ import annotations

import random
from collections import Counter, deque
from typing import TypeAlias

from kopf_selectcache.core import protocol
from kopf_selectcache.core.backoff import SHORTEST, delay
from kopf_selectcache.core.problems import Garbled
from kopf_selectcache.core.record import Record, is_older
from kopf_selectcache.core.store import Change, Store
from kopf_selectcache.core.wire import Bookmark, Event, Lines, Page, Reader, Refusal

from .server import Broken, Server, Stream, Thing, World

WINDOW = 60.0
MOST_STARTS = int(WINDOW / (SHORTEST / 2)) + 1
"""No two requests are closer than half the first delay: only pages, and the watch after a list, follow at once."""


def _most_vain_starts() -> int:
    spent, starts = 0.0, 0
    while spent <= WINDOW:
        spent += delay(starts, 0.0)
        starts += 1
    return starts


MOST_VAIN_STARTS = _most_vain_starts()
"""If the version does not move all the while, each delay is twice the last, up to the longest."""


class Run:
    """A client of the model: what the runner does, and after every step, what was promised."""

    def __init__(self, seed: int, hits: Counter[tuple[str, str]], seen: Counter[tuple[str, str, str]]) -> None:
        self.rng = random.Random(seed)
        self.server = Server(self.rng, hits)
        self.seen = seen
        self.store = Store()
        self.reader = Reader("v1", "Pod")
        self.state: protocol.State = protocol.Idle(protocol.Known(streaming=self.rng.random() < 0.8))
        self.now = self.due = 0.0
        self.epoch = 0
        self.best = 0
        """The highest version that any watch of this epoch has told of."""
        self.command: protocol.Effect | None = None
        self.stream: Stream | None = None
        self.lines = Lines()
        self.shown: dict[str, Record] = {}
        """What the changes told so far amount to."""
        self.places: dict[str, int] = {}
        """How far in the server's history of a name readers have come."""
        self.starts: deque[float] = deque()
        self.vain: deque[float] = deque()
        self.again: deque[float] = deque()
        """When the same page was asked for."""
        self.story: deque[str] = deque(maxlen=60)
        self.feed(protocol.Start())

    # ---- What happens.

    def operate(self) -> None:
        """Let one thing happen: in the cluster, or between client and server."""
        server, chance = self.server, self.rng.random()
        server.where, server.now = type(self.state).__name__, self.now
        floor = server.number(self.state.known.floor or server.text(0))
        noticed = self.epoch == server.epoch
        rare = 0.2 if "restored" in server.habits and server.where in ("Listing", "Filling") else 0.0
        if chance < 0.25:
            # A server that outgrows what was seen before its restoration is noticed wants an audit, not a watch.
            if noticed or server.version + 6 < floor:
                server.churn()
        elif chance < 0.26:
            server.compact()
        elif chance < 0.27 and noticed:
            server.backup = max(server.compacted, server.version)
        elif chance < 0.28 + rare and noticed and not server.opaque:
            # Nor can silence tell anything of a server which has not sent bookmarks before.
            if (bump := self.rng.random() < 0.5) or (self.state.known.marked and server.backup < floor):
                server.restore(bump=bump)
                self.story.append(f"restored to {server.version} of epoch {server.epoch}")
                if not isinstance(self.command, protocol.Wait):
                    self.feed(protocol.Lost("reset"))
        else:
            self.poll()

    def settle(self, most: int) -> int:
        """Let all faults end; return after how many steps the store equals the cluster."""
        self.server.rate = 0.0
        for count in range(most):
            synced = isinstance(self.state, protocol.Watching) and self.epoch == self.server.epoch
            if synced and self._held() == _selected(self.server.world):
                return count
            self.server.where, self.server.now = type(self.state).__name__, self.now
            self.poll()
        raise AssertionError(f"after {most} quiet steps: {self._held()} instead of {_selected(self.server.world)}")

    def poll(self) -> None:
        """Do what the last command says."""
        try:
            if isinstance(self.command, protocol.Wait):
                self.now = self.due
                self.feed(protocol.Due())
            elif isinstance(self.command, protocol.List):
                self.now += 0.01
                answer = self.server.page(self.command)
                self.feed(answer if isinstance(answer, Refusal) else self.reader.page(answer))
            elif self.stream is None:
                assert isinstance(self.command, protocol.Watch)
                opened = self.server.watch(self.command)
                if isinstance(opened, Stream):
                    self.stream, self.lines = opened, Lines()
                self.feed(protocol.Opened() if isinstance(opened, Stream) else opened)
            else:
                self._poll(self.stream)
        except Broken:
            self.feed(protocol.Lost("reset"))
        except TimeoutError:
            self.feed(protocol.Silent())
        except Garbled as garbled:
            self.feed(protocol.Lost(str(garbled), garbled=True))

    def _poll(self, stream: Stream) -> None:
        chunk = self.server.poll(stream)
        if chunk is None:
            self.feed(protocol.Lost("end", lived=self.now - stream.opened > WINDOW))
            return
        self.now += 0.01 if chunk else 10.0
        if not chunk and self.rng.random() < 0.2:
            raise TimeoutError
        for line in self.lines.feed(chunk):
            self.feed(self.reader.line(line))
            if self.stream is not stream:
                return

    def feed(self, input_: protocol.Input) -> None:
        before = self.state
        after = protocol.step(before, input_)
        self.state = after.state
        names = type(before).__name__, type(input_).__name__, type(self.state).__name__
        self.story.append(f"{self.now:.2f} {before} {input_} -> {after}")
        assert names[2] in protocol.TRANSITIONS[names[:2]]
        self.seen[names] += 1
        self._judge_rate(before, input_, after.effects)
        for effect in after.effects:
            self._apply(effect)
        if isinstance(input_, Refusal):
            assert self.due >= self.now + (input_.retry_after or 0.0), "the server asked for more patience"
        self._judge_reads()

    def _apply(self, effect: protocol.Effect) -> None:
        changes: list[Change] = []
        match effect:
            case protocol.Wait(failures, at_least, slow):
                self.due = self.now + delay(failures, self.rng.random(), at_least=at_least, slow=slow)
                self.command = effect
            case protocol.List():
                self.command = effect
            case protocol.Watch():
                self.command, self.stream = effect, None
            case protocol.Close():
                self.stream = None
            case protocol.Begin():
                self.store.begin()
            case protocol.Abandon():
                self.store.abandon()
            case protocol.Put(record):
                changes = self.store.put(record)
            case protocol.Leave(record):
                changes = self.store.leave(record)
            case protocol.Commit(version, restored):
                assert restored == is_older(version, self.store.version), "a restoration is told, and nothing else is"
                assert not restored or self.epoch != self.server.epoch, "the server was not restored"
                changes = self.store.commit(version)
                self._judge_changes(changes, anew=self.epoch != self.server.epoch)
                self.epoch, self.best = self.server.epoch, self.best if self.epoch == self.server.epoch else 0
                changes = []
                self._judge_whole(version)
            case protocol.Progress(version):
                self.store.progress(version)
                self._judge_whole(version)
            case protocol.Told():
                pass
        self._judge_changes(changes, anew=False)

    # ---- What was promised.

    def _judge_rate(self, before: protocol.State, input_: protocol.Input, effects: tuple[protocol.Effect, ...]) -> None:
        if isinstance(before, protocol.Watching) and isinstance(input_, (Event, Bookmark)):
            version = self.server.number(input_.record.version if isinstance(input_, Event) else input_.version)
            if version > self.best:
                self.best = version
                self.vain.clear()
        if isinstance(input_, protocol.Lost) and input_.lived:
            self.vain.clear()
        if isinstance(input_, Page):
            self.again.clear()
        asked = [effect for effect in effects if isinstance(effect, (protocol.List, protocol.Watch))]
        if isinstance(input_, Page) or not asked:
            return
        # A page is asked for again at its own pace: the others were not in vain.
        vain = self.again if isinstance(asked[0], protocol.List) and asked[0].token else self.vain
        for starts, most in ((self.starts, MOST_STARTS), (vain, MOST_VAIN_STARTS)):
            starts.append(self.now)
            while starts[0] < self.now - WINDOW:
                starts.popleft()
            assert len(starts) <= most, f"{len(starts)} requests in {WINDOW:.0f} s"

    def _judge_changes(self, changes: list[Change], *, anew: bool) -> None:
        for before, after in ((change.before, change.after) for change in changes):
            record = after or before
            assert record is not None
            assert self.shown.get(record.name) is before, "a change must start from what was shown last"
            if before is not None and after is not None:
                assert before.uid == after.uid, "another object is no change of this one"
                newer = self.server.number(after.version) > self.server.number(before.version)
                assert anew or newer, "an object went back"
            if after is None:
                del self.shown[record.name]
            else:
                self.shown[record.name] = after
            history = self.server.history[record.name]
            place = self.places.get(record.name, 0)
            while place < len(history) and _facts(history[place]) != _told(after):
                place += 1
            assert place < len(history), f"{record.name} was never {_told(after)} since what was seen before"
            self.places[record.name] = place

    def _judge_reads(self) -> None:
        records, _ = self.store.records()
        assert {record.name: id(record) for record in records} == {name: id(record) for name, record in self.shown.items()}
        assert all(record.labels == {"app": "web"} for record in records), "something outside the filter is readable"

    def _judge_whole(self, version: str) -> None:
        held, then = self._held(), _selected(self.server.worlds[self.server.number(version)])
        if self.state.known.beyond:
            # Deletions that did not say when they happened may be ahead of the version.
            later = {before.name for at, before, _ in self.server.log if before and at > self.server.number(version)}
            then = {name: facts for name, facts in then.items() if name in held or name not in later}
        assert held == then, f"not what it was at {version}"
        assert self.store.version == version

    def _held(self) -> dict[str, _Facts | None]:
        return {record.name: _told(record) for record in self.store.records()[0]}


_Facts: TypeAlias = tuple[str, int]


def _facts(thing: Thing | None) -> _Facts | None:
    return None if thing is None else (thing.uid, thing.serial)


def _told(record: Record | None) -> _Facts | None:
    return None if record is None else (record.uid, record.decode()["spec"]["serial"])


def _selected(world: World) -> dict[str, _Facts | None]:
    return {thing.name: _facts(thing) for thing in world.values() if thing.web}
