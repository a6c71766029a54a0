"""A server, and the streams of an informer that report its objects when they are told to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import msgspec

from kopf_selectcache import AnyOf, Selector
from kopf_selectcache.cache.own_writes import remember_answer, remember_deletion
from kopf_selectcache.core.protocol.machine import Due, List, Opened, Start, Wait, Watch
from kopf_selectcache.core.protocol.messages import Bookmark, Event, Page, Refusal
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.errors import OutsideFilter
from kopf_selectcache.informer.environment import Environment
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.reflector import Reflector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.settings.planner import plan
from tests.cache.environment import PODS
from tests.cache.environment import Environment as Operator

NAMES = "ab"
FILTERS: dict[str, Selector | AnyOf] = {
    "one stream": Selector("app=web"),
    "two streams": AnyOf(["app=web", "tier=gold"]),
}


class State(NamedTuple):
    """One object after one write."""

    version: int
    uid: str
    labels: dict[str, str] | None
    """None if there is none."""


class Model:
    """A server, and the streams of one informer."""

    def __init__(self, declared: Selector | AnyOf) -> None:
        self.version = 10
        self.uids = 0
        self.history: dict[str, list[State]] = {name: [State(0, "", None)] for name in NAMES}
        self.events: list[tuple[str, State, State]] = []
        self.answers: list[tuple[str, State, str]] = []
        self.now = 0.0
        self.passes = True
        """Whether time passes for those who sleep."""
        self.selected = declared
        operator = Operator()
        environment = Environment(
            SelectCacheSettings(),
            cast("Any", operator.server),
            logging.getLogger("model"),
            chance=lambda: 0.5,
            clock=lambda: self.now,
            sleep=self.sleep,
        )
        self.informer = Informer("pods", Cached(declared), environment=environment, namespaces=None)
        operator.informers["pods"] = cast("Any", self.informer)
        self.operator = operator
        self.runtime = cast("Runtime", operator)
        self.cache = operator.cache()
        self.informer.state = replace(self.informer.state, resource=PODS)
        self.informer.swapper.begin(plan(declared, PODS, namespaces=None, share_watches=True))
        self.informer.mark_resolved()
        self.reached = dict.fromkeys(self.streams, 0)
        """For each stream, the number of events that it has had."""
        for stream in self.streams:
            self.run(stream, stream.writer.take(Start()))

    async def sleep(self, seconds: float) -> None:
        if not self.passes:
            await asyncio.Event().wait()
        self.now += seconds
        await asyncio.sleep(0)

    @property
    def streams(self) -> Sequence[Reflector]:
        return self.informer.state.reflectors

    # ---- The server.

    def obj(self, name: str, state: State) -> dict[str, Any]:
        metadata = {
            "name": name,
            "namespace": "ns",
            "uid": state.uid,
            "resourceVersion": str(state.version),
            "labels": state.labels or {},
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}

    def write(self, name: str, labels: dict[str, str] | None, *, own: bool) -> None:
        before = self.history[name][-1]
        if labels is None and before.labels is None:
            return
        self.version += 1
        if before.labels is None:
            self.uids += 1
        uid = f"u{self.uids}" if before.labels is None else before.uid
        after = State(self.version, uid, labels)
        self.history[name].append(after)
        self.events.append((name, before, after))
        if own:
            self.answers.append((name, after, before.uid))

    def answer(self, which: int) -> None:
        """Let one of the answers to own writes arrive."""
        if not self.answers:
            return
        at = which % len(self.answers)
        of_name = [number for number, each in enumerate(self.answers) if each[0] == self.answers[at][0]]
        if any(self.answers[number][1].labels is None for number in of_name):
            at = of_name[0]  # A deletion has no version: its answer comes in its turn.
        name, state, uid = self.answers.pop(at)
        if state.labels is None:
            remember_deletion(self.runtime, PODS, "ns", name, uid)
        else:
            remember_answer(self.runtime, PODS, msgspec.json.encode(self.obj(name, state)))

    # ---- The streams.

    def run(self, stream: Reflector, command: object) -> None:
        """Answer the commands of a stream until it watches."""
        writer = stream.writer
        while not isinstance(command, Watch):
            match command:
                case Wait():
                    command = writer.take(Due())
                case List(not_older_than) if not_older_than and int(not_older_than) > self.version:
                    command = writer.take(Refusal(504, "Timeout", "Too large resource version"))
                case List():
                    records = [
                        self.record(stream, name, states[-1])
                        for name, states in self.history.items()
                        if self.selects(stream, states[-1])
                    ]
                    self.reached[stream], version = len(self.events), str(self.version)
                    for record in records:
                        writer.take(Page(version, "more", (record,)))
                    command = writer.take(Page(version, "", ()))
                case _:
                    raise AssertionError(f"no answer to {command}")
        writer.take(Opened())

    def record(self, stream: Reflector, name: str, state: State) -> Record:
        return stream.requests.checked.reader.record(msgspec.json.encode(self.obj(name, state)), leaves=True)

    @staticmethod
    def selects(stream: Reflector, state: State) -> bool:
        return state.labels is not None and all(
            each.matches(state.labels) for each in stream.filter.requirements
        )

    def deliver(self, stream: Reflector) -> None:
        """Send the next event to a stream."""
        while self.reached[stream] < len(self.events):
            name, before, after = self.events[self.reached[stream]]
            self.reached[stream] += 1
            was, is_ = self.selects(stream, before), self.selects(stream, after)
            if not (was or is_):
                continue
            shown = after if is_ else State(after.version, before.uid, before.labels)
            kind = ("MODIFIED" if was else "ADDED") if is_ else "DELETED"
            stream.writer.take(Event(cast("Any", kind), self.record(stream, name, shown)))
            return

    def bookmark(self, stream: Reflector) -> None:
        while self.reached[stream] < len(self.events):
            self.deliver(stream)
        stream.writer.take(Bookmark(str(self.version)))

    def relist(self, stream: Reflector) -> None:
        self.run(stream, stream.writer.take(Refusal(410, "Expired")))

    # ---- The reads.

    def got(self, name: str) -> tuple[str, str] | None:
        try:
            metadata = self.cache.get("pods", name, namespace="ns")["metadata"]
        except OutsideFilter:
            return None
        return metadata["uid"], metadata["resourceVersion"]
