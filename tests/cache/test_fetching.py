"""Requests to the server are joined, but never so that somebody is answered before having asked; and they are
paced."""

from __future__ import annotations

import asyncio

import pytest

from kopf_selectcache import NotFound
from kopf_selectcache.client.discovery import REMEMBERED_SECONDS, Kinds, NotServed
from kopf_selectcache.client.fetcher import Fetcher
from kopf_selectcache.client.reading import Unreachable
from kopf_selectcache.core.protocol.messages import Refusal

from .environment import Environment, with_environment


async def settle() -> None:
    """Let everybody go on as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


# ---- Joined.


@with_environment
async def test_identical_requests_share_an_error(environment: Environment) -> None:
    environment.declare("app=web").hold()
    asked = [environment.cache().fetch("pods", "nope", namespace="ns") for _ in range(3)]
    assert [type(error) for error in await asyncio.gather(*asked, return_exceptions=True)] == [NotFound] * 3
    assert len(environment.server.asked) == 1


@with_environment
async def test_nobody_joins_a_request_that_may_have_been_answered_before_its_own_last_write(
    environment: Environment,
) -> None:
    """Else what a handler has just created would not be there; of those who come too late, the next request
    is shared."""
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


@with_environment
async def test_a_request_that_nobody_waits_for_is_given_up(environment: Environment) -> None:
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


@with_environment
async def test_a_request_that_nobody_waits_for_any_more_is_never_sent(environment: Environment) -> None:
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


@with_environment
async def test_to_find_out_is_paced_as_other_requests_are(environment: Environment) -> None:
    await kinds(environment).resolve("things")
    assert len(environment.slept) == len(environment.server.asked) - 4


@with_environment
async def test_a_provisional_resource_is_remembered_for_some_seconds_only(environment: Environment) -> None:
    known = kinds(environment)
    resources = {"resources": [{"name": "things", "kind": "Thing", "namespaced": True}]}
    environment.server.answer("/apis/g2.io/v1", Refusal(503, "ServiceUnavailable"))
    assert str(await known.resolve("things")) == "things.g4.io"
    asked, slept = len(environment.server.asked), len(environment.slept)
    assert str(await known.resolve("things")) == "things.g4.io"
    assert len(environment.server.asked) == asked
    environment.time += REMEMBERED_SECONDS
    assert str(await known.resolve("things")) == "things.g4.io"
    assert len(environment.server.asked) - asked <= 8, "it is asked once, without further tries"
    assert len(environment.slept) - slept <= 8
    environment.server.answer("/apis/g2.io/v1", resources)
    environment.time += REMEMBERED_SECONDS
    assert str(await known.resolve("things")) == "things.g2.io"
    asked = len(environment.server.asked)
    environment.time += 1000 * REMEMBERED_SECONDS
    assert str(await known.resolve("things")) == "things.g2.io"
    assert len(environment.server.asked) == asked


@with_environment
async def test_that_there_is_no_such_kind_is_remembered_for_some_seconds(environment: Environment) -> None:
    known = kinds(environment)
    for _ in range(50):
        with pytest.raises(NotServed):
            await known.resolve("tings")
    asked = len(environment.server.asked)
    assert asked <= 8
    environment.server.answer(
        "/api/v1", {"resources": [{"name": "tings", "kind": "Ting", "namespaced": True}]}
    )
    environment.time += REMEMBERED_SECONDS
    assert str(await known.resolve("tings")) == "tings"


@with_environment
async def test_a_failure_to_find_out_is_not_remembered(environment: Environment) -> None:
    known = kinds(environment)
    environment.server.answer("/apis", Unreachable("gone"))
    failed = await asyncio.gather(*(known.resolve("things") for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in failed] == [Unreachable] * 3
    assert len(environment.server.asked) == 1
    kinds(environment)
    assert str(await known.resolve("things")) == "things.g4.io"
