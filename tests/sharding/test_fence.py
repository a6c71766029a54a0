"""The writes of a run are refused once the range of its key has moved, in whichever way it writes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import Sharding
from kopf_selectcache.client.fence import Fence, fenced, time_left
from kopf_selectcache.client.reading import Unreachable
from kopf_selectcache.client.writer import Fenced, Unsettled, WriteCall, Writer
from kopf_selectcache.core.protocol.lost_answer import Verb, Write
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Silence
from tests.client.test_writer import PATH, Model
from tests.faults.environment import Time, reached, run, until
from tests.plugin.reconciling import operated

from .processes import configmap
from .test_handlers import CONFIGMAPS, Movable, sharded, shards_of

OBJECT = configmap("team-0", "x", 0)


@asynccontextmanager
async def operator_of_one_key(
    cluster: EmbeddedCluster, registry: kopf.OperatorRegistry
) -> AsyncIterator[kopf.OperatorSettings]:
    cluster.namespace("team-0")
    cluster.create(OBJECT)
    configure = sharded(Sharding(static=(0, 1)))
    async with operated(registry, cluster, filters=CONFIGMAPS, configure=configure) as settings:
        yield settings


def take_all(settings: kopf.OperatorSettings) -> None:
    """Have another replica handle all keys."""
    shards_of(settings).ownership = Movable()


@pytest.mark.parametrize("how", ["async", "sync", "to_thread"])
async def test_an_event_is_recorded_only_while_the_range_is_held(how: str) -> None:
    registry = kopf.OperatorRegistry()
    begun, go_on, recorded = threading.Event(), threading.Event(), list[int]()

    def record(events: selectcache.Recorder, body: kopf.Body, reason: str) -> None:
        events.record(body, "Normal", reason, "It is told.")
        recorded.append(events.stats().unsent)

    async def reconcile(body: kopf.Body, events: selectcache.Recorder, **_: object) -> None:
        record(events, body, "Begun")
        begun.set()
        await until(go_on.is_set)
        record(events, body, "Late")

    def reconcile_in_thread(body: kopf.Body, events: selectcache.Recorder, **_: object) -> None:
        record(events, body, "Begun")
        begun.set()
        go_on.wait(60)
        record(events, body, "Late")

    async def reconcile_by_to_thread(body: kopf.Body, events: selectcache.Recorder, **_: object) -> None:
        await asyncio.to_thread(reconcile_in_thread, body, events)

    functions: dict[str, Any] = {"async": reconcile, "sync": reconcile_in_thread}
    function = functions.get(how, reconcile_by_to_thread)
    selectcache.reconcile("configmaps", registry=registry)(function)
    async with EmbeddedCluster(tls=False) as cluster:
        async with operator_of_one_key(cluster, registry) as settings:
            assert await reached(begun.is_set)
            take_all(settings)
            go_on.set()
            assert await reached(lambda: len(recorded) == 2)
        # The recorders have written what waited.
        events = cluster._admin.ask("GET", "/api/v1/namespaces/team-0/events")["items"]
        assert [each["reason"] for each in events] == ["Begun"]
    assert recorded == [0, 1]


async def test_a_write_to_another_cluster_is_refused_as_well() -> None:
    registry, errors = kopf.OperatorRegistry(), list[str]()
    begun, go_on = asyncio.Event(), asyncio.Event()
    started = Future[selectcache.Cache]()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(name: str, namespace: str, **_: object) -> None:
        live = (await asyncio.wrap_future(started)).live
        await live.patch("configmaps", name, namespace=namespace, changes={"data": {"first": "yes"}})
        begun.set()
        await go_on.wait()
        try:
            await live.patch("configmaps", name, namespace=namespace, changes={"data": {"late": "yes"}})
        except selectcache.ReadError as error:
            errors.append(str(error))
            raise

    async with EmbeddedCluster(tls=False) as cluster, EmbeddedCluster(tls=False) as other:
        other.namespace("team-0")
        other.create(OBJECT)
        login = kopf.ConnectionInfo(server=other.url, token=other.token)
        async with (
            operator_of_one_key(cluster, registry) as settings,
            selectcache.Caches(CONFIGMAPS, login=login) as cache,
        ):
            started.set_result(cache)
            assert await reached(begun.is_set)
            take_all(settings)
            go_on.set()
            assert await reached(lambda: errors)
            data = other.get(OBJECT)["data"]
            assert ("first" in data, "late" in data) == (True, False)
    assert "this replica does not handle its object any more, so nothing was sent" in errors[0]


def test_a_task_that_outlives_its_run_writes_while_the_range_is_held_and_not_later() -> None:
    registry, errors, tasks = kopf.OperatorRegistry(), list[str](), set[asyncio.Task[None]]()
    go_on = [asyncio.Event(), asyncio.Event()]
    ended = asyncio.Event()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(name: str, namespace: str, cache: selectcache.Cache, **_: object) -> None:
        async def write() -> None:
            try:
                for number, each in enumerate(go_on):
                    await each.wait()
                    changes = {"data": {f"write-{number}": "yes"}}
                    await cache.live.patch("configmaps", name, namespace=namespace, changes=changes)
            except selectcache.ReadError as error:
                errors.append(str(error))

        if not tasks:
            tasks.add(asyncio.create_task(write()))
        ended.set()

    async def main() -> None:
        async with (
            EmbeddedCluster(tls=False) as cluster,
            operator_of_one_key(cluster, registry) as settings,
        ):
            assert await reached(ended.is_set)
            go_on[0].set()
            assert await reached(lambda: "write-0" in cluster.get(OBJECT)["data"])
            take_all(settings)
            go_on[1].set()
            assert await reached(lambda: all(each.done() for each in tasks))
            assert "write-1" not in cluster.get(OBJECT)["data"]

    run(main())
    assert "this replica does not handle its object any more, so nothing was sent" in errors[0]


async def test_a_write_whose_answer_was_lost_may_have_been_sent_whatever_happens_to_the_range() -> None:
    write = Write(Verb.REPLACE, {"metadata": {"name": "a", "resourceVersion": "6"}}, "a")

    async def outcome_of(fault: str, fences: list[float]) -> object:
        model, time = Model((fault,)), Time()
        writer = Writer(model, clock=time.clock, sleep=time.sleep, chance=lambda: 1.0)
        with fenced(Fence(lambda: fences.pop(0))):
            try:
                return await writer.run(WriteCall(write, f"{PATH}/a", {}, f"{PATH}/a"), timeout=30.0)
            except (Unreachable, Unsettled) as error:
                return error

    for fault in ("unsent", "429"):
        assert isinstance(await outcome_of(fault, [5.0, 0.0]), Fenced)
    unsettled = await outcome_of("dropped", [5.0, 0.0])
    assert isinstance(unsettled, Unsettled), "the server may have executed it"
    assert "this replica does not handle its object any more" in str(unsettled)


def test_no_write_is_sent_with_a_time_that_the_server_takes_for_no_limit() -> None:
    assert [Fence(partial(float, left)).time_left() for left in (inf, 0.001, 0.0004, 0.0)] == [
        inf,
        0.001,
        0.0,
        0.0,
    ]


def test_no_other_way_of_writing_has_come() -> None:
    package = Path(selectcache.__file__).parent
    found = {
        str(each.relative_to(package))
        for each in package.rglob("*.py")
        if "testing" not in each.parts and "ransport.send(" in each.read_text()
    }
    assert found == {
        "client/writer.py",  # Checks the fence.
        "recorder/_delivery.py",  # What is recorded is checked.
        "sharding/coordinator.py",  # Leases and the assignment.
        "cache/declaring.py",  # Asks for permissions.
        "cli/adopt.py",  # A person writes.
        "cli/finalizers.py",  # So here.
    }


@pytest.mark.parametrize("in_task", [True, False])
async def test_a_range_is_not_clean_as_long_as_the_server_may_execute_a_write(*, in_task: bool) -> None:
    """The write is one of a task that has outlived its run, or its answer was lost."""
    registry, tasks, ended = kopf.OperatorRegistry(), list[asyncio.Task[Any]](), asyncio.Event()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(name: str, namespace: str, cache: selectcache.Cache, **_: object) -> None:
        changes, timeout = {"data": {"late": "yes"}}, 60.0 if in_task else 0.05
        tasks.append(
            asyncio.ensure_future(
                cache.live.patch("configmaps", name, namespace=namespace, changes=changes, timeout=timeout)
            )
        )
        if not in_task:
            await asyncio.wait(tasks)
        ended.set()

    async with EmbeddedCluster(tls=False) as cluster:
        silence = cluster.faults.add(Silence(), verb="patch", resource="configmaps")
        async with operator_of_one_key(cluster, registry) as settings:
            assert await reached(ended.is_set)
            assert await reached(lambda: silence.hits)
            shards = shards_of(settings)
            range_ = shards.range_of(("team-0", "x"))
            assert await reached(lambda: all(each.done() for each in shards._running(range_)))
            assert not await shards.drain(range_), "the taker must wait"
            assert await shards.drain(range_ - 1), "of another range, nothing is under way"
            silence.release()
            await asyncio.wait(tasks)
            assert isinstance(tasks[0].exception(), selectcache.OutcomeUnknown) is not in_task


async def test_an_answered_write_keeps_no_range_from_being_clean() -> None:
    registry, ended = kopf.OperatorRegistry(), asyncio.Event()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(name: str, namespace: str, cache: selectcache.Cache, **_: object) -> None:
        await cache.live.patch("configmaps", name, namespace=namespace, changes={"data": {"seen": "yes"}})
        with contextlib.suppress(selectcache.NotFound):
            await cache.live.patch("configmaps", "absent", namespace=namespace, changes={"data": {}})
        ended.set()

    async with EmbeddedCluster(tls=False) as cluster, operator_of_one_key(cluster, registry) as settings:
        assert await reached(ended.is_set)
        shards = shards_of(settings)
        shards.ownership = Movable()  # Else further runs would begin.
        assert await shards.drain(shards.range_of(("team-0", "x")))


async def test_work_that_a_handler_starts_for_all_keys_is_not_bound_to_its_key() -> None:
    """A cache whose filter it changes goes on after its range has moved."""
    registry, lines, left = kopf.OperatorRegistry(), list[str](), dict[str, float]()

    def note(secret: kopf.Body) -> list[selectcache.Key]:
        left[secret["metadata"]["name"]] = time_left()
        return []

    @selectcache.reconcile("configmaps", watches=[selectcache.Watch("secrets", map=note)], registry=registry)
    async def reconcile(name: str, cache: selectcache.Cache, **_: object) -> None:
        await cache.declare("v1/secrets", selectcache.EVERYTHING, replace=True)
        lines.append(name)

    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("team-0")
        cluster.create(OBJECT)
        filters = CONFIGMAPS | {"v1/secrets": "app=web"}
        configure = sharded(Sharding(static=(0, 1)))
        async with operated(registry, cluster, filters=filters, configure=configure) as settings:
            assert await reached(lambda: lines)
            take_all(settings)
            metadata = {"name": "s", "namespace": "team-0"}
            cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
            assert await reached(lambda: "s" in left)
            assert left["s"] == inf
