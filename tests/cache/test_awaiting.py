"""Reads that wait are coroutines to whoever awaits them, and an error to whoever forgets it, who would take
one for the answer."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from kopf_selectcache import NoSuchRead, ReadError
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.reading import must_be_awaited

from .world import World, pod, run

WEB = pod("web-1", app="web")
UNAWAITED = (
    "cache.fetch('pods', 'web-1', 'ns', default=None) was never awaited. Write: await cache.fetch('pods',"
    " 'web-1', 'ns', default=None)"
)


@pytest.fixture(autouse=True)
def told_within_its_own_test() -> Iterator[None]:
    """An error that a test has caught keeps what it was raised in, with the read, until cycles are looked
    for."""
    yield
    gc.collect()


def fetch(cache: Cache) -> Any:
    return cache.fetch("pods", "web-1", "ns", default=None)


async def in_a_group(read: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(read)
    return task.result()


async def gathered(read: Any) -> Any:
    (found,) = await asyncio.gather(read)
    return found


async def within(read: Any) -> Any:
    async with asyncio.timeout(60):
        return await read


@pytest.mark.parametrize(
    "wait",
    [
        lambda read: read,
        asyncio.create_task,
        asyncio.ensure_future,
        asyncio.shield,
        lambda read: asyncio.wait_for(read, 60),
        gathered,
        in_a_group,
        within,
    ],
)
def test_a_read_is_awaited_in_any_way(
    wait: Callable[[Any], Awaitable[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    async def main(world: World) -> None:
        world.declare("app=web").hold(WEB)
        assert await wait(fetch(world.cache())) == WEB

    run(main)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("call", "ask"),
    [
        ("fetch('pods', 'web-1', 'ns', default=None)", fetch),
        ("fetch_list('pods', label='app=db')", lambda cache: cache.fetch_list("pods", label="app=db")),
        ("gone('pods', 'web-1', 'ns')", lambda cache: cache.gone("pods", "web-1", "ns")),
        ("audit('pods')", lambda cache: cache.audit("pods")),
        ("wait_for('pods', bool, timeout=...)", lambda cache: cache.wait_for("pods", bool, timeout=5)),
        ("wait_synced()", lambda cache: cache.wait_synced()),
    ],
)
def test_a_read_that_nobody_awaits_is_told_once_with_what_to_write(
    call: str,
    ask: Callable[[Any], object],
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> None:
    async def main(world: World) -> None:
        assert ask(world.cache()) is not None, "which is why it must be told"
        assert world.server.asked == []

    run(main)
    assert [(each.levelno, each.message) for each in caplog.records] == [
        (logging.ERROR, f"cache.{call} was never awaited. Write: await cache.{call}.")
    ]
    assert list(recwarn) == [], "Python says nothing beside it"


@pytest.mark.parametrize(
    "use",
    [
        lambda found: found["metadata"],
        lambda found: found.get("metadata"),
        bool,
        len,
        list,
        lambda found: "spec" in found,
        lambda found: not found,
    ],
)
def test_a_read_that_is_taken_for_its_answer_is_a_read_error(use: Callable[[Any], object]) -> None:
    async def main(world: World) -> None:
        with pytest.raises(ReadError) as info:
            use(fetch(world.cache()))
        assert str(info.value) == UNAWAITED

    run(main)


def test_what_is_no_attribute_of_an_answer_is_none_of_a_read() -> None:
    """So that what asks whether there is one is answered, as asyncio and debuggers do."""

    async def main(world: World) -> None:
        read = fetch(world.cache())
        assert (hasattr(read, "get"), hasattr(read, "_any"), hasattr(read, "gi_frame")) == (
            False,
            False,
            False,
        )
        with pytest.raises(NoSuchRead):
            read.items()
        task = asyncio.create_task(read)
        assert "Cache.fetch" in repr(task)
        task.cancel()
        await asyncio.wait([task])

    run(main)


def test_a_read_that_is_cancelled_before_it_begins_is_not_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        task = asyncio.create_task(fetch(world.cache()))
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        fetch(world.cache()).close()

    run(main)
    assert caplog.records == []


def test_a_read_that_fails_raises_where_it_is_awaited() -> None:
    async def main(world: World) -> None:
        world.declare("app=web").hold(WEB)
        read: Coroutine[Any, Any, Any] = world.cache().fetch("pods", "web-1")
        with pytest.raises(ReadError, match="names no namespace"):
            await read

    run(main)


def test_a_read_that_is_forgotten_or_awaited_leaves_nothing_behind() -> None:
    """It is told at once, and not when Python looks for cycles next."""

    async def main(world: World) -> None:
        world.declare("app=web").hold(WEB)
        cache = world.cache()
        await fetch(cache)
        fetch(cache)
        gc.collect()
        before = sys.getrefcount(cache)
        for _ in range(5):
            await fetch(cache)
            fetch(cache)
            with pytest.raises(ReadError):
                len(fetch(cache))
        assert gc.collect() == 0 or sys.getrefcount(cache) == before
        assert sys.getrefcount(cache) == before

    gc.collect()
    run(main)


def test_who_forgets_for_ever_is_kept_one_error_of() -> None:
    """As a daemon may, which ends with its object."""

    async def main(world: World) -> None:
        cache = world.cache()
        for _ in range(5):
            fetch(cache)
        with pytest.raises(ReadError, match="was never awaited"):
            must_be_awaited(cache, None)
        assert must_be_awaited(cache, "answer") == "answer"

    run(main)
