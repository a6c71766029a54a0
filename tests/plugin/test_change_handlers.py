"""Handlers of changes in whole operators: their arguments, order, retries, and pauses."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.credentials import Vault

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError, NotSynced, _kopf
from kopf_selectcache.cache.changes import Subscription
from kopf_selectcache.plugin import changes as module
from kopf_selectcache.plugin.calls import HandlerCalls
from kopf_selectcache.plugin.on import NAMES
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster
from tests.faults.environment import run, until
from tests.kopf_operators import declaring, started
from tests.plugin.test_embedding import PEERING, PEERINGS
from tests.secrets import labelled, secret


@asynccontextmanager
async def operating(
    registry: kopf.OperatorRegistry,
    *objects: dict[str, Any],
    configure: Callable[[kopf.OperatorSettings], object] = lambda _: None,
    filter_: Any = "app=web",
    **options: Any,
) -> AsyncIterator[EmbeddedCluster]:
    """Run an operator that caches Secrets."""
    settings, stop = kopf.OperatorSettings(), asyncio.Event()
    settings_of(settings).selectors["v1/secrets"] = filter_
    configure(settings)
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        cluster.create(*objects)
        vault = Vault({"login": kopf.ConnectionInfo(server=cluster.url, token=cluster.token)})
        given = {"standalone": True} | options
        running = asyncio.create_task(
            kopf.operator(
                registry=registry, settings=settings, vault=vault, clusterwide=True, stop_flag=stop, **given
            )
        )
        running.add_done_callback(lambda _: stop.set())
        try:
            yield cluster
        finally:
            stop.set()
            await running


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_handler_gets_each_change_with_the_cache(
    registry: kopf.OperatorRegistry, is_async: bool
) -> None:
    calls: list[dict[str, Any]] = []
    threads: list[bool] = []

    def note(**given: Any) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        calls.append({**given, "held": len(given["cache"].list_cached("secrets"))})

    async def note_async(**given: Any) -> None:
        note(**given)

    selectcache.on.change("secrets", registry=registry, param=7)(note_async if is_async else note)
    async with operating(registry, secret("web-1", app="web"), secret("db-1", app="db")) as cluster:
        await until(lambda: len(calls) == 1)
        cluster.patch(secret("web-1"), labelled(tier="gold"))
        await until(lambda: len(calls) == 2)
        cluster.patch(secret("web-1"), labelled(app="db"))
        await until(lambda: len(calls) == 3)
    assert [str(each["cause"]) for each in calls] == ["entered", "updated", "left"]
    assert [each["held"] for each in calls] == [1, 1, 0]
    assert {(each["name"], each["namespace"], each["param"], each["retry"]) for each in calls} == {
        ("web-1", "shop", 7, 0)
    }
    assert [each["old"] is None for each in calls] == [True, False, False]
    assert [each["new"] is None for each in calls] == [False, False, True]
    assert calls[2]["body"].metadata.labels == {"app": "web", "tier": "gold"}
    assert calls[1]["labels"] == {"app": "web", "tier": "gold"}
    assert {each["uid"] for each in calls} == {calls[0]["meta"]["uid"]}
    assert set(threads) == {is_async}
    assert calls[0].keys() - {"held"} == NAMES


async def test_no_more_handlers_run_at_once_than_kopf_has_workers(registry: kopf.OperatorRegistry) -> None:
    running: list[str] = []
    most = 0
    released = asyncio.Event()

    @selectcache.on.change("secrets", registry=registry)
    async def follow(name: str, **_: Any) -> None:
        nonlocal most
        running.append(name)
        most = max(most, len(running))
        await released.wait()
        running.remove(name)

    def limit(settings: kopf.OperatorSettings) -> None:
        settings.queueing.worker_limit = 2

    objects = [secret(f"web-{number}", app="web") for number in range(5)]
    async with operating(registry, *objects, configure=limit):
        await until(lambda: len(running) == 2)
        released.set()
        await until(lambda: not running)
    assert most == 2


async def test_15_a_failing_handler_is_called_again_with_the_changes_since_then(
    registry: kopf.OperatorRegistry,
) -> None:
    calls: list[tuple[str, int, int]] = []
    ready = asyncio.Event()

    @selectcache.on.change("secrets", registry=registry, backoff=0.01)
    async def follow(cause: str, retry: int, labels: Any, **_: Any) -> None:
        calls.append((str(cause), retry, len(labels)))
        if cause == "updated" and not ready.is_set():
            raise RuntimeError("not yet")

    async with operating(registry, secret("a", app="web")) as cluster:
        await until(lambda: calls)
        cluster.patch(secret("a"), labelled(tier="gold"))
        await until(lambda: len(calls) >= 3)
        cluster.patch(secret("a"), labelled(zone="east"))
        await until(lambda: calls[-1][2] == 3)
        cluster.delete(secret("a"))
        await until(lambda: calls[-1][0] == "left")
    assert calls[:3] == [("entered", 0, 1), ("updated", 0, 2), ("updated", 1, 2)]
    assert calls[-1] == ("left", 0, 3)


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"initial": False}, ["b entered", "a updated", "a deleted"]),
        ({"updated": False, "entered": False}, ["a deleted"]),
        ({"deleted": False}, ["a entered", "b entered", "a updated"]),
        ({"labels": "tier"}, ["a entered", "a deleted"]),
        ({"where": {"metadata.name": "b"}}, ["b entered"]),
        ({"namespace": "other"}, []),
    ],
)
def test_a_handler_gets_the_changes_that_it_wants(
    registry: kopf.OperatorRegistry, options: Any, seen: list[str]
) -> None:
    calls: list[str] = []
    all_calls: list[str] = []

    @selectcache.on.change("secrets", registry=registry, **options)
    async def follow(name: str, cause: str, **_: Any) -> None:
        calls.append(f"{name} {cause}")

    @selectcache.on.change("secrets", registry=registry)
    async def follow_all(name: str, cause: str, **_: Any) -> None:
        all_calls.append(f"{name} {cause}")

    async def main() -> None:
        by_name = selectcache.Selector(namespaces=["shop"])
        async with operating(registry, secret("a", app="web"), filter_=by_name) as cluster:
            await until(lambda: all_calls == ["a entered"])
            cluster.create(secret("b", app="web"))
            await until(lambda: len(all_calls) == 2)
            cluster.patch(secret("a"), labelled(tier="gold"))
            await until(lambda: len(all_calls) == 3)
            cluster.delete(secret("a"))
            await until(lambda: len(all_calls) == 4 and len(calls) >= len(seen))
        assert calls == seen

    if "namespace" in options:
        settings = declaring(secrets=selectcache.Selector(namespaces=["shop"]))
        with pytest.raises(DeclarationError):
            started(registry, settings)
    else:
        run(main())


@pytest.mark.parametrize("is_declared", [True, False])
async def test_a_handler_is_called_for_resyncs_only_if_it_asks(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture, *, is_declared: bool
) -> None:
    calls: list[str] = []
    all_calls: list[str] = []

    @selectcache.on.change("secrets", entered=False, resync=True, registry=registry)
    async def repeat(name: str, cause: str, old: Any, new: Any, **_: Any) -> None:
        assert (cause == "resync") is (old is new)
        calls.append(f"{name} {cause}")

    @selectcache.on.change("secrets", registry=registry)
    async def follow(name: str, cause: str, **_: Any) -> None:
        all_calls.append(f"{name} {cause}")

    given: list[kopf.OperatorSettings] = []
    filter_ = selectcache.Cached("app=web", resync=1) if is_declared else "app=web"
    objects = secret("a", app="web"), secret("b", app="web")
    async with operating(registry, *objects, filter_=filter_, configure=given.append) as cluster:
        await until(lambda: len(all_calls) == 2)
        if is_declared:
            await until(lambda: len(calls) >= 4)
            assert set(calls) == {"a resync", "b resync"}
        cluster.patch(secret("a"), labelled(tier="gold"))
        await until(lambda: "a updated" in calls)
    assert sorted(all_calls) == ["a entered", "a updated", "b entered"]
    missing = "is never called for a resync, because secrets are declared without resync="
    assert sum(missing in message for message in caplog.messages) == (0 if is_declared else 1)


async def test_15_no_handler_is_called_while_the_operator_is_paused(registry: kopf.OperatorRegistry) -> None:
    seen: list[str] = []
    given: list[kopf.OperatorSettings] = []

    @selectcache.on.change("secrets", registry=registry)
    async def follow(name: str, cause: str, **_: Any) -> None:
        seen.append(f"{name} {cause}")

    options: dict[str, Any] = {"standalone": False, "peering_name": "ours", "priority": 1}
    options["configure"] = given.append
    async with operating(
        registry, PEERINGS, PEERING, secret("a", app="web"), secret("b", app="web"), **options
    ) as cluster:
        await until(lambda: len(seen) == 2)
        cluster.patch(PEERING, {"status": {"another": {"priority": 100, "lifetime": 600}}})
        parts = _kopf.parts_of(given[0])
        assert parts is not None
        await until(parts.paused.is_on)
        cluster.delete(secret("a"))
        cluster.patch(secret("b"), labelled(tier="gold"))
        cluster.create(secret("c", app="web"))
        operator = operator_of(given[0])
        assert operator is not None
        store = operator.runtime.informer("secrets").state.store
        await until(lambda: {each.name for each in store.records()[0]} == {"b", "c"})
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(seen) == 2
        cluster.patch(PEERING, {"status": {"another": None}})
        await until(lambda: len(seen) == 5)
        assert sorted(seen[2:]) == ["a left", "b updated", "c entered"]


# ---- What goes wrong.


async def test_a_path_that_leads_into_a_list_is_logged_and_others_go_on(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    @selectcache.on.change("secrets", registry=registry, where={"metadata.finalizers.name": "a"})
    async def wrong(**_: Any) -> None:
        seen.append("wrong")

    @selectcache.on.change("secrets", registry=registry)
    async def follow(name: str, **_: Any) -> None:
        seen.append(name)

    listing = secret("a", app="web")
    listing["metadata"]["finalizers"] = ["example.com/ours"]
    async with operating(registry, listing) as cluster:
        await until(lambda: seen and "is not called" in caplog.text)
        cluster.patch(secret("a"), labelled(tier="gold"))
        await until(lambda: len(seen) == 2)
    assert "wrong" not in seen


async def test_calls_start_again_after_a_bug_in_the_wait_for_them(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    failures = [RuntimeError("a bug")]

    @selectcache.on.change("secrets", registry=registry)
    async def follow(name: str, **_: Any) -> None:
        seen.append(name)

    wait = HandlerCalls._until_callable

    def fail_once(calls: HandlerCalls) -> Any:
        if failures:
            raise failures.pop()
        return wait(calls)

    monkeypatch.setattr(HandlerCalls, "_until_callable", fail_once)
    monkeypatch.setattr(module, "delay", lambda *_: 0.0)
    async with operating(registry, secret("a", app="web")):
        await until(lambda: seen == ["a"])
    assert "start again" in caplog.text


async def test_a_kind_that_the_cluster_has_not_described_yet_is_waited_for(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    failures = [NotSynced("not known yet", remedy="Wait")] * 2

    @selectcache.on.change("secrets", registry=registry)
    async def follow(name: str, **_: Any) -> None:
        seen.append(name)

    class Failing(Subscription):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if failures:
                raise failures.pop()
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(module, "Subscription", Failing)
    monkeypatch.setattr(module, "delay", lambda *_: 0.0)
    async with operating(registry, secret("a", app="web")):
        await until(lambda: seen == ["a"])
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_departures_that_were_too_many_are_logged(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @selectcache.on.change("secrets", registry=registry, entered=False)
    async def follow(**_: Any) -> None: ...

    class Small(Subscription):
        def __init__(self, informer: Any, request: Any, pass_on: Any, **kwargs: Any) -> None:
            pass_on.__self__._most = 0
            super().__init__(informer, request, pass_on, **kwargs)

    monkeypatch.setattr(module, "Subscription", Small)
    async with operating(registry, secret("a", app="web")) as cluster:
        await until(lambda: "watch" in {asked.verb for asked in cluster.requests})
        number = 0
        while "too slow" not in caplog.text:
            number += 1
            cluster.create(secret(f"b{number}", app="web"))
            await asyncio.sleep(0)
            cluster.delete(secret(f"b{number}"))
            await asyncio.sleep(0)
