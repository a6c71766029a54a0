"""Streams end when they are told to, whatever they do at that moment."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.informer.streams import StreamTasks
from tests.faults.environment import operating
from tests.faults.server import Server, listed, pod
from tests.rows import each_row

LISTED = listed("100", pod("a", "90"))


@each_row("turns", range(12))
async def test_a_stream_that_is_to_list_again_ends_with_its_operator(turns: int) -> None:
    """The order to list again and the end both cancel its task, at most one turn of the loop apart."""
    async with Server(lists=[LISTED, LISTED]) as server, operating(server) as environment:
        await environment.holds("a@90")
        (reflector,) = environment.informer.state.reflectors
        loop = asyncio.get_running_loop()

        def relist_after(turns: int) -> None:
            if turns:
                loop.call_soon(relist_after, turns - 1)
            else:
                reflector.relist(MetricReason.AUDIT)

        relist_after(turns)


async def test_8_a_stream_that_something_it_awaits_has_cancelled_starts_the_cache_again() -> None:
    """Nobody has told it to end: the cache would be dead, and say nothing."""

    class Stream:
        filter = "app=web"

        async def run(self) -> None:
            raise asyncio.CancelledError

    tasks = StreamTasks("pods", cast("Any", None), "pods", dict)
    with pytest.raises(RuntimeError, match="was cancelled"):
        await tasks.run([cast("Any", Stream())], None, [], lambda: None)
