"""Cleanups of reconcilers with finalizers: when the finalizers come off."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.plugin.finalizing import (
    DONE,
    LONG,
    OTHER,
    PAUSE,
    Calls,
    Change,
    Meanwhile,
    events_of,
    finalizers,
    set_finalizers,
    stored,
)
from tests.plugin.reconciling import APPS, app, operated, serving
from tests.plugin.virtual import Times


async def test_18_a_cleanup_that_fails_keeps_the_finalizer_and_is_repeated(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    def fail(deleting: bool, retry: int, patch: Any, **_: Any) -> None:
        patch.status["count"] = retry
        if deleting and retry < 3:
            raise RuntimeError("not yet")

    calls = Calls(registry, fail, backoff=PAUSE)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        cluster.delete(app())
        for count in (1, 2, 3):
            assert finalizers(cluster) == [DONE]
            await times.until(lambda count=count: len(calls.cleanups) > count, within=20)  # type: ignore[misc]
        await times.until(lambda: not stored(cluster), within=10)
    assert [each.retry for each in calls.cleanups] == [0, 1, 2, 3]


async def test_18_a_cleanup_that_returns_a_number_keeps_the_finalizer_and_is_called_then(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    calls = Calls(registry, lambda deleting, **_: PAUSE if deleting and len(calls.cleanups) < 3 else None)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        cluster.delete(app())
        await asyncio.sleep(1.5 * PAUSE)
        assert len(calls.cleanups) == 2
        assert finalizers(cluster) == [DONE]
        await times.until(lambda: not stored(cluster), within=20)
    assert [each.retry for each in calls.cleanups] == [0, 0, 0]


@pytest.mark.parametrize("error", [kopf.PermanentError("never"), RuntimeError("again")])
async def test_18_a_cleanup_that_fails_for_good_releases_the_object_with_an_error_and_an_event(
    error: Exception, registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(deleting: bool, **_: Any) -> None:
        if deleting:
            raise error

    calls, messages = Calls(registry, fail, retries=2, backoff=PAUSE), list[str]()

    def configure(settings: kopf.OperatorSettings) -> None:
        settings.posting.enabled = settings.posting.loggers = True

    async with serving(app()) as cluster, operated(registry, cluster, configure=configure):
        await times.until(lambda: calls, within=10)
        cluster.delete(app())
        await times.until(lambda: not stored(cluster), within=LONG)
        await asyncio.sleep(LONG)
        messages.extend(events_of(cluster))
    assert len(calls.cleanups) == (1 if isinstance(error, kopf.PermanentError) else 2)
    text = f"Reconciler 'follow' has failed permanently, so the finalizer {DONE} is removed."
    assert caplog.text.count(text) == 1
    assert messages.count(text) == 1


async def test_18_a_finalizer_that_does_not_come_off_yet_is_not_reported_as_released(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(deleting: bool, **_: Any) -> None:
        if deleting:
            raise kopf.PermanentError("no")

    calls = Calls(registry, fail)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        change = Meanwhile(lambda: cluster.patch(app(), {"spec": {"size": 1}}))
        cluster.faults.add(change, verb="patch", resource="webapps", times=1)
        cluster.delete(app())
        await times.until(lambda: not stored(cluster), within=LONG)
        await asyncio.sleep(LONG)
    assert len(calls.cleanups) == 2
    assert caplog.text.count("has failed permanently") == 1


async def test_18_the_status_is_written_before_the_finalizer_comes_off(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    def write(deleting: bool, patch: Any, **_: Any) -> None:
        if deleting:
            patch.status["count"] = 1
            patch.metadata.labels["a"] = "b"

    calls, seen = Calls(registry, write), list[tuple[Any, Any]]()
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        look = Meanwhile(lambda: seen.append((stored(cluster).get("status"), finalizers(cluster))))
        cluster.faults.add(look, verb="patch")
        cluster.delete(app())
        await times.until(lambda: not stored(cluster), within=10)
    assert seen == [(None, [DONE]), (None, [DONE]), ({"count": 1}, [DONE])]
    assert len(calls.cleanups) == 1


@pytest.mark.parametrize("filter_", [selectcache.EVERYTHING, selectcache.Cached("", drop=["spec.other"])])
@pytest.mark.parametrize("writes", ["nothing", "status", "function"])
async def test_18_an_object_that_changes_during_its_cleanup_is_cleaned_up_again(
    writes: str,
    filter_: Any,
    registry: kopf.OperatorRegistry,
    times: Times,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clusters, sizes = list[EmbeddedCluster](), list[Any]()

    def change(deleting: bool, patch: Any, spec: Any, **_: Any) -> None:
        if not deleting:
            return
        sizes.append(spec.get("size"))
        if writes == "status":
            patch.status["count"] = len(sizes)
        elif writes == "function":
            patch.fns.append(lambda obj: obj.__setitem__("status", {"count": len(sizes)}))
        if len(sizes) == 1:
            clusters[0].patch(app(), {"spec": {"size": 1}})

    calls = Calls(registry, change)
    async with (
        serving(app()) as cluster,
        operated(registry, cluster, filters={APPS: filter_}),
    ):
        clusters.append(cluster)
        await times.until(lambda: calls, within=10)
        cluster.delete(app())
        await times.until(lambda: not stored(cluster), within=10)
    assert sizes[-1] == 1
    assert "not applied" not in caplog.text


@pytest.mark.parametrize("is_new", [True, False])
async def test_18_an_object_that_disappears_during_its_cleanup_is_left_alone(
    is_new: bool, registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    clusters = list[EmbeddedCluster]()

    def remove(deleting: bool, **_: Any) -> None:
        if deleting:
            set_finalizers(clusters[0])
            if is_new:
                clusters[0].create(app())

    calls = Calls(registry, remove)
    async with serving(app()) as cluster, operated(registry, cluster):
        clusters.append(cluster)
        await times.until(lambda: calls, within=10)
        cluster.delete(app())
        await times.until(lambda: calls.cleanups, within=10)
        await asyncio.sleep(LONG)
        assert finalizers(cluster) == ([DONE] if is_new else [])
    assert len(calls.cleanups) == 1
    assert len(calls) == 2 + is_new
    assert "not applied" not in caplog.text


async def test_18_an_object_that_somebody_releases_by_the_patch_of_the_cleanup_is_left_alone(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    def label(deleting: bool, patch: Any, **_: Any) -> None:
        if deleting:
            patch.metadata.labels["a"] = "b"

    calls = Calls(registry, label)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        drop = Change(lambda patch: patch | {"metadata": patch["metadata"] | {"finalizers": None}})
        cluster.faults.add(drop, verb="patch", times=1)
        cluster.delete(app())
        await times.until(lambda: not stored(cluster), within=10)
        await asyncio.sleep(LONG)
    assert len(calls.cleanups) == 1
    assert "not applied" not in caplog.text


async def test_18_a_patch_that_is_refused_keeps_the_finalizer(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(registry, lambda deleting, patch, **_: patch.status.update({"count": 1 + deleting}))
    async with serving(app()) as cluster:
        for code, count in ((409, 1), (403, 3)):
            cluster.faults.add(Refuse(code), verb="patch", resource="webapps/status", nth=count, times=1)
        async with operated(registry, cluster):
            await times.until(lambda: len(calls) == 2, within=10)
            cluster.delete(app())
            await times.until(lambda: not stored(cluster), within=10)
    assert len(calls.cleanups) == 2
    assert caplog.text.count("A patch was not applied: a patch of Reconciler 'follow' for webapps") == 2


# ---- Two reconcilers, and patches of the handler.


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_18_a_finalizer_of_two_reconcilers_waits_for_both(
    is_restarted: bool, registry: kopf.OperatorRegistry, times: Times
) -> None:
    is_open: list[bool] = []
    first = Calls(registry)
    second = Calls(registry, lambda deleting, **_: PAUSE if deleting and not is_open else None)
    async with serving(app()) as cluster:
        async with operated(registry, cluster):
            await times.until(lambda: first and second, within=10)
            cluster.delete(app())
            await times.until(lambda: first.cleanups and second.cleanups, within=10)
            await asyncio.sleep(LONG)
            assert finalizers(cluster) == [DONE]
            assert len(first.cleanups) == 1
            if not is_restarted:
                is_open.append(True)
                await times.until(lambda: not stored(cluster), within=20)
        if is_restarted:
            first.clear()
            is_open.append(True)
            async with operated(registry, cluster):
                await times.until(lambda: not stored(cluster), within=20)
            assert len(first.cleanups) >= 1


async def test_18_the_last_call_of_each_reconciler_must_have_cleaned_up(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    is_open: list[bool] = []
    first = Calls(
        registry, lambda deleting, **_: PAUSE if deleting and len(first.cleanups) in (2, 3) else None
    )
    second = Calls(registry, lambda deleting, **_: PAUSE / 10 if deleting and not is_open else None)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: first and second, within=10)
        cluster.delete(app())
        await times.until(lambda: first.cleanups and second.cleanups, within=10)
        cluster.patch(app(), {"spec": {"size": 1}})
        await times.until(lambda: len(first.cleanups) == 2, within=10)  # It needs more time now.
        is_open.append(True)
        await times.until(lambda: not stored(cluster), within=10)
    assert len(first.cleanups) == 4


@pytest.mark.parametrize("is_removed", [True, False])
async def test_18_a_finalizer_does_not_wait_for_a_reconciler_of_another_kind(
    is_removed: bool, registry: kopf.OperatorRegistry, times: Times
) -> None:
    caches: list[selectcache.Cache] = []
    calls = Calls(registry, lambda cache, **_: caches.append(cache))
    selectcache.reconcile("v1/configmaps", finalizer=DONE, registry=registry, id="other")(lambda **_: None)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        if is_removed:
            await caches[0].undeclare("v1/configmaps")
        cluster.delete(app())
        await times.until(lambda: not stored(cluster), within=10)


@pytest.mark.parametrize("by_function", [True, False])
@pytest.mark.parametrize("given", [None, [], [OTHER]])
async def test_18_a_patch_of_the_handler_leaves_the_finalizer_on(
    given: Any, by_function: bool, registry: kopf.OperatorRegistry, times: Times
) -> None:
    def write(patch: Any, **_: Any) -> None:
        if by_function:
            patch.fns.append(lambda obj: obj["metadata"].__setitem__("finalizers", given))
        else:
            patch.metadata["finalizers"] = given

    calls = Calls(registry, write)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        await asyncio.sleep(LONG)
        assert finalizers(cluster) == [*(given or []), DONE]
        cluster.delete(app())
        await times.until(lambda: finalizers(cluster) == (given or []), within=10)
        await asyncio.sleep(LONG)
        assert len(calls.cleanups) == 1
