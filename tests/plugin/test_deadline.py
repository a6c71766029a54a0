"""The deadline of a stop: nothing is read, written or changed after it, whatever Kopf still waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.credentials import Vault

import kopf_selectcache as selectcache
from kopf_selectcache import ReadError, Selector, cache_of
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.plugin.operator import last_operator_of
from tests.faults.environment import reached
from tests.kopf_operators import Cluster, cycles, declaring, operating, pod, run
from tests.plugin.test_stopping import Waiting, stopping

PODS = Selector(fields="spec.nodeName=")

LATE: dict[str, Callable[[selectcache.Cache], Awaitable[Any]]] = {
    "a filter change": lambda cache: cache.declare("pods", Selector(fields="spec.nodeName=a"), replace=True),
    "a declaration": lambda cache: cache.declare("nodes", ""),
    "a write": lambda cache: cache.live.patch(
        "pods", "web-1", {"metadata": {"labels": {"a": "b"}}}, namespace="shop"
    ),
    "a fetch": lambda cache: cache.fetch("pods", "other", namespace="shop"),
    "a wait": lambda cache: cache.wait_for("pods", lambda _: False),
}


class Holding:
    """A handler that holds up the stop without calling a cache, until the block that enters it ends."""

    def __init__(self, decorator: Callable[..., Any], registry: kopf.OperatorRegistry) -> None:
        self.begun, self._release = threading.Event(), threading.Event()
        decorator("pods", registry=registry, id="holds")(self._handle)

    def _handle(self, **_: Any) -> None:
        self.begun.set()
        self._release.wait(300)  # Longer than any test waits for the stop.

    async def __aenter__(self) -> None:
        await asyncio.to_thread(self.begun.wait, 60)

    async def __aexit__(self, *_: object) -> None:
        self._release.set()


def ending_at_once() -> kopf.OperatorSettings:
    settings = declaring(pods=PODS)
    settings.queueing.exit_timeout = 0
    return settings


@pytest.mark.parametrize("decorator", [kopf.on.event, selectcache.on.change, selectcache.reconcile])
@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
async def test_2_nothing_is_done_after_the_deadline_of_a_stop(
    late: Callable[[selectcache.Cache], Awaitable[Any]],
    decorator: Callable[..., Any],
    registry: kopf.OperatorRegistry,
) -> None:
    settings, holding = ending_at_once(), Holding(decorator, registry)
    async with stopping(registry, settings) as stop, holding:
        cache = cache_of(settings)
        await cache.wait_synced()
        stop.set()
        with pytest.raises(ReadError, match="has ended"):
            await _until_it_raises(late, cache)


async def _until_it_raises(
    late: Callable[[selectcache.Cache], Awaitable[Any]], cache: selectcache.Cache
) -> None:
    async with asyncio.timeout(60):
        while True:
            await cycles()
            await late(cache)


async def test_2_the_caches_end_at_the_deadline_of_a_stop(registry: kopf.OperatorRegistry) -> None:
    settings, holding = ending_at_once(), Holding(kopf.on.event, registry)
    async with stopping(registry, settings) as stop, holding:
        operator = last_operator_of(settings)
        assert operator is not None
        stop.set()
        await asyncio.wait({operator.task}, timeout=30)
        assert operator.task.done(), "the caches go on"


async def test_2_reads_under_way_at_the_deadline_of_a_stop_end(registry: kopf.OperatorRegistry) -> None:
    settings, holding = ending_at_once(), Holding(kopf.on.event, registry)
    async with stopping(registry, settings) as stop, holding:
        cache = cache_of(settings)
        await cache.wait_synced()
        fetching = asyncio.create_task(cache.fetch("pods", "other", namespace="shop"))
        following = asyncio.create_task(_follow(cache))
        await cycles()
        stop.set()
        with pytest.raises(ReadError, match="has ended"):
            async with asyncio.timeout(60):
                await fetching
        async with asyncio.timeout(60):
            await following


async def _follow(cache: selectcache.Cache) -> None:
    async for _ in cache.changes("pods"):
        pass


async def test_2_no_caches_start_after_the_deadline_of_a_stop(registry: kopf.OperatorRegistry) -> None:
    """Those of a handler that only fetches start at its first read, and Kopf may still call a probe."""
    settings, holding = ending_at_once(), Holding(kopf.on.event, registry)
    late, reading = asyncio.Event(), list[asyncio.Task[None]]()

    @with_cache
    async def fetch(cache: selectcache.Cache, **_: Any) -> None:
        await cache.fetch("pods", "web-1", namespace="shop")

    async def read() -> None:
        await late.wait()
        await fetch(retry=0)

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        reading.append(asyncio.create_task(read()))

    async with stopping(registry, settings) as stop, holding:
        operator = last_operator_of(settings)
        assert operator is not None
        stop.set()
        await asyncio.wait({operator.task}, timeout=60)
        late.set()
        await asyncio.wait(reading, timeout=60)
        assert last_operator_of(settings) is operator
        assert isinstance(reading[0].exception(), ReadError)


async def _let_go(waiting: Waiting, otherwise: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Check that a thread waits no longer; if it does, end its wait otherwise, since the operator waits for
    it.
    """
    if not (has_ended := await reached(lambda: waiting.errors)):
        await otherwise()
    assert has_ended, "the thread waits"


async def _end_waits(settings: kopf.OperatorSettings) -> None:
    operator = last_operator_of(settings)
    assert operator is not None
    operator.waits.end("the test ends")


def test_2_an_operator_ends_though_a_thread_waits_for_caches_beside_its_own(
    registry: kopf.OperatorRegistry,
) -> None:
    """The cleanup handler that would end them is called after the threads have ended."""
    settings, begun = ending_at_once(), list[selectcache.Cache]()
    settings.queueing.exit_timeout = 3600  # The wait ends when the stop begins.
    caches = selectcache.Caches({"v1/pods": PODS})
    waiting = Waiting(lambda cache: cache.blocking.wait_for("pods", lambda _: False))

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        begun.append(await caches.start())

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:
        await caches.stop()

    @kopf.on.event("pods", registry=registry)
    def handle(**_: Any) -> None:
        waiting(begun[0])

    async def main() -> None:
        async with stopping(registry, settings) as stop:
            await waiting.waits()
            stop.set()
            await _let_go(waiting, caches.stop)

    run(main())


async def test_2_caches_beside_those_of_an_operator_end_at_its_deadline(
    registry: kopf.OperatorRegistry,
) -> None:
    settings, holding, begun = ending_at_once(), Holding(kopf.on.event, registry), list[selectcache.Cache]()
    caches = selectcache.Caches({"v1/pods": PODS})

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        begun.append(await caches.start())

    async with stopping(registry, settings) as stop, holding:
        await begun[0].wait_synced()
        stop.set()
        fetching = asyncio.create_task(begun[0].fetch("pods", "other", namespace="shop"))
        await asyncio.wait({fetching}, timeout=60)
        assert fetching.done(), "the caches go on"
        assert "these caches have been stopped" in str(fetching.exception())


async def test_2_a_stop_ends_the_waits_of_an_operator_that_its_first_read_has_started(
    registry: kopf.OperatorRegistry,
) -> None:
    settings, launched = kopf.OperatorSettings(), threading.Event()
    settings.queueing.exit_timeout = 3600
    waiting = Waiting()

    @kopf.on.event("pods", registry=registry)
    @with_cache
    async def read(cache: selectcache.Cache, **_: Any) -> None:
        await cache.declare("pods", PODS)
        launched.set()

    @kopf.on.event("pods", registry=registry)
    def wait(**_: Any) -> None:
        launched.wait(60)
        waiting(cache_of(settings).blocking)

    async with stopping(registry, settings) as stop:
        await waiting.waits()
        assert not waiting.errors
        stop.set()
        await _let_go(waiting, partial(_end_waits, settings))


def test_2_cancelling_the_task_of_an_operator_ends_the_waits_of_its_threads(
    registry: kopf.OperatorRegistry,
) -> None:
    waiting, settings = Waiting(), ending_at_once()
    settings.queueing.exit_timeout = 3600
    kopf.on.event("pods", registry=registry, id="waits")(lambda **_: waiting(cache_of(settings).blocking))

    async def main() -> None:
        async with operating(registry, Cluster(pod()), settings=settings) as operator:
            await waiting.waits()
            assert not waiting.errors
            operator.cancel()
            await _let_go(waiting, partial(_end_waits, settings))

    run(main())


async def test_2_caches_are_not_ended_by_an_operator_that_has_ended_before(
    registry: kopf.OperatorRegistry,
) -> None:
    """Whoever awaits `kopf.operator()` has its context variables also after its end."""
    stop = asyncio.Event()
    stop.set()
    async with Cluster(pod()).served() as info:
        await kopf.operator(registry=registry, vault=Vault({"login": info}), clusterwide=True, stop_flag=stop)
        async with selectcache.Caches({"v1/pods": PODS}, login=info) as cache:
            (raised,) = await asyncio.gather(cache.wait_synced(), return_exceptions=True)
            assert raised is None
