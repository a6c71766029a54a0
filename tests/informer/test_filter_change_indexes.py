"""After a change of the filter, each index has the values of its own function or path, of whole objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_selectcache import Cached
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.errors import NotKept, ReadError
from kopf_selectcache.informer.background import IndexBuilder
from kopf_selectcache.informer.state import Relist
from kopf_selectcache.informer.swap import Swap
from kopf_selectcache.testing.faults import Silence
from tests.faults.environment import until
from tests.secrets import Environment, caching, named, secret

WEB = "app=web"


def with_key(name: str, key: str = "eA==") -> dict[str, Any]:
    return {**secret(name, app="web"), "data": {"key": key}}


def read_key(obj: Any) -> str:
    return str(obj["data"]["key"])


def find_key(obj: Any) -> str | None:
    data = obj.get("data")
    return None if data is None else str(data["key"])


def first(_: Any) -> str:
    return "first"


def second(_: Any) -> str:
    return "second"


async def synced(environment: Environment) -> Cache:
    await until(lambda: environment.informer.state.is_synced)
    return environment.cache


def found(cache: Cache, name: str, value: str) -> list[str]:
    return named(cache.list_cached("secrets", index={name: value}))


@pytest.mark.parametrize("by", ["data.key", find_key], ids=["path", "function"])
async def test_16_an_index_of_a_part_that_is_not_stored_lists_whole_objects(by: Any) -> None:
    async with caching(Cached(WEB, drop=["data"]), with_key("web")) as environment:
        cache = await synced(environment)
        plan = await cache.plan("secrets", WEB, drop=["data"], index={"key": by})
        assert [each.reason for each in plan.opened] == [Relist.INDEX]
        await cache.declare("secrets", WEB, index={"key": by}, replace=True)
        environment.cluster.create(with_key("later"))
        await until(lambda: len(cache.list_cached("secrets")) == 2)
        assert found(cache, "key", "eA==") == ["later", "web"]
        kept = environment.informer.state.reflectors
        await cache.declare("secrets", WEB, replace=True)
        assert environment.informer.state.reflectors == kept
        assert found(cache, "key", "eA==") == ["later", "web"]


@pytest.mark.parametrize("by", ["data.key", find_key], ids=["path", "function"])
async def test_16_an_added_index_of_a_part_that_is_dropped_later_reads_whole_objects(by: Any) -> None:
    async with caching(WEB, with_key("web")) as environment:
        cache = await synced(environment)
        await cache.add_index("secrets", key=by)
        await cache.declare("secrets", WEB, drop=["data"], replace=True)
        environment.cluster.create(with_key("later"))
        await until(lambda: len(cache.list_cached("secrets")) == 2)
        assert found(cache, "key", "eA==") == ["later", "web"]


async def test_16_an_added_index_that_fails_for_an_object_leaves_it_readable_after_a_change() -> None:
    async with caching(WEB, with_key("web")) as environment:
        cache = await synced(environment)
        await cache.add_index("secrets", key=read_key)
        await cache.declare("secrets", WEB, drop=["data"], replace=True)
        environment.cluster.create(secret("bare", app="web"))
        await until(lambda: named(cache.list_cached("secrets")) == ["bare", "web"])
        assert found(cache, "key", "eA==") == ["web"]


async def test_16_an_added_function_is_an_index_of_whole_objects_once_it_is_declared() -> None:
    async with caching(Cached(WEB, drop=["data"]), with_key("web")) as environment:
        cache = await synced(environment)
        await cache.add_index("secrets", key=find_key)
        assert found(cache, "key", "eA==") == []
        await cache.declare("secrets", WEB, index={"key": find_key}, replace=True)
        assert found(cache, "key", "eA==") == ["web"]
        with pytest.raises(NotKept):
            await cache.add_index("secrets", other="data.key")


async def test_16_a_function_of_whole_objects_is_not_called_with_stored_parts() -> None:
    async with caching(WEB, with_key("web")) as environment:
        cache = await synced(environment)
        changing = cache.declare("secrets", WEB, drop=["data"], index={"key": read_key}, replace=True)
        (failure,) = await asyncio.gather(changing, return_exceptions=True)
        assert failure is None
        assert found(cache, "key", "eA==") == ["web"]


async def by_a_change(cache: Cache) -> None:
    await cache.declare("secrets", WEB, index={"by": second}, replace=True)


async def by_an_addition(cache: Cache) -> None:
    await cache.add_index("secrets", by=second)


@pytest.mark.parametrize("add", [by_a_change, by_an_addition])
async def test_16_an_index_has_no_values_of_a_former_one_of_its_name(add: Any) -> None:
    async with caching(Cached(WEB, index={"by": first}), with_key("web")) as environment:
        cache = await synced(environment)
        await cache.declare("secrets", WEB, index={}, replace=True)
        await add(cache)
        assert (found(cache, "by", "first"), found(cache, "by", "second")) == ([], ["web"])
        (record,) = environment.informer.state.store.records()[0]
        assert list(record.indexed().values()) == [["second"]], "former values are removed"


@pytest.mark.parametrize("add", [by_a_change, by_an_addition])
async def test_16_a_change_that_is_cancelled_leaves_no_values_of_its_index(
    add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with caching(WEB, with_key("web")) as environment:
        cache = await synced(environment)
        asked = asyncio.Event()
        with monkeypatch.context() as patched:
            patched.setattr(Swap, "has_reached", lambda *_: asked.set())
            changing = asyncio.create_task(cache.declare("secrets", WEB, index={"by": first}, replace=True))
            await asked.wait()
            changing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await changing
        with pytest.raises(ReadError):
            found(cache, "by", "first")
        await add(cache)
        assert (found(cache, "by", "first"), found(cache, "by", "second")) == ([], ["web"])


async def test_16_an_index_of_a_part_that_is_dropped_meanwhile_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compute = IndexBuilder._computed
    dropped = asyncio.Event()

    async def compute_late(self: IndexBuilder, *arguments: Any) -> Any:
        values = await compute(self, *arguments)
        await dropped.wait()
        return values

    async with caching(WEB, with_key("web")) as environment:
        cache = await synced(environment)
        with monkeypatch.context() as patched:
            patched.setattr(IndexBuilder, "_computed", compute_late)
            adding = asyncio.create_task(cache.add_index("secrets", added="data.key"))
            other = asyncio.create_task(cache.add_index("secrets", other="metadata.labels.app"))
            await cache.declare("secrets", WEB, drop=["data"], replace=True)
            dropped.set()
            with pytest.raises(NotKept, match="does not store"):
                await adding
            await other
        with pytest.raises(ReadError, match="no index"):
            found(cache, "added", "eA==")
        assert found(cache, "other", "web") == ["web"]


@pytest.mark.parametrize("by", ["metadata.labels.app", "data.key"])
async def test_16_an_index_that_is_added_meanwhile_stays_unless_its_part_is_dropped(by: str) -> None:
    async with caching(WEB, with_key("web")) as environment:
        cache = await synced(environment)
        silence = environment.cluster.faults.add(Silence(), verb="list")
        changing = asyncio.create_task(cache.declare("secrets", WEB, drop=["data"], replace=True))
        await until(lambda: environment.informer.filter_change.prepared is not None)
        await cache.add_index("secrets", added=by)
        silence.release()
        await changing
        if by == "data.key":
            with pytest.raises(ReadError):
                found(cache, "added", "eA==")
        else:
            assert found(cache, "added", "app") == []
            assert found(cache, "added", "web") == ["web"]
