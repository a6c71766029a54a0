"""Servers whose lists have no end: how many requests they get in a minute, and what the cache says of them.
Contract 8."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import pytest

from kopf_selectcache.core.protocol.messages import SHORTEST_DELAY_SECONDS
from kopf_selectcache.core.protocol.pager import (
    EMPTY_PAGES,
    ENDLESS_PAGES,
    KEYS_PER_PAGE,
    PAGES_AT_ONCE,
    TOO_FEW_OBJECTS,
)
from kopf_selectcache.errors import Stalled

from .environment import Environment, Time, operating, until
from .server import Answer, Script, Server, error, listed, pod, streamed

MINUTE = 60.0
MOST_PACED = int(MINUTE / (SHORTEST_DELAY_SECONDS / 2)) + 2
"""No two pages that bring nothing new are closer than half the shortest delay."""
MOST_IN_VAIN = 3 * 9 + 12
"""A list that leads back is given up after three requests, and begins again after a wait that doubles."""

Attack = Callable[[int, Mapping[str, str]], Answer]
"""Makes an answer of its number and the query."""


def two_tokens(_: int, query: Mapping[str, str]) -> Answer:
    one = query.get("continue") != "A"
    return listed("100", pod("a" if one else "b", "90"), then="A" if one else "B")


def new_tokens(number: int, _: Mapping[str, str]) -> Answer:
    return listed("100", pod("a", "90"), pod("b", "90"), then=f"token-{number}")


def no_objects(number: int, _: Mapping[str, str]) -> Answer:
    return listed("100", then=f"token-{number}")


def one_object_each(number: int, _: Mapping[str, str]) -> Answer:
    return listed("100", pod(f"pod-{number:09}", "90"), then=f"token-{number}")


ATTACKS: dict[str, tuple[Attack, int, str]] = {
    "two tokens in turn": (two_tokens, MOST_IN_VAIN, ENDLESS_PAGES),
    "new tokens for the same objects": (new_tokens, MOST_IN_VAIN, ENDLESS_PAGES),
    "pages without objects": (no_objects, MOST_PACED, TOO_FEW_OBJECTS),
    "one new object in each page": (
        one_object_each,
        MOST_PACED + PAGES_AT_ONCE + (PAGES_AT_ONCE + MOST_PACED) // KEYS_PER_PAGE,
        TOO_FEW_OBJECTS,
    ),
}
"""Each with the most requests that it may get in a minute, and a part of what the cache says of it."""
SOME = ["two tokens in turn", "pages without objects", "one new object in each page"]
"""One attack of each kind."""

LONGEST = 3_000
"""After this many answers the list ends, so that a test of a client that never stops ends as well."""


class Endless(Script):
    """Answers the lists from the `begin`th on by an attack; notes the virtual time of each."""

    def __init__(self, attack: Attack, time: Callable[[], float], *, begin: int = 0) -> None:
        super().__init__([listed("100", pod("a", "90"))] * begin, [streamed()])
        self._attack = attack
        self._time = time
        self.times: list[float] = []

    def next(self, query: Mapping[str, str]) -> Answer:
        if "watch" in query or len(self.listed) < len(self.lists):
            return super().next(query)
        self.listed.append(query)
        if len(self.times) == LONGEST:
            return listed("100")
        self.times.append(self._time())
        return self._attack(len(self.times), query)

    def most_in_a_minute(self) -> int:
        return max(sum(start <= time < start + MINUTE for time in self.times) for start in self.times)


def attacked(server: Server, attack: Attack, *, begin: int = 0) -> tuple[Endless, list[Environment]]:
    """Let the server begin to attack; return its script, and a list for the environment with its clock."""
    environments: list[Environment] = []
    script = Endless(attack, lambda: (environments[0].time if environments else Time()).now, begin=begin)
    server.scripts["/api/v1/pods"] = server.pods = script
    return script, environments


@pytest.mark.parametrize("attack", ATTACKS)
async def test_33_a_list_without_an_end_is_asked_for_at_a_bounded_rate_and_stalled_after_the_sync_timeout(
    attack: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer, most, said = ATTACKS[attack]
    async with Server() as server:
        script, environments = attacked(server, answer)
        async with operating(server, sync_timeout=120.0) as environment:
            environments.append(environment)
            with caplog.at_level(logging.INFO, "kopf_selectcache"):
                await until(
                    lambda: environment.time.now > 1000.0 + 10 * MINUTE or len(script.times) == LONGEST
                )
            assert script.most_in_a_minute() <= most
            assert environment.time.now > 1000.0 + 10 * MINUTE
            assert str(environment.informer.state.health) == "stalled"
            assert said in environment.informer.state.message
    assert any(said in message for message in caplog.messages)


@pytest.mark.parametrize("attack", SOME)
async def test_33_an_endless_relist_is_requested_at_a_bounded_rate_and_the_cache_is_stale(
    attack: str,
) -> None:
    answer, most, _ = ATTACKS[attack]
    async with Server() as server:
        gone = asyncio.Event()
        script, environments = attacked(server, answer, begin=1)
        script.watches = [streamed(gone, error(410, "Expired"))]
        async with operating(server) as environment:
            environments.append(environment)
            await environment.holds("a@90")
            gone.set()
            await until(lambda: environment.time.now > 1000.0 + 5 * MINUTE or len(script.times) == LONGEST)
            assert script.most_in_a_minute() <= most
            assert environment.time.now > 1000.0 + 5 * MINUTE
            assert (environment.names(), str(environment.informer.state.health)) == (["a@90"], "stale")


@pytest.mark.parametrize("attack", SOME)
@pytest.mark.parametrize("read", ["audit", "fetch_list"])
async def test_33_an_audit_or_fetch_whose_list_has_no_end_ends_with_an_error(read: str, attack: str) -> None:
    answer, _, said = ATTACKS[attack]
    async with Server() as server:
        script, environments = attacked(server, answer, begin=1)
        async with operating(server, sync_timeout=40.0) as environment:
            environments.append(environment)
            await environment.holds("a@90")
            await environment.synced()
            before = environment.time.now
            with pytest.raises(Stalled, match=said):
                await (
                    environment.cache.audit("pods")
                    if read == "audit"
                    else environment.cache.fetch_list("pods", labels="app")
                )
            assert len(script.times) <= max(
                EMPTY_PAGES + 1,
                PAGES_AT_ONCE
                + 2 * int(environment.time.now - before)
                + 2 * KEYS_PER_PAGE
                + PAGES_AT_ONCE // KEYS_PER_PAGE,
            )
            # A fetch waits for its rate as well.
            assert environment.time.now - before <= 40.0 + SHORTEST_DELAY_SECONDS + len(script.times) / 20


async def test_33_a_list_whose_pages_are_paced_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    lists = [
        listed("100", pod("a", "90"), then="A"),
        listed("100", then="B"),
        listed("100", then="C"),
        listed("100", pod("b", "90")),
    ]
    async with Server(lists=lists) as server, operating(server) as environment:
        with caplog.at_level(logging.INFO, "kopf_selectcache"):
            await environment.holds("a@90", "b@90")
            await environment.synced()
        assert environment.time.slept == [0.5, 0.5]
        assert not environment.informer.counts.failures
    assert any(TOO_FEW_OBJECTS in message for message in caplog.messages), "it is told all the same"
