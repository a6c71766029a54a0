"""`current`: code that a handler calls has the cache of the handler, wherever that code is."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import ReadError
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.testing import FakeCache
from tests.faults.environment import reached
from tests.kopf_operators import (
    Cluster,
    activity,
    called,
    changing,
    declaring,
    launched,
    only,
    operating,
    pod,
    run,
    watching,
)
from tests.plugin.reconciling import APPS, app, operated, serving
from tests.plugin.test_handlers import KINDS
from tests.told import told


class WebApp:
    """A class of an operator, which has no cache."""

    def pods(self) -> Any:
        return selectcache.current()


def in_operator(test: Callable[[], Any]) -> None:
    """Run code of an operator whose cache of pods is synced."""

    async def main() -> None:
        async with launched(declaring(pods=""), Cluster(pod("web-1"))) as operator:
            await operator.gate(None, None, fresh=False)
            await test()

    run(main())


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_9_current_is_the_very_cache_of_each_kind_of_handler(
    kind: str, is_async: bool, registry: kopf.OperatorRegistry
) -> None:
    decorator, part, cause = KINDS[kind]

    def handle(cache: Any, **_: Any) -> bool:
        return WebApp().pods() is cache

    async def handle_async(cache: Any, **_: Any) -> bool:
        await asyncio.sleep(0)
        return WebApp().pods() is cache

    decorator("pods", registry=registry)(with_cache(handle_async if is_async else handle))

    async def main() -> None:
        assert await called(only(getattr(registry, part)), cause()) is True
        with pytest.raises(ReadError):
            selectcache.current()  # The handler has ended, and Kopf calls others in the same task.

    in_operator(main)


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("decorate", [kopf.on.probe, kopf.on.cleanup])
def test_9_current_is_the_cache_of_an_activity_that_has_one(
    decorate: Callable[..., Any], is_async: bool, registry: kopf.OperatorRegistry
) -> None:
    def act(cache: Any, **_: Any) -> bool:
        return WebApp().pods() is cache

    async def act_async(cache: Any, **_: Any) -> bool:
        return WebApp().pods() is cache

    decorate(registry=registry)(with_cache(act_async if is_async else act))

    async def main() -> None:
        handler = only(registry._activities)
        assert await called(handler, activity(handler.activity, declaring())) is True

    in_operator(main)


@pytest.mark.parametrize("is_async", [True, False])
async def test_9_current_is_the_cache_of_a_reconciler_and_of_a_handler_of_changes(
    registry: kopf.OperatorRegistry, *, is_async: bool
) -> None:
    seen: dict[str, bool] = {}

    def note(cache: Any, **given: Any) -> None:
        seen["change" if "cause" in given else "reconciler"] = WebApp().pods() is cache

    async def note_async(cache: Any, **given: Any) -> None:
        await asyncio.sleep(0)
        note(cache, **given)

    selectcache.reconcile(APPS, registry=registry)(note_async if is_async else note)
    selectcache.on.change(APPS, registry=registry)(note_async if is_async else note)
    async with serving(app()) as cluster, operated(registry, cluster):
        assert await reached(lambda: len(seen) == 2)
    assert seen == {"change": True, "reconciler": True}


def test_9_current_is_the_cache_that_a_when_callback_gets(registry: kopf.OperatorRegistry) -> None:
    answers: list[bool] = []

    @with_cache
    def is_wanted(cache: Any, **_: Any) -> bool:
        answers.append(WebApp().pods() is cache)
        return True

    @kopf.on.event("pods", registry=registry, when=is_wanted)
    @with_cache
    async def handle(cache: Any, **_: Any) -> bool:
        return WebApp().pods() is cache

    async def main() -> None:
        cause = watching()
        assert is_wanted(**cause.kwargs)  # As Kopf asks, before there is a handler.
        assert await called(only(registry._watching), cause) is True
        assert answers == [True, True]

    in_operator(main)


def test_9_current_is_known_in_kopf_s_threads_and_those_of_to_thread_and_in_tasks(
    registry: kopf.OperatorRegistry,
) -> None:
    found: list[asyncio.Task[bool]] = []
    ended = asyncio.Event()

    @kopf.on.event("pods", registry=registry)
    @with_cache
    async def handle(cache: Any, **_: Any) -> bool:
        async def outlive() -> bool:
            await ended.wait()
            return WebApp().pods() is cache

        found.append(asyncio.create_task(outlive()))
        return await asyncio.to_thread(lambda: WebApp().pods() is cache)

    async def main() -> None:
        assert await called(only(registry._watching), watching()) is True
        ended.set()
        assert await found[0] is True

    in_operator(main)


def test_9_a_thread_without_the_context_of_the_handler_gets_a_remedy(
    registry: kopf.OperatorRegistry,
) -> None:
    in_thread: list[str] = []

    def work() -> None:
        with pytest.raises(ReadError) as caught:
            WebApp().pods()
        in_thread.append(told(caught.value))

    @kopf.on.event("pods", registry=registry)
    @with_cache
    async def handle(cache: Any, **_: Any) -> bool:
        with ThreadPoolExecutor(1) as own:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(own, work)
            thread = threading.Thread(target=work)
            thread.start()
            await asyncio.to_thread(thread.join)
            found = await loop.run_in_executor(own, contextvars.copy_context().run, WebApp().pods)
        return found is cache

    async def main() -> None:
        assert await called(only(registry._watching), watching()) is True
        assert len(in_thread) == 2
        assert "contextvars.copy_context().run" in in_thread[0]
        assert "Pass the cache" in in_thread[0]
        assert "cache_of(settings)" in in_thread[0]

    in_operator(main)


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("is_executed", [True, False])
def test_9_a_sub_handler_has_the_cache_of_its_parent_or_one_of_its_own(
    registry: kopf.OperatorRegistry, *, is_executed: bool, is_async: bool
) -> None:
    found: list[tuple[bool, bool]] = []

    def child(parent: Any, **given: Any) -> None:
        with suppress(ReadError):
            found.append((WebApp().pods() is parent, WebApp().pods() is given.get("cache")))

    @kopf.on.create("pods", registry=registry, id="undecorated")
    @with_cache
    async def handle(cache: Any, **_: Any) -> None:
        async def run_async(**given: Any) -> None:
            child(cache, **given)

        kopf.subhandler(id="child")(run_async if is_async else lambda **given: child(cache, **given))
        if is_executed:
            await kopf.execute()

    @kopf.on.create("pods", registry=registry, id="decorated")
    @with_cache
    def handle_in_thread(cache: Any, **_: Any) -> None:
        @kopf.subhandler(id="child")
        @with_cache
        def run(**given: Any) -> None:
            child(cache, **given)

    async def main() -> None:
        for handler in registry._changing.get_all_handlers():
            await called(handler, changing())
        assert found == [(True, False), (False, True)]

    in_operator(main)


def test_9_a_handler_without_a_cache_is_advised_to_be_decorated(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.event("pods", registry=registry)
    async def handle(**_: Any) -> None:
        await asyncio.to_thread(WebApp().pods)

    async def main() -> None:
        with pytest.raises(ReadError, match=r"needs with_cache on Handler .*handle'") as caught:
            await called(only(registry._watching), watching())
        assert "@selectcache.with_cache" in caught.value.remedy

    in_operator(main)


# Where startup fails, Kopf leaves coroutines that it has not started to the garbage collector.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine .* was never awaited:RuntimeWarning"
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_20_a_startup_handler_that_asks_for_its_cache_ends_the_operator(
    registry: kopf.OperatorRegistry, *, is_async: bool
) -> None:
    async def begin(**_: Any) -> None:
        WebApp().pods()

    def begin_in_thread(**_: Any) -> None:
        WebApp().pods()

    kopf.on.startup(registry=registry)(begin if is_async else begin_in_thread)
    async with operating(registry, Cluster()) as operator:
        await asyncio.wait({operator})
    error = getattr(operator.exception(), "__cause__", None)
    assert isinstance(error, kopf.PermanentError)
    assert "In a task that it starts, use selectcache.cache_of(settings)" in str(error)


async def test_9_each_of_two_operators_has_its_own() -> None:
    registries = kopf.OperatorRegistry(), kopf.OperatorRegistry()
    both, found = asyncio.Event(), dict[str, list[str]]()

    def follow(name: str, registry: kopf.OperatorRegistry) -> None:
        @kopf.on.event("pods", registry=registry)
        @with_cache
        async def handle(**_: Any) -> None:
            found[name] = [str(WebApp().pods().info("pods").filter)]
            if len(found) == 2:
                both.set()
            await both.wait()
            found[name].append(str(WebApp().pods().info("pods").filter))

    for name, registry in zip("ab", registries, strict=True):
        follow(name, registry)
    cluster = Cluster(pod("web-1", app="web"))
    async with (
        operating(registries[0], cluster, settings=declaring(pods="app=web")),
        operating(registries[1], cluster, settings=declaring(pods="app")),
    ):
        assert await reached(lambda: list(map(len, found.values())) == [2, 2])
    assert found == {"a": ["labels='app=web'"] * 2, "b": ["labels='app'"] * 2}


@pytest.mark.parametrize("is_async", [True, False])
def test_9_a_test_that_passes_a_cache_makes_it_the_current_one(*, is_async: bool) -> None:
    @with_cache
    async def handle_async(cache: Any, **_: Any) -> bool:
        return WebApp().pods() is cache

    @with_cache
    def handle(cache: Any, **_: Any) -> bool:
        return WebApp().pods() is cache

    cache = FakeCache([pod("web-1")], {"v1/pods": ""})
    assert (asyncio.run(handle_async(cache=cache)) if is_async else handle(cache=cache)) is True
    with cache.as_current():
        assert WebApp().pods() is cache
    with pytest.raises(ReadError):
        WebApp().pods()
