"""Which bytes of a watch are signs of life. The loop's time passes only when nothing else is left to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kopf_selectcache.informer.reflector import IDLE_FACTOR_WITHOUT_BOOKMARKS
from tests.rows import each_row

from .environment import Environment, hurry, operating
from .server import Answer, Server, Then, bookmark, event, listed, pod, streamed

IDLE = 70.0
EVERY = 10.0
COUNT = 60
LISTED = listed("100", pod("a", "90"))
LINE = event("MODIFIED", pod("a", "200"))


async def eventually(condition: Callable[[], object]) -> None:
    while not condition():  # It happens on sockets: there is no event for it.  # noqa: ASYNC110
        await asyncio.sleep(1.0)


class Dripping:
    """A watch that begins with these bytes, and goes on with one piece after the other."""

    def __init__(self, *before: bytes, piece: Callable[[int], bytes]) -> None:
        self._gates = [asyncio.Event() for _ in range(COUNT)]
        parts = [part for number, gate in enumerate(self._gates) for part in (gate, piece(number))]
        self.dripped = 0
        self.answer: Answer = streamed(*before, *parts, then=Then.SILENCE)

    async def drip(self) -> None:
        for gate in self._gates:
            await asyncio.sleep(EVERY)
            gate.set()
            self.dripped += 1


async def dripped(environment: Environment, dripping: Dripping, condition: Callable[[], object]) -> None:
    await eventually(
        lambda: (
            environment.informer.state.reflectors
            and environment.informer.state.reflectors[0].comparison.is_open
        )
    )  # Until then, threads take part.
    task = asyncio.create_task(dripping.drip())
    try:
        await eventually(condition)
        assert not task.done(), "it happened while pieces came"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


MEANINGLESS: dict[str, Callable[[int], bytes]] = {
    "a byte of a line": lambda number: LINE[number : number + 1],
    "a blank line": lambda _: b"\n",
    "a line of blanks": lambda _: b"  \r\n",
    "a bookmark of the past": lambda _: bookmark("99"),
    "an event of the past": lambda _: event("MODIFIED", pod("a", "90")),
    "an event of the version that was reached": lambda _: event("MODIFIED", pod("a", "101")),
    "a deletion of the past": lambda _: event("DELETED", pod("gone", "90")),
}


@each_row("what", MEANINGLESS)
def test_contract_8_meaningless_data_does_not_keep_a_dead_watch_open(what: str) -> None:
    async def main() -> None:
        dripping = Dripping(bookmark("101"), piece=MEANINGLESS[what])
        alive = streamed(event("MODIFIED", pod("a", "300")))
        async with (
            Server(lists=[LISTED], watches=[dripping.answer, alive]) as server,
            operating(server, idle_timeout=IDLE) as environment,
        ):
            await dripped(environment, dripping, lambda: len(server.pods.watched) > 1)
            assert [query["resourceVersion"] for query in server.pods.watched] == ["100", "101"]
            assert environment.informer.counts.failures["silent"] == 1
            await eventually(lambda: environment.names() == ["a@300"])

    hurry(main())


def test_contract_8_a_server_whose_bookmarks_are_all_of_the_past_is_one_that_sends_bookmarks() -> None:
    async def main() -> None:
        dripping = Dripping(piece=MEANINGLESS["a bookmark of the past"])
        async with (
            Server(lists=[LISTED], watches=[dripping.answer]) as server,
            operating(server, idle_timeout=IDLE) as environment,
        ):
            await dripped(environment, dripping, lambda: len(server.pods.watched) > 1)
            assert dripping.dripped * EVERY < IDLE * IDLE_FACTOR_WITHOUT_BOOKMARKS

    hurry(main())


MEANINGFUL: dict[str, Callable[[int], bytes]] = {
    "the same bookmark again": lambda _: bookmark("101"),
    "a newer bookmark": lambda number: bookmark(str(102 + number)),
    "an event": lambda number: event("MODIFIED", pod("a", str(102 + number))),
    "an event in pieces": lambda number: (
        event("MODIFIED", pod("a", str(102 + number)))[:30]
        if number % 2
        else (event("MODIFIED", pod("a", str(101 + number)))[30:] if number else b"\n")
    ),
}


@pytest.mark.parametrize("what", MEANINGFUL)
def test_a_watch_with_events_or_bookmarks_stays_open(what: str) -> None:
    async def main() -> None:
        dripping = Dripping(bookmark("101"), piece=MEANINGFUL[what])
        async with (
            Server(lists=[LISTED], watches=[dripping.answer]) as server,
            operating(server, idle_timeout=IDLE) as environment,
        ):
            await dripped(environment, dripping, lambda: dripping.dripped == COUNT - 1)
            assert len(server.pods.watched) == 1
            assert environment.informer.state.is_synced
            assert not environment.informer.counts.failures

    hurry(main())


def test_a_watch_whose_deletions_have_the_versions_of_the_objects_stays_open() -> None:
    """Old servers send them so."""

    async def main() -> None:
        held = listed("100", *[pod(f"pod-{number}", "90") for number in range(COUNT)])
        dripping = Dripping(
            bookmark("101"), piece=lambda number: event("DELETED", pod(f"pod-{number}", "90"))
        )
        async with (
            Server(lists=[held], watches=[dripping.answer]) as server,
            operating(server, idle_timeout=IDLE) as environment,
        ):
            await dripped(environment, dripping, lambda: dripping.dripped == COUNT - 1)
            assert len(server.pods.watched) == 1
            assert not environment.informer.counts.failures

    hurry(main())


OTHERS = {
    "another kind": {"kind": "Node", "apiVersion": "v1"},
    "another group": {"kind": "Pod", "apiVersion": "metrics.k8s.io/v1"},
    "no kind": {"apiVersion": "v1"},
}


@pytest.mark.parametrize("what", OTHERS)
def test_18_a_bookmark_of_another_kind_ends_the_stream_and_suppresses_no_event(what: str) -> None:
    async def main() -> None:
        far = event("BOOKMARK", OTHERS[what] | {"metadata": {"resourceVersion": "999999"}})
        watches = [streamed(far, event("ADDED", pod("b", "110"))), streamed(event("ADDED", pod("b", "110")))]
        async with (
            Server(lists=[LISTED], watches=watches) as server,
            operating(server, idle_timeout=IDLE) as environment,
        ):
            await eventually(lambda: environment.informer.state.version in ("110", "999999"))
            assert environment.names() == ["a@90", "b@110"]
            assert [query["resourceVersion"] for query in server.pods.watched] == ["100", "100"]
            assert environment.informer.counts.failures["garbled"] == 1
            assert environment.informer.state.version == "110"

    hurry(main())
