"""Finalizers of reconcilers: when they go on, and which calls they lead to."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError
from kopf_selectcache.plugin.brake import LIMIT_CALLS
from kopf_selectcache.testing.faults import Refuse
from tests.plugin.finalizing import (
    DONE,
    LONG,
    OTHER,
    PAUSE,
    Call,
    Calls,
    Change,
    Meanwhile,
    Read,
    finalized,
    finalizers,
    set_finalizers,
    stored,
)
from tests.plugin.reconciling import APPS, app, operated, serving
from tests.plugin.virtual import Times


@pytest.mark.parametrize("name", ["done", "example.com/", "Example.com/done", "", 1, ["example.com/done"]])
def test_18_a_finalizer_has_a_domain_and_a_name(name: Any, registry: kopf.OperatorRegistry) -> None:
    with pytest.raises(DeclarationError, match=r"finalizer is .*such as 'example.com/done'"):
        selectcache.reconcile(APPS, finalizer=name, registry=registry)


async def test_18_a_finalizer_goes_on_before_the_first_call_and_comes_off_after_the_cleanup(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    calls = Calls(registry, deleted=True)
    async with serving(finalized(OTHER)) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        await asyncio.sleep(LONG)
        assert calls == [Call(False, False, 0, [OTHER, DONE])]
        assert finalizers(cluster) == [OTHER, DONE]
        cluster.delete(app())
        await times.until(lambda: finalizers(cluster) == [OTHER], within=10)
        await asyncio.sleep(LONG)
        assert calls[1:] == [Call(True, False, 0, [OTHER, DONE])]
        set_finalizers(cluster)
        await times.until(lambda: calls[-1].deleted, within=10)
        await asyncio.sleep(LONG)
        assert [(each.deleting, each.deleted) for each in calls[2:]] == [(False, True)]


async def test_18_each_change_of_the_finalizer_tests_the_state_seen(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    calls, patches = Calls(registry), list[Any]()
    async with serving(finalized(OTHER)) as cluster:
        cluster.faults.add(Read(patches), verb="patch", resource="webapps")
        uid, version = (cluster.get(app())["metadata"][each] for each in ("uid", "resourceVersion"))
        async with operated(registry, cluster):
            await times.until(lambda: calls, within=10)
            cluster.delete(app())
            deleted = cluster.get(app())["metadata"]["resourceVersion"]
            await times.until(lambda: finalizers(cluster) == [OTHER], within=10)
    assert patches[:2] == [
        [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/metadata/finalizers/-", "value": DONE},
        ],
        [
            {"op": "test", "path": "/metadata/resourceVersion", "value": deleted},
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/metadata/finalizers/1", "value": DONE},
            {"op": "remove", "path": "/metadata/finalizers/1"},
        ],
    ]


# ---- Adding.


async def test_18_an_object_that_has_changed_meanwhile_gets_the_finalizer_in_its_newer_state(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    sizes: list[Any] = []
    calls = Calls(registry, lambda spec, **_: sizes.append(spec.get("size")))
    async with serving(app()) as cluster:
        change = Meanwhile(lambda: cluster.patch(app(), {"spec": {"size": 1}}))
        cluster.faults.add(change, verb="patch", times=1)
        cluster.faults.add(Refuse(409), verb="patch", nth=2, times=1)
        async with operated(registry, cluster):
            await times.until(lambda: calls, within=10)
            await asyncio.sleep(LONG)
            assert sizes == [1]
            assert finalizers(cluster) == [DONE]
    assert "not applied" not in caplog.text


@pytest.mark.parametrize("others", [[], [OTHER]])
async def test_18_an_object_that_is_deleted_before_it_has_the_finalizer_has_no_call(
    others: Collection[str], registry: kopf.OperatorRegistry, times: Times
) -> None:
    calls = Calls(registry)
    async with serving(finalized(*others)) as cluster:
        delete = Meanwhile(lambda: cluster.delete(app()))
        planned = cluster.faults.add(delete, verb="patch", times=1)
        async with operated(registry, cluster):
            await times.until(lambda: planned.hits, within=10)
            await asyncio.sleep(LONG)
            assert finalizers(cluster) == others
            if others:
                set_finalizers(cluster)
            await asyncio.sleep(LONG)
            assert not stored(cluster)
    assert calls == []


async def test_18_an_object_that_is_first_seen_while_it_is_deleted_gets_no_finalizer(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(registry)
    async with serving(finalized(OTHER), app("last")) as cluster:
        cluster.delete(app())
        async with operated(registry, cluster):
            await times.until(lambda: calls, within=10)
            await asyncio.sleep(LONG)
            assert finalizers(cluster) == [OTHER]
            assert len(calls) == 1  # With the other object.
    assert "not applied" not in caplog.text


async def test_18_an_object_deleted_between_the_finalizer_and_the_call_is_cleaned_up_in_the_first_call(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    calls = Calls(registry)
    async with serving(app()) as cluster:
        cluster.faults.add(Meanwhile(after=lambda: cluster.delete(app())), verb="patch", times=1)
        async with operated(registry, cluster):
            await times.until(lambda: not stored(cluster), within=10)
            await asyncio.sleep(LONG)
    assert calls.cleanups == calls[-1:]


@pytest.mark.parametrize("predicates", [[], [lambda old, new: not old and new]])
async def test_18_a_finalizer_that_somebody_removes_from_a_living_object_is_added_again(
    predicates: Any, registry: kopf.OperatorRegistry, times: Times
) -> None:
    calls = Calls(registry, predicates=predicates)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        set_finalizers(cluster)
        await times.until(lambda: finalizers(cluster), within=10)
        await asyncio.sleep(LONG)
        assert [each.finalizers for each in calls] == [[DONE], [DONE]]


async def test_18_a_finalizer_that_somebody_removes_without_end_is_added_ever_more_slowly(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(registry)
    async with serving(app()) as cluster:
        remove = Meanwhile(after=lambda: set_finalizers(cluster))
        cluster.faults.add(remove, verb="patch")
        async with operated(registry, cluster):
            await times.until(lambda: calls, within=10)
            await asyncio.sleep(LONG)
    assert LIMIT_CALLS < len(calls) < 2 * LIMIT_CALLS
    assert "Something undoes what Reconciler 'follow' writes" in caplog.text


@pytest.mark.parametrize(
    "refuse",
    [Refuse(403), Refuse(422, "Invalid", 'admission webhook "v.example.com" denied the request: frozen')],
    ids=["forbidden", "webhook"],
)
async def test_18_a_finalizer_that_is_refused_is_logged_and_nothing_is_called(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture, refuse: Refuse
) -> None:
    calls = Calls(registry)
    async with serving(app()) as cluster:
        refused = cluster.faults.add(refuse, verb="patch", times=3)
        async with operated(registry, cluster):
            await times.until(lambda: len(refused.hits) == 3, within=LONG)
            assert calls == []
            await times.until(lambda: calls, within=LONG)
    assert caplog.text.count("A patch was not applied: a patch of Reconciler 'follow' for webapps") == 3


async def test_18_a_finalizer_that_the_server_does_not_take_over_is_named_and_nothing_is_called(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(registry)
    async with serving(app()) as cluster:
        drop = Change(lambda operations: [each for each in operations if each["op"] == "test"])
        dropped = cluster.faults.add(drop, verb="patch", times=4)
        async with operated(registry, cluster):
            await times.until(lambda: len(dropped.hits) == 4, within=LONG)
            assert calls == []
            await times.until(lambda: calls, within=LONG)
    assert caplog.text.count("ignored metadata.finalizers in three patches") == 1


# ---- Calls.


async def test_18_no_predicate_hides_a_deletion(registry: kopf.OperatorRegistry, times: Times) -> None:
    calls = Calls(registry, predicates=[lambda old, new: not old and new])
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        cluster.delete(app())
        await times.until(lambda: not stored(cluster), within=10)
    assert len(calls.cleanups) == 1


async def test_18_a_deletion_begins_the_retries_again_at_once(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    def fail(deleting: bool, **_: Any) -> None:
        if not deleting or len(calls.cleanups) < 3:
            raise kopf.TemporaryError("not yet", delay=PAUSE)

    calls = Calls(registry, fail, retries=5)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: len(calls) == 2, within=10)
        cluster.delete(app())
        await times.until(lambda: calls.cleanups, within=10)
        assert [(each.deleting, each.retry) for each in calls] == [(False, 0), (False, 1), (True, 0)]
        await times.until(lambda: not stored(cluster), within=10)
        assert [each.retry for each in calls.cleanups] == [0, 1, 2]


async def test_18_an_object_that_was_given_up_is_cleaned_up(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    def fail(deleting: bool, **_: Any) -> None:
        if not deleting:
            raise kopf.PermanentError("never")

    calls = Calls(registry, fail)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        cluster.delete(app())
        await times.until(lambda: not stored(cluster), within=10)


@pytest.mark.parametrize("is_called", [True, False])
async def test_18_an_object_that_is_deleted_while_the_operator_is_down_is_cleaned_up_after_its_start(
    is_called: bool, registry: kopf.OperatorRegistry, times: Times
) -> None:
    calls = Calls(registry, predicates=[lambda *_: False] if not is_called else [])
    async with serving(app() if is_called else finalized(DONE)) as cluster:
        if is_called:
            async with operated(registry, cluster):
                await times.until(lambda: calls, within=10)
        cluster.delete(app())
        calls.clear()
        async with operated(registry, cluster):
            await times.until(lambda: not stored(cluster), within=10)
    assert calls == [Call(True, False, 0, [DONE])]
