"""One change x every state of the protocol that each stream may be in. Enumerated, with all orders in which
the stream goes on, an object moves, and bookmarks come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import NamedTuple

import pytest

from tests.faults.hurried import HurriedLoop

from .filter_change_server import Asked, Fault
from .filter_change_steps import operating, without_threads
from .filter_change_world import FILTERS, KEYS, World

WEB, GOLD = "app=web", "tier=gold"
EITHER = FILTERS[2]


@pytest.fixture(autouse=True, scope="module")
def _without_threads() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_threads(monkeypatch)
        yield


class State(NamedTuple):
    """One state of a stream, and how it gets there."""

    what: int | str
    """The fault of its requests."""
    where: Callable[[Asked], bool]
    """The requests that meet the fault."""
    is_synced: bool = True
    """True if the stream watches first, and its watch ends then."""
    expires: bool = False
    """True if the version of the watch is compacted."""
    reached: str = ""
    """The state of the protocol; empty if the kind is not served."""

    def fault(self, selector: str) -> Fault:
        return Fault(self.what, lambda asked: asked.selector == selector and self.where(asked))


def is_list(asked: Asked) -> bool:
    return asked.verb == "list"


def is_watch(asked: Asked) -> bool:
    return asked.verb == "watch"


def is_later_page(asked: Asked) -> bool:
    return asked.verb == "list" and "continue" in asked.query


STATES = {
    "watching": State("", lambda _: False, reached="Watching"),
    "before its list": State("held", is_list, is_synced=False, reached="Listing"),
    "between two pages": State("held", is_later_page, is_synced=False, reached="Listing"),
    "listed": State("held", is_watch, is_synced=False, reached="Watching"),
    "ended": State("", lambda _: False, reached="Watching"),
    "opening its watch again": State("held", is_watch, reached="Watching"),
    "backing off": State(500, is_watch, reached="Waiting"),
    "relisting": State("held", is_list, expires=True, reached="Listing"),
    "relisting, between two pages": State("held", is_later_page, expires=True, reached="Listing"),
    "expired": State(410, is_watch, reached="Waiting"),
    "forbidden": State(403, lambda _: True, reached="Waiting"),
    "of a missing kind": State("", lambda _: False),
}
NEXT = {
    "the same filter": FILTERS[2],
    "without the second stream": FILTERS[0],
    "another second stream": FILTERS[6],
    "another first stream": FILTERS[7],
    "other streams": FILTERS[4],
    "all objects": FILTERS[3],
}
EVENTS = ("go on", "move", "bookmark")
ORDERS = [*permutations(EVENTS)]


async def reach(world: World, states: dict[str, str]) -> None:
    """Declare two streams, and have them reach these states."""
    server = world.server
    for selector, name in states.items():
        if not STATES[name].is_synced:
            server.faults.append(STATES[name].fault(selector))
    world.declare(EITHER, {})
    await world.settle()
    await asyncio.sleep(1.0)
    for selector, name in states.items():
        state, fault = STATES[name], STATES[name].fault(selector)
        if name == "watching" or not state.is_synced:
            continue
        server.faults.append(fault)
        if state.expires:
            server.write(KEYS[3], {})  # Watches of other selectors do not hear of it.
            server.expire()
        server.is_served = bool(state.reached)
        for watch in [each for each in server.watches if each.asked.selector == selector]:
            watch.end("end")
        for _ in range(0 if name == "ended" else 300):
            await world.settle()
            if fault.hits or world.is_resolving:
                break
            await asyncio.sleep(0.1)


async def play(states: dict[str, str], following: str, order: tuple[str, ...]) -> None:
    async with operating(page_limit=1) as world:
        world.is_calm = False
        await reach(world, states)
        world.reap()
        world.look()
        world.change(NEXT[following], {}, within=120.0)
        await world.settle()
        for event in order:
            world.look()
            match event:
                case "go on":
                    world.server.is_served = True
                    for fault in world.server.faults:
                        fault.times = 0
                        fault.released.set()
                case "move":
                    world.server.write(KEYS[0], {"tier": "gold"})
                    world.server.write(KEYS[2], None)
                case _:
                    world.server.bookmark()
            for _ in range(20):
                await asyncio.sleep(0)
                world.look()
            await asyncio.sleep(1.0)
            world.look()
        await world.rest()


def run(states: dict[str, str], following: str, order: tuple[str, ...]) -> None:
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(play(states, following, order))


@pytest.mark.parametrize("following", NEXT)
@pytest.mark.parametrize("state", STATES)
def test_16_a_change_meets_a_stream_in_each_state(state: str, following: str) -> None:
    run({WEB: "watching", GOLD: state}, following, ORDERS[1])


@pytest.mark.soak
@pytest.mark.parametrize("following", NEXT)
@pytest.mark.parametrize("state", STATES)
def test_16_a_change_meets_two_streams_in_all_states_and_orders(state: str, following: str) -> None:
    for other, order in product(STATES, ORDERS):
        run({WEB: state, GOLD: other}, following, order)


@pytest.mark.parametrize("state", STATES)
def test_each_state_is_reached(state: str) -> None:
    async def main() -> None:
        async with operating(page_limit=1) as world:
            await reach(world, {WEB: "watching", GOLD: state})
            informer = world.informer
            assert informer is not None
            assert world.is_resolving == (not STATES[state].reached)
            if STATES[state].reached:
                assert type(informer.reflectors[1].writer.state).__name__ == STATES[state].reached

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(main())
