"""Requests to the server are joined, but never so that somebody is answered before having asked; and they are
paced."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from kopf_selectcache import NotFound
from kopf_selectcache.client.discovery import REMEMBERED, Kinds, NotServed
from kopf_selectcache.client.fetcher import Fetcher, Pace
from kopf_selectcache.client.reading import Unreachable
from kopf_selectcache.client.transport import JSON
from kopf_selectcache.core.protocol.messages import Refusal

from .environment import PODS, Environment, Server, pod, run

DB = pod("db-1", app="db")
DB_PATH = "/api/v1/namespaces/ns/pods/db-1"


async def settle() -> None:
    """Let everybody go on as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


# ---- Joined.


def test_identical_requests_share_an_answer_and_not_the_object() -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold()
        environment.server.answer(DB_PATH, DB)
        first, second, third = await asyncio.gather(
            *(environment.cache().fetch("pods", "db-1", namespace="ns") for _ in range(3))
        )
        assert first == second == third == DB
        assert first is not second
        assert len(environment.server.asked) == 1

    run(main)


def test_identical_requests_share_an_error() -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold()
        asked = [environment.cache().fetch("pods", "nope", namespace="ns") for _ in range(3)]
        assert [type(error) for error in await asyncio.gather(*asked, return_exceptions=True)] == [
            NotFound
        ] * 3
        assert len(environment.server.asked) == 1

    run(main)


def test_nobody_joins_a_request_that_may_have_been_answered_before_its_own_last_write() -> None:
    """Else what a handler has just created would not be there; of those who come too late, the next request
    is shared."""

    async def main(environment: Environment) -> None:
        environment.server.answer("/x", {"n": 1}, {"n": 2})
        environment.server.going.clear()
        early = asyncio.create_task(environment.fetches.get("/x", {}))
        await settle()
        late = [asyncio.create_task(environment.fetches.get("/x", {})) for _ in range(3)]
        await settle()
        assert len(environment.server.asked) == 1, "one is under way, and one waits"
        environment.server.going.set()
        assert [await task for task in (early, *late)] == [b'{"n":1}', *[b'{"n":2}'] * 3]
        assert len(environment.server.asked) == 2

    run(main)


def test_different_requests_are_not_joined() -> None:
    async def main(environment: Environment) -> None:
        environment.server.answer("/x", {})
        environment.server.answer("/y", {})
        await asyncio.gather(
            *(environment.fetches.get(path, query) for path in ("/x", "/y") for query in ({}, {"limit": "1"}))
        )
        assert len(environment.server.asked) == 4

    run(main)


def test_who_gives_up_takes_nobody_along() -> None:
    async def main(environment: Environment) -> None:
        environment.server.answer("/x", {})
        environment.server.going.clear()
        one, other = (asyncio.create_task(environment.fetches.get("/x", {})) for _ in range(2))
        await settle()
        one.cancel()
        await settle()
        environment.server.going.set()
        assert await other == b"{}"
        assert one.cancelled()

    run(main)


def test_a_request_that_nobody_waits_for_is_given_up() -> None:
    async def main(environment: Environment) -> None:
        environment.server.answer("/x", {"n": 1})
        environment.server.going.clear()
        under_way = asyncio.create_task(environment.fetches.get("/x", {}))
        await settle()
        in_line = asyncio.create_task(environment.fetches.get("/x", {}))
        await settle()
        under_way.cancel()
        in_line.cancel()
        await asyncio.wait([under_way, in_line])
        await settle()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        environment.server.going.set()  # A request that is left behind ends, and the test with it.
        assert left == set()
        assert await environment.fetches.get("/x", {}) == b'{"n":1}', "who comes next begins anew"
        assert len(environment.server.asked) == 2

    run(main)


def test_a_request_that_nobody_waits_for_any_more_is_never_sent() -> None:
    async def main(environment: Environment) -> None:
        environment.server.answer("/x", {})
        environment.server.going.clear()
        under_way = asyncio.create_task(environment.fetches.get("/x", {}))
        await settle()
        in_line = asyncio.create_task(environment.fetches.get("/x", {}))
        await settle()
        in_line.cancel()
        environment.server.going.set()
        assert await under_way == b"{}"
        await settle()
        assert len(environment.server.asked) == 1

    run(main)


def test_who_gave_up_may_ask_again_at_once() -> None:
    async def main(environment: Environment) -> None:
        async def impatient() -> bytes:
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await environment.fetches.get("/x", {})
            return await environment.fetches.get("/x", {})

        environment.server.answer("/x", {})
        environment.server.going.clear()
        under_way = asyncio.create_task(environment.fetches.get("/x", {}))
        await settle()
        asked = asyncio.create_task(impatient())
        await settle()
        environment.server.going.set()
        assert await asked == await under_way == b"{}"

    run(main)


def test_a_request_that_fails_without_anybody_left_makes_no_noise() -> None:
    async def main(environment: Environment) -> None:
        noise: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
        environment.server.answer("/x", Unreachable("gone"))
        asked = asyncio.create_task(environment.fetches.get("/x", {}))
        await asyncio.sleep(0)
        asked.cancel()
        await settle()
        del asked
        assert noise == []

    run(main)


# ---- Paced.


def test_requests_are_paced_all_handlers_together() -> None:
    async def main(environment: Environment) -> None:
        environment.fetches = Fetcher(
            environment.server, per_second=2.0, clock=lambda: environment.time, sleep=environment.sleep
        )
        for path in "abcdef":
            environment.server.answer(path, {})
            await environment.fetches.get(path, {})
        assert environment.slept == [0.5] * 4, "two at once, and then two a second"

    run(main)


def test_requests_that_come_at_once_are_paced_as_well() -> None:
    async def main(environment: Environment) -> None:
        sent: list[float] = []

        class Noting(Server):
            async def get(
                self,
                path: str,
                query: Mapping[str, str],
                *,
                accept: str = JSON,
                most: int | None = None,
            ) -> bytes:  # As transports are called.
                assert accept == JSON, f"{path} {query}"
                sent.append(environment.time)
                return b""

        async def sleep(seconds: float) -> None:
            due = environment.time + seconds
            await asyncio.sleep(0)  # Others may begin to sleep meanwhile.
            environment.time = max(environment.time, due)

        environment.fetches = Fetcher(Noting(), per_second=2.0, clock=lambda: environment.time, sleep=sleep)
        await asyncio.gather(*(environment.fetches.get(path, {}) for path in "abcdef"))
        assert sent == [0.0, 0.0, 0.5, 1.0, 1.5, 2.0]

    run(main)


async def many(environment: Environment) -> list[asyncio.Task[bytes]]:
    """Ask for so much that most of it must wait, and wait until it does."""
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        environment.slept.append(seconds)
        await waiting.wait()

    environment.fetches = Fetcher(
        environment.server, per_second=16.0, clock=lambda: environment.time, sleep=sleep
    )
    tasks = [asyncio.create_task(environment.fetches.get(f"/{n}", {})) for n in range(2_000)]
    await settle()
    return tasks


def test_who_gives_up_gives_its_place_back() -> None:
    async def main(environment: Environment) -> None:
        tasks = await many(environment)
        assert len(environment.server.asked) == 16
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        environment.slept.clear()
        later = asyncio.create_task(environment.fetches.get("/later", {}))
        await settle()
        assert environment.slept == [0.0625], "it is the next"
        later.cancel()
        await asyncio.wait([later])

    run(main)


def waits(pace: Pace, times: int, *, now: float) -> list[float]:
    found = []
    for _ in range(times):
        found.append(pace.delay(now=now))
        pace.take(now=now)
    return found


def test_a_quiet_second_allows_as_many_at_once() -> None:
    pace = Pace(4.0)
    assert waits(pace, 5, now=0.0) == [0.0, 0.0, 0.0, 0.0, 0.25]
    assert waits(pace, 5, now=60.0) == [0.0, 0.0, 0.0, 0.0, 0.25]


def test_less_than_one_a_second_starts_with_one() -> None:
    assert waits(Pace(0.5), 3, now=0.0) == [0.0, 2.0, 4.0]


# ---- What keys mean.


def kinds(environment: Environment) -> Kinds:
    environment.server.answer(
        "/apis", {"groups": [{"name": f"g{n}.io", "versions": [{"version": "v1"}]} for n in range(5)]}
    )
    for n in range(5):
        environment.server.answer(
            f"/apis/g{n}.io/v1",
            {"resources": [{"name": "things", "kind": "Thing", "namespaced": True}] if n == 4 else []},
        )
    environment.server.answer("/api/v1", {"resources": []})
    environment.fetches = Fetcher(
        environment.server, per_second=4.0, clock=lambda: environment.time, sleep=environment.sleep
    )
    return Kinds(
        environment.fetches, clock=lambda: environment.time, sleep=environment.sleep, chance=lambda: 1.0
    )


def test_what_a_key_means_is_found_out_once_for_all_who_ask() -> None:
    async def main(environment: Environment) -> None:
        known = kinds(environment)
        found = await asyncio.gather(*(known.resolve("things") for _ in range(50)))
        assert {str(each) for each in found} == {"things.g4.io"}
        asked = len(environment.server.asked)
        assert asked <= 8
        assert await known.resolve("things") is found[0]
        assert len(environment.server.asked) == asked, "it is remembered"

    run(main)


def test_to_find_out_is_paced_as_other_requests_are() -> None:
    async def main(environment: Environment) -> None:
        await kinds(environment).resolve("things")
        assert len(environment.slept) == len(environment.server.asked) - 4

    run(main)


def test_a_provisional_resource_is_remembered_for_some_seconds_only() -> None:
    async def main(environment: Environment) -> None:
        known = kinds(environment)
        resources = {"resources": [{"name": "things", "kind": "Thing", "namespaced": True}]}
        environment.server.answer("/apis/g2.io/v1", Refusal(503, "ServiceUnavailable"))
        assert str(await known.resolve("things")) == "things.g4.io"
        asked, slept = len(environment.server.asked), len(environment.slept)
        assert str(await known.resolve("things")) == "things.g4.io"
        assert len(environment.server.asked) == asked
        environment.time += REMEMBERED
        assert str(await known.resolve("things")) == "things.g4.io"
        assert len(environment.server.asked) - asked <= 8, "it is asked once, without further tries"
        assert len(environment.slept) - slept <= 8
        environment.server.answer("/apis/g2.io/v1", resources)
        environment.time += REMEMBERED
        assert str(await known.resolve("things")) == "things.g2.io"
        asked = len(environment.server.asked)
        environment.time += 1000 * REMEMBERED
        assert str(await known.resolve("things")) == "things.g2.io"
        assert len(environment.server.asked) == asked

    run(main)


def test_that_there_is_no_such_kind_is_remembered_for_some_seconds() -> None:
    async def main(environment: Environment) -> None:
        known = kinds(environment)
        for _ in range(50):
            with pytest.raises(NotServed):
                await known.resolve("tings")
        asked = len(environment.server.asked)
        assert asked <= 8
        environment.server.answer(
            "/api/v1", {"resources": [{"name": "tings", "kind": "Ting", "namespaced": True}]}
        )
        environment.time += REMEMBERED
        assert str(await known.resolve("tings")) == "tings"

    run(main)


def test_a_failure_to_find_out_is_not_remembered() -> None:
    async def main(environment: Environment) -> None:
        known = kinds(environment)
        environment.server.answer("/apis", Unreachable("gone"))
        failed = await asyncio.gather(*(known.resolve("things") for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in failed] == [Unreachable] * 3
        assert len(environment.server.asked) == 1
        kinds(environment)
        assert str(await known.resolve("things")) == "things.g4.io"

    run(main)


def test_who_gives_up_on_a_key_takes_nobody_along() -> None:
    async def main(environment: Environment) -> None:
        known = kinds(environment)
        environment.server.going.clear()
        one, other = (asyncio.create_task(known.resolve("things")) for _ in range(2))
        await settle()
        one.cancel()
        await settle()
        environment.server.going.set()
        assert str(await other) == "things.g4.io"

    run(main)


# ---- Left behind.


def test_a_request_that_is_refused_leaves_no_task_with_an_error() -> None:
    """Kopf raises the errors of the tasks that are left when the operator ends, such as those of a fetch for
    a timer."""

    async def main(environment: Environment) -> None:
        environment.resources["pods"] = PODS
        environment.server.going.clear()
        reader = asyncio.create_task(environment.cache().fetch("pods", "nope", namespace="ns", default=None))
        await settle()
        left = asyncio.all_tasks() - {reader, asyncio.current_task()}
        assert left
        environment.server.going.set()
        assert await reader is None
        await asyncio.wait(left)
        assert [task.exception() for task in left if not task.cancelled()] == [None] * len(left)

    run(main)
