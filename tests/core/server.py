"""A model of an API server that fails in every known way. It is data and chance: nothing in it waits, or is
really sent.

What is true is the `Cluster`'s; here are the replicas that lag behind it, each at a version of its own, and
all that can go wrong between it and a client."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kopf_selectcache.core.protocol import machine
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.core.store.unconfirmed import JoinedLists, UnconfirmedLeave

from .cluster import Cluster, Filter, Logged, Thing
from .faults import FAULTS, Hits

_RARE = ("stale list", "stale stream", "old deletion", "duplicate", "restored")
"""Those that want many relists and little else to strike."""

_COMPARING = ("version of another sort", "stale list", "stale stream", "duplicate", "old deletion")

_REFUSED = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound"}

KEYS: tuple[ObjectKey, ...] = tuple(
    (space, name) for space in ("shop", "blog") for name in ("a", "b", "c", "d")
)

LIMIT = 2_000
"""The longest line that the client takes, in bytes."""


class Broken(Exception):
    """The connection is gone."""


@dataclass(slots=True)
class Stream:
    filter: Filter
    replica: int
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
    last: bool = False
    """Whether the stream ends after what it has to say."""


class Server:
    """Replicas of a cluster, and whatever can go wrong."""

    def __init__(self, rng: random.Random, hits: Hits, filters: Sequence[Filter], *, opaque: bool) -> None:
        self.rng = rng
        self.hits = hits
        self.habits = {rng.choice(list(FAULTS))}  # One fault strikes again and again.
        self.rate = rng.choice((0.02, 0.05, 0.1, 0.2))
        if rng.random() < 0.4:
            self.habits, self.rate = {rng.choice(_RARE), "410 in stream"}, 0.02
        self.where = "Idle"  # The state of the client that asks.
        self.now = 0.0
        self.cluster = Cluster(filters, rng.choice((1, 5, 95)))  # So that versions soon get one digit longer.
        self.replicas = [self.cluster.version] * rng.randint(1, 3)
        self.limit = rng.randint(1, 4)
        self.streams = rng.random() < 0.9
        self.opaque = opaque
        # Without bookmarks, no read of metadata ends the doubt whether an object has moved to a branch that
        # selects by field.
        by_field = len(filters) > 1 and any(each.running is not None for each in filters)
        self.bookmarks = not opaque and (rng.random() < 0.8 or by_field)
        self.forgetful = rng.random() < 0.05
        """Whether its watches lose events."""
        self.backup = self.cluster.version

    def fault(self, name: str) -> bool:
        rate = 0.4 if name in self.habits and self.rate else self.rate
        if self.rng.random() >= rate or (self.opaque and name in _COMPARING):
            return False  # Where versions cannot be compared, nobody can tell what is stale.
        return self.struck(name)

    def struck(self, name: str) -> bool:
        self.hits[name, self.where] += 1
        return True

    # ---- What happens in the cluster.

    def churn(self) -> None:
        key = self.rng.choice(KEYS)
        before, chance = self.cluster.contents.get(key), self.rng.random()
        uid = f"uid-{self.cluster.serial}"
        if before is None:
            self._write(key, self._drawn(Thing(*key, uid, "")))
        elif chance < 0.25:
            self.struck("deleted")
            self._write(key, None)
        elif chance < 0.4:
            self.struck("recreated")
            self._write(key, None)
            self._write(key, replace(self._drawn(before), uid=uid))
        elif chance < 0.8:
            after = self._drawn(before)
            was, is_ = self.cluster.selects(before), self.cluster.selects(after)
            if was != is_:
                self.struck("left" if was else "returned")
            self._write(key, after)
        else:
            self._write(key, before)
        self.advance()

    def _drawn(self, thing: Thing) -> Thing:
        rng = self.rng
        return replace(
            thing,
            app=rng.choice(("web", "web", "db", "none")),
            gold=rng.random() < 0.3,
            running=rng.random() < 0.8,
        )

    def _write(self, key: ObjectKey, thing: Thing | None) -> None:
        self.cluster.write(key, thing, after=self.rng.randint(1, 3))

    def advance(self) -> None:
        """Let a replica catch up, a part of the way or all of it; all of them, while nothing fails."""
        for replica, version in enumerate(self.replicas):
            if not self.rate or self.rng.random() < 0.6:
                whole = not self.rate or self.rng.random() < 0.7
                self.replicas[replica] = (
                    self.cluster.version
                    if whole
                    else self.rng.choice(
                        [known for known in self.cluster.contents_by_version if known >= version]
                    )
                )

    def compact(self) -> None:
        self.struck("compacted")
        self.cluster.compacted = self.rng.randint(self.cluster.compacted, self.cluster.version)

    def restore(self, *, bump: bool) -> None:
        self.struck("restored with a bump" if bump else "restored")
        self.cluster.restore(self.backup, bump=bump)
        self.replicas = [self.cluster.version] * len(self.replicas)

    # ---- What it answers.

    def text(self, version: int) -> str:
        return f"{version * 7919 % 100_003:x}x" if self.opaque else str(version)

    def number(self, version: str) -> int:
        return (
            int(version[:-1], 16) * pow(7919, -1, 100_003) % 100_003
            if self.opaque and version
            else int(version or 0)
        )

    def _item(self, thing: Thing, version: int | None = None) -> str:
        gold = ',"tier":"gold"' if thing.gold else ""
        return (
            f'"metadata":{{"name":"{thing.name}","namespace":"{thing.namespace}","uid":"{thing.uid}",'
            f'"resourceVersion":"{self.text(thing.version if version is None else version)}",'
            f'"labels":{{"app":"{thing.app}","serial":"{thing.serial}"{gold}}}}},'
            f'"spec":{{"serial":{thing.serial},"running":{"true" if thing.running else "false"}}}}}'
        )

    def _refusal(self) -> Refusal | None:
        if self.fault("request dropped"):
            raise Broken
        for code, reason in (
            (410, "Expired"),
            (429, "TooManyRequests"),
            (500, "InternalError"),
            (503, "ServiceUnavailable"),
            (504, "Timeout"),
        ):
            if self.fault(f"{code} at start"):
                return Refusal(
                    code, reason, retry_after=self.rng.choice((None, 1.0, 30.0)) if code == 429 else None
                )
        return next(
            (Refusal(code, reason) for code, reason in _REFUSED.items() if self.fault(str(code))), None
        )

    def _replica(self, floor: int) -> int | None:
        """Return a replica that is at a version, or gets there while the request waits; None if none does."""
        replica = self.rng.randrange(len(self.replicas))
        if self.replicas[replica] < floor:
            later = [known for known in self.cluster.contents_by_version if known >= floor]
            if not later or (self.rate and self.rng.random() < 0.3):
                self.struck("too new for the replica")
                return None
            self.replicas[replica] = self.rng.choice(later)
        if self.replicas[replica] < self.cluster.version:
            self.struck("lag")
        return replica

    def _older(self, floor: int) -> list[int]:
        return [known for known in self.cluster.contents_by_version if known < floor]

    def page(self, command: machine.List, filter_: Filter) -> bytes | Refusal:
        if self.rng.random() < 0.5 and (refusal := self._refusal()):
            return refusal
        if self.fault("silent list"):
            raise TimeoutError
        if self.fault("410 as a plain answer"):
            return b'{"kind":"Status","metadata":{},"status":"Failure","reason":"Expired","code":410}'
        cluster = self.cluster
        if self.fault("table"):
            return (
                b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"%d"},"rows":[]}'
                % cluster.version
            )
        version, offset = cluster.version, 0
        if command.token:
            epoch, version, offset = map(int, command.token.split(":"))
            if epoch != cluster.epoch or version < cluster.compacted or self.fault("410 on page"):
                return Refusal(410, "Expired", token=f"{cluster.epoch}:{cluster.version}:{offset}")
        elif command.not_older_than:
            floor = self.number(command.not_older_than)
            older = self._older(floor)
            # A replica may lag, but not behind what it was asked for; unless it does not know the question.
            if older and self.fault("stale list"):
                version = self.rng.choice(older)
            elif (replica := self._replica(floor)) is None:
                return Refusal(504, "Timeout", "Too large resource version")
            else:
                version = self.replicas[replica]
        if command.token and self.fault("page of another version"):
            version = self.rng.choice(list(cluster.contents_by_version))
        selected = [thing for _, thing in sorted(cluster.selected(filter_, version=version).items())]
        whole = command.whole or (len(selected) > offset + self.limit and self.fault("limit ignored"))
        items = selected[offset:] if whole else selected[offset : offset + self.limit]
        if self.fault("empty page"):
            items = []
        rest = offset + len(items) < len(selected)
        token = f"{cluster.epoch}:{version}:{offset + len(items)}" if rest else ""
        if command.token and self.fault("pages without end"):
            token = command.token
        elif command.token and self.fault("pages in a circle"):
            token = f"{cluster.epoch}:{version}:0"
        elif command.token and items and self.fault("a page again"):
            # The same place, as a token that was not there before.
            token = f"{cluster.epoch}:{version}:{offset:0{len(command.token) + 1}}"
        listed = ",".join("{" + self._item(thing) for thing in items)
        metadata = f'{{"resourceVersion":"{self.text(version)}","continue":"{token}"}}'
        data = f'{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":[{listed}]}}'.encode()
        return data[: self.rng.randrange(len(data))] if self.fault("garbled page") else data

    def look_up(self, doubt: UnconfirmedLeave) -> tuple[int, Thing | None] | None:
        """Answer a list of one name, and say as of which version that is; None if the answer does not
        come."""
        if self.rng.random() < self.rate:
            return None
        version = self.cluster.version
        if doubt.version:
            floor = self.number(doubt.version)
            older = self._older(floor)
            if older and self.rng.random() < self.rate:
                version = self.rng.choice(older)
            elif (replica := self._replica(floor)) is None:
                return None
            else:
                version = self.replicas[replica]
        return version, self.cluster.contents_by_version[version].get((doubt.namespace, doubt.name))

    def look_up_all(self, lists: JoinedLists, filters: Sequence[Filter]) -> dict[ObjectKey, str] | None:
        """Answer joined lists; None if an answer does not come, or the server has no list as of that
        version."""
        version = self.number(lists.version)
        if self.rng.random() < self.rate or not self.cluster.compacted <= version <= self.cluster.version:
            return None
        keys = {doubt.key for doubt in lists.leaves}
        return {
            key: thing.uid
            for number in lists.substores
            for key, thing in self.cluster.selected(filters[number], version=version).items()
            if key in keys
        }

    def watch(self, command: machine.Watch, filter_: Filter) -> Stream | Refusal:
        if self.rng.random() < 0.5 and (refusal := self._refusal()):
            return refusal
        cluster, start = self.cluster, self.number(command.version)
        any_ = self.rng.randrange(len(self.replicas))
        if self.fault("410 as a plain answer"):
            status = b'{"kind":"Status","metadata":{},"status":"Failure","reason":"Expired","code":410}'
            return Stream(filter_, any_, cluster.version, self.now, deque([status]), last=True)
        if not command.initial:
            if start < cluster.compacted:
                return Refusal(410, "Expired")
            if self.replicas[any_] < cluster.version:
                self.struck("lag")
            # A version to come is no mistake to a server: it will tell when it is there.
            return Stream(filter_, any_, start, self.now)
        if not self.streams or self.fault("initial events unsupported"):
            self.hits["initial events unsupported", self.where] += not self.streams
            return Refusal(self.rng.choice((400, 422)), "Invalid", "sendInitialEvents is forbidden")
        older = self._older(start)
        if older and self.fault("stale stream"):
            version, replica = self.rng.choice(older), any_
        elif (found := self._replica(start or cluster.version)) is None:
            return Refusal(504, "Timeout", "Too large resource version")
        else:
            # What has happened between is sent as events, before the marker.
            version, replica = (
                self.rng.choice(
                    [
                        known
                        for known in cluster.contents_by_version
                        if (start or cluster.version) <= known <= self.replicas[found]
                    ]
                ),
                found,
            )
        stream = Stream(filter_, replica, version, self.now)
        things = list(cluster.selected(filter_, version=version).values())
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
        # The text is one line.
        return f'{{"type":"{type_}","object":{{"kind":"Pod","apiVersion":"v1",{self._item(thing, version)}}}\n'.encode()  # noqa: E501

    def _bookmark(self, version: int, *, end: bool = False) -> bytes:
        note = ',"annotations":{"k8s.io/initial-events-end":"true"}' if end else ""
        return (
            '{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1",'
            f'"metadata":{{"resourceVersion":"{self.text(version)}"{note}}}}}}}\n'
        ).encode()

    def _advance(self, stream: Stream) -> None:
        """Put the next of what was written since, and its filter shows, into the stream."""
        log, reached = self.cluster.log, self.replicas[stream.replica]
        at = bisect_right(log, stream.cursor, key=lambda entry: entry.version)
        before = len(stream.lines)
        while at < len(log) and log[at].version <= reached and len(stream.lines) == before:
            entry = log[at]
            after = log[at + 1] if at + 1 < len(log) and log[at + 1].version <= reached else None
            if (
                after is not None
                and self._is_recreation(entry, after, stream.filter)
                and self.rng.random() < 0.5
            ):
                self.struck("recreation told as a change")
                entry, at = Logged(after.version, entry.before, after.after), at + 1
            at += 1
            stream.cursor = entry.version
            lines = self._lines(entry, stream.filter, fail=True)
            if lines and self.forgetful and self.where == "Watching" and self.rng.random() < self.rate:
                self.struck("lost event")
            else:
                stream.lines.extend(lines)

    @staticmethod
    def _is_recreation(entry: Logged, after: Logged, filter_: Filter) -> bool:
        was, is_ = entry.before, after.after
        if was is None or is_ is None or entry.after is not None or after.before is not None:
            return False
        return was.key == is_.key and filter_.selects(was) and filter_.selects(is_)

    def _lines(self, entry: Logged, filter_: Filter, *, fail: bool = False) -> list[bytes]:
        was, is_ = filter_.selects(entry.before), filter_.selects(entry.after)
        if entry.after is not None and is_:
            return [self._line("MODIFIED" if was else "ADDED", entry.after)]
        if entry.before is not None and was:
            old = fail and self.fault("old deletion")
            return [self._line("DELETED", entry.before, entry.before.version if old else entry.version)]
        return []

    def poll(self, stream: Stream) -> bytes | None:
        """Return what comes next: bytes, none of them if nothing comes for a while, or None for the end."""
        if stream.dead or self.fault("silence"):
            stream.dead = True
            return b""
        if self.fault("cut"):
            raise Broken
        if (
            self.fault("end")
            or self.now - stream.opened > 300
            or (stream.last and not stream.lines and not stream.buffer)
        ):
            return None
        if self.fault("suspended"):
            self.now += 3600
            raise TimeoutError
        if self.rng.random() < 0.5 and (line := self._error() or self._nonsense()):
            return line
        if stream.sent and self.fault("duplicate"):
            # Before the end of an initial stream, only what it has sent itself can be told from what is new.
            said = (
                [entry for entry in self.cluster.log if entry.version <= stream.cursor]
                if self.where == "Watching"
                else []
            )
            old = [line for entry in said for line in self._lines(entry, stream.filter)]
            stream.buffer += self.rng.choice(old or stream.sent) if not stream.buffer else b""
        if not stream.lines and not stream.buffer:
            self._advance(stream)
            reached = self.replicas[stream.replica]
            if (
                not stream.lines
                and stream.quiet >= 10
                and self.bookmarks
                and self.rng.random() < 0.5
                and reached >= stream.cursor
            ):
                if not any(stream.cursor < entry.version <= reached for entry in self.cluster.log):
                    stream.cursor = reached
                stream.lines.append(self._bookmark(stream.cursor))
        if stream.lines and not stream.buffer:
            line = stream.lines.popleft()
            if b'"ADDED"' in line or b'"MODIFIED"' in line or b'"DELETED"' in line:
                stream.sent.append(line)
            # The end of an empty initial stream cannot be compared with anything.
            if (self.where == "Watching" or b'"BOOKMARK"' not in line) and self.fault(
                "version of another sort"
            ):
                line = line.replace(b'"resourceVersion":"', b'"resourceVersion":"x', 1)
            cut = self.rng.randrange(len(line))
            stream.buffer = line[:cut] + b"\n" + line[cut:] if cut and self.fault("garbled line") else line
        size = self.rng.randint(1, 2 * len(stream.buffer)) if stream.buffer else 0
        chunk, stream.buffer = stream.buffer[:size], stream.buffer[size:]
        stream.quiet = 0.0 if chunk else stream.quiet + 10
        return chunk

    def _error(self) -> bytes:
        for code in (410, 429, 500):
            if self.fault(f"{code} in stream"):
                details = ',"details":{"retryAfterSeconds":3}' if code == 429 else ""
                # The text is one line.
                return f'{{"type":"ERROR","object":{{"kind":"Status","code":{code},"reason":"Oops"{details}}}}}\n'.encode()  # noqa: E501
        return b""

    def _nonsense(self) -> bytes:
        pod = '"kind":"Pod","apiVersion":"v1"'
        for fault, line in (
            ("unknown type", '{"type":"SYNCED","object":{}}\n'),
            ("no metadata", f'{{"type":"ADDED","object":{{{pod}}}}}\n'),
            (
                "another kind",
                '{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{}}}\n',
            ),
            (
                "empty version",
                f'{{"type":"BOOKMARK","object":{{{pod},"metadata":{{"resourceVersion":""}}}}}}\n',
            ),
            ("endless line", "x" * (LIMIT + 1)),
        ):
            if self.fault(fault):
                return line.encode()
        return b""
