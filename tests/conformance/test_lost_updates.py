"""Answers to `cache.live.update` and `ensure` are lost, and others write the same contents, on both servers:
nobody is told that a write is done which the server has refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import Any

import pytest
from aiohttp import web

from kopf_selectcache import OutcomeUnknown
from tests.real.inprocess import Operator, operating, run, until
from tests.real.proxy import Loss, Proxy

from .places import Place
from .test_lost_events import is_sent_by

Obj = dict[str, Any]
PACE = 0.02
"""So long, in seconds, is a second in which callers wait."""
EACH = 8
"""The updates of each caller of a story."""


@asynccontextmanager
async def operated(place: Place, url: str = "") -> AsyncIterator[Operator]:
    """Run an operator that does not cache what it writes."""
    async with operating(place.api, place.namespace, {"secrets": "app=web"}, url=url, pace=PACE) as operator:
        yield operator


def config(place: Place, **metadata: Any) -> Obj:
    metadata = {"name": "counter", "namespace": place.namespace, **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"n": "0"}}


def create(place: Place) -> None:
    place.api.request("POST", place.of("configmaps").path(), body=config(place))


def number(place: Place) -> int:
    return int(place.of("configmaps").get("counter")["data"]["n"])


def count(obj: Obj) -> None:
    obj["data"]["n"] = str(int(obj["data"]["n"]) + 1)


def set_to_one(obj: Obj) -> None:
    obj["data"]["n"] = "1"


async def update(operator: Operator, place: Place, function: Callable[[Obj], None]) -> str:
    """Return the written number; `unknown`; or the error of the function."""
    try:
        obj = await operator.cache.live.update(
            "configmaps", "counter", function, namespace=place.namespace, timeout=60 / PACE
        )
    except OutcomeUnknown:
        return "unknown"
    except ValueError as error:
        return str(error)
    number: str = obj["data"]["n"]
    return number


class Turn:
    """A condition of a proxy: this write of the counter, or this read, counted from 1."""

    def __init__(self, turn: int, method: str = "PUT") -> None:
        self._turn = turn
        self._method = method
        self._seen = 0

    def __call__(self, request: web.Request) -> bool:
        is_one = request.method == self._method and request.path.endswith("/counter")
        self._seen += is_one
        return is_one and self._seen == self._turn


OTHERS = ("nobody", "caller", "replica", "kubectl", "kubectl, otherwise")
"""Who else writes: another caller in the operator, another operator with the same field manager, or somebody
with another one, who writes equal contents or others."""

# What the update that lost its answers comes to, and the number that is there in the end.
COUNTED = {
    ("executed", "nobody"): ("unknown", 1),
    ("executed", "caller"): ("unknown", 2),
    ("executed", "replica"): ("unknown", 2),
    ("executed", "kubectl"): ("unknown", 1),
    ("executed", "kubectl, otherwise"): ("unknown", 5),
    ("refused", "caller"): ("unknown", 1),
    ("refused", "replica"): ("unknown", 1),
    ("refused", "kubectl"): ("unknown", 1),
    ("refused", "kubectl, otherwise"): ("unknown", 5),
}


async def other_writes(other: str, operator: Operator, place: Place, function: Callable[[Obj], None]) -> None:
    match other:
        case "caller":
            assert await update(operator, place, function) != "unknown"
        case "replica":

            async def write() -> None:
                async with operated(place) as replica:
                    assert await update(replica, place, function) != "unknown"

            await asyncio.to_thread(asyncio.run, write())
        case "kubectl" | "kubectl, otherwise":
            data = {"n": "1" if other == "kubectl" else "5"}
            await asyncio.to_thread(place.of("configmaps").patch, "counter", {"data": data})


@pytest.mark.parametrize(("lost", "other"), COUNTED)
async def test_14_an_update_that_lost_its_answers_is_done_begun_again_or_unknown(
    place: Place, lost: str, other: str
) -> None:
    """A counter, and a function that gives the same whenever it is called. The answer to the first write is
    lost; others write before it, or before the read that follows.
    """

    async def play(function: Callable[[Obj], None]) -> str:
        is_first = lost == "refused"
        with Proxy(place.api) as proxy:
            proxy.losses.append(Loss(Turn(1), True))
            async with operated(place, proxy.url) as operator:
                proxy.hold(Turn(1) if is_first else Turn(2, "GET"))
                updating = asyncio.create_task(update(operator, place, function))
                await until(lambda: proxy.waiting, "the request is held")
                proxy.held = None
                await other_writes(other, operator, place, function)
                proxy.release()
                return await updating

    create(place)
    assert (await play(count), number(place)) == COUNTED[lost, other]
    place.of("configmaps").patch("counter", {"data": {"n": "0"}})
    outcome = await play(set_to_one)
    # If the object is as the function gives it, it does not matter who has written that.
    assert outcome == ("unknown" if other == "kubectl, otherwise" else "1")


async def test_14_an_update_is_unknown_if_its_function_fails_after_a_lost_answer(place: Place) -> None:
    def take(obj: Obj) -> None:
        if obj["data"]["n"] == "1":
            raise ValueError("it is taken")
        set_to_one(obj)

    create(place)
    with Proxy(place.api) as proxy:
        proxy.losses.append(Loss(Turn(1), True))
        async with operated(place, proxy.url) as operator:
            assert await update(operator, place, take) == "unknown"


@pytest.mark.parametrize("other", ["nobody", "other"])
@pytest.mark.parametrize("is_answered", [False, True])
async def test_14_an_object_is_ensured_whoever_has_created_it(
    place: Place, other: str, *, is_answered: bool
) -> None:
    """The answer to the creation is lost, and that to the adoption."""
    made: Obj = {"metadata": {"ownerReferences": None}}
    if other == "other":
        create(place)
    with Proxy(place.api) as proxy:
        proxy.losses = [Loss(partial(is_sent_by, method), is_answered) for method in ("POST", "PATCH")]
        async with operated(place, proxy.url) as operator:
            owner = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "uid"}
            given = config(place, ownerReferences=[owner])
            with suppress(OutcomeUnknown):
                made = await operator.cache.live.ensure(given, adopt=True, timeout=60 / PACE)
    assert made["metadata"]["ownerReferences"] == [owner]


@pytest.mark.parametrize("seed", range(4))
def test_14_a_counter_is_as_high_as_reported_to_its_callers(place: Place, seed: int) -> None:
    """Two operators with two callers each, and a third of the answers and some requests are lost."""
    random = Random(seed)

    def lost(request: web.Request) -> bool:
        return request.method == "PUT" and random.random() < 0.33

    def dropped(request: web.Request) -> bool:
        return request.method == "PUT" and random.random() < 0.1

    told: list[str] = []

    async def operate(url: str) -> None:
        async with operated(place, url) as operator:

            async def call() -> None:
                told.extend([await update(operator, place, count) for _ in range(EACH)])

            await asyncio.gather(call(), call())

    async def main() -> None:
        create(place)
        with Proxy(place.api) as proxy:
            proxy.losses = [Loss(lost, True, 1_000), Loss(dropped, False, 1_000)]
            await asyncio.gather(*(asyncio.to_thread(asyncio.run, operate(proxy.url)) for _ in range(2)))
        require_counted(told, number(place))

    run(main())


def require_counted(told: list[str], total: int) -> None:
    """Require that each caller who was told a number has it alone, and that all others do not know."""
    numbers = [each for each in told if each != "unknown"]
    assert len(set(numbers)) == len(numbers)
    assert len(numbers) <= total <= len(told)
