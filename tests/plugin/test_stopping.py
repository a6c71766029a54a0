"""Waits of threads end with their handler, and with the operator: neither hangs because a cache has no answer
yet.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import ReadError, Selector, cache_of
from kopf_selectcache.cache.blocking import ThreadWaits
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.plugin.operator import last_operator_of
from tests.faults.environment import reached, until
from tests.kopf_operators import (
    Cluster,
    called,
    changing,
    cycles,
    declaring,
    launched,
    only,
    operating,
    pod,
    run,
    spawned,
    watching,
)

SECRETS = "/api/v1/secrets"
HELD_UP = "/api/v1/namespaces/shop/pods/other"

ASYNC: dict[str, Callable[[Any], Any]] = {
    "wait_for": lambda cache: cache.wait_for("pods", lambda _: False),
    "wait_deleted": lambda cache: cache.wait_deleted("pods", "other", namespace="shop"),
    "wait_synced": lambda cache: cache.wait_synced(timeout=3600, at_least=pod(version=1000)),
}

FOR_EVER: dict[str, Callable[[Any], Any]] = {
    "wait_for": lambda cache: cache.wait_for("pods", lambda _: False),
    "wait_synced": lambda cache: cache.wait_synced(timeout=3600),
    "fetch": lambda cache: cache.fetch("pods", "other", namespace="shop"),
}


class Waiting:
    """A sync handler that waits for ever, and tells what ends it."""

    def __init__(self, wait: Callable[[Any], Any] = FOR_EVER["wait_for"]) -> None:
        self.begun = threading.Event()
        self.errors: list[ReadError] = []
        self._wait = wait

    def __call__(self, cache: Any, **_: Any) -> None:
        self.begun.set()
        try:
            self._wait(cache)
        except ReadError as error:
            self.errors.append(error)
            raise

    async def waits(self) -> None:
        await asyncio.to_thread(self.begun.wait, 60)
        await cycles()


def slow(*more: dict[str, Any]) -> Cluster:
    cluster = Cluster(pod(), *more)
    cluster.hold(SECRETS)
    cluster.hold(HELD_UP)
    return cluster


@pytest.mark.parametrize("wait", FOR_EVER.values(), ids=FOR_EVER)
async def test_an_operator_ends_though_a_sync_handler_waits_for_ever(
    wait: Callable[[Any], Any], registry: kopf.OperatorRegistry
) -> None:
    waiting = Waiting(wait)
    kopf.on.event("pods", registry=registry, id="waits")(with_cache(kinds=["pods"])(waiting))
    settings = declaring(pods=Selector(fields="spec.nodeName="), secrets="")
    settings.queueing.exit_timeout = 0
    async with operating(registry, slow(), settings=settings) as operator:
        await waiting.waits()
    assert operator.exception() is None
    (error,) = waiting.errors  # A thread that has only just begun may call after the deadline, or at it.
    ends = "is being stopped", "the operator ends", "has ended"
    assert any(text in str(error) for text in ends)


CALLED_BY_CACHES: dict[str, Any] = {
    "on.change": partial(selectcache.on.change, "pods"),
    "reconcile": partial(selectcache.reconcile, "pods"),
}


@asynccontextmanager
async def stopping(
    registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, *more: dict[str, Any]
) -> AsyncIterator[asyncio.Event]:
    """Run an operator until the block sets the event, and see it end."""
    stop = asyncio.Event()
    async with operating(registry, slow(*more), settings=settings, stop_flag=stop) as operator:
        yield stop
        ended, _ = await asyncio.wait({operator}, timeout=60)
        if (left := last_operator_of(settings)) is not None:
            left.waits.end("the test has failed")
    assert ended, "the operator goes on"
    assert operator.exception() is None


@pytest.mark.parametrize("decorator", CALLED_BY_CACHES.values(), ids=CALLED_BY_CACHES)
@pytest.mark.parametrize("wait", FOR_EVER.values(), ids=FOR_EVER)
async def test_2_an_operator_ends_though_handlers_of_its_caches_wait_in_all_threads(
    wait: Callable[[Any], Any], decorator: Any, registry: kopf.OperatorRegistry
) -> None:
    """Kopf waits for its own handler, which waits for a thread, before it calls the cleanup handlers."""
    waiting, queued = Waiting(wait), asyncio.Event()
    decorator(registry=registry, id="waits")(waiting)

    @kopf.on.event("pods", registry=registry)
    async def first(**_: Any) -> None:
        await waiting.waits()
        queued.set()

    @kopf.on.event("pods", registry=registry)
    def second(**_: Any) -> None:
        pass

    settings = declaring(pods=Selector(fields="spec.nodeName="))
    settings.execution.max_workers = 1
    settings.queueing.exit_timeout = 0
    async with stopping(registry, settings) as stop:
        await queued.wait()
        await cycles()
        stop.set()


@pytest.mark.parametrize("decorator", CALLED_BY_CACHES.values(), ids=CALLED_BY_CACHES)
async def test_2_a_call_that_gets_its_thread_after_the_stop_has_begun_is_not_made(
    decorator: Any, registry: kopf.OperatorRegistry
) -> None:
    waiting, called_for = Waiting(), list[str]()

    def handle(cache: Any, name: str, **_: Any) -> None:
        called_for.append(name)
        waiting(cache)

    decorator(registry=registry)(handle)
    settings = declaring(pods=Selector(fields="spec.nodeName="))
    settings.execution.max_workers = 1
    async with stopping(registry, settings, pod("web-2")) as stop:
        await waiting.waits()
        stop.set()
    assert len(called_for) == 1


def test_2_a_stop_has_a_deadline_for_threads_that_kopf_waits_for(registry: kopf.OperatorRegistry) -> None:
    """The handler is not decorated: nobody else tells its wait to end."""
    settings = declaring(pods=Selector(fields="spec.nodeName="))
    settings.queueing.exit_timeout = 0
    waiting = Waiting(lambda cache: cache.fetch("pods", "other", namespace="shop"))

    @kopf.on.event("pods", registry=registry)
    def handle(**_: Any) -> None:
        waiting(cache_of(settings).blocking)

    async def main() -> None:
        async with stopping(registry, settings) as stop:
            await waiting.waits()
            operator = last_operator_of(settings)
            assert operator is not None
            stop.set()
            has_ended = await reached(lambda: bool(waiting.errors))
            operator.waits.end("the test ends")  # A thread that waits would keep it from its end.
        assert has_ended

    run(main())


async def test_2_a_handler_of_changes_that_runs_at_the_stop_may_finish(
    registry: kopf.OperatorRegistry,
) -> None:
    begun, finished = asyncio.Event(), asyncio.Event()
    settings = declaring(pods=Selector(fields="spec.nodeName="))
    settings.queueing.exit_timeout = 3600

    @selectcache.on.change("pods", registry=registry)
    async def handle(cache: selectcache.Cache, **_: Any) -> None:
        begun.set()
        operator = last_operator_of(settings)
        assert operator is not None
        await until(operator.task.cancelling)
        await cycles()
        assert cache.list_cached("pods")
        caches = [each for each in asyncio.all_tasks() if each.get_name() == "selectcache: caches"]
        if [each.cancelling() for each in caches] == [0]:  # They go on until the handlers have ended.
            finished.set()

    async with stopping(registry, settings) as stop:
        await begun.wait()
        stop.set()
    assert finished.is_set()


async def stopped(waiting: Waiting, registry: kopf.OperatorRegistry) -> Any:
    """Stop a daemon once it waits, and give what it returns."""
    async with launched(declaring(pods=""), Cluster(pod())):
        cause = spawned()
        task = asyncio.create_task(called(only(registry._spawning), cause))
        await waiting.waits()
        cause.stopper.set()
        return await task


@pytest.mark.parametrize("decorator", [kopf.daemon, kopf.timer])
def test_a_daemon_that_is_stopped_ends_though_it_waits(
    decorator: Any, registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Waiting()
    more = {"interval": 1} if decorator is kopf.timer else {}
    decorator("pods", registry=registry, id="waits", **more)(with_cache(waiting))

    with caplog.at_level(logging.WARNING):
        assert run(stopped(waiting, registry)) is None, "it was told to, and that is no failure"
    assert [error.what for error in waiting.errors] == [
        "this wait was ended, because its daemon is being stopped"
    ]
    assert not caplog.records


async def test_a_cancelled_handler_ends_though_it_waits(registry: kopf.OperatorRegistry) -> None:
    waiting, other = Waiting(), Waiting()
    kopf.on.create("pods", registry=registry, id="waits")(with_cache(waiting))
    kopf.on.event("pods", registry=registry, id="other")(with_cache(other))
    async with launched(declaring(pods=""), Cluster(pod())):
        task = asyncio.create_task(called(only(registry._changing), changing()))
        unconcerned = asyncio.create_task(called(only(registry._watching), watching()))
        await waiting.waits()
        await other.waits()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting.errors
        assert not other.errors
        unconcerned.cancel()
        await asyncio.wait({unconcerned})


def test_a_thread_that_would_wait_for_a_loop_that_has_just_been_closed_does_not() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(ReadError):
        ThreadWaits().run(asyncio.Event().wait, loop)


async def test_the_changes_that_a_daemon_follows_end_when_it_is_stopped(
    registry: kopf.OperatorRegistry,
) -> None:
    following = asyncio.Event()

    @kopf.daemon("pods", registry=registry)
    @with_cache
    async def follow(cache: Any, **_: Any) -> str:
        async for _change in cache.changes("pods"):
            following.set()
        return "ended"

    async with launched(declaring(pods=""), Cluster(pod())):
        cause = spawned()
        task = asyncio.create_task(called(only(registry._spawning), cause))
        await following.wait()
        cause.stopper.set()
        assert await task == "ended"


@pytest.mark.parametrize("wait", ASYNC.values(), ids=ASYNC)
def test_an_async_wait_ends_when_its_daemon_is_stopped(
    wait: Callable[[Any], Any], registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()
    errors: list[ReadError] = []

    @kopf.daemon("pods", registry=registry)
    @with_cache
    async def waits(cache: Any, **_: Any) -> str:
        begun.set()
        for _time in range(2):  # A daemon that is stopped does not begin to wait.
            try:
                await wait(cache)
            except ReadError as error:
                errors.append(error)
        raise errors[0]

    async def main() -> None:
        async with launched(declaring(pods=""), slow()):
            cause = spawned()
            task = asyncio.create_task(called(only(registry._spawning), cause))
            await begun.wait()
            await cycles()
            assert not errors
            cause.stopper.set()
            assert await task is None, "it was stopped, and that is no failure"

    with caplog.at_level(logging.WARNING):
        run(main())
    assert [error.what for error in errors] == [
        "this wait was ended, because its daemon is being stopped"
    ] * 2
    assert not caplog.records


def test_2_a_call_whose_handler_was_cancelled_in_the_queue_of_threads_is_not_begun() -> None:
    waits = ThreadWaits()
    waits.check()
    waits.end("the handler was cancelled")
    with pytest.raises(ReadError, match="was cancelled"):
        waits.check()
