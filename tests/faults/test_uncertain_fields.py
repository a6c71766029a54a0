"""A server whose objects can never be judged: each watch brings a good event, and an object that is gone when
it is asked about. Contract 8."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kopf_selectcache import Selector
from kopf_selectcache.informer.stream_writer import FORGOTTEN_SECONDS

from .environment import operating, until
from .server import PODS, Answer, Script, Server, event, listed, pod, streamed

MINUTE = 60.0
MOST_IN_A_MINUTE = 2 * 9
"""Nine waits that double fit into a minute, and each judgement takes two requests."""


def on(node: str, name: str, version: int) -> dict[str, Any]:
    return pod(name, str(version)) | {"spec": {"nodeName": node}}


class Uncertain(Script):
    """Notes when it is asked about an object; that is on another node in each watch, and gone in each
    list."""

    def __init__(self, *, good: bool) -> None:
        super().__init__()
        self.now: Callable[[], float] = lambda: 0.0
        self.confirming: list[float] = []
        self._version = 100
        self._good = good

    def next(self, query: Mapping[str, str]) -> Answer:
        asked = self.watched if "watch" in query else self.listed
        asked.append(query)
        if "metadata.name" in query["fieldSelector"]:
            self.confirming.append(self.now())
            return listed(str(self._version))
        self._version += 1
        if "watch" not in query:
            return listed(str(self._version), on("n1", "good", 90))
        bad = event("ADDED", on("n2", "bad", self._version + 1))
        return (
            streamed(event("MODIFIED", on("n1", "good", self._version)), bad) if self._good else streamed(bad)
        )

    def most_in_a_minute(self) -> int:
        return max(
            sum(start <= time < start + MINUTE for time in self.confirming) for start in self.confirming
        )


def answering(server: Server, *, good: bool) -> Uncertain:
    script = server.pods = Uncertain(good=good)
    server.scripts |= {
        PODS: script,
        "/api/v1/namespaces/shop/pods": script,
    }  # An object is asked about in its namespace.
    return script


@pytest.mark.parametrize("chance", [0.0, 1.0])
@pytest.mark.parametrize("good", [True, False], ids=["with a good event", "alone"])
async def test_contract_8_uncertain_fields_are_confirmed_at_a_rate_that_good_events_do_not_raise(
    chance: float, good: bool
) -> None:  # A parameter of the test.
    async with Server() as server:
        script = answering(server, good=good)
        async with operating(
            server, selectors={"pods": Selector(fields="spec.nodeName=n1")}, chance=chance
        ) as environment:
            script.now = environment.time.clock
            began = environment.time.now
            await until(
                lambda: environment.time.now > began + FORGOTTEN_SECONDS or len(script.confirming) > 1000
            )
            assert environment.time.now > began + FORGOTTEN_SECONDS
            assert script.most_in_a_minute() <= MOST_IN_A_MINUTE
            assert environment.informer.counts.failures["garbled"] == len(script.confirming) // 2


async def test_after_a_while_without_an_uncertain_field_the_wait_is_short_again() -> None:
    async with Server() as server:
        script = answering(server, good=True)
        async with operating(server, selectors={"pods": Selector(fields="spec.nodeName=n1")}) as environment:
            await until(lambda: len(environment.time.slept) == 5)
            environment.time.now += FORGOTTEN_SECONDS + 1
            await until(lambda: len(environment.time.slept) == 8)
            assert environment.time.slept[:5] == [1.0, 1.5, 2.5, 4.5, 8.5]
            assert environment.time.slept[5:] == [1.0, 1.5, 2.5]
            assert len(script.confirming) == 2 * 8
