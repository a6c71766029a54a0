"""A model of an API server that fails in every known way. It is data and chance: nothing in it waits, or is really sent.

It keeps what was true at each version, so that what a client shows can be compared with it after every step.
"""
from __future__ import annotations

import json
import random
from collections import Counter, deque
from dataclasses import dataclass, field, replace

from kopf_selectcache.core import protocol
from kopf_selectcache.core.wire import Refusal

_ASKED, _STREAMED = ("Listing", "Filling", "Watching"), ("Filling", "Watching")
_ALWAYS = (*_ASKED, "Waiting")

FAULTS = {
    # Of requests.
    "request dropped": _ASKED, "410 at start": _ASKED, "429 at start": _ASKED, "500 at start": _ASKED, "504 at start": _ASKED,
    "403": _ASKED, "initial events unsupported": ("Filling",),
    # Of lists.
    "410 on page": ("Listing",), "410 as a plain answer": ("Listing",), "page of another version": ("Listing",),
    "empty page": ("Listing",), "pages without end": ("Listing",), "garbled page": ("Listing",), "table": ("Listing",),
    "silent list": ("Listing",), "stale list": ("Listing",),
    # Of streams.
    "410 in stream": _STREAMED, "429 in stream": _STREAMED, "500 in stream": _STREAMED, "cut": _STREAMED, "end": _STREAMED,
    "silence": _STREAMED, "garbled line": _STREAMED, "unknown type": _STREAMED, "duplicate": _STREAMED,
    "old deletion": _STREAMED, "early bookmark": ("Filling",), "no end marker": ("Filling",), "shuffled": ("Filling",),
    "stale stream": ("Filling",), "lag": ("Watching",),
    # Of the cluster, and what happens in it anyway.
    "restored": _ALWAYS, "restored with a bump": _ALWAYS, "compacted": _ALWAYS, "left": _ALWAYS, "returned": _ALWAYS,
    "recreated": _ALWAYS,
}
"""Each fault, and the states of the client in which it can strike. (Nothing is under way in Waiting.)"""

_RARE = ("stale list", "stale stream", "old deletion", "duplicate", "restored")
"""Those that want many relists and little else to strike."""

_COMPARING = ("stale list", "stale stream", "duplicate", "old deletion")

class Broken(Exception):
    """The connection is gone."""


@dataclass(frozen=True, slots=True)
class Thing:
    name: str
    uid: str
    version: int
    web: bool
    """Whether the filter of the client selects it."""
    serial: int
    """Its content: no two writes write the same."""


World = dict[str, Thing]


@dataclass(slots=True)
class Stream:
    cursor: int
    """All up to this version has been sent."""
    opened: float
    lines: deque[bytes] = field(default_factory=deque)
    sent: list[bytes] = field(default_factory=list)
    buffer: bytes = b""
    quiet: float = 0.0
    """For how long nothing has been sent."""
    dead: bool = False
    """Half open: nothing will come any more."""
    lag: int = 0


class Server:
    """Objects, one version for all, a log, and whatever can go wrong."""

    def __init__(self, rng: random.Random, hits: Counter[tuple[str, str]]) -> None:
        self.rng = rng
        self.hits = hits
        self.habits = {rng.choice(list(FAULTS))}   # One fault strikes again and again.
        self.rate = rng.choice((0.02, 0.05, 0.1, 0.2))
        if rng.random() < 0.4:
            self.habits, self.rate = {rng.choice(_RARE), "410 in stream"}, 0.02
        self.where = "Idle"   # The client's state.
        self.now = 0.0
        self.version = rng.choice((1, 5, 95))   # So that versions soon get one digit longer.
        self.epoch, self.compacted, self.serial = 0, 0, 0
        self.limit = rng.randint(1, 4)
        self.streams = rng.random() < 0.9
        self.opaque = rng.random() < 0.1
        self.bookmarks = not self.opaque and rng.random() < 0.8
        self.worlds: dict[int, World] = {self.version: {}}
        self.log: list[tuple[int, Thing | None, Thing | None]] = []
        self.backup = self.version
        self.history: dict[str, list[Thing | None]] = {}
        """What the filter showed of each name, in order, through all epochs."""

    def fault(self, name: str) -> bool:
        rate = 0.4 if name in self.habits and self.rate else self.rate
        if self.rng.random() >= rate or (self.opaque and name in _COMPARING):
            return False   # Where versions cannot be compared, nobody can tell what is stale.
        return self.struck(name)

    def struck(self, name: str) -> bool:
        self.hits[name, self.where] += 1
        return True

    @property
    def world(self) -> World:
        return self.worlds[self.version]

    # ---- What happens in the cluster.

    def churn(self) -> None:
        name = f"pod-{self.rng.randrange(8)}"
        before = self.world.get(name)
        chance = self.rng.random()
        if before is None:
            self._write(name, Thing(name, f"uid-{self.serial}", 0, self.rng.random() < 0.7, 0))
        elif chance < 0.25:
            self._write(name, None)
        elif chance < 0.4:
            self._write(name, None)
            self._write(name, replace(before, uid=f"uid-{self.serial}"))
            self.struck("recreated")
        elif chance < 0.7:
            self.struck("left" if before.web else "returned")
            self._write(name, replace(before, web=not before.web))
        else:
            self._write(name, before)

    def _write(self, name: str, thing: Thing | None) -> None:
        before, world = self.world.get(name), self.world
        for _ in range(self.rng.randint(1, 3)):   # Objects of other kinds use up versions, too.
            self.version += 1
            self.worlds[self.version] = world
        self.serial += 1
        after = None if thing is None else replace(thing, version=self.version, serial=self.serial)
        self.worlds[self.version] = {**{key: value for key, value in world.items() if key != name}, **({name: after} if after else {})}
        self.log.append((self.version, before, after))
        self.history.setdefault(name, [None]).append(after if after is not None and after.web else None)

    def compact(self) -> None:
        self.struck("compacted")
        self.compacted = self.rng.randint(self.compacted, self.version)

    def restore(self, *, bump: bool) -> None:
        """Go back to the last backup: to its version, too, or to a higher one than was ever given out."""
        self.struck("restored with a bump" if bump else "restored")
        world, highest = self.worlds[self.backup], self.version
        self.epoch += 1
        self.worlds = {version: known for version, known in self.worlds.items() if version <= self.backup}
        self.log = [entry for entry in self.log if entry[0] <= self.backup]
        self.version = self.compacted = highest + 100 if bump else self.backup
        self.worlds[self.version] = world
        for name, seen in self.history.items():
            thing = world.get(name)
            seen += [None, thing if thing is not None and thing.web else None]

    # ---- What it answers.

    def text(self, version: int) -> str:
        return f"{version * 7919 % 100_003:x}x" if self.opaque else str(version)

    def number(self, version: str) -> int:
        return int(version[:-1], 16) * pow(7919, -1, 100_003) % 100_003 if self.opaque else int(version)

    def _item(self, thing: Thing, version: int | None = None) -> str:
        metadata = {"name": thing.name, "namespace": "shop", "uid": thing.uid,
                    "resourceVersion": self.text(thing.version if version is None else version),
                    "labels": {"app": "web" if thing.web else "db"}}
        return f'"metadata":{json.dumps(metadata, separators=(",", ":"))},"spec":{{"serial":{thing.serial}}}}}'

    def _refusal(self, *, suffix: str) -> Refusal | None:
        if self.fault("request dropped"):
            raise Broken
        for code, reason in ((410, "Expired"), (429, "TooManyRequests"), (500, "InternalError"), (504, "Timeout")):
            if self.fault(f"{code} {suffix}"):
                return Refusal(code, reason, retry_after=self.rng.choice((None, 1.0, 30.0)) if code == 429 else None)
        return Refusal(403, "Forbidden") if self.fault("403") else None

    def _since(self, version: int) -> int:
        return self.rng.choice([known for known in self.worlds if known >= version])

    def page(self, command: protocol.List) -> bytes | Refusal:
        if self.rng.random() < 0.5 and (refusal := self._refusal(suffix="at start")):
            return refusal
        if self.fault("silent list"):
            raise TimeoutError
        if self.fault("410 as a plain answer"):
            return b'{"kind":"Status","metadata":{},"status":"Failure","reason":"Expired","code":410}'
        if self.fault("table"):
            return b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"%d"},"rows":[]}' % self.version
        version, offset = self.version, 0
        if command.token:
            epoch, version, offset = map(int, command.token.split(":"))
            if epoch != self.epoch or version < self.compacted or self.fault("410 on page"):
                return Refusal(410, "Expired", token=f"{self.epoch}:{self.version}:{offset}")
        elif command.not_older_than:
            floor = self.number(command.not_older_than)
            if floor > self.version:
                return Refusal(504, "Timeout", "Too large resource version")
            older = [known for known in self.worlds if known < floor]
            # A replica may lag, but not behind what it was asked for; unless it does not know the question.
            version = self.rng.choice(older) if older and self.fault("stale list") else self._since(floor)
        if command.token and self.fault("page of another version"):
            version = self.rng.choice(list(self.worlds))
        selected = sorted((thing for thing in self.worlds[version].values() if thing.web), key=lambda thing: thing.name)
        items = selected if command.whole else selected[offset:offset + self.limit]
        if self.fault("empty page"):
            items = []
        rest = offset + len(items) < len(selected)
        token = f"{self.epoch}:{version}:{offset + len(items)}" if rest else ""
        if command.token and self.fault("pages without end"):
            token = command.token
        listed = ",".join("{" + self._item(thing) for thing in items)
        metadata = f'{{"resourceVersion":"{self.text(version)}","continue":"{token}"}}'
        data = f'{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":[{listed}]}}'.encode()
        return data[:self.rng.randrange(len(data))] if self.fault("garbled page") else data

    def watch(self, command: protocol.Watch) -> Stream | Refusal:
        if self.rng.random() < 0.5 and (refusal := self._refusal(suffix="at start")):
            return refusal
        start = self.number(command.version) if command.version else 0
        if not command.initial:
            if start < self.compacted:
                return Refusal(410, "Expired")
            # A version to come is no mistake to a server: it will tell when it is there.
            return Stream(start, self.now, lag=self.rng.randint(1, 10) if self.fault("lag") else 0)
        if not self.streams or self.fault("initial events unsupported"):
            self.hits["initial events unsupported", self.where] += not self.streams
            return Refusal(self.rng.choice((400, 422)), "Invalid", "sendInitialEvents is forbidden")
        if start > self.version:
            return Refusal(504, "Timeout", "Too large resource version")
        version = self._since(start) if start else self.version
        older = [known for known in self.worlds if known < start]
        if older and self.fault("stale stream"):
            version = self.rng.choice(older)
        stream = Stream(version, self.now)
        things = [thing for thing in self.worlds[version].values() if thing.web]
        if self.fault("shuffled"):
            self.rng.shuffle(things)
        stream.lines.extend(self._line("ADDED", thing) for thing in things)
        if self.fault("early bookmark"):
            stream.lines.insert(self.rng.randint(0, len(things)), self._bookmark(version))
        if not self.fault("no end marker"):
            # What is written meanwhile may come before the marker.
            for _ in range(self.rng.randint(0, 6)):
                self._advance(stream)
            stream.lines.append(self._bookmark(stream.cursor, end=True))
        return stream

    def _line(self, type_: str, thing: Thing, version: int | None = None) -> bytes:
        return f'{{"type":"{type_}","object":{{"kind":"Pod","apiVersion":"v1",{self._item(thing, version)}}}\n'.encode()

    def _bookmark(self, version: int, *, end: bool = False) -> bytes:
        note = ',"annotations":{"k8s.io/initial-events-end":"true"}' if end else ""
        return (f'{{"type":"BOOKMARK","object":{{"kind":"Pod","apiVersion":"v1",'
                f'"metadata":{{"resourceVersion":"{self.text(version)}"{note}}}}}}}\n').encode()

    def _advance(self, stream: Stream) -> None:
        """Put the next of what was written since into the stream, if the filter shows it."""
        entry = next((entry for entry in self.log if entry[0] > stream.cursor), None)
        if entry is None or entry[0] > self.version - stream.lag:
            stream.lag = max(0, stream.lag - 1)
            return
        stream.cursor = entry[0]
        stream.lines.extend(self._lines(entry, fail=True))

    def _lines(self, entry: tuple[int, Thing | None, Thing | None], *, fail: bool = False) -> list[bytes]:
        version, before, after = entry
        was, is_ = before is not None and before.web, after is not None and after.web
        if after is not None and is_:
            return [self._line("MODIFIED" if was else "ADDED", after)]
        if before is not None and was:
            old = fail and self.fault("old deletion")
            return [self._line("DELETED", before, before.version if old else version)]
        return []

    def poll(self, stream: Stream) -> bytes | None:
        """Return what comes next: bytes, none of them if nothing comes for a while, or None for the end."""
        if stream.dead or self.fault("silence"):
            stream.dead = True
            return b""
        if self.fault("cut"):
            raise Broken
        if self.fault("end") or self.now - stream.opened > 300:
            return None
        for code in (410, 429, 500):
            if self.rng.random() < 0.5 and self.fault(f"{code} in stream"):
                details = ',"details":{"retryAfterSeconds":3}' if code == 429 else ""
                return f'{{"type":"ERROR","object":{{"kind":"Status","code":{code},"reason":"Oops"{details}}}}}\n'.encode()
        if self.fault("unknown type"):
            return b'{"type":"SYNCED","object":{}}\n'
        if stream.sent and self.fault("duplicate"):
            # Before the end of an initial stream, only what it has sent itself can be told from what is new.
            old = [line for entry in self.log if entry[0] <= stream.cursor for line in self._lines(entry)] if self.where == "Watching" else []
            stream.buffer += self.rng.choice(old or stream.sent) if not stream.buffer else b""
        if not stream.lines and not stream.buffer:
            self._advance(stream)
            if not stream.lines and stream.quiet >= 10 and self.bookmarks and self.rng.random() < 0.5 and self.version >= stream.cursor:
                if not stream.lag and all(entry[0] <= stream.cursor for entry in self.log[-1:]):
                    stream.cursor = self.version
                stream.lines.append(self._bookmark(stream.cursor))
        if stream.lines and not stream.buffer:
            line = stream.lines.popleft()
            if b'"ADDED"' in line or b'"MODIFIED"' in line or b'"DELETED"' in line:
                stream.sent.append(line)
            cut = self.rng.randrange(len(line))
            stream.buffer = line[:cut] + b"\n" + line[cut:] if cut and self.fault("garbled line") else line
        size = self.rng.randint(1, 2 * len(stream.buffer)) if stream.buffer else 0
        chunk, stream.buffer = stream.buffer[:size], stream.buffer[size:]
        stream.quiet = 0.0 if chunk else stream.quiet + 10
        return chunk
