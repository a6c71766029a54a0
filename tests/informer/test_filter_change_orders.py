"""Changes of one filter that overlap, of two and of three callers: the order of the calls decides which
filter is in force, whatever each of them has to wait for first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from kopf_selectcache import Cached, Key, Selector, Superseded
from kopf_selectcache.settings.planner import MOST_STREAMS
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Silence
from tests.informer.test_namespaces_by_label import TENANTS, mark, serves, tenants
from tests.rows import each_row
from tests.secrets import Environment

FILTERS: dict[str, Any] = {
    "namespaces by label": TENANTS,
    "label": Selector("!old"),
    "or": [Selector("app=web"), Selector("app=db")],
    "namespaces": Selector(namespaces=["shop", "blog"]),
    "present": "",
}


async def change(environment: Environment, filter_: str) -> str:
    """Return if the filter has changed; check that it is in force then."""
    try:
        await environment.cache.declare("secrets", FILTERS[filter_], replace=True)
    except Superseded:
        return "overtaken"
    assert environment.informer.declared.filter == Cached(FILTERS[filter_]).filter, f"{filter_} is not in use"
    return "in force"


async def play(filters: Sequence[str], steps: int) -> None:
    """Call one after the other, while no list is answered; then answer. Between two calls, the loop takes so
    many steps: one of them begins the call, and with many it waits for the server.
    """
    async with tenants("infra", declared="") as environment:
        await environment.cache.wait_synced()
        waits = [
            environment.cluster.faults.add(Silence(), verb="list", resource=resource)
            for resource in ("namespaces", "secrets")
        ]
        calls = list[asyncio.Task[str]]()
        for filter_ in filters:
            calls.append(asyncio.create_task(change(environment, filter_)))
            for _ in range(steps):
                await asyncio.sleep(0)
        for each in waits:
            each.release()
        while not all(each.done() for each in calls):
            environment.cluster.bookmark()  # The streams have been listed at different times.
            for _ in range(20):
                await asyncio.sleep(0)
        *_, last = [await each for each in calls]
        assert last == "in force"
        assert environment.informer.declared.filter == Cached(FILTERS[filters[-1]]).filter
        is_labelled = filters[-1] == "namespaces by label"
        assert bool(environment.runtime.namespaces.labelled) is is_labelled


@each_row("first", FILTERS)
async def test_16_of_overlapping_changes_the_last_is_in_force_and_each_that_returned_was(first: str) -> None:
    """Each pair is played with one step and with many, once of two callers and once of three."""
    for number, second in enumerate(FILTERS, [*FILTERS].index(first)):
        steps = (1, 30) if number % 2 else (30, 1)
        await play((first, second), steps[0])
        await play((first, second, first), steps[1])


@pytest.mark.soak
@pytest.mark.parametrize("steps", [1, 30])
@pytest.mark.parametrize("first", FILTERS)
async def test_16_of_three_overlapping_changes_the_last_is_in_force(first: str, steps: int) -> None:
    for others in product(FILTERS, repeat=2):
        await play((first, *others), steps)


async def test_16_the_namespaces_of_the_present_filter_do_not_overtake_a_call() -> None:
    """So many namespaces have the label that they share one list, and the server is asked for its right."""
    many = [f"tenant-{number}" for number in range(MOST_STREAMS)]

    def prepare(cluster: EmbeddedCluster) -> str:
        for name in many:
            cluster.namespace(name, tenant="yes")
        return cluster.token

    async with tenants(who=prepare) as environment:
        await serves(environment, *many)
        silence = environment.cluster.faults.add(Silence(), verb="list", resource="secrets", namespace=None)
        mark(environment, "shop")
        await silence.hit()
        called = asyncio.create_task(
            environment.cache.declare("secrets", Selector(namespaces=["blog"]), replace=True)
        )
        for _ in range(10):
            await asyncio.sleep(0)
        silence.release()
        await asyncio.wait({called})
        assert called.exception() is None
        assert environment.cache.list_cached("secrets").keys() == [Key("s-0", namespace="blog")]
