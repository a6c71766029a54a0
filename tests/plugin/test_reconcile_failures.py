"""Reconcilers that cannot run, or are held up: they start again, and no object is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import kopf
import pytest
from kopf._core.reactor.inventory import ResourceMemories

import kopf_selectcache as selectcache
from kopf_selectcache import NotSynced, _kopf
from kopf_selectcache.cache import snapshots
from kopf_selectcache.errors import Oversized
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.plugin import caches, reconcilers
from kopf_selectcache.reactions.engine import Worker
from kopf_selectcache.testing import EmbeddedCluster
from tests.faults.environment import until
from tests.faults.hurried import HurriedLoop
from tests.kopf_operators import cycles
from tests.plugin.reconciling import APPS, CRD, app, config, operated, serving


def hurry(test: Coroutine[Any, Any, None]) -> None:
    """Run a test on a loop whose clock does not wait for pauses. It is the clock of the operator, too."""

    async def bounded() -> None:
        hurried = partial(Runtime, clock=asyncio.get_running_loop().time)
        with patch.object(caches, "Runtime", hurried):
            async with asyncio.timeout(3600):
                await test

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(bounded())


async def passed(condition: Callable[[], object]) -> None:
    """Let the time pass until something is so."""
    while not condition():  # noqa: ASYNC110  # There is no event for it.
        await asyncio.sleep(0.1)


def test_a_kind_that_the_cluster_serves_later_is_reconciled_then(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @selectcache.reconcile(APPS, registry=registry)
    async def follow(name: str, **_: Any) -> None:
        calls.append(name)

    async def main() -> None:
        async with EmbeddedCluster(tls=False) as cluster:
            cluster.namespace("shop")
            async with operated(registry, cluster, filters={APPS: selectcache.EVERYTHING}):
                for _ in range(20):
                    await asyncio.sleep(1)
                cluster.create(CRD, app())
                await passed(lambda: calls == ["web"])

    hurry(main())
    assert "'follow' does not run" not in caplog.text
    assert "starts again" not in caplog.text


def test_a_reconciler_that_cannot_run_says_so_once(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[int] = []
    channel = selectcache.sources.Channel(size=1)

    def make() -> Any:
        made.append(len(made))
        return "pods"

    selectcache.reconcile(APPS, watches=[channel, make], registry=registry, id="follow")(lambda **_: None)

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await passed(lambda: len(made) == 3)
            for _ in range(2):
                channel.send_nowait({})  # It waits for no source that was never started.

    hurry(main())
    text = "Reconciler 'follow' does not run: a function in watches= returned str"
    assert caplog.text.count(text) == 1


def test_a_worker_that_fails_is_started_again(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    started: list[Worker] = []
    work = Worker.run

    async def fail_once(self: Worker) -> None:
        started.append(self)
        if len(started) == 1:
            raise RuntimeError("by the test")
        await work(self)

    monkeypatch.setattr(Worker, "run", fail_once)

    @selectcache.reconcile(APPS, registry=registry)
    async def follow(name: str, **_: Any) -> None:
        calls.append(name)

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await passed(lambda: calls == ["web"])

    hurry(main())
    assert "starts again" in caplog.text
    assert "by the test" in caplog.text


async def test_a_kind_that_is_removed_is_reconciled_once_it_is_declared_again(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caches: list[selectcache.Cache] = []

    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry)
    async def follow(cache: selectcache.Cache, **_: Any) -> None:
        caches.append(cache)

    async with serving(app()) as cluster, operated(registry, cluster):
        await until(lambda: caches)
        await caches[0].undeclare(APPS)
        cluster.create(config("one", cluster.get(app())))
        await until(lambda: len(caches[0].list_cached("configmaps")) == 1)
        cluster.create(config("two"))  # The run for the first is over when this one is there.
        await until(lambda: len(caches[0].list_cached("configmaps")) == 2)
        await caches[0].declare(APPS, selectcache.EVERYTHING)
        await until(lambda: len(caches) == 2)
    assert "has failed" not in caplog.text


def test_18_a_departure_is_forgotten_when_its_kind_is_removed(registry: kopf.OperatorRegistry) -> None:
    calls: list[tuple[str, bool]] = []
    caches: list[selectcache.Cache] = []

    @selectcache.reconcile(APPS, deleted=True, registry=registry)
    async def follow(cache: selectcache.Cache, name: str, deleted: bool, retry: int, **_: Any) -> None:
        caches.append(cache)
        calls.append((name, deleted))
        if deleted or not retry:
            raise kopf.TemporaryError("not yet", delay=2 if deleted else 10)

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await passed(lambda: caches)
            cluster.delete(app())
            await passed(lambda: ("web", True) in calls)
            await caches[0].undeclare(APPS)
            await cycles()
            await caches[0].declare(APPS, selectcache.EVERYTHING)
            before = calls.count(("web", True))
            cluster.create(app("later"))
            await passed(lambda: calls.count(("later", False)) == 2)
            assert calls.count(("web", True)) == before

    hurry(main())


@pytest.mark.parametrize("error", [NotSynced, Oversized])
def test_a_key_whose_cache_cannot_be_read_runs_again(
    registry: kopf.OperatorRegistry,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: type[NotSynced | Oversized],
) -> None:
    calls: list[str] = []
    refused: list[str] = []
    read = snapshots.open_snapshot

    def refuse_once(*given: Any, **options: Any) -> Any:
        if not refused:
            refused.append("web")
            raise error("webapps cannot be read", remedy="Wait")
        return read(*given, **options)

    monkeypatch.setattr(reconcilers, "open_snapshot", refuse_once)

    @selectcache.reconcile(APPS, registry=registry)
    async def follow(name: str, **_: Any) -> None:
        calls.append(name)

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await passed(lambda: calls == ["web"])

    hurry(main())
    assert refused == ["web"]
    assert "has failed" not in caplog.text  # It is no failure.


@pytest.mark.parametrize("decorator", [selectcache.reconcile, selectcache.on.change])
def test_a_run_that_resists_does_not_keep_the_operator_from_its_end(
    decorator: Any, registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    released = asyncio.Event()

    async def resist(name: str, **_: Any) -> None:
        calls.append(name)
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    decorator(APPS, registry=registry)(resist)

    def is_left_twice() -> bool:
        return caplog.text.count("These runs have not ended, although they were cancelled") == 2

    async def release() -> None:
        """Let the run end once its worker has been cancelled, too, and has not waited for it either."""
        with suppress(TimeoutError):
            await asyncio.wait_for(passed(is_left_twice), 60)
        released.set()
        assert is_left_twice()

    async def main() -> None:
        async with serving(app()) as cluster:
            async with operated(registry, cluster):
                await passed(lambda: calls == ["web"])
                releasing = asyncio.create_task(release())
            await releasing

    hurry(main())


def test_an_object_that_departs_during_the_last_call_for_another_of_its_name_has_its_own(
    registry: kopf.OperatorRegistry,
) -> None:
    ends: list[str] = []
    made: list[EmbeddedCluster] = []
    uids: list[str] = []

    @selectcache.reconcile(APPS, registry=registry, deleted=True)
    async def follow(uid: str, deleted: bool, cache: Any, **_: Any) -> None:
        if not deleted:
            uids.append(uid)
            return
        ends.append(uid)
        if len(ends) == 1:
            made[0].create(app())
            await passed(lambda: cache.list_cached("webapps"))
            uids.extend(each["metadata"]["uid"] for each in cache.list_cached("webapps"))
            made[0].delete(app())
            await passed(lambda: not cache.list_cached("webapps"))

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            made.append(cluster)
            await passed(lambda: len(uids) == 1)
            cluster.delete(app())
            await passed(lambda: len(ends) == 2)

    hurry(main())
    assert ends == uids


async def test_a_memo_of_an_object_that_kopf_has_seen_is_left_to_kopf() -> None:
    memories = ResourceMemories()
    memos = _kopf.Memos(memories)
    seen, unseen = app("a"), app("b")
    for each in (seen, unseen):
        each["metadata"]["uid"] = each["metadata"]["name"]
    before = [await memos.recall(each, APPS) for each in (seen, unseen)]
    memory = await memories.recall(cast("Any", seen), noticed_by_listing=True)
    assert memory.noticed_by_listing, "Kopf notes that it was there at the start, and resumes it"
    for each in (seen, unseen):
        memos.release(each["metadata"]["uid"])
    after = [await memos.recall(each, APPS) for each in (seen, unseen)]
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, False]
