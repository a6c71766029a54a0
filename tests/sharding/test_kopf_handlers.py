"""Kopf's own handlers are called for the keys of their replica, whatever feeds them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import Sharding, _kopf
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster
from tests.faults.environment import reached
from tests.plugin.reconciling import operated

from .processes import configmap
from .test_handlers import NAMESPACES, Movable, operated_by, populated, shards_of

SPACE = "team-0"
MODES = ["fed", "own watch", "no selectors"]
"""Where the events of Kopf's handlers come from: the cache, Kopf's own watch beside it, or that alone."""
HANDLERS = ("create", "event", "index", "timer", "daemon")
CACHED = {"v1/configmaps": selectcache.EVERYTHING, "v1/nodes": selectcache.EVERYTHING}


def filters_of(mode: str) -> Mapping[str, Any]:
    return {} if mode == "no selectors" else CACHED


def configured(mode: str, sharding: Sharding) -> Callable[[kopf.OperatorSettings], None]:
    def configure(settings: kopf.OperatorSettings) -> None:
        ours = settings_of(settings)
        ours.sharding, ours.one_watch = sharding, mode != "own watch"
        settings.queueing.exit_timeout = 1.0
        settings.background.cancellation_polling = 0.01
        settings.persistence.consistency_timeout = 0.0

    return configure


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


class Calls:
    """The calls of all kinds of Kopf's handlers, with the namespaces and names of their objects."""

    def __init__(self, kind: str = "configmaps") -> None:
        self.registry = kopf.OperatorRegistry()
        self.lines: list[tuple[str, str, str]] = []
        self.hold: dict[str, asyncio.Event] = {}
        """The events that the handlers of some names wait for."""
        self.daemons: set[tuple[str, str]] = set()
        """The objects whose daemons run."""

        def note(handler: str) -> Any:
            async def noting(name: str, namespace: str | None, **_: object) -> Any:
                self.lines.append((handler, namespace or "", name))
                return name if handler == "index" else None

            return noting

        on: Any = kopf.on
        for handler in ("create", "update", "delete", "resume", "event"):
            getattr(on, handler)(kind, registry=self.registry, id=handler)(note(handler))
        kopf.timer(kind, interval=3600, registry=self.registry, id="timer")(note("timer"))
        kopf.index(kind, registry=self.registry, id="index")(note("index"))

        @kopf.daemon(kind, registry=self.registry, id="daemon")
        async def daemon(stopped: Any, name: str, namespace: str | None, **_: object) -> None:
            key = namespace or "", name
            self.lines.append(("daemon", *key))
            self.daemons.add(key)
            try:
                await stopped.wait()
            finally:
                self.daemons.discard(key)

    def of(self, handler: str) -> set[tuple[str, str]]:
        return {(namespace, name) for each, namespace, name in self.lines if each == handler}

    def count(self, handler: str) -> int:
        return sum(each == handler for each, *_ in self.lines)


def told_to(both: Sequence[Calls], handler: str) -> set[tuple[str, str]]:
    return both[0].of(handler) | both[1].of(handler)


@pytest.mark.parametrize(
    ("mode", "by", "is_namespaced"),
    [
        ("fed", "namespace", True),
        ("no selectors", "namespace", True),
        ("own watch", "object", True),
        ("fed", "object", False),
    ],
)
async def test_each_object_is_handled_by_one_of_two_replicas(
    mode: str, by: Literal["namespace", "object"], *, is_namespaced: bool
) -> None:
    async with EmbeddedCluster(tls=False) as cluster:
        if is_namespaced:
            populated(cluster)
            objects = [configmap(f"team-{number}", name, 0) for number in range(8) for name in ("x", "y")]
        else:
            objects = [node(f"node-{number}") for number in range(8)]
            cluster.create(*objects)
        keys = {(each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects}
        kind = "configmaps" if is_namespaced else "nodes"
        both = Calls(kind), Calls(kind)
        # The namespaces of a cache must be known, but Kopf's own watch follows patterns.
        patterns = is_namespaced and mode == "no selectors"
        options: dict[str, Any] = {"clusterwide": False, "namespaces": ["team-*"]} if patterns else {}
        first, second = (
            operated(
                calls.registry,
                cluster,
                filters=filters_of(mode),
                configure=configured(mode, Sharding(by=by, static=(number, 2))),
                **options,
            )
            for number, calls in enumerate(both)
        )
        async with first as settings, second:
            for handler in HANDLERS:
                told = partial(told_to, both, handler)
                assert await reached(lambda: told() == keys)  # In this turn.  # noqa: B023
            shards = shards_of(settings)
            mine = {key for key in keys if shards.handles(key)}
            assert 0 < len(mine) < len(keys)
            for each in objects:
                cluster.patch(each, {"metadata": {"annotations": {"changed": "yes"}}})
                cluster.delete(each)
            assert await reached(lambda: sum(calls.count("delete") for calls in both) == len(keys))
            assert await reached(lambda: not both[0].daemons | both[1].daemons)
    for handler in (*HANDLERS, "delete"):
        assert (handler, both[0].of(handler)) == (handler, mine)
        assert (handler, both[1].of(handler)) == (handler, keys - mine)


async def sleep_forever(_: float) -> None:
    await asyncio.Event().wait()


class Moved:
    """An operator whose ranges a test gives and takes."""

    def __init__(self, cluster: EmbeddedCluster, settings: kopf.OperatorSettings) -> None:
        self.cluster, self.settings = cluster, settings
        self.shards, self.movable = shards_of(settings), Movable()

    def take(self) -> None:
        """Take all ranges from the operator. They stay warm."""
        self.movable.terms.clear()
        self.shards.ownership = self.movable

    async def drain(self, *, endless: bool = False) -> None:
        """Take all ranges, as they are taken by the coordinator. With `endless`, nothing is cancelled."""
        if endless:
            self.shards._sleep = sleep_forever
        self.take()
        drained = [asyncio.create_task(self.shards.drain(range_)) for range_ in range(64)]
        assert await reached(lambda: all(each.done() for each in drained))
        self.shards.cool(range(64))

    async def give(self) -> None:
        for range_ in range(64):
            await self.shards.warm(range_)
        self.movable.give(range(64))
        self.shards.start(range(64))

    @property
    def memories(self) -> Mapping[str, Any]:
        """Kopf's memories of objects by their uids."""
        parts = _kopf.parts_of(self.settings)
        assert parts is not None
        found: Mapping[str, Any] = parts.memos._memories._items
        return found

    @property
    def known(self) -> set[str]:
        """The names of the objects that Kopf was told of."""
        kopfs = operated_by(self.settings).kopfs
        assert kopfs is not None
        feeds: list[Any] = [*kopfs._feeds]
        return {record.name for feed in feeds for record in feed.knowledge.known.values()}

    @property
    def indexed(self) -> list[Any]:
        parts = _kopf.parts_of(self.settings)
        assert parts is not None
        return [*parts.indexers[_kopf.HandlerId("index")].index]

    def names(self) -> set[str]:
        """The names of the cached ConfigMaps."""
        records = operated_by(self.settings).runtime.informer("v1/configmaps").state.store.records()[0]
        return {each.name for each in records}

    async def rest(self) -> None:
        """Let all events pass that are under way: the server runs on the same loop."""
        for _ in range(300):
            await asyncio.sleep(0)


@asynccontextmanager
async def moved(calls: Calls | kopf.OperatorRegistry, mode: str, *names: str) -> AsyncIterator[Moved]:
    registry = calls.registry if isinstance(calls, Calls) else calls
    async with EmbeddedCluster(tls=False) as cluster:
        for namespace in (SPACE, "other"):
            cluster.namespace(namespace)
        cluster.create(*(configmap(SPACE, name, 0) for name in names))
        configure = configured(mode, Sharding(static=(0, 1)))
        async with operated(registry, cluster, filters=filters_of(mode), configure=configure) as settings:
            assert await reached(lambda: (found := operator_of(settings)) is not None and found.replica)
            yield Moved(cluster, settings)


@pytest.mark.parametrize("mode", MODES)
async def test_a_range_that_goes_is_forgotten_and_one_that_comes_is_resumed(mode: str) -> None:
    calls = Calls()
    async with moved(calls, mode, "x") as replica:
        keys = {(SPACE, "x"), (SPACE, "y")}
        assert await reached(lambda: calls.of("event"))
        replica.cluster.create(configmap(SPACE, "y", 0))  # Later than the operator, by its time.
        for handler in HANDLERS:
            assert await reached(lambda: calls.of(handler) == keys)  # In this turn.  # noqa: B023
        assert calls.daemons == keys
        assert await reached(lambda: all(each.fully_handled_once for each in replica.memories.values()))
        assert replica.indexed
        await replica.drain()
        assert calls.daemons == set()
        assert replica.memories == {}
        assert replica.indexed == []
        calls.lines.clear()
        replica.cluster.patch(configmap(SPACE, "x", 0), {"data": {"number": "1"}})
        await replica.rest()
        assert calls.lines == []
        assert replica.known == set()
        await replica.give()
        for handler in ("resume", "event", "index", "timer", "daemon"):
            assert await reached(lambda: keys <= calls.of(handler))  # In this turn.  # noqa: B023
        assert await reached(lambda: calls.of("update") == {(SPACE, "x")})
        assert keys.isdisjoint(calls.of("create"))
        await replica.rest()
        assert calls.daemons >= keys


@pytest.mark.parametrize("mode", MODES)
async def test_an_event_that_waits_when_its_range_goes_is_dropped(mode: str) -> None:
    registry, lines, begun, go_on = kopf.OperatorRegistry(), list[str](), asyncio.Event(), asyncio.Event()

    @kopf.on.event("configmaps", registry=registry)
    async def event(body: kopf.Body, **_: object) -> None:
        lines.append(body["data"]["number"])
        begun.set()
        await go_on.wait()

    async with moved(registry, mode, "x") as replica:
        await begun.wait()
        replica.cluster.patch(configmap(SPACE, "x", 0), {"data": {"number": "1"}})
        await replica.rest()  # It waits for the handler.
        replica.take()
        draining = asyncio.create_task(replica.drain())
        await replica.rest()
        assert not draining.done()
        go_on.set()
        await draining
        await replica.rest()
        assert lines == ["0"]
        await replica.give()
        assert await reached(lambda: lines == ["0", "1"])


async def test_an_object_that_is_deleted_while_its_event_waits_is_forgotten() -> None:
    registry, begun, go_on = kopf.OperatorRegistry(), asyncio.Event(), asyncio.Event()

    @kopf.on.event("configmaps", registry=registry)
    async def event(**_: object) -> None:
        begun.set()
        await go_on.wait()

    @kopf.index("configmaps", registry=registry, id="index")
    async def index(name: str, **_: object) -> str:
        return name

    async with moved(registry, "fed", "x") as replica:
        await begun.wait()
        replica.cluster.delete(configmap(SPACE, "x", 0))
        await replica.rest()
        replica.take()
        assert replica.memories
        go_on.set()
        assert await reached(lambda: not replica.memories)
        assert replica.indexed == []


async def test_a_handler_that_sleeps_for_a_retry_holds_no_range() -> None:
    calls, registry = list[int](), kopf.OperatorRegistry()

    @kopf.on.create("configmaps", registry=registry)
    async def create(retry: int, **_: object) -> None:
        calls.append(retry)
        if len(calls) == 1:
            raise kopf.TemporaryError("later", delay=3600)

    async with moved(registry, "fed", "x") as replica:
        assert await reached(lambda: calls)
        obj = configmap(SPACE, "x", 0)
        assert await reached(lambda: "annotations" in replica.cluster.get(obj)["metadata"])
        await replica.rest()  # It sleeps, after the event of that patch.
        await replica.drain(endless=True)
        assert calls == [0]


@pytest.mark.parametrize("kind", ["handler", "daemon"])
async def test_a_handler_that_exceeds_its_time_is_cancelled_and_its_object_handled_later(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    registry, lines = kopf.OperatorRegistry(), list[str]()

    async def hang(**_: object) -> None:
        lines.append("begun")
        if len(lines) > 1:
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lines.append("cancelled")
            raise

    on: Any = kopf.on.event if kind == "handler" else kopf.daemon
    on("configmaps", registry=registry)(hang)
    async with moved(registry, "fed", "x") as replica:
        assert await reached(lambda: lines)
        await replica.rest()

        async def sleep(_: float) -> None:
            await replica.rest()

        replica.shards._sleep = sleep
        replica.take()
        range_ = replica.shards.range_of((SPACE, "x"))
        assert not await replica.shards.drain(range_), "its last write may still arrive"
        assert lines == ["begun", "cancelled"]
        await replica.give()
        assert await reached(lambda: lines == ["begun", "cancelled", "begun"])
    told = f"The run of Kopf's handlers of {SPACE}/x was cancelled: this replica does not handle it any more."
    assert (told in caplog.messages) is (kind == "handler")


async def test_an_operator_that_ends_cancels_running_handlers() -> None:
    registry, begun, lines = kopf.OperatorRegistry(), asyncio.Event(), list[str]()

    @kopf.on.event("configmaps", registry=registry)
    async def event(**_: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lines.append("cancelled")
            raise

    async with moved(registry, "fed", "x") as replica:
        replica.settings.queueing.exit_timeout = 0.01
        await begun.wait()
    assert lines == ["cancelled"]


async def test_a_daemon_is_cancelled_after_the_time_in_its_decorator() -> None:
    registry, lines = kopf.OperatorRegistry(), list[str]()

    @kopf.daemon("configmaps", cancellation_backoff=0.01, cancellation_timeout=60, registry=registry)
    async def daemon(stopped: Any, **_: object) -> None:
        lines.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            lines.append(f"cancelled {bool(stopped)}")

    async with moved(registry, "fed", "x") as replica:
        assert await reached(lambda: lines)
        await replica.drain(endless=True)
        assert lines == ["begun", "cancelled True"]


async def test_a_daemon_in_a_thread_is_asked_to_stop() -> None:
    registry, lines = kopf.OperatorRegistry(), list[str]()

    @kopf.daemon("configmaps", registry=registry)
    def daemon(stopped: Any, **_: object) -> None:
        lines.append("begun")
        stopped.wait()
        lines.append("ended")

    async with moved(registry, "fed", "x") as replica:
        assert await reached(lambda: lines)
        await replica.drain(endless=True)
        assert lines == ["begun", "ended"]


async def test_a_daemon_begins_anew_once_the_one_of_an_earlier_term_has_ended() -> None:
    registry, lines, go_on = kopf.OperatorRegistry(), list[str](), asyncio.Event()

    @kopf.daemon("configmaps", registry=registry)
    async def daemon(stopped: Any, **_: object) -> None:
        lines.append("begun")
        try:
            await stopped.wait()
        finally:
            await go_on.wait()
            lines.append("ended")

    async with moved(registry, "fed", "x") as replica:
        assert await reached(lambda: lines)
        await replica.rest()
        replica.take()
        for range_ in range(64):
            replica.shards.stop(range_)
        await replica.give()
        await replica.rest()
        assert lines == ["begun"]
        go_on.set()
        assert await reached(lambda: lines == ["begun", "ended", "begun"])
        await replica.rest()


async def test_objects_that_replicas_write_are_left_to_them() -> None:
    """Else Kopf and the replicas would write the same ConfigMap in turn, for ever."""
    calls = Calls()
    async with EmbeddedCluster(tls=False) as cluster:
        for namespace in ("operators", SPACE):
            cluster.namespace(namespace)
        cluster.create(configmap(SPACE, "x", 0))
        sharding = Sharding(name="fleet", namespace="operators", pod="a", lease=4)
        configure = configured("no selectors", sharding)
        async with operated(calls.registry, cluster, filters={}, configure=configure):
            assert await reached(lambda: (SPACE, "x") in calls.of("create"))
            assignment = {**configmap("operators", "fleet-shards", 0), "data": {}}
            annotations = cluster.get(assignment)["metadata"].get("annotations", {})
            assert [each for each in annotations if "kopf.zalando.org" in each] == []
    assert calls.of("create") == {(SPACE, "x")}


@pytest.mark.parametrize("mode", MODES)
async def test_handlers_of_a_range_that_comes_wait_until_indices_have_its_objects(mode: str) -> None:
    registry, lines, go_on = kopf.OperatorRegistry(), list[Any](), asyncio.Event()
    go_on.set()

    @kopf.index("secrets", registry=registry, id="index")
    async def index(name: str, **_: object) -> str:
        await go_on.wait()
        return name

    @kopf.on.resume("configmaps", registry=registry)
    async def resume(**kwargs: Any) -> None:
        lines.append(sorted(kwargs["index"].get(None, ())))

    async with moved(registry, mode, "x") as replica:
        for name in ("a", "b"):
            replica.cluster.create(
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": SPACE}}
            )
        assert await reached(lambda: len(replica.known) == 3)
        assert await reached(lambda: any(each.fully_handled_once for each in replica.memories.values()))
        await replica.rest()
        await replica.drain()
        go_on.clear()
        await replica.give()
        await replica.rest()
        assert lines == []
        go_on.set()
        assert await reached(lambda: lines == [["a", "b"]])


@pytest.mark.parametrize("namespaces", [None, ["team-0", "team-1", "team-2", "team-3"]])
async def test_the_handlers_of_a_divided_cache_are_fed_from_it(namespaces: list[str] | None) -> None:
    async with EmbeddedCluster(tls=False) as cluster:
        populated(cluster)
        both = Calls(), Calls()
        options: dict[str, Any] = (
            {} if namespaces is None else {"clusterwide": False, "namespaces": namespaces}
        )
        first, second = (
            operated(
                calls.registry,
                cluster,
                filters={"v1/configmaps": selectcache.EVERYTHING},
                configure=configured("fed", Sharding(static=(number, 2))),
                **options,
            )
            for number, calls in enumerate(both)
        )
        async with first as settings, second:
            keys = {(namespace, name) for namespace in namespaces or NAMESPACES for name in ("x", "y")}
            assert await reached(lambda: both[0].daemons | both[1].daemons == keys)
            shards = shards_of(settings)
            mine = {key for key in keys if shards.handles(key)}
            assert both[0].daemons == mine
            assert both[1].daemons == keys - mine
            assert 0 < len(mine) < len(keys)
            fed = operated_by(settings).fed
            resource = _kopf.Resource("", "v1", "configmaps", namespaced=True)
            assert all(fed.has(resource, namespace) for namespace, _ in mine)
            records = operated_by(settings).runtime.informer("v1/configmaps").state.store.records()[0]
            assert {(each.namespace, each.name) for each in records} == mine, "it is divided"


async def test_events_behind_a_thread_that_outlives_its_range_are_dropped() -> None:
    registry, lines = kopf.OperatorRegistry(), list[tuple[str | None, str]]()
    begun, end = threading.Event(), threading.Event()

    @kopf.on.event("configmaps", registry=registry)
    def event(type: str | None, body: kopf.Body, **_: object) -> None:  # As Kopf names it.  # noqa: A002
        lines.append((type, body["data"]["number"]))
        begun.set()
        end.wait()

    async with moved(registry, "fed", "x") as replica:
        try:
            assert await reached(begun.is_set)
            replica.cluster.patch(configmap(SPACE, "x", 0), {"data": {"number": "1"}})
            await replica.rest()
            replica.take()
            for range_ in range(64):
                replica.shards.stop(range_)
            replica.cluster.patch(configmap(SPACE, "x", 0), {"data": {"number": "2"}})
            await replica.rest()
            await replica.give()
            await replica.rest()
        finally:
            end.set()
        assert await reached(lambda: (None, "2") in lines)
        replica.cluster.patch(configmap(SPACE, "x", 0), {"data": {"number": "3"}})
        assert await reached(lambda: ("MODIFIED", "3") in lines)
        assert lines == [(None, "0"), (None, "2"), ("MODIFIED", "3")]
