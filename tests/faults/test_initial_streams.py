"""Faults of initial streams (WatchList) over real sockets. The numbers are those of the list of faults."""

from __future__ import annotations

import asyncio

import pytest

from kopf_selectcache.core.protocol.machine import PATIENCE_FAILURES
from tests.rows import each_row

from .environment import hurry, operating, until
from .server import Answer, Server, Then, bookmark, ended, error, event, held, listed, pod, refused, streamed

PAGES = {"limit": "500", "labelSelector": "app=web"}
WATCH = {"labelSelector": "app=web", "watch": "true", "allowWatchBookmarks": "true"}
INITIAL = {**WATCH, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
A, B = event("ADDED", pod("a", "90")), event("ADDED", pod("b", "95"))
END = bookmark("100", end=True)


async def test_all_comes_in_one_stream_which_goes_on_as_the_watch() -> None:
    end = asyncio.Event()
    watches = [streamed(A, B, end, END, event("DELETED", pod("a", "101")))]
    async with Server(watches=watches) as server, operating(server, initial="stream") as environment:
        await until(lambda: environment.informer.counts.events == 2)
        assert environment.informer.state.store.version == "", "half a state is none"
        end.set()
        await environment.holds("b@95")
        assert server.pods.watched == [INITIAL]
        assert server.pods.listed == []


@pytest.mark.parametrize("code", [400, 422])
async def test_8_where_initial_streams_are_refused_pages_are_asked_for_and_that_is_remembered(
    code: int,
) -> None:
    lists = [listed("100", pod("a", "90")), listed("200", pod("a", "150"))]
    watches = [refused(code, "Invalid", message="sendInitialEvents is forbidden"), streamed(error(410))]
    async with (
        Server(lists=lists, watches=watches) as server,
        operating(server, initial="stream") as environment,
    ):
        await environment.holds("a@150")
        await environment.watched(3)
        assert server.pods.watched == [
            INITIAL,
            {**WATCH, "resourceVersion": "100"},
            {**WATCH, "resourceVersion": "200"},
        ]
        assert server.pods.listed == [
            PAGES,
            {**PAGES, "resourceVersion": "100", "resourceVersionMatch": "NotOlderThan"},
        ]


async def test_8_a_stream_that_never_says_that_all_has_come_is_given_up_in_time_for_pages() -> None:
    late = asyncio.Event()
    watches = [streamed(A, late, B)]
    lists = [listed("100", pod("a", "90"))]
    async with (
        Server(lists=lists, watches=watches) as server,
        operating(server, initial="stream") as environment,
    ):
        await until(lambda: environment.informer.counts.events)
        environment.time.now += environment.runtime.settings.request_timeout + 1
        late.set()
        await environment.holds("a@90")
        assert server.pods.listed == [PAGES]


def test_8_a_stream_that_falls_silent_before_all_has_come_is_given_up_for_pages() -> None:
    async def main() -> None:
        lists = [listed("100", pod("a", "90"))]
        async with (
            Server(lists=lists, watches=[streamed(A)]) as server,
            operating(server, initial="stream", idle_timeout=0.05) as environment,
        ):
            await environment.holds("a@90")
            assert server.pods.listed == [PAGES]

    hurry(main())


@each_row(
    "cut",
    [
        ended(A),
        streamed(A, then=Then.CLOSE),
        streamed(A, bookmark("100"), B[:-20], then=Then.CLOSE),
        streamed(A, error(500)),
    ],
    ids=["clean", "cut", "mid-line", "500"],
)
async def test_9_an_initial_stream_that_breaks_off_starts_again_and_not_at_the_version_of_an_event(
    cut: Answer,
) -> None:
    again = asyncio.Event()
    watches = [cut, held(again, streamed(A, B, END))]
    async with Server(watches=watches) as server, operating(server, initial="stream") as environment:
        await environment.watched(2)
        assert environment.informer.state.store.version == ""
        again.set()
        await environment.holds("a@90", "b@95")
        assert server.pods.watched == [INITIAL, INITIAL]
        assert server.pods.listed == []


async def test_9_a_broken_relist_asks_for_nothing_older_and_the_old_state_is_served() -> None:
    again = asyncio.Event()
    watches = [
        streamed(A, END, error(410)),
        ended(B),
        held(again, streamed(B, bookmark("200", end=True))),
    ]
    async with Server(watches=watches) as server, operating(server, initial="stream") as environment:
        await environment.watched(3)
        assert environment.names() == ["a@90"]
        again.set()
        await environment.holds("b@95")
        assert server.pods.watched == [INITIAL, *[{**INITIAL, "resourceVersion": "100"}] * 2]


async def test_9_a_stream_that_breaks_off_again_and_again_is_replaced_by_pages() -> None:
    lists = [listed("100", pod("a", "90"))]
    async with (
        Server(lists=lists, watches=[ended(A)] * PATIENCE_FAILURES) as server,
        operating(server, initial="stream") as environment,
    ):
        await environment.holds("a@90")
        assert server.pods.listed == [PAGES]


async def test_10_initial_events_come_in_any_order_and_may_be_over_before_they_are_shown() -> None:
    lines = [
        event("ADDED", pod("z", "99")),
        A,
        event("MODIFIED", pod("a", "97")),
        A,
        B,
        event("DELETED", pod("b", "98")),
        B,
        END,
    ]
    async with (
        Server(watches=[streamed(*lines)]) as server,
        operating(server, initial="stream") as environment,
    ):
        await environment.holds("a@97", "z@99")
