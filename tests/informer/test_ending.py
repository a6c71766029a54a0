"""Caches that outlive their operator: each read says that it has ended, and those that wait end with it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import NotSynced, ReadError
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.informer.environment import Ending, ended
from kopf_selectcache.plugin.operator import operator_of
from tests.gated import gated
from tests.kopf_operators import Cluster, cycles, declaring, launched, pod
from tests.rows import each_row

SECRETS = "/api/v1/secrets"
READS: dict[str, Callable[[Cache], Any]] = {
    "get": lambda cache: cache.get("pods", "web-1", namespace="shop"),
    "get with a default": lambda cache: cache.get("pods", "other", namespace="shop", default=None),
    "get a view": lambda cache: cache.get("pods", "web-1", namespace="shop", as_="view"),
    "exists": lambda cache: cache.exists("pods", "web-1", namespace="shop"),
    "list": lambda cache: cache.list("pods"),
    "held": lambda cache: cache.list_cached("pods"),
    "owned": lambda cache: cache.list_cached("pods", owner=pod()),
    "count": lambda cache: cache.count("pods"),
    "info": lambda cache: cache.info("pods"),
    "explain": lambda cache: cache.explain("pods"),
    "get of a kind that is not declared": lambda cache: cache.get("nodes", "n1"),
}
WAITING: dict[str, Callable[[Any], Any]] = {
    "fetch": lambda cache: cache.fetch("pods", "web-1", namespace="shop"),
    "fetch of a kind that is not declared": lambda cache: cache.fetch("nodes", "n1", default=None),
    "fetch_list": lambda cache: cache.fetch_list("nodes"),
    "gone": lambda cache: cache.is_deleted("pods", "web-1", namespace="shop"),
    "wait_synced": lambda cache: cache.wait_synced(),
    "wait_for": lambda cache: cache.wait_for("pods", lambda _: True),
    "add_index": lambda cache: cache.add_index("pods", node="spec.nodeName"),
    "audit": lambda cache: cache.audit("pods"),
}


def declared() -> kopf.OperatorSettings:
    return declaring(pods="", secrets="")


async def outlived(settings: kopf.OperatorSettings | None = None) -> Cache:
    """Return a cache that was read, and whose operator has ended."""
    async with launched(settings or declared(), Cluster(pod())) as operator:
        await operator.gate(("pods",), None)
        cache = Cache(operator.runtime)
        for key in ("pods", "v1/pods"):
            assert cache.get(key, "web-1", namespace="shop")["metadata"]["name"] == "web-1"
    return cache


@each_row("read", READS.values(), ids=READS)
async def test_each_read_of_a_cache_that_outlives_its_operator_raises(read: Callable[[Cache], Any]) -> None:
    cache = await outlived()

    async def in_loop(*_: object) -> None:
        read(cache)

    for call in (in_loop, asyncio.to_thread):
        with pytest.raises(ReadError) as caught:
            await call(read, cache)
        assert caught.value.args == ended().args
        assert not isinstance(caught.value, NotSynced), "who waits for NotSynced to end would wait for ever"


@each_row("read", WAITING.values(), ids=WAITING)
async def test_each_awaited_read_of_a_cache_that_outlives_its_operator_raises(
    read: Callable[[Any], Any],
) -> None:
    cache = await outlived()
    with pytest.raises(ReadError) as caught:
        await read(cache)
    assert caught.value.args == ended().args
    with pytest.raises(ReadError) as caught:
        await asyncio.to_thread(read, cache.blocking)
    assert caught.value.args == ended().args


FOR_EVER: dict[str, Callable[[Any], Any]] = {
    "wait_for": lambda cache: cache.wait_for("pods", lambda _: False),
    "wait_for, of a kind that is not synced": lambda cache: cache.wait_for("secrets", lambda _: True),
    "wait_synced": lambda cache: cache.wait_synced(timeout=3600),
    "fetch": lambda cache: cache.fetch("pods", "other", namespace="shop", max_age=0),
}


@each_row("read", FOR_EVER.values(), ids=FOR_EVER)
async def test_a_read_that_waits_ends_with_the_operator(read: Callable[[Any], Any]) -> None:
    cluster = Cluster(pod())
    cluster.hold(SECRETS)
    cluster.hold("/api/v1/namespaces/shop/pods/other")
    async with launched(declared(), cluster) as operator:
        await operator.gate(("pods",), None)
        cache = Cache(operator.runtime)
        in_task = asyncio.create_task(read(cache))
        in_thread = asyncio.create_task(asyncio.to_thread(read, cache.blocking))
        await cycles()
        assert not in_task.done()
        assert not in_thread.done()
    await cycles()
    assert in_task.done()
    for waiting in (in_task, in_thread):
        with pytest.raises(ReadError) as caught:
            await waiting
        assert caught.value.args == ended().args


async def test_the_report_and_the_probe_of_an_operator_that_has_ended_never_fail() -> None:
    async with launched(declaring(pods=""), Cluster()) as operator:
        await operator.gate(None, None)
    assert operator.report()["trouble"] == ended().args[0]
    assert operator.restartable() == ""


async def test_the_next_operator_with_the_same_settings_has_a_cache_of_its_own() -> None:
    settings = declaring(pods="")
    former = await outlived(settings)
    async with launched(settings, Cluster(pod("web-2"))) as operator:
        await operator.gate(None, None)
        assert operator_of(settings) is operator
        assert len(Cache(operator.runtime).list("pods")) == 1
        with pytest.raises(ReadError):
            former.list("pods")


def test_a_timeout_of_the_reads_own_is_raised_unchanged() -> None:
    own = TimeoutError()

    async def fails() -> None:
        raise own

    with pytest.raises(TimeoutError) as caught:
        asyncio.run(Ending().limit(fails()))
    assert caught.value is own


# ---- Memory.


async def test_each_cache_of_an_operator_that_waited_is_collected_before_the_operator_ends() -> None:
    async with gated("app=web") as environment:
        operator = environment.operator
        for _ in range(20):
            await selectcache.cache_of(operator.settings).wait_synced()
        gc.collect()  # A cache and its late runtime may be a cycle.
        assert len(operator.runtime.ending._followers) == 0
