"""One replica: its settings, its ranges, and the requests and refusals of its coordinator."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from math import inf
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError, Key, Sharding
from kopf_selectcache.core.assignment.records import read_assignment
from kopf_selectcache.core.assignment.rendezvous import mixed_64, range_of
from kopf_selectcache.core.assignment.replica import DeleteLease
from kopf_selectcache.informer.state import Undivided
from kopf_selectcache.plugin.calls import HandlerCalls, kinds_of
from kopf_selectcache.plugin.hooks import _probe
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.reactions.engine import RunAgain
from kopf_selectcache.reactions.queue import Run
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.sharding import shards as shards_module
from kopf_selectcache.sharding.shards import Shards, Static
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Silence
from tests.faults.environment import reached
from tests.plugin.reconciling import operated

from .environment import Acting, fleet
from .processes import configmap, lease


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"by": "uid"}, "by='uid'"),
        ({"lease": 1}, "lease=1"),
        ({"static": (3, 3)}, "static=(3, 3)"),
        ({"name": "Web Apps"}, "name='Web Apps'"),
        ({"ready_port": 0}, "ready_port=0"),
        ({"ready_port": "8081"}, "ready_port='8081'"),
    ],
)
def test_a_senseless_option_is_refused_where_it_is_given(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        Sharding(**given)
    assert said in str(caught.value)


@pytest.mark.parametrize("pod", ["web", "we_b-0"])
def test_a_pod_whose_name_does_not_say_that_of_the_operator_needs_one(pod: str) -> None:
    with pytest.raises(DeclarationError, match="the name of the operator"):
        Sharding(namespace="operators").found({"POD_NAME": pod})


@pytest.mark.parametrize("pod", ["webapps-7c9d8b6f5-2xk4q", "webapps-0"])
def test_the_name_of_the_operator_is_found_in_that_of_its_pod(pod: str) -> None:
    assert Sharding(namespace="operators").found({"POD_NAME": pod}).name == "webapps"


def test_an_operator_takes_no_other_setting() -> None:
    with pytest.raises(DeclarationError, match="not a Sharding"):
        settings_of(kopf.OperatorSettings()).sharding = 3  # type: ignore[assignment]


def test_without_others_a_replica_serves_all_namespaces() -> None:
    assert (Undivided().serves("shop"), Undivided().owner_of("shop")) == (True, "")


def test_the_kinds_of_a_function_in_a_partial_are_found() -> None:
    @selectcache.with_cache
    def function(**_: object) -> None: ...

    assert kinds_of(partial(function)) == kinds_of(function)


def test_a_static_replica_writes_for_its_own_ranges() -> None:
    first, second = Static(0, 2), Static(1, 2)
    term = first.term_of(0) or second.term_of(0)
    assert term is not None
    assert {first.time_left(0, term), second.time_left(0, term)} == {inf, 0.0}


def test_the_ranges_of_some_keys_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "MOST_KEYS", 3)
    shards, keys = Shards(ownership=Static(0, 1), by="object"), [("team", f"x{each}") for each in range(5)]
    for _ in range(2):
        assert [shards.range_of(key) for key in keys] == [range_of(mixed_64("/".join(key))) for key in keys]
    assert 0 < len(shards._range_of_key) <= 3


async def test_a_handler_that_fails_to_run_its_keys_keeps_no_other_from_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shards, replayed = Shards(ownership=Static(0, 1)), list[str]()
    going = asyncio.create_task(asyncio.Event().wait())

    class Failing:
        def replay(self, _: object) -> None:
            raise ValueError("a bug")

        def forget(self, _: object) -> None: ...

        def release(self, _: object) -> None: ...

        def running(self, _: object) -> set[asyncio.Task[Any]]:
            return {going}

    class Working(Failing):
        def replay(self, _: object) -> None:
            replayed.append("all")

    with shards.handling(Failing()), shards.handling(Working()):
        shards.start([1])
        assert replayed == ["all"]
        shards.stop(1)
        await asyncio.wait({going})
        assert going.cancelled()
    assert "A handler does not run all keys that this replica has got." in caplog.text


async def test_refusals_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with fleet() as replicas:
        coordinator = replicas.start("a").coordinator
        assert coordinator.owner_of(3) == ""
        for _ in range(2):
            coordinator._note_refusal(422, "no such field.")
        coordinator._note_refusal(404, "configmaps 'webapps-shards' not found")
        coordinator._note_refusal(404, "leases 'webapps-shard-b' not found")
        coordinator._note_refusal(404, "the namespace operators is absent")
        coordinator._note_refusal(404, 'namespaces "operators" not found')
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        assert coordinator.owner_of(3) == "a"
    assert caplog.text.count("refuses a request about replicas in operators: 422 no such field.") == 1
    assert "not found" not in caplog.text
    assert (
        "handles nothing, because namespace operators, where its Lease belongs, does not exist."
        in caplog.text
    )
    assert (
        "refuses a request about replicas in operators: 404 the namespace operators is absent." in caplog.text
    )


async def test_a_lease_that_nobody_needs_is_deleted_as_it_was_read() -> None:
    async with fleet() as replicas:
        coordinator = replicas.start("a").coordinator
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        read = coordinator.state.mine
        assert read is not None
        async with asyncio.TaskGroup() as requests:
            coordinator._do(DeleteLease(999, read), requests)
        mine = lease("a")
        mine["metadata"]["name"] = "webapps-shard-a"
        with pytest.raises(Exception, match="not found"):
            replicas.cluster.get(mine)


async def test_a_replica_that_ends_gives_up_its_preparations() -> None:
    async with fleet() as replicas:
        replica, ended = replicas.start("a"), asyncio.Event()

        class Slow(Acting):
            async def warm(self, range_: int) -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

        replica.coordinator.ranges = Slow("a", replicas.log)
        await replicas.until(lambda: replica.coordinator._warming)
        await asyncio.sleep(0)
        replica.kill()
        await ended.wait()


async def test_an_operator_joins_the_others_and_leaves_them_at_its_end() -> None:
    registry, begun = kopf.OperatorRegistry(), asyncio.Event()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(**_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    def configure(settings: kopf.OperatorSettings) -> None:
        sharding = Sharding(name="fleet", namespace="operators", pod="a", lease=4)
        settings_of(settings).sharding = sharding
        settings.queueing.exit_timeout = 0.1

    async with EmbeddedCluster(tls=False) as cluster:
        for namespace in ("operators", "team-0"):
            cluster.namespace(namespace)
        cluster.create(configmap("team-0", "x", 0))
        filters = {"v1/configmaps": "fleet=yes"}
        async with operated(registry, cluster, filters=filters, configure=configure) as settings:
            assert await reached(begun.is_set)
            report: Any = await _probe(settings=settings)
            assert (report["sharding"]["replicas"], report["sharding"]["condition"]) == (
                ["a"],
                "it works",
            )
            metrics = {each.name for each in selectcache.collector(settings).collect()}
            assert "kopf_selectcache_sharding_unowned_ranges" in metrics
            assert cluster.get(lease("a"))["spec"]["holderIdentity"].startswith("a/")
        assert cluster.get(lease("a"))["spec"].get("holderIdentity", "") == ""


def among_others(settings: kopf.OperatorSettings) -> None:
    settings_of(settings).sharding = Sharding(name="fleet", namespace="operators", pod="a", lease=4)


async def test_a_replica_takes_nothing_before_its_caches_are_synced() -> None:
    registry, handled = kopf.OperatorRegistry(), asyncio.Event()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(**_: object) -> None:
        handled.set()

    async with EmbeddedCluster(tls=False) as cluster:
        for namespace in ("operators", "team-0"):
            cluster.namespace(namespace)
        cluster.create(configmap("team-0", "x", 0))
        silence = cluster.faults.add(Silence(), verb="list", resource="secrets")
        filters = {"v1/configmaps": "fleet=yes", "v1/secrets": "team=a"}
        async with operated(registry, cluster, filters=filters, configure=among_others) as settings:
            assert await reached(lambda: silence.hits)
            operator = operator_of(settings)
            assert operator is not None
            assert operator.replica is not None
            assert await reached(lambda: operator.runtime.informer("configmaps").state.ready)
            assert not operator.replica.has_begun, "the Secrets are not known yet"
            silence.release()
            assert await reached(handled.is_set)


async def test_idle_ranges_go_at_once_at_the_end_and_a_busy_one_once_its_run_has_ended() -> None:
    registry, is_ending = kopf.OperatorRegistry(), asyncio.Event()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(**_: object) -> None:
        begun.set()
        await go_on.wait()

    def configure(settings: kopf.OperatorSettings) -> None:
        among_others(settings)
        settings.queueing.exit_timeout = 120.0

    async with EmbeddedCluster(tls=False) as cluster, AsyncExitStack() as stack:
        for namespace in ("operators", "team-0"):
            cluster.namespace(namespace)
        cluster.create(configmap("team-0", "x", 0))
        metadata = {"name": "fleet-shards", "namespace": "operators"}
        shards = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

        def owned() -> list[int]:
            assignment = read_assignment(cluster.get(shards)).assignment
            assert assignment is not None
            return [range_ for range_, share in enumerate(assignment.shares) if share.owner]

        async def end() -> None:
            await is_ending.wait()
            await stack.aclose()

        ending = asyncio.create_task(end())  # Kopf cancels the tasks that are begun later.
        filters = {"v1/configmaps": "fleet=yes"}
        await stack.enter_async_context(operated(registry, cluster, filters=filters, configure=configure))
        assert await reached(begun.is_set)
        assert len(owned()) == 64
        is_ending.set()
        busy = range_of(mixed_64("team-0"))
        assert await reached(lambda: owned() == [busy])
        assert not ending.done()
        go_on.set()
        await ending
        assert owned() == []


async def test_a_cancelled_run_of_a_key_that_is_still_handled_is_cancelled() -> None:
    class Cancelled:
        async def run(self, _: Run) -> RunAgain | None:
            raise asyncio.CancelledError

    calls: Any = Cancelled()
    key = Run(Key("x", namespace="shop"), 0, (), 1, 0)
    with pytest.raises(asyncio.CancelledError):
        await HandlerCalls._run_if_handled(calls, Shards(ownership=Static(0, 1)), key)


async def test_a_range_whose_runs_were_cancelled_is_not_freed_cleanly() -> None:
    async def sleep(_: float) -> None: ...

    shards = Shards(ownership=Static(0, 1), sleep=sleep)
    going = asyncio.create_task(asyncio.Event().wait())

    class Running:
        def replay(self, _: object) -> None: ...

        def forget(self, _: object) -> None: ...

        def release(self, _: object) -> None: ...

        def running(self, _: object) -> set[asyncio.Task[Any]]:
            return {going} - {task for task in [going] if task.done()}

    with shards.handling(Running()):
        assert not await shards.drain(1), "its last write may still arrive"
        assert going.cancelled()
        assert await shards.drain(1)
