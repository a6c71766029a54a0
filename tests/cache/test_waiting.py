"""`wait_synced` names who is not; `wait_for` is woken by changes; sync handlers wait in their thread, never
on the loop's."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, cast

import pytest

from kopf_selectcache import Cache, Cached, Forbidden, NotSynced, OutsideFilter, ReadError
from kopf_selectcache.cache.blocking import AWAITED, LIVE, ThreadWaits
from kopf_selectcache.cache.cache import SyncCache
from kopf_selectcache.cache.live import Live, SyncLive
from kopf_selectcache.testing import FakeCache
from tests.rows import each_row

from .environment import NODES, PODS, Environment, pod, with_environment

WEB = pod("web-1", app="web")


def ready(obj: dict[str, Any]) -> bool:
    return bool(obj["metadata"]["labels"].get("ready") == "yes")


# ---- wait_synced.


@with_environment
async def test_a_wait_in_vain_names_the_kind_and_the_reason(environment: Environment) -> None:
    environment.declare().hold()
    informer = environment.declare("", NODES, "nodes")
    informer.message, informer.remedy = ("nodes: the server has stopped sending", "The cache keeps retrying")
    with pytest.raises(NotSynced):
        await environment.cache().wait_synced(0)
    environment.settings.sync_timeout = 0.01
    with pytest.raises(NotSynced):
        await environment.cache().wait_synced()


# ---- wait_for.


@with_environment
async def test_then_each_change_is(environment: Environment) -> None:
    informer = environment.declare("app=web").hold(WEB)
    waiting = asyncio.create_task(
        environment.cache().wait_for(
            "pods", ready, namespace="ns", labels="tier=gold", fields="status.phase=Running"
        )
    )
    await asyncio.sleep(0)
    informer.leave(WEB)
    informer.put(pod("web-2", version="11", app="web", tier="gold"))
    informer.put(pod("web-3", version="12", app="web", ready="yes"))
    informer.put(pod("web-4", "elsewhere", version="13", app="web", tier="gold", ready="yes"))
    informer.put(
        {**pod("web-5", version="14", app="web", tier="gold", ready="yes"), "status": {"phase": "Failed"}}
    )
    await asyncio.sleep(0)
    assert not waiting.done()
    informer.put(pod("web-2", version="15", app="web", tier="gold", ready="yes"))
    assert (await waiting)["metadata"]["resourceVersion"] == "15"
    assert informer.listeners == []


@pytest.mark.parametrize("held", [[], [WEB], [WEB, pod("web-2", app="web")]])
@with_environment
async def test_a_wait_that_times_out_names_its_goal_and_the_objects_present(
    environment: Environment, held: list[dict[str, Any]]
) -> None:
    informer = environment.declare("app=web").hold(*held)
    with pytest.raises(TimeoutError):
        await environment.cache().wait_for(
            "pods", ready, namespace="ns", labels="app=web", fields={"status.phase": "Running"}, timeout=0
        )
    assert informer.counts.reads == {("wait_for", "TimeoutError"): 1}
    assert informer.listeners == []


@each_row(
    ("options", "departures"),
    [
        ({}, "; departed since: 2 left"),
        (
            {"outside": "metadata"},
            "; departed since: 1 left (known by metadata), 1 deleted (known by metadata)",
        ),
    ],
)
def test_a_wait_that_times_out_shows_the_departures_and_how_they_are_known(
    options: dict[str, Any], departures: str
) -> None:
    cache = FakeCache(
        [pod(name, app="web", version="") for name in ("a", "b", "c")],
        {"v1/pods": Cached("app=web", **options)},
    )
    looked_at = []

    def let_depart(obj: dict[str, Any]) -> bool:
        looked_at.append(obj["metadata"]["name"])
        if len(looked_at) == 3:  # All are counted. The wait ends after this call.
            cache.cluster.patch(obj, {"metadata": {"labels": {"app": "db"}}})
            others = [pod(name, app="web") for name in looked_at[:2]]
            cache.cluster.delete(others[0], grace_period=0)
            cache.cluster.delete(others[1], grace_period=0)
            cache.cluster.create(pod(looked_at[1], app="web", version=""))
        return False

    async def wait() -> None:
        await cache.wait_for("pods", let_depart, timeout=0)

    with pytest.raises(TimeoutError, match="none of 3 pods in the cache satisfied let_depart") as raised:
        asyncio.run(wait())
    assert f"let_depart{departures}. The filter is" in str(raised.value)


@with_environment
async def test_a_wait_in_vain_for_a_cache_reports_that_it_is_not_synced(environment: Environment) -> None:
    informer = environment.declare("app=web")
    informer.message, informer.remedy = ("pods: the server answers 500", "The cache keeps retrying")
    with pytest.raises(NotSynced):
        await environment.cache().wait_for("pods", ready, namespace="ns", timeout=0)
    assert informer.counts.reads == {("wait_for", "NotSynced"): 1}


@with_environment
async def test_a_wait_for_a_kind_that_can_no_longer_be_maintained_fails_at_once(
    environment: Environment,
) -> None:
    informer = environment.declare("app=web").hold(WEB)
    waiting = asyncio.create_task(environment.cache().wait_for("pods", ready))
    await informer.subscribed.wait()
    informer.fail(Forbidden("pods: no", remedy="Grant it"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert waiting.done()
    with pytest.raises(Forbidden):
        await waiting
    assert informer.listeners == []
    assert informer.counts.reads == {("wait_for", "Forbidden"): 1}


@with_environment
async def test_wrong_arguments_of_a_wait_are_refused_at_once(environment: Environment) -> None:
    wrong: Any = "ready"
    environment.declare("app=web").hold()
    with pytest.raises(ReadError):
        await environment.cache().wait_for("pods", wrong)
    with pytest.raises(ReadError):
        # A mistake.
        await environment.cache().wait_for("pods", ready, timeout="60")  # type: ignore[call-overload]


async def awaited(obj: dict[str, Any]) -> bool:
    return ready(obj)


class Awaited:
    async def __call__(self, obj: dict[str, Any]) -> bool:
        return ready(obj)


@pytest.mark.parametrize("held", [[], [WEB]], ids=["nothing there", "something there"])
@with_environment
async def test_a_predicate_that_is_to_be_awaited_is_refused(
    environment: Environment, held: list[dict[str, Any]]
) -> None:
    informer = environment.declare("app=web").hold(*held)
    blocking = environment.cache().blocking
    seen_when_called = [lambda obj: awaited({**obj}), lambda _: asyncio.get_running_loop().create_future()]
    for predicate in (awaited, Awaited(), *(seen_when_called if held else [])):
        with pytest.raises(ReadError):
            await environment.cache().wait_for("pods", cast("Any", predicate))
    with pytest.raises(ReadError):
        await asyncio.to_thread(blocking.wait_for, "pods", awaited)
    assert informer.listeners == []
    assert set(informer.counts.reads) <= {("wait_for", "ReadError")}


@with_environment
async def test_errors_of_the_predicate_are_its_callers_and_disturb_nobody_else(
    environment: Environment,
) -> None:
    own = TimeoutError()

    def broken(_: object) -> bool:
        raise own

    informer = environment.declare("app=web").hold()
    waiting = asyncio.create_task(environment.cache().wait_for("pods", broken, timeout=60))
    await asyncio.sleep(0)
    informer.put(WEB)
    with pytest.raises(TimeoutError) as caught:
        await waiting
    assert caught.value is own
    assert informer.listeners == []


# ---- blocking.


@with_environment
async def test_threads_wait_for_the_loop_to_do_the_work(environment: Environment) -> None:
    db = pod("db-1", app="db")
    environment.declare("app=web").hold(pod("web-1", app="web", ready="yes"))
    environment.server.answer("/api/v1/namespaces/ns/pods/db-1", db)
    environment.server.answer(
        "/api/v1/pods", {"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": [db]}
    )
    blocking = environment.cache().blocking

    def handler() -> None:
        assert blocking.fetch("pods", "db-1", namespace="ns") == db
        assert blocking.fetch("pods", "nope", namespace="ns", default=None) is None
        assert blocking.is_deleted("pods", "nope", namespace="ns")
        assert not blocking.is_deleted("pods", "db-1", namespace="ns", uid=db["metadata"]["uid"])
        assert blocking.fetch_list("pods", labels="app in (web,db)", sort_by="metadata.name", limit=1) == [db]
        blocking.wait_synced()
        assert blocking.wait_for("pods", ready, namespace="ns", timeout=60)["metadata"]["name"] == "web-1"
        with pytest.raises(OutsideFilter):
            blocking.wait_for("pods", ready, labels="app=db")

    await asyncio.to_thread(handler)


WAITING = [
    name
    for name, method in inspect.getmembers(Cache, inspect.isfunction)
    if not name.startswith("_") and inspect.iscoroutinefunction(inspect.unwrap(method))
]


def test_threads_have_every_awaited_method_and_nothing_else() -> None:
    assert set(WAITING) == set(AWAITED) > {"audit", "fetch"}
    assert set(LIVE) == {name for name in vars(Live) if not name.startswith("_")}


@each_row("faces", [(Cache, SyncCache, name) for name in WAITING] + [(Live, SyncLive, name) for name in LIVE])
def test_threads_write_the_same_arguments_and_no_await(faces: tuple[type, type, str]) -> None:
    awaited, in_thread = (getattr(face, faces[2]) for face in faces[:2])
    assert inspect.signature(awaited) == inspect.signature(in_thread)
    assert "await " in awaited.__doc__
    assert "await " not in in_thread.__doc__


def test_signatures_have_each_option() -> None:
    parameters = inspect.signature(Cache.fetch).parameters
    assert list(parameters) == [
        "self",
        "kind",
        "name",
        "namespace",
        "default",
        "as_",
        "max_age",
        "at_least",
        "whole",
        "timeout",
    ]
    assert [str(parameters[name]) for name in ("default", "whole")] == [
        "default: 'Any' = ...",
        "whole: 'bool' = ...",
    ]
    for read in (
        Cache.get,
        Cache.list,
        Cache.list_cached,
        Cache.count,
        Cache.list_outside,
        Cache.explain,
        Live.list,
    ):
        assert not {"options", "extra"} & set(inspect.signature(read).parameters)


@with_environment
async def test_a_thread_whose_wait_is_ended_by_the_loop_is_let_go(environment: Environment) -> None:
    informer = environment.declare("app=web").hold()
    thread = asyncio.create_task(asyncio.to_thread(environment.cache().blocking.wait_for, "pods", ready))
    await informer.subscribed.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task(), thread}:
        task.cancel()
    with pytest.raises(ReadError):
        await thread
    assert informer.listeners == []


@with_environment
async def test_waits_of_threads_can_be_ended_and_then_unsubscribe(environment: Environment) -> None:
    pods, nodes = (
        environment.declare("app=web").hold(),
        environment.declare("app=web", NODES, "nodes").hold(),
    )
    operators = ThreadWaits()
    waits = ThreadWaits(operators)
    one = asyncio.create_task(
        asyncio.to_thread(environment.cache(waits=waits).blocking.wait_for, "pods", ready)
    )
    other = asyncio.create_task(
        asyncio.to_thread(environment.cache(waits=ThreadWaits(operators)).blocking.wait_for, "nodes", ready)
    )
    await pods.subscribed.wait()
    await nodes.subscribed.wait()
    waits.end("enough")
    with pytest.raises(ReadError):
        await one
    await pods.unsubscribed.wait()
    assert not other.done(), "each handler for itself"
    operators.end("all of it")
    with pytest.raises(ReadError):
        await other
    await nodes.unsubscribed.wait()


@with_environment
async def test_on_the_loops_own_thread_it_is_refused(environment: Environment) -> None:
    environment.declare("app=web", PODS).hold(WEB)
    with pytest.raises(ReadError):
        environment.cache().blocking.fetch("pods", "db-1", namespace="ns")


def test_after_the_operator_has_ended_it_is_refused() -> None:
    async def main() -> Environment:
        return Environment(asyncio.get_running_loop())

    blocking = asyncio.run(main()).cache().blocking
    with pytest.raises(ReadError):
        blocking.wait_synced()


def test_a_name_that_is_no_read_is_no_attribute_and_gets_a_suggestion() -> None:
    blocking = Environment().cache().blocking
    for name in ("fetchlist", "xyz"):
        with pytest.raises(AttributeError) as caught:
            getattr(blocking, name)
        assert caught.value.__notes__
    assert not hasattr(blocking, "fetchlist")
    assert not hasattr(blocking, "_private")
