"""Requests to the server are joined, but never so that somebody is answered before having asked; and they are paced."""
from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from kopf_selectcache import NotFound
from kopf_selectcache.fetching import Fetches, Pace
from kopf_selectcache.transport import Unreachable

from .world import World, pod, run

DB = pod("db-1", app="db")
DB_PATH = "/api/v1/namespaces/ns/pods/db-1"


async def settle() -> None:
    """Let everybody go on as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


# ---- Joined.


def test_identical_requests_share_an_answer_and_not_the_object() -> None:
    async def main(world: World) -> None:
        world.declare("app=web").hold()
        world.server.answer(DB_PATH, DB)
        first, second, third = await asyncio.gather(*(world.cache().fetch("pods", "db-1", "ns") for _ in range(3)))
        assert first == second == third == DB
        assert first is not second
        assert len(world.server.asked) == 1
    run(main)


def test_identical_requests_share_an_error() -> None:
    async def main(world: World) -> None:
        world.declare("app=web").hold()
        asked = [world.cache().fetch("pods", "nope", "ns") for _ in range(3)]
        assert [type(error) for error in await asyncio.gather(*asked, return_exceptions=True)] == [NotFound] * 3
        assert len(world.server.asked) == 1
    run(main)


def test_nobody_joins_a_request_that_may_have_been_answered_before_its_own_last_write() -> None:
    """Else what a handler has just created would not be there; of those who come too late, the next request is shared."""
    async def main(world: World) -> None:
        world.server.answer("/x", {"n": 1}, {"n": 2})
        world.server.going.clear()
        early = asyncio.create_task(world.fetches.get("/x", {}))
        await settle()
        late = [asyncio.create_task(world.fetches.get("/x", {})) for _ in range(3)]
        await settle()
        assert len(world.server.asked) == 1, "one is under way, and one waits"
        world.server.going.set()
        assert [await task for task in (early, *late)] == [b'{"n":1}', *[b'{"n":2}'] * 3]
        assert len(world.server.asked) == 2
    run(main)


def test_different_requests_are_not_joined() -> None:
    async def main(world: World) -> None:
        world.server.answer("/x", {})
        world.server.answer("/y", {})
        await asyncio.gather(*(world.fetches.get(path, query) for path in ("/x", "/y") for query in ({}, {"limit": "1"})))
        assert len(world.server.asked) == 4
    run(main)


def test_who_gives_up_takes_nobody_along() -> None:
    async def main(world: World) -> None:
        world.server.answer("/x", {})
        world.server.going.clear()
        one, other = (asyncio.create_task(world.fetches.get("/x", {})) for _ in range(2))
        await settle()
        one.cancel()
        await settle()
        world.server.going.set()
        assert await other == b"{}"
        assert one.cancelled()
    run(main)


def test_a_request_that_nobody_waits_for_is_given_up() -> None:
    async def main(world: World) -> None:
        world.server.answer("/x", {"n": 1})
        world.server.going.clear()
        under_way = asyncio.create_task(world.fetches.get("/x", {}))
        await settle()
        in_line = asyncio.create_task(world.fetches.get("/x", {}))
        await settle()
        under_way.cancel()
        in_line.cancel()
        await asyncio.wait([under_way, in_line])
        await settle()
        assert len(asyncio.all_tasks()) == 1
        world.server.going.set()
        assert await world.fetches.get("/x", {}) == b'{"n":1}', "who comes next begins anew"
        assert len(world.server.asked) == 2
    run(main)


def test_a_request_that_nobody_waits_for_any_more_is_never_sent() -> None:
    async def main(world: World) -> None:
        world.server.answer("/x", {})
        world.server.going.clear()
        under_way = asyncio.create_task(world.fetches.get("/x", {}))
        await settle()
        in_line = asyncio.create_task(world.fetches.get("/x", {}))
        await settle()
        in_line.cancel()
        world.server.going.set()
        assert await under_way == b"{}"
        await settle()
        assert len(world.server.asked) == 1
    run(main)


def test_who_gave_up_may_ask_again_at_once() -> None:
    async def main(world: World) -> None:
        async def impatient() -> bytes:
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await world.fetches.get("/x", {})
            return await world.fetches.get("/x", {})
        world.server.answer("/x", {})
        world.server.going.clear()
        under_way = asyncio.create_task(world.fetches.get("/x", {}))
        await settle()
        asked = asyncio.create_task(impatient())
        await settle()
        world.server.going.set()
        assert await asked == await under_way == b"{}"
    run(main)


def test_a_request_that_fails_without_anybody_left_makes_no_noise() -> None:
    async def main(world: World) -> None:
        noise: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
        world.server.answer("/x", Unreachable("gone"))
        asked = asyncio.create_task(world.fetches.get("/x", {}))
        await asyncio.sleep(0)
        asked.cancel()
        await settle()
        del asked
        assert noise == []
    run(main)


# ---- Paced.


def test_requests_are_paced_all_handlers_together() -> None:
    async def main(world: World) -> None:
        world.fetches = Fetches(world.server, per_second=2.0, clock=lambda: world.time, sleep=world.sleep)
        for path in "abcdef":
            world.server.answer(path, {})
            await world.fetches.get(path, {})
        assert world.slept == [0.5] * 4, "two at once, and then two a second"
    run(main)


def test_a_quiet_second_allows_as_many_at_once() -> None:
    pace = Pace(4.0)
    assert [pace.delay(now=0.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.25]
    assert [pace.delay(now=60.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.25]


def test_less_than_one_a_second_starts_with_one() -> None:
    pace = Pace(0.5)
    assert [pace.delay(now=0.0) for _ in range(3)] == [0.0, 2.0, 4.0]
