"""A counter that operators count up with `cache.live.update` while the API server is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from threading import Event

import pytest

from kopf_selectcache import OutcomeUnknown, ReadError, ServerError
from tests.apiserver.server import ApiServer
from tests.conformance.places import Place
from tests.conformance.test_lost_updates import count, create, number, require_counted
from tests.real.inprocess import operating, run, until

OPERATORS, CALLERS = 2, 2


@pytest.mark.parametrize(
    ("seed", "kills"), [(0, 3), *(pytest.param(seed, 8, marks=pytest.mark.soak) for seed in range(1, 8))]
)
def test_14_a_counter_matches_the_answers_to_its_callers_though_servers_are_killed(
    assets: Path, seed: int, kills: int
) -> None:
    random, told, is_over = Random(seed), list[str](), Event()

    async def operate(place: Place) -> None:
        filters = {"secrets": "app=web"}
        async with operating(place.api, place.namespace, filters) as operator:

            async def call() -> None:
                while not is_over.is_set():
                    try:
                        made = await operator.cache.live.update(
                            "configmaps", "counter", count, namespace=place.namespace
                        )
                        told.append(made["data"]["n"])
                    except OutcomeUnknown:
                        told.append("unknown")
                    except (ServerError, ReadError):  # It was not executed: the server is away.
                        await asyncio.sleep(0.02)

            await asyncio.gather(*(call() for _ in range(CALLERS)))

    async def counted_up(more: int) -> None:
        enough = len(told) + more
        await until(lambda: len(told) >= enough, "the counter is counted up")

    async def kill(server: ApiServer) -> None:
        try:
            for _ in range(kills):
                await counted_up(random.randint(10, 40))
                await asyncio.to_thread(server.apiserver.kill)
                await asyncio.to_thread(server.apiserver.start)
        finally:
            is_over.set()

    async def main(server: ApiServer) -> None:
        place = Place(server, server.namespace())
        create(place)
        operators = [asyncio.to_thread(asyncio.run, operate(place)) for _ in range(OPERATORS)]
        await asyncio.gather(kill(server), *operators)
        require_counted(told, number(place))

    with ApiServer(assets=assets) as server:
        run(main(server))
