"""`cache_of`: caches for code that is no handler, which may have its cache before the operator has one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError, NotSynced, ReadError, SelectCacheError
from kopf_selectcache.plugin.operator import expect_operator
from kopf_selectcache.settings.options import settings_of
from tests.docs.pages import ROOT, fences
from tests.faults.environment import until
from tests.kopf_operators import (
    Cluster,
    context,
    cycles,
    declaring,
    launched,
    names_of,
    operating,
    pod,
    run,
)
from tests.rows import each_row


def declare(settings: kopf.OperatorSettings) -> None:
    settings_of(settings).selectors["pods"] = ""


@pytest.mark.parametrize("logs_in", [True, False], ids=["logs in", "is given credentials"])
async def test_a_background_task_of_a_startup_handler_reads_once_it_is_synced(
    registry: kopf.OperatorRegistry, *, logs_in: bool
) -> None:
    """The cache is made before anything is declared, and before our own startup handler, which comes last."""
    told: list[Any] = []

    async def work(cache: selectcache.Cache) -> None:
        await cache.wait_synced()
        told.append(names_of(cache))
        told.append(cache.get("pods", "web-1", namespace="shop")["metadata"]["name"])
        told.append(await cache.fetch("nodes", "none", default="none"))

    @kopf.on.startup(registry=registry)
    async def begin(settings: kopf.OperatorSettings, memo: Any, **_: Any) -> None:
        cache = selectcache.cache_of(settings)
        with pytest.raises(NotSynced):
            cache.list("pods")
        memo.task = asyncio.create_task(work(cache))
        await cycles()  # It begins to wait before anything is declared.
        declare(settings)

    async with operating(registry, Cluster(pod()), logs_in=logs_in):
        await until(lambda: len(told) == 3)
    assert told == [["web-1"], "web-1", "none"]


WAITS_FOR_ITSELF: dict[str, Callable[[Any], Any]] = {
    "wait_synced": lambda cache: cache.wait_synced(),
    "declare": lambda cache: cache.declare("secrets", "app=web"),
    "undeclare": lambda cache: cache.undeclare("pods"),
    "plan": lambda cache: cache.plan("pods", "app=web"),
}


# Where startup fails, Kopf leaves coroutines that it has not started to the garbage collector.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine .* was never awaited:RuntimeWarning"
)
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("verb", WAITS_FOR_ITSELF)
def test_a_startup_handler_that_waits_ends_the_operator_at_once(
    registry: kopf.OperatorRegistry, verb: str, *, is_async: bool
) -> None:
    call = WAITS_FOR_ITSELF[verb]
    if is_async:

        @kopf.on.startup(registry=registry)
        async def wait(settings: kopf.OperatorSettings, **_: Any) -> None:
            await call(selectcache.cache_of(settings))

    else:

        @kopf.on.startup(registry=registry)
        def wait_in_thread(settings: kopf.OperatorSettings, **_: Any) -> None:
            call(selectcache.cache_of(settings).blocking)

    with pytest.raises(Exception) as caught:  # The class is Kopf's own, and private.
        asyncio.run(
            kopf.operator(
                registry=registry, settings=kopf.OperatorSettings(), standalone=True, clusterwide=True
            )
        )
    error = caught.value.__cause__
    assert isinstance(error, DeclarationError)
    assert error.what.startswith(f"cache.{verb}() ")
    assert ("selectcache.selectors" in error.remedy) is (verb in ("declare", "undeclare"))


READS_TOO_EARLY: dict[str, Callable[[Any], Any]] = {
    "get": lambda cache: cache.get("pods", "web-1", namespace="shop"),
    "list": lambda cache: cache.list("pods"),
    "fetch": lambda cache: cache.fetch("pods", "web-1", namespace="shop"),
    "live.create": lambda cache: cache.live.create(pod()),
}


# As above.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine .* was never awaited:RuntimeWarning"
)
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("verb", READS_TOO_EARLY)
def test_20_a_startup_handler_that_reads_ends_the_operator(
    registry: kopf.OperatorRegistry, verb: str, *, is_async: bool
) -> None:
    """Kopf would call it again every minute, and the operator would never start."""
    read, calls = READS_TOO_EARLY[verb], 0

    async def begin(settings: kopf.OperatorSettings, **_: Any) -> None:
        nonlocal calls
        calls += 1
        if (result := read(selectcache.cache_of(settings))) is not None and isawaitable(result):
            await result

    def begin_in_thread(settings: kopf.OperatorSettings, **_: Any) -> None:
        nonlocal calls
        calls += 1
        cache = selectcache.cache_of(settings)
        read(cache if verb in ("get", "list") else cache.blocking)

    handler: Any = begin if is_async else begin_in_thread
    # An error that is not permanent ends it after the second call.
    kopf.on.startup(registry=registry, backoff=0, retries=2)(handler)
    with pytest.raises(Exception) as caught:  # The class is Kopf's own, and private.
        asyncio.run(
            kopf.operator(
                registry=registry, settings=kopf.OperatorSettings(), standalone=True, clusterwide=True
            )
        )
    assert calls == 1
    assert isinstance(caught.value.__cause__, NotSynced)
    assert "a startup handler can't read caches" in str(caught.value.__cause__)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_login_handler_that_waits_is_refused_at_once(
    registry: kopf.OperatorRegistry, *, is_async: bool
) -> None:
    raised: list[type[BaseException]] = []
    caches: list[selectcache.Cache] = []
    cluster = Cluster(pod())
    async with cluster.served() as info:
        if is_async:

            @kopf.on.login(registry=registry)
            async def log_in(**_: Any) -> kopf.ConnectionInfo:
                with pytest.raises(SelectCacheError) as caught:
                    await caches[0].wait_synced(timeout=0.001)
                raised.append(caught.type)
                return info

        else:

            @kopf.on.login(registry=registry)
            def log_in_in_thread(**_: Any) -> kopf.ConnectionInfo:
                with pytest.raises(SelectCacheError) as caught:
                    caches[0].blocking.wait_synced(timeout=0.001)
                raised.append(caught.type)
                return info

        @kopf.on.startup(registry=registry)
        def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
            declare(settings)
            caches.append(selectcache.cache_of(settings))

        settings = kopf.OperatorSettings()
        settings.scanning.disabled = True
        stop = asyncio.Event()
        running = asyncio.create_task(
            kopf.operator(
                registry=registry, settings=settings, standalone=True, clusterwide=True, stop_flag=stop
            )
        )
        await until(lambda: raised and caches)
        await caches[0].wait_synced()
        stop.set()
        await running
    assert raised == [DeclarationError]


async def test_the_example_of_the_documentation_runs(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = (fence for fence in fences(ROOT / "docs/reading.md", "python") if "cache_of(" in fence.text)
    told: list[object] = []
    monkeypatch.setattr("kopf._core.intents.registries._default_registry", registry)
    exec(example.text, {"print": told.append})  # It is what a reader would do.  # noqa: S102
    async with operating(registry, Cluster(pod(app="web"))):
        await until(lambda: told)
    assert told == [1]


# ---- Before there is an operator, and where there never is one.


READS: dict[str, Callable[[selectcache.Cache], Any]] = {
    "get": lambda cache: cache.get("pods", "web-1", namespace="shop", default=None),
    "list": lambda cache: cache.list("pods", labels="app=web"),
    "info": lambda cache: cache.info("pods"),
}
WAITING: dict[str, Callable[[Any], Any]] = {
    "fetch": lambda cache: cache.fetch("nodes", "n1", default=None),
    "fetch_list": lambda cache: cache.fetch_list("nodes"),
    "live.get": lambda cache: cache.live.get("nodes", "n1", timeout=1),
    "live.create": lambda cache: cache.live.create(pod()),
    "live.patch": lambda cache: cache.live.patch("pods", "web-1", {}, namespace="shop"),
    "wait_for": lambda cache: cache.wait_for("pods", lambda _: True),
    "wait_synced": lambda cache: cache.wait_synced(timeout=0.001),
}


@each_row("read", READS.values(), ids=READS)
def test_reads_raise_not_synced_until_there_is_an_operator(read: Callable[[selectcache.Cache], Any]) -> None:
    cache = selectcache.cache_of(declaring(pods=""))
    with pytest.raises(NotSynced):
        read(cache)


@each_row("read", WAITING.values(), ids=WAITING)
def test_awaited_reads_raise_not_synced_until_there_is_an_operator(
    read: Callable[[selectcache.Cache], Any],
) -> None:
    async def main() -> None:
        cache = selectcache.cache_of(declaring(pods=""))
        with pytest.raises(NotSynced):
            await read(cache)

    run(main())
    with pytest.raises(NotSynced):
        # It has reads of the same names.
        read(selectcache.cache_of(declaring(pods="")).blocking)  # type: ignore[arg-type]


async def test_whoever_begins_to_wait_while_the_operator_begins_is_not_forgotten() -> None:
    settings = declaring(pods="")
    async with launched(settings, Cluster()):
        assert expect_operator(settings).done()


async def test_it_is_awaited_on_the_loop_of_the_operator() -> None:
    settings = declaring(pods="")
    begun, cache = threading.Event(), selectcache.cache_of(settings)

    async def wait() -> None:
        asyncio.get_running_loop().call_soon(begun.set)
        await cache.wait_synced()

    elsewhere = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(wait())))
    await until(begun.is_set)
    async with launched(settings, Cluster()):
        with pytest.raises(ReadError):
            await elsewhere


async def test_it_belongs_to_the_operator_in_whose_startup_it_was_made() -> None:
    settings = declaring(pods="")
    with context(settings):
        cache = selectcache.cache_of(settings)
    async with launched(settings, Cluster()) as another:  # With a vault of its own.
        await another.gate(None, None)
        with pytest.raises(ReadError):
            cache.list("pods")
    with pytest.raises(NotSynced):
        cache.list("pods")
    with pytest.raises(ReadError):
        selectcache.cache_of(settings).list("pods")
