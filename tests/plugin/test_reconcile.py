"""Reconcilers in whole operators: their arguments, patches, retries, pauses, and ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import kopf
import pytest
from prometheus_client import CollectorRegistry

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError, Key, ReadError, _kopf
from kopf_selectcache.plugin.brake import LIMIT_CALLS
from kopf_selectcache.plugin.hooks import checked
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.plugin.reconcile import NAMES
from kopf_selectcache.testing import FakeCache
from tests.faults.environment import until
from tests.kopf_operators import declaring
from tests.plugin.reconciling import APPS, app, config, operated, serving
from tests.plugin.test_embedding import PEERING, PEERINGS


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_reconciler_gets_the_object_as_it_is_and_writes_by_its_patch(
    registry: kopf.OperatorRegistry, is_async: bool
) -> None:
    calls: list[dict[str, Any]] = []
    threads: list[bool] = []

    def note(**given: Any) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        calls.append(given)
        given["memo"]["count"] = given["memo"].get("count", 0) + 1
        given["patch"].status["count"] = len(given["cache"].list_cached("configmaps", owner=given["body"]))

    async def note_async(**given: Any) -> None:
        note(**given)

    fn = note_async if is_async else note
    selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, param=7)(fn)
    async with serving(app()) as cluster, operated(registry, cluster):
        web = app()
        await until(lambda: cluster.get(web).get("status") == {"count": 0})
        cluster.create(config("one", cluster.get(web)))
        await until(lambda: cluster.get(web).get("status") == {"count": 1})
        cluster.delete(config("one"))
        await until(lambda: cluster.get(web).get("status") == {"count": 0})
    assert len(calls) == 3
    assert calls[0].keys() == NAMES
    assert {(each["name"], each["namespace"], each["param"], each["retry"]) for each in calls} == {
        ("web", "shop", 7, 0)
    }
    assert calls[0]["memo"] == {"count": 3}
    assert [str(each["causes"][-1]) for each in calls] == [
        "entered: example.com/v1/webapps shop/web",
        "entered: configmaps shop/one",
        "deleted: configmaps shop/one",
    ]
    assert set(threads) == {is_async}


# ---- Own patches.


async def test_a_patch_does_not_call_the_reconciler_again(registry: kopf.OperatorRegistry) -> None:
    calls: list[str] = []

    @selectcache.reconcile(APPS, registry=registry)
    async def count(name: str, patch: kopf.Patch, **_: Any) -> None:
        calls.append(name)
        patch.status["count"] = len(calls)
        patch.metadata.labels["seen"] = str(len(calls))

    async with serving(app()) as cluster, operated(registry, cluster):
        await until(lambda: cluster.get(app()).get("status") == {"count": 1})
        cluster.create(app("other"))
        await until(lambda: cluster.get(app("other")).get("status") == {"count": 2})
        cluster.create(app("last"))
        await until(lambda: cluster.get(app("last")).get("status") == {"count": 3})
    assert calls == ["web", "other", "last"]


async def test_a_patch_without_effect_is_not_sent(registry: kopf.OperatorRegistry) -> None:
    calls: list[str] = []

    @selectcache.reconcile(APPS, registry=registry)
    async def count(name: str, patch: kopf.Patch, **_: Any) -> None:
        calls.append(name)
        patch.status["count"] = 1

    async with serving(app()) as cluster, operated(registry, cluster):
        await until(lambda: cluster.get(app()).get("status") == {"count": 1})
        cluster.patch(app(), {"spec": {"size": 1}})
        await until(lambda: len(calls) == 2)
        cluster.create(app("other"))
        await until(lambda: cluster.get(app("other")).get("status") == {"count": 1})
        assert [each.verb for each in cluster.requests if each.verb == "patch"] == ["patch", "patch"]


async def test_functions_of_a_patch_meet_the_object_that_they_have_seen(
    registry: kopf.OperatorRegistry,
) -> None:
    calls: list[int] = []
    disturb: list[Callable[[], object]] = []

    @selectcache.reconcile(APPS, registry=registry)
    async def finalize(body: Any, patch: kopf.Patch, **_: Any) -> None:
        calls.append(len(body.metadata.get("finalizers", [])))
        while disturb:
            disturb.pop()()

        def add(obj: Any) -> None:
            found = obj["metadata"].setdefault("finalizers", [])
            if "example.com/done" not in found:
                found.append("example.com/done")
                obj.setdefault("status", {})["count"] = 1

        patch.fns.append(add)

    async with serving(app()) as cluster:
        disturb.append(lambda: cluster.patch(app(), {"metadata": {"finalizers": ["example.com/another"]}}))
        async with operated(registry, cluster):
            await until(lambda: cluster.get(app()).get("status") == {"count": 1})
            assert cluster.get(app())["metadata"]["finalizers"] == [
                "example.com/another",
                "example.com/done",
            ]
    assert calls[:2] == [0, 1]
    assert len(calls) <= 3


@pytest.mark.parametrize("by_function", [True, False])
async def test_a_field_that_the_server_prunes_is_named_and_slows_the_calls_down(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture, by_function: bool
) -> None:
    calls: list[str] = []

    @selectcache.reconcile(APPS, registry=registry)
    async def count(name: str, patch: kopf.Patch, **_: Any) -> None:
        calls.append(name)
        status = {"count": len(calls), "lost": {"deep": 1}}
        if by_function:
            patch.fns.append(lambda obj: obj.__setitem__("status", status))
        else:
            patch.status.update(status)

    async with serving(app()) as cluster, operated(registry, cluster):
        await until(lambda: "calls itself" in caplog.text or len(calls) > 2 * LIMIT_CALLS)
        cluster.create(app("other"))
        await until(lambda: "status" in cluster.get(app("other")))
        assert calls.count("web") == LIMIT_CALLS + 1
        cluster.patch(app(), {"spec": {"size": 1}})  # Another's change is not delayed.
        before = calls.count("web")
        await until(lambda: calls.count("web") > before)
    assert caplog.text.count("server ignored status.lost.deep") == 1
    assert "webapps.example.com shop/web" in caplog.text


# ---- Results and errors.


async def test_a_number_is_the_time_until_the_next_call(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @selectcache.reconcile(APPS, registry=registry)
    def count(causes: Any, **_: Any) -> Any:
        calls.append(causes[-1].event)
        return 0.001 if len(calls) < 3 else {"text": "secret"}

    async with serving(app()) as cluster, operated(registry, cluster):
        await until(lambda: "returned dict" in caplog.text)
    assert calls == ["entered", "requeue", "requeue"]
    assert "secret" not in caplog.text


async def test_errors_are_those_of_kopf(registry: kopf.OperatorRegistry) -> None:
    calls: list[tuple[str, int]] = []

    @selectcache.reconcile(APPS, registry=registry, retries=3, backoff=0.001)
    async def fail(name: str, retry: int, spec: Any, patch: kopf.Patch, **_: Any) -> None:
        calls.append((name, retry))
        patch.status["count"] = retry + 1
        if spec.get("good"):
            return
        if name == "final":
            raise kopf.PermanentError("no")
        if retry == 0:
            raise kopf.TemporaryError("not yet", delay=0.001)
        raise RuntimeError("not yet")

    async with serving(app("web"), app("final")) as cluster, operated(registry, cluster):
        await until(lambda: len(calls) == 4)
        await until(lambda: cluster.get(app()).get("status") == {"count": 3})
        assert sorted(calls) == [("final", 0), ("web", 0), ("web", 1), ("web", 2)]
        cluster.patch(app("final"), {"spec": {"good": True}})
        await until(lambda: len(calls) == 5)
        cluster.patch(app("web"), {"spec": {"good": True}})
        await until(lambda: len(calls) == 6)
        assert calls[4:] == [("final", 0), ("web", 0)]


# ---- Departures.


@pytest.mark.parametrize("filter_", [selectcache.EVERYTHING, "app=web"])
async def test_a_reconciler_is_called_once_for_an_object_that_is_gone(
    registry: kopf.OperatorRegistry, filter_: Any
) -> None:
    calls: list[tuple[str, bool, int]] = []

    @selectcache.reconcile(APPS, registry=registry, deleted=True, predicates=[lambda _, new: new is not None])
    async def follow(name: str, deleted: bool, retry: int, patch: kopf.Patch, **_: Any) -> None:
        calls.append((name, deleted, retry))
        patch.status["count"] = 1
        if deleted and retry == 0:
            raise kopf.TemporaryError("not yet", delay=0.001)

    objects = [app("a", app="web"), app("b", app="web"), app("c", app="web")]
    async with serving(*objects) as cluster, operated(registry, cluster, filters={APPS: filter_}):
        await until(lambda: len(calls) == 3)
        cluster.delete(app("a"))
        await until(lambda: len(calls) == 5)
        cluster.patch(app("b"), {"metadata": {"labels": {"app": "db"}}})
        cluster.delete(app("c"))
        cluster.create(app("c", app="web"))
        await until(lambda: calls[5:].count(("c", False, 0)) == 1)
        cluster.patch(app("c"), {"spec": {"size": 1}})
        await until(lambda: calls[5:].count(("c", False, 0)) == 2)
    assert calls[3:5] == [("a", True, 0), ("a", True, 1)]
    of_c = [each for each in calls[5:] if each[0] == "c"]
    assert of_c == [("c", True, 0), ("c", True, 1), ("c", False, 0), ("c", False, 0)]
    of_b = [each for each in calls[5:] if each[0] == "b"]
    assert of_b == ([("b", False, 0)] if filter_ == selectcache.EVERYTHING else [])


async def test_an_object_that_comes_back_is_not_gone(registry: kopf.OperatorRegistry) -> None:
    calls: list[tuple[str, bool]] = []
    held_up = asyncio.Event()

    @selectcache.reconcile(APPS, registry=registry, deleted=True, limit=1)
    async def follow(name: str, deleted: bool, **_: Any) -> None:
        calls.append((name, deleted))
        await held_up.wait()

    async with (
        serving(app("a", app="web")) as cluster,
        operated(registry, cluster, filters={APPS: "app=web"}) as settings,
    ):
        await until(lambda: calls)
        cluster.patch(app("a"), {"metadata": {"labels": {"app": None}}})
        cluster.patch(app("a"), {"metadata": {"labels": {"app": "web"}}})
        cluster.create(app("b", app="web"))
        operator = operator_of(settings)
        assert operator is not None
        store = operator.runtime.informer(APPS).state.store
        await until(lambda: {each.name for each in store.records()[0]} == {"a", "b"})
        held_up.set()
        await until(lambda: ("b", False) in calls and calls.count(("a", False)) == 2)
    assert ("a", True) not in calls


# ---- The start and the end.


@pytest.mark.parametrize(
    ("kind", "options", "what", "key"),
    [
        ("pods", {}, "reconciles pods", "v1/pods"),
        (APPS, {"owns": ["deploy"]}, "owns deploy", "apps/v1/deployments"),
        (APPS, {"watches": ["batch/v1/jobs"]}, "watches batch/v1/jobs", "batch/v1/jobs"),
        (APPS, {"watches": ["example.com/v2/t"]}, "watches example.com/v2/t", "example.com/v2/t"),
    ],
)
def test_a_kind_without_a_cache_is_an_error_at_the_start(
    registry: kopf.OperatorRegistry, kind: str, options: dict[str, Any], what: str, key: str
) -> None:
    selectcache.reconcile(kind, registry=registry, **options)(lambda **_: None)

    with pytest.raises(DeclarationError) as raised:
        checked(declaring(**{APPS: "app=web"}), registry)
    assert f"{what}, but no cache is declared for them" in raised.value.what
    assert f"settings.selectcache.selectors[{key!r}] = " in raised.value.remedy


async def is_relevant(old: Any, new: Any) -> bool:
    return old is not new


@pytest.mark.parametrize(
    ("declare", "remedy"),
    [
        (lambda: selectcache.reconcile("example.com", "v1", "webapps"), "'example.com/v1/webapps'"),  # type: ignore[call-arg]
        (lambda: selectcache.reconcile(selectcache.Watch(APPS, cache=FakeCache())), "watches="),
        (lambda: selectcache.reconcile(APPS, owns=[selectcache.Watch("pods", map=list)]), "watches="),
        (lambda: selectcache.Watch(lambda: None, predicates=[bool]), "Give them to the source"),  # type: ignore[arg-type, list-item, return-value]
        (lambda: selectcache.Watch(selectcache.sources.Channel(), cache=FakeCache()), "Leave them out"),
        (lambda: selectcache.Watch("pods", map=isinstance), "takes an object"),
        (lambda: selectcache.Watch("pods", predicates=[selectcache.predicates.labelled]), "(old, new)"),  # type: ignore[list-item]
        (lambda: selectcache.Watch("pods", predicates=[is_relevant]), "a sync function"),
        (
            lambda: selectcache.reconcile(APPS, watches=[selectcache.Watch("pods", controller=False)]),
            "the Watch in owns=",
        ),
        (lambda: selectcache.reconcile(APPS, watches=["webapps"]), "map="),
        (lambda: selectcache.reconcile(APPS, labels={"app": "web"}), "labelled('app=web')"),  # type: ignore[call-arg]
        (lambda: selectcache.reconcile(APPS, labels="app=web"), "labelled('app=web')"),  # type: ignore[call-arg]
        (lambda: selectcache.sources.Channel(1024), "a text"),  # type: ignore[arg-type]
    ],
)
def test_a_declaration_that_cannot_work_is_refused_with_a_remedy(
    declare: Callable[[], object], remedy: str
) -> None:
    with pytest.raises(DeclarationError) as raised:
        declare()
    assert remedy in raised.value.remedy


def test_too_many_arguments_that_are_no_kind_have_no_remedy() -> None:
    with pytest.raises(DeclarationError) as raised:
        selectcache.reconcile(APPS, 5)  # type: ignore[call-arg, arg-type]
    assert "Name the kind in one text" not in raised.value.remedy


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_operator_stops_while_a_reconciler_runs(
    registry: kopf.OperatorRegistry, is_async: bool
) -> None:
    calls: list[str] = []
    reads: list[str] = []

    async def wait(name: str, cache: Any, **_: Any) -> None:
        calls.append(name)
        try:
            await asyncio.Event().wait()
        finally:  # It is cancelled at the deadline, which ends the caches as well.
            with pytest.raises(ReadError, match="has ended"):
                cache.list_cached("webapps")
            reads.append(name)

    def block(name: str, cache: Any, **_: Any) -> None:
        calls.append(name)
        cache.wait_for("webapps", lambda held: len(held) > 99)

    selectcache.reconcile(APPS, registry=registry)(wait if is_async else block)

    def hurry(settings: kopf.OperatorSettings) -> None:
        settings.queueing.exit_timeout = 0.01

    async with serving(app("a"), app("b")) as cluster:
        async with operated(registry, cluster, configure=hurry):
            await until(lambda: len(calls) == 2)
        assert sorted(reads) == (["a", "b"] if is_async else [])


async def test_no_reconciler_is_called_while_the_operator_is_paused(registry: kopf.OperatorRegistry) -> None:
    seen: list[str] = []

    @selectcache.reconcile(APPS, registry=registry)
    async def follow(name: str, **_: Any) -> None:
        seen.append(name)

    options: dict[str, Any] = {"standalone": False, "peering_name": "ours", "priority": 1}
    async with serving(PEERINGS, PEERING, app("a")) as cluster:
        async with operated(registry, cluster, **options) as settings:
            await until(lambda: seen == ["a"])
            cluster.patch(PEERING, {"status": {"another": {"priority": 100, "lifetime": 600}}})
            parts, operator = _kopf.parts_of(settings), operator_of(settings)
            assert parts is not None
            assert operator is not None
            await until(parts.is_paused)
            cluster.create(app("b"))
            store = operator.runtime.informer(APPS).state.store
            await until(lambda: len(store.records()[0]) == 2)
            for _ in range(200):
                await asyncio.sleep(0)
            assert seen == ["a"]
            cluster.patch(PEERING, {"status": {"another": None}})
            await until(lambda: seen == ["a", "b"])
            cluster.patch(PEERING, {"status": {"another": {"priority": 100, "lifetime": 600}}})
            await until(parts.is_paused)
            cluster.create(app("c"))
            await until(lambda: len(store.records()[0]) == 3)
        assert seen == ["a", "b"]  # A run that waits does not keep the operator from its end.


async def test_the_memo_is_that_of_kopfs_own_handlers(registry: kopf.OperatorRegistry) -> None:
    """Kopf notes in the memory of an object if it was there at the start: it must not be lost."""
    memos: list[Any] = []
    noted: list[Any] = []
    resumed: list[str] = []

    @selectcache.reconcile(APPS, registry=registry, deleted=True)
    async def follow(memo: Any, **_: Any) -> None:
        memos.append(memo)

    @kopf.on.event("webapps", registry=registry)
    async def note(memo: Any, **_: Any) -> None:
        noted.append(memo)

    @kopf.on.resume("webapps", registry=registry)
    async def resume(name: str, **_: Any) -> None:
        resumed.append(name)

    handled = app("a")  # By an earlier run of the operator: a creation is no resumption.
    last = {"kopf.zalando.org/last-handled-configuration": '{"spec":{}}\n'}
    handled["metadata"]["annotations"] = last
    async with serving(handled) as cluster, operated(registry, cluster):
        await until(lambda: memos and noted)
        assert all(each is memos[0] for each in (*memos, *noted))
        noted.clear()
        cluster.patch(app("a"), {"metadata": {"labels": {"tier": "b"}}})
        await until(lambda: noted)  # Kopf handles the changes of an object one after the other.
        assert resumed == ["a"]
        cluster.create(app("b"))
        await until(lambda: len({id(each) for each in memos}) == len({id(each) for each in noted}) == 2)
        assert resumed == ["a"]


async def test_other_sources_have_the_reconciler_called(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    pushes = selectcache.sources.Channel("pushes")

    class Once(selectcache.sources.Source):
        async def follow(self, deliveries: Any) -> None:
            deliveries.deliver(selectcache.Change.sent(app("web")), "web")

    @selectcache.reconcile(
        selectcache.Watch(APPS, predicates=[selectcache.predicates.generation_changed]),
        watches=[
            Once,
            selectcache.Watch(pushes, map=lambda push: [Key(push["app"], namespace="shop")]),
            selectcache.Watch(
                "configmaps", map=lambda obj: [Key("x"), Key(obj["data"]["app"], namespace="shop")]
            ),
        ],
        registry=registry,
    )
    async def follow(causes: Any, **_: Any) -> None:
        calls.extend(each.event if each.event == "sent" else each.source for each in causes)

    async with serving(app("web")) as cluster, operated(registry, cluster):
        await until(lambda: len(calls) == 2)
        await pushes.send({"app": "web"})
        await until(lambda: len(calls) == 3)
        cluster.create(config("any", app="web"))
        await until(lambda: len(calls) == 4)
        cluster.patch(app("web"), {"metadata": {"labels": {"a": "b"}}})
        cluster.patch(app("web"), {"spec": {"size": 1}})
        await until(lambda: len(calls) == 5)
        cluster.create(config("other", app="web"))
        await until(lambda: len(calls) == 6)
    assert sorted(calls[:2]) == [APPS, "sent"]
    assert calls[2:] == ["sent", "configmaps", APPS, "configmaps"]
    assert sum("never are" in message for message in caplog.messages) == 1


async def test_the_metrics_of_the_queue_are_those_of_client_go(registry: kopf.OperatorRegistry) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()
    prometheus = CollectorRegistry()

    @selectcache.reconcile(APPS, registry=registry, id="count")
    async def count(**_: Any) -> None:
        begun.set()
        await goes_on.wait()

    def value(name: str, **labels: str) -> float | None:
        return prometheus.get_sample_value(f"workqueue_{name}", {"name": "count"} | labels)

    def configure(settings: kopf.OperatorSettings) -> None:
        prometheus.register(selectcache.collector(settings))
        settings.queueing.worker_limit = 1

    async with serving(app(), app("other")) as cluster:
        async with operated(registry, cluster, configure=configure):
            await begun.wait()
            assert (value("adds_total"), value("retries_total"), value("depth")) == (2.0, 0.0, 1.0)
            assert value("queue_duration_seconds_bucket", le="1000.0") == 1.0
            assert value("work_duration_seconds_count") == 0.0
            running = value("longest_running_processor_seconds")
            assert running is not None
            assert running > 0
            goes_on.set()
            await until(lambda: value("work_duration_seconds_count") == 2.0)
            assert (value("depth"), value("unfinished_work_seconds")) == (0.0, 0.0)
        assert value("depth") is None
