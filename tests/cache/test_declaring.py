"""Kinds that are declared, changed and removed at run time."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import pytest

from kopf_selectcache import Cached, DeclarationError, Forbidden, NotDeclared, NotSynced, ReadError, Selector
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.protocol.machine import Lost
from kopf_selectcache.errors import Missing, Rejected, UnknownKind
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.metrics import Collector
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.faults import Refuse, Silence
from kopf_selectcache.testing.request_log import Match
from tests.cache.environment import begin_with
from tests.faults.environment import until
from tests.gated import Gated, gated, settle
from tests.objects import config_map, custom_resource
from tests.rows import each_row

CONFIGS = [config_map("web", app="web"), config_map("db", app="db")]


WEBAPPS = custom_resource("WebApp")


def watches(gated: Gated) -> int:
    """Return the number of open watches, as the server sees them."""
    cluster = gated.cluster
    return len(cluster._do(lambda: list(cluster._running().streams(Match("watch")))))


@asynccontextmanager
async def _operator() -> AsyncIterator[tuple[Gated, Cache]]:
    async with gated("app=web", *CONFIGS) as environment:
        yield environment, environment.cache


operated = begin_with("gated", "cache", make=_operator)
"""Gives a test an operator that has pods, and its cache."""


def names(objects: Any) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in objects)


# ---- Declared.


@operated
async def test_a_declared_kind_is_synced_and_followed(gated: Gated, cache: Cache) -> None:
    with pytest.raises(NotDeclared):
        cache.list_cached("configmaps")
    await cache.declare("v1/configmaps", "app=web", index={"app": "metadata.labels.app"})
    assert names(cache.list("configmaps", labels="app=web")) == ["web"]
    assert names(cache.list_cached("cm", index={"app": "web"})) == ["web"]
    gated.cluster.create(config_map("more", app="web"))
    await until(lambda: names(cache.list_cached("ConfigMap")) == ["more", "web"])
    assert cache.info("configmaps").filter == Selector("app=web")
    assert set(gated.operator.report()) == {"pods", "v1/configmaps"}
    assert "configmaps" in repr(cache)


@operated
async def test_the_same_declaration_again_is_only_waited_for(gated: Gated, cache: Cache) -> None:
    await cache.declare("configmaps", Cached("app=web", keep=["data"]))
    first = gated.operator.runtime.informer("configmaps")
    await cache.declare("v1/configmaps", "app=web", keep=["data"])
    await cache.declare("pods", "app=web")
    assert list(gated.operator.runtime.informers.values()) == [gated.informer, first]


@each_row("filter_", ["app in (web)", {"app": "web"}, Selector("app=web,app"), ["app=web", "app=web,tier"]])
@operated
async def test_a_filter_that_selects_the_same_objects_is_the_same_declaration(
    gated: Gated, cache: Cache, filter_: Any
) -> None:
    await cache.declare("configmaps", "app=web")
    await cache.declare("configmaps", filter_)
    assert gated.operator.runtime.informer("configmaps").state.filter == Selector("app=web")


@each_row(
    ("options", "named"),
    [
        ({"keep": ["data"]}, ["keep="]),
        ({"drop": ["data"], "max_bytes": "1Mi"}, ["drop=", "max_bytes="]),
        ({"index": {"app": "metadata.labels.app"}, "storage": "raw"}, ["index=", "storage="]),
        ({"transform": lambda obj: obj}, ["transform="]),
    ],
)
@operated
async def test_the_options_that_differ_are_named(cache: Cache, options: Any, named: list[str]) -> None:
    await cache.declare("configmaps", "app=web")
    with pytest.raises(DeclarationError) as caught:
        await cache.declare("configmaps", "app=web", **options)
    assert all(name in caught.value.what for name in named)


@operated
async def test_a_custom_kind_is_found_by_its_other_names(gated: Gated, cache: Cache) -> None:
    gated.cluster.create(WEBAPPS)
    await cache.declare("example.com/v1/webapps", "")
    assert cache.list("webapps") == []
    with pytest.raises(DeclarationError):
        await cache.declare("webapps", "app=web")
    with pytest.raises(DeclarationError):
        await cache.declare("WebApp", "app=web")
    await cache.undeclare("webapps")
    with pytest.raises(NotDeclared) as caught:
        cache.list("WebApp")
    assert "undeclared" in caught.value.what


@operated
async def test_two_keys_of_one_unresolved_kind_are_rejected(gated: Gated, cache: Cache) -> None:
    gated.cluster.create(WEBAPPS)
    held = gated.cluster.faults.add(Silence(), where=lambda asked: asked.path.startswith("/apis"))
    first = asyncio.create_task(cache.declare("example.com/v1/webapps", "a=1"))
    await settle()
    second = asyncio.create_task(cache.declare("webapps", "b=1"))
    await settle()
    held.release()
    await gated.clock.move_until(lambda: first.done() or second.done())
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert sorted(map(type, results), key=str) == sorted([type(None), Rejected], key=str)


@each_row(
    ("kind", "declared", "options", "error"),
    [
        ("pod/status", "", {}, UnknownKind),
        ("configmaps", "app in web", {}, DeclarationError),
        ("configmaps", "app=web", {"keep": "data"}, DeclarationError),
        ("configmaps", "app=web", {"unknown": 1}, TypeError),
        ("configmaps", Cached("app=web"), {"drop": ["data"]}, DeclarationError),
        ("configmaps", "app=web", {"timeout": "1"}, DeclarationError),
        ("configmaps", "app=web", {"timeout": True}, DeclarationError),
        ("nodes", Selector(fields="spec.unknown=1"), {}, DeclarationError),
    ],
)
@each_row("replace", [False, True])
@operated
async def test_arguments_are_checked_first(
    gated: Gated, cache: Cache, replace: bool, kind: str, declared: Any, options: Any, error: type[Exception]
) -> None:
    before = len(gated.cluster.requests)
    with pytest.raises(error):
        await cache.declare(kind, declared, replace=replace, **options)
    assert len(gated.cluster.requests) == before


# ---- Not declared after all.


def nothing_stays(gated: Gated) -> None:
    runtime = gated.operator.runtime
    assert list(runtime.informers) == ["pods"]
    assert not runtime.names.pending
    assert len(runtime._budget._shares) == 1
    assert set(runtime._claims._keys.values()) == {"pods"}
    assert {task.get_name() for task in asyncio.all_tasks() if "configmaps" in task.get_name()} == set()
    with pytest.raises(NotDeclared):
        gated.cache.list_cached("configmaps")


@pytest.mark.parametrize("code", [403, 404])
@operated
async def test_a_declaration_that_fails_raises_the_state_and_leaves_nothing(
    gated: Gated, cache: Cache, code: int
) -> None:
    fault = gated.cluster.faults.add(Refuse(code), verb="list", resource="configmaps")
    with pytest.raises((Forbidden, Missing)):
        await cache.declare("configmaps", "app=web")
    nothing_stays(gated)
    fault.release()
    await cache.declare("configmaps", "app=web")
    assert names(cache.list_cached("configmaps")) == ["web"]


@operated
async def test_a_timeout_names_the_reason(gated: Gated, cache: Cache) -> None:
    gated.cluster.faults.add(Silence(), verb="list", resource="configmaps")
    with pytest.raises(NotSynced):
        await cache.declare("configmaps", "app=web", timeout=0)
    nothing_stays(gated)


@operated
async def test_a_cancelled_declaration_leaves_nothing(gated: Gated, cache: Cache) -> None:
    gated.cluster.faults.add(Silence(), verb="list", resource="configmaps")
    declaring = asyncio.create_task(cache.declare("configmaps", "app=web"))
    await until(lambda: "configmaps" in gated.operator.runtime.informers)
    with pytest.raises(NotSynced):
        cache.list_cached("configmaps")
    await settle()
    declaring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await declaring
    nothing_stays(gated)


@operated
async def test_a_declaration_stays_for_another_caller_that_waits(gated: Gated, cache: Cache) -> None:
    held = gated.cluster.faults.add(Silence(), verb="list", resource="configmaps")
    first, second = (asyncio.create_task(cache.declare("configmaps", "app=web")) for _ in range(2))
    await until(lambda: sum(gated.operator.runtime.names.pending.values()) == 2)
    first.cancel()
    await asyncio.wait({first})
    held.release()
    await gated.clock.move_until(second.done)
    assert second.exception() is None
    assert names(cache.list_cached("configmaps")) == ["web"]
    assert not gated.operator.runtime.names.pending


@operated
async def test_a_failure_of_one_caller_leaves_the_cache_that_another_synced(
    gated: Gated, cache: Cache
) -> None:
    await cache.declare("configmaps", "app=web")
    await cache.declare("configmaps", "app=web", timeout=0)
    assert names(cache.list_cached("configmaps")) == ["web"]
    informer = gated.operator.runtime.informer("configmaps")
    informer.state.reflectors[0].condition.fail(Lost("it selects nothing", outside=True))
    with pytest.raises(Rejected):
        await cache.declare("configmaps", "app=web", timeout=0)
    assert gated.operator.runtime.informer("configmaps") is informer


# ---- Removed.


@operated
async def test_reads_of_a_removed_kind_name_the_time_and_the_place(gated: Gated, cache: Cache) -> None:
    gated.operator.runtime.now = lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    await cache.declare("v1/configmaps", "app=web")
    await cache.undeclare("cm")
    for kind in ("configmaps", "v1/configmaps", "ConfigMap"):
        with pytest.raises(NotDeclared) as caught:
            cache.list_cached(kind)
        assert re.search(r"2026-01-02T03:04:05Z by test_declaring\.py:\d+", caught.value.what)
    with pytest.raises(NotDeclared):
        await cache.undeclare("configmaps")
    with pytest.raises(NotDeclared) as caught:
        cache.list_cached("secrets")
    assert "undeclared" not in caught.value.what
    await cache.declare("configmaps", "app=db")
    assert names(cache.list_cached("configmaps")) == ["db"]


@operated
async def test_the_place_is_that_of_the_call_also_from_threads_and_tasks(cache: Cache) -> None:
    def in_thread() -> None:
        cache.blocking.declare("configmaps", "app=web")
        cache.blocking.undeclare("configmaps")

    def place() -> str:
        with pytest.raises(NotDeclared) as caught:
            cache.list_cached("configmaps")
        return caught.value.what.rpartition(" ")[2]

    await asyncio.to_thread(in_thread)
    first = place()
    await cache.declare("configmaps", "app=web")
    await asyncio.gather(cache.undeclare("configmaps"))
    assert {each.partition(":")[0] for each in (first, place())} == {"test_declaring.py"}


@operated
async def test_the_remedies_of_a_thread_can_be_copied_into_it(cache: Cache) -> None:
    await cache.declare("configmaps", "app=web")
    with pytest.raises(DeclarationError) as on_loop:
        await cache.declare("configmaps", "app=db")
    with pytest.raises(DeclarationError) as in_thread:
        await asyncio.to_thread(lambda: cache.blocking.declare("configmaps", "app=db"))
    assert on_loop.value.remedy == "To change it: await cache.declare(..., replace=True)"
    assert in_thread.value.remedy == "To change it: cache.blocking.declare(..., replace=True)"


async def removed_while(gated: Gated, wait: Coroutine[Any, Any, Any], kind: str = "configmaps") -> Any:
    """Remove the kind while something waits; return its result or error."""
    task = asyncio.create_task(wait)
    await settle()
    assert not task.done()
    await gated.cache.undeclare(kind)
    await settle()
    assert task.done()
    return task.exception() or task.result()


@operated
async def test_waits_for_a_removed_kind_end(gated: Gated, cache: Cache) -> None:
    async def iterate() -> None:
        async for _ in cache.changes("configmaps", initial=False):
            pass

    waits: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: cache.wait_for("configmaps", lambda _: False),
        iterate,
    ]
    for wait in waits:
        await cache.declare("configmaps", "app=web")
        assert isinstance(await removed_while(gated, wait()), NotDeclared)
    await cache.declare("configmaps", "app=web")
    gone = asyncio.create_task(cache.wait_deleted("configmaps", "web", namespace="shop"))
    await settle()
    await cache.undeclare("configmaps")
    await until(lambda: any(asked.path.endswith("/configmaps/web") for asked in gated.cluster.requests))
    await settle()
    gated.cluster.delete(CONFIGS[0])
    await gated.clock.move_until(gone.done)
    await gone


@operated
async def test_waits_for_the_sync_of_a_removed_kind_end(gated: Gated, cache: Cache) -> None:
    for wait, expected in (
        (lambda: cache.wait_for("configmaps", lambda _: True), NotDeclared),
        (lambda: gated.operator.gate(("configmaps",), None), NotDeclared),
        (cache.wait_synced, type(None)),
        (lambda: cache.declare("configmaps", "app=web"), NotDeclared),
    ):
        held = gated.cluster.faults.add(Silence(), verb="list", resource="configmaps")
        declaring = asyncio.create_task(cache.declare("configmaps", "app=web"))
        await settle()
        assert isinstance(await removed_while(gated, wait()), expected)
        with pytest.raises(NotDeclared):
            await declaring
        held.release()


@operated
async def test_a_read_that_has_found_the_informer_answers_or_raises(gated: Gated, cache: Cache) -> None:
    await cache.declare("configmaps", "app=web")
    informer, stale = (gated.operator.runtime.informer("configmaps"), {**gated.operator.runtime.names.quick})
    await cache.undeclare("configmaps")
    gated.operator.runtime.names.quick = stale
    with pytest.raises(ReadError) as caught:
        cache.list_cached("configmaps")
    assert isinstance(caught.value, NotDeclared)
    assert informer.state.held() == 0


@operated
async def test_a_kind_of_the_start_can_be_removed_and_declared_again(gated: Gated, cache: Cache) -> None:
    await cache.undeclare("pods")
    assert gated.operator.runtime.initial == []
    await gated.operator.gate(None, None)
    await cache.declare("pods", "app=db")
    assert gated.operator.runtime.initial == []
    assert cache.info("pods").filter == Selector("app=db")


# ---- Changed.


@operated
async def test_a_changed_filter_is_read_at_once(gated: Gated, cache: Cache) -> None:
    await cache.declare("configmaps", "app=web")
    await cache.declare("v1/configmaps", "app=db", keep=["metadata.labels"], timeout=30, replace=True)
    assert names(cache.list("configmaps", labels="app=db")) == ["db"]
    assert cache.info("configmaps").filter == Selector("app=db")
    await cache.declare("configmaps", Cached("app=db", keep=["metadata.labels"]))
    await cache.undeclare("configmaps")
    nothing_stays(gated)


@operated
async def test_a_change_ends_when_its_kind_is_removed(gated: Gated, cache: Cache) -> None:
    await cache.declare("configmaps", "app=web")
    gated.cluster.faults.add(Silence(), verb="list", resource="configmaps")
    result = await removed_while(gated, cache.declare("configmaps", "app=db", replace=True))
    assert isinstance(result, NotDeclared)
    await settle()
    nothing_stays(gated)


def test_options_that_are_not_given_stay_as_they_are() -> None:
    cache = FakeCache([config_map("web", app="web"), config_map("db", app="db")])
    change = partial(cache.blocking.declare, replace=True)
    cache.blocking.declare("configmaps", "app=web", keep=["data"], index={"app": "data.a"}, max_bytes="1Mi")
    change("configmaps", "app in (web,db)")
    informer = cache._runtime.informer("configmaps")
    kept = informer.declared
    assert (kept.max_bytes, kept.projection.partial, [*informer.state.indexes]) == ("1Mi", True, ["app"])
    cache.blocking.add_index("configmaps", name="metadata.name")
    change("configmaps", "app=db", drop=["data.b"], max_bytes=None)
    assert informer.declared.max_bytes is None
    assert informer.declared.projection != kept.projection
    assert [*informer.state.indexes] == ["app", "name"]
    change("configmaps", "app=db", index={})
    assert not informer.state.indexes
    change("configmaps", Cached("app=db"))
    assert informer.declared == Cached("app=db")


def test_names_share_a_watch_as_long_as_there_are_names() -> None:
    cache = FakeCache([config_map("web", app="web")])
    cache.blocking.declare("configmaps", Selector(names=["a", "b"], namespaces=["shop"]), share_watches=True)
    informer = cache._runtime.informer("configmaps")
    cache.blocking.declare("configmaps", Selector(names=["a", "c"], namespaces=["shop"]), replace=True)
    assert informer.declared.share_watches
    cache.blocking.declare("configmaps", "app=web", replace=True)
    assert not informer.declared.share_watches


# ---- Many.


def informers() -> int:
    """Return the number of informers in memory. Some may be of earlier tests."""
    gc.collect()
    return sum(isinstance(each, Informer) for each in gc.get_objects())


async def test_nothing_stays_of_a_hundred_kinds() -> None:
    async def test(gated_: Gated, cache: Cache) -> None:
        runtime = gated_.operator.runtime
        kinds = ["configmaps", "secrets", "services", "serviceaccounts", "endpoints"]
        tasks, open_ones = asyncio.all_tasks(), watches(gated_)
        before = informers()

        async def come_and_go(kind: str) -> None:
            for number in range(20):
                await cache.declare(kind, f"app={number}", max_bytes="1Mi")
                assert cache.list(kind, labels=f"app={number}") == []
                await cache.undeclare(kind)

        await asyncio.gather(*map(come_and_go, kinds))
        await until(lambda: watches(gated_) == open_ones)
        for _ in range(10):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() <= tasks
        assert list(runtime.informers) == ["pods"]
        assert len(runtime._budget._shares) == 1
        assert set(runtime._claims._keys.values()) == {"pods"}
        assert not runtime.names.pending
        assert len(runtime._tasks) == 1
        samples = [
            sample for metric in Collector(runtime.informers.values).collect() for sample in metric.samples
        ]
        assert {sample.labels["resource"] for sample in samples} == {"pods"}
        assert informers() <= before

    async with gated("app=web") as environment:
        await test(environment, environment.cache)


@pytest.mark.no_cover
@operated
async def test_reading_threads_see_answers_or_no_kind(cache: Cache) -> None:
    stop, errors, answers = threading.Event(), list[Exception](), set[tuple[str, ...]]()

    def read() -> None:
        while not stop.wait(0.001):  # A thread that never rests leaves the loop hardly a turn.
            try:
                answers.add(tuple(names(cache.list("configmaps", labels="app=web"))))
                with suppress(NotDeclared, NotSynced):
                    answers.add((cache.get("v1/configmaps", "web", namespace="shop")["metadata"]["name"],))
            except (NotDeclared, NotSynced):
                pass
            except Exception as error:  # Each is a failure of the test.  # noqa: BLE001
                errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _number in range(30):
            await cache.declare("configmaps", "app=web")
            await asyncio.sleep(0)
            await cache.undeclare("configmaps")
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not errors
    assert answers <= {("web",)}


def test_a_change_whose_index_fails_leaves_the_former_filter() -> None:
    def fail(_: Any) -> str:
        raise ValueError("no such value")

    cache = FakeCache([config_map("web", app="web"), config_map("db", app="db")])
    cache.blocking.declare("configmaps", "app=web")
    state = cache._runtime.informer("configmaps").state
    with pytest.raises(ReadError):
        cache.blocking.declare("configmaps", "app=web", index={"app": fail}, replace=True)
    assert cache._runtime.informer("configmaps").state is state
    with pytest.raises(NotDeclared):
        cache.blocking.undeclare("secrets")


async def test_a_runtime_that_does_not_run_takes_kinds_as_well() -> None:
    runtime = Runtime(
        SelectCacheSettings(),
        cast("Any", None),
        namespaces=None,
        chance=lambda: 0.5,
        logger=logging.getLogger("tests"),
    )
    informer = runtime.declare("pods", Cached("app=web"))
    assert runtime.informer("pods") is informer
    await runtime.remove(informer, "here:1")
    assert not runtime.informers
