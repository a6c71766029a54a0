"""Sync handlers get a `SyncCache`: the methods of `Cache`, without `await`. Kopf's own rule decides which
handlers are sync, and remedies write calls as they are written in the place where they are read."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, assert_type

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import Cache, DeclarationError, Key, OutsideFilter, ReadError, SyncCache
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.reactions.mapping import mapping_of
from kopf_selectcache.testing import FakeCache
from tests.faults.environment import until
from tests.kopf_operators import Cluster, called, changing, declaring, launched, only, pod
from tests.plugin.test_change_handlers import operating
from tests.rows import each_row
from tests.secrets import secret

WEB, DB = pod("web-1", app="web"), pod("db-1", app="db")


@pytest.fixture
def fake() -> FakeCache:
    return FakeCache([WEB, DB], {"v1/pods": "app=web"})


def class_of(cache: Any, **_: Any) -> str:
    return type(cache).__name__


async def async_class_of(cache: Any, **_: Any) -> str:
    return type(cache).__name__


@functools.wraps(async_class_of)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return async_class_of(*args, **kwargs)


class Callee:
    def __call__(self, cache: Any, **_: Any) -> str:
        return type(cache).__name__


class AsyncCallee:
    async def __call__(self, cache: Any, **_: Any) -> str:
        return type(cache).__name__


FUNCTIONS: dict[str, tuple[Callable[..., Any], type]] = {
    "plain": (class_of, SyncCache),
    "async": (async_class_of, Cache),
    "partial": (functools.partial(class_of, param=1), SyncCache),
    "partial of async": (functools.partial(async_class_of, param=1), Cache),
    "wrapper of async": (wrapped, Cache),
    "object": (Callee(), SyncCache),
    "async method": (AsyncCallee().__call__, Cache),
}


@each_row(("fn", "wanted"), FUNCTIONS.values(), ids=FUNCTIONS)
async def test_20_a_handler_gets_the_cache_that_it_can_use(fn: Callable[..., Any], wanted: type) -> None:
    registry = kopf.OperatorRegistry()
    kopf.on.create("pods", id="it", registry=registry)(with_cache(fn))
    async with launched(declaring(pods=""), Cluster(pod())):
        assert await called(only(registry._changing), changing()) == wanted.__name__


@pytest.mark.parametrize("decorator", ["on.change", "reconcile"])
async def test_20_handlers_of_caches_get_it_as_well(registry: kopf.OperatorRegistry, decorator: str) -> None:
    seen: list[object] = []
    decorate = selectcache.on.change if decorator == "on.change" else selectcache.reconcile

    def handle(cache: Any, **_: Any) -> None:
        found = cache.fetch("configmaps", "options", namespace="shop", default="none")
        seen.append((type(cache), selectcache.current() is cache, found))

    decorate("secrets", registry=registry)(handle)
    async with operating(registry, secret("a", app="web")):
        await until(lambda: seen)
    assert seen[0] == (SyncCache, True, "none")


REFUSED = {
    "with_cache": with_cache,
    "on.change": selectcache.on.change("pods", registry=kopf.OperatorRegistry()),
    "reconcile": selectcache.reconcile("pods", registry=kopf.OperatorRegistry()),
}


@each_row("decorate", REFUSED.values(), ids=REFUSED)
def test_20_an_object_with_an_async_call_is_refused(decorate: Callable[..., Any]) -> None:
    with pytest.raises(DeclarationError, match=r"Give the method, handler\.__call__"):
        decorate(AsyncCallee())


async def test_20_a_plain_function_that_returns_a_coroutine_is_refused_at_its_first_call(
    registry: kopf.OperatorRegistry,
) -> None:
    kopf.on.create("pods", id="it", registry=registry)(
        with_cache(lambda cache, **_: async_class_of(cache)),
    )
    async with launched(declaring(pods=""), Cluster(pod())):
        with pytest.raises(selectcache.SelectCacheError) as raised:
            await called(only(registry._changing), changing())
        assert isinstance(raised.value, DeclarationError)
        assert "plain function that returned a coroutine" in raised.value.what


@pytest.mark.parametrize(
    "decorate", [selectcache.on.change, selectcache.reconcile], ids=["on.change", "reconcile"]
)
async def test_20_a_plain_function_that_a_cache_calls_must_not_return_a_coroutine_either(
    decorate: Callable[..., Any], registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    decorate("secrets", registry=registry)(lambda cache, **_: async_class_of(cache))
    async with operating(registry, secret("a", app="web")):
        await until(lambda: "failed permanently" in caplog.text)
    assert "plain function that returned a coroutine" in caplog.text


async def test_20_a_when_that_returns_a_coroutine_is_refused_by_its_handler(
    registry: kopf.OperatorRegistry,
) -> None:
    """An error in `when=` itself would drop the event for all handlers."""
    when: Any = with_cache(lambda cache, **_: async_class_of(cache))
    kopf.on.create("pods", id="it", when=when, registry=registry)(with_cache(lambda **_: "called"))
    async with launched(declaring(pods=""), Cluster(pod())) as operator:
        await operator.gate(None, None)
        (chosen,) = registry._changing.get_handlers(changing())
        with pytest.raises(DeclarationError) as raised:
            await called(chosen, changing())
        assert "plain function that returned a coroutine" in raised.value.what
        assert "await in the handler" in raised.value.remedy


# ---- Calls as they are written there.


def remedy_in(cache: Any, **_: Any) -> str:
    with pytest.raises(OutsideFilter) as raised:
        cache.get("pods", "db-1", namespace="shop")
    return raised.value.remedy


async def async_remedy_in(cache: Any, **_: Any) -> str:
    return remedy_in(cache)


CALL = "('pods', 'db-1', namespace='shop')"


async def remedy_in_thread(cache: Any, **_: Any) -> str:
    return await asyncio.to_thread(remedy_in, cache)


def test_20_remedies_give_the_call_to_write_in_the_handler_where_they_are_read(fake: FakeCache) -> None:
    in_sync: Any = with_cache(remedy_in)
    in_async: Any = with_cache(async_remedy_in)
    in_thread: Any = with_cache(remedy_in_thread)
    assert in_sync(cache=fake).endswith(f"To find out: cache.fetch{CALL}")
    assert asyncio.run(in_async(cache=fake)).endswith(f"To find out: await cache.fetch{CALL}")
    assert asyncio.run(in_thread(cache=fake)).endswith(f"To find out: cache.blocking.fetch{CALL}")
    assert remedy_in(fake).endswith(f"To find out: cache.blocking.fetch{CALL}")


def test_20_a_call_that_fails_in_a_sync_handler_names_the_call_to_write_there(fake: FakeCache) -> None:
    @with_cache
    def handle(cache: SyncCache, **_: Any) -> str:
        with pytest.raises(selectcache.AlreadyExists) as raised:
            cache.live.create(secret("made"))
        return raised.value.remedy

    fake.cluster.create(secret("made"))
    said = handle(cache=fake)
    assert "cache.live.ensure(...)" in said
    assert "blocking" not in said


def test_20_a_sync_cache_says_that_its_methods_need_no_way_round(fake: FakeCache) -> None:
    with pytest.raises(AttributeError, match=r"such as cache\.fetch\(\.\.\.\)"):
        fake.blocking.blocking  # type: ignore[attr-defined]  # noqa: B018  # It raises.
    with pytest.raises(AttributeError, match=r"selectcache\.on\.change"):
        fake.blocking.changes("pods")  # type: ignore[attr-defined]


# ---- Functions on the event loop that nobody awaits.


async def test_20_a_callback_has_the_reads_that_never_wait_and_no_others(fake: FakeCache) -> None:
    @with_cache
    def when(cache: SyncCache, **_: Any) -> bool:
        assert len(cache.list("pods", labels="app=web")) == 1
        with pytest.raises(ReadError, match=r"event loop(?s:.*)or ask in the handler"):
            cache.fetch("pods", "db-1", namespace="shop")
        with pytest.raises(ReadError, match=r"event loop(?s:.*)or ask in the handler"):
            cache.live.create(WEB)
        assert remedy_in(cache).endswith(f"To find out: cache.fetch{CALL} in the handler")
        return True

    assert when(cache=fake)


async def test_20_a_plain_map_has_them_too_and_an_async_one_awaits(fake: FakeCache) -> None:
    def plain(_: Any, cache: SyncCache) -> list[Key]:
        with pytest.raises(ReadError, match="ask in the handler"):
            cache.fetch("pods", "db-1", namespace="shop")
        return [Key(obj["metadata"]["name"]) for obj in cache.list("pods", labels="app=web")]

    async def awaiting(_: Any, cache: Cache) -> list[Key]:
        return [Key((await cache.fetch("pods", "db-1", namespace="shop"))["metadata"]["name"])]

    assert mapping_of(plain).map(WEB, fake) == [Key("web-1")]
    assert await mapping_of(awaiting).map(WEB, fake) == [Key("db-1")]  # type: ignore[misc]


# ---- The current one, and tests.


def test_the_current_cache_is_that_of_the_handler_or_of_the_class_asked_for(fake: FakeCache) -> None:
    @with_cache
    def handle(cache: SyncCache, **_: Any) -> None:
        assert selectcache.current() is cache
        found = selectcache.current(SyncCache)
        assert_type(found, SyncCache)
        assert found is cache
        assert selectcache.current(Cache) is fake

    @with_cache
    async def handle_async(cache: Cache, **_: Any) -> None:
        assert selectcache.current() is selectcache.current(Cache) is cache
        assert_type(await selectcache.current(Cache).fetch("pods", "x", default=None), dict[str, Any] | None)
        found = await asyncio.to_thread(lambda: selectcache.current(SyncCache).fetch("pods", "x", default=5))
        assert_type(found, dict[str, Any] | int)

    handle(cache=fake)
    with pytest.raises(ReadError, match=r"Give selectcache\.Cache or selectcache\.SyncCache"):
        selectcache.current(str)  # type: ignore[type-var]
    with pytest.raises(ReadError):
        asyncio.run(handle_async(cache=fake))  # There is no other thread whose loop does the work.
