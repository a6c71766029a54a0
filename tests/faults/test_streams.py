"""Faults of watches over real sockets. The numbers are those of the list of faults."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kopf_selectcache import OutsideFilter
from kopf_selectcache.core.protocol.machine import PATIENCE_FAILURES, Silent
from kopf_selectcache.errors import Reason
from kopf_selectcache.informer.reflector import REOPEN_AT_ONCE_SECONDS
from tests.rows import each_row

from .environment import Environment, hurry, operating, until
from .server import (
    SILENCE,
    Answer,
    Server,
    Then,
    answer,
    bookmark,
    chunk,
    ended,
    error,
    event,
    held,
    listed,
    pod,
    refused,
    status,
    streamed,
)

LISTED = listed("100", pod("a", "90"))
MOVED = event("MODIFIED", pod("a", "103"))
HALF = event("ADDED", pod("b", "104"))[:-30]


def versions(watched: list[Mapping[str, str]]) -> list[str]:
    return [query.get("resourceVersion", "") for query in watched]


async def followed(environment: Environment, *names: str) -> None:
    """Wait until the watch goes on as if nothing had happened."""
    await environment.holds(*names)
    await environment.synced()


# ---- Silence.


def test_2_a_watch_that_falls_silent_is_given_up_and_resumed_and_its_content_is_served_meanwhile() -> None:
    async def main() -> None:
        watches = [streamed(MOVED), *[streamed(event("ADDED", pod("b", "105")))] * 50]
        async with (
            Server(lists=[LISTED], watches=watches) as server,
            operating(server, idle_timeout=0.25) as environment,
        ):
            await environment.holds("a@103")
            await until(lambda: environment.informer.state.message)
            assert isinstance(environment.failure(), Silent)
            assert environment.informer.state.is_synced
            assert environment.names() == ["a@103"]
            await environment.holds("a@103", "b@105")
            assert versions(server.pods.watched)[:2] == ["100", "103"]
            assert len(server.pods.listed) == 1
            assert environment.informer.counts.failures["silent"] >= 1

    hurry(main())


def test_2_a_watch_that_is_never_answered_at_all_is_given_up_too() -> None:
    async def main() -> None:
        watches = [SILENCE, SILENCE, *[streamed(MOVED)] * 50]
        async with (
            Server(lists=[LISTED], watches=watches) as server,
            operating(server, idle_timeout=0.1) as environment,
        ):
            await environment.holds("a@103")
            assert versions(server.pods.watched)[:3] == ["100"] * 3

    hurry(main())


async def test_2_the_held_state_grows_old_until_the_server_confirms_it() -> None:
    accepted, confirmed = asyncio.Event(), asyncio.Event()
    past = bookmark("40"), event("MODIFIED", pod("a", "90"))
    watches = [
        streamed(then=Then.CLOSE),
        held(accepted, streamed(*past, confirmed, bookmark("100"))),
        streamed(),
    ]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await environment.watched(2)
        environment.time.now += 30.0
        assert environment.cache.info("pods").age == 30.5, "the wait is counted"
        accepted.set()
        await until(lambda: environment.informer.counts.events)
        assert environment.informer.state.is_synced
        assert environment.cache.info("pods").age == 30.5, (
            "to accept a watch, and to tell of the past, says nothing of what happened since"
        )
        confirmed.set()
        await until(lambda: environment.cache.info("pods").age == 0.0)


async def test_2_the_pages_of_a_relist_confirm_nothing_until_all_have_come() -> None:
    lists = [LISTED, listed("200", pod("a", "150"), then="1"), SILENCE]
    async with (
        Server(lists=lists, watches=[streamed(error(410))]) as server,
        operating(server) as environment,
    ):
        await environment.listed(3)
        assert environment.cache.info("pods").age == 0.5
        assert environment.names() == ["a@90"]


# ---- Ends.


ENDS: dict[str, tuple[bytes, Then]] = {
    "clean": (b"0\r\n\r\n", Then.NEXT),
    "clean, mid-line": (chunk(HALF) + b"0\r\n\r\n", Then.NEXT),
    "cut": (b"", Then.CLOSE),
    "cut mid-line": (chunk(HALF), Then.CLOSE),
    "cut mid-chunk": (chunk(HALF)[:40], Then.CLOSE),
    "reset": (b"", Then.RESET),
    "reset mid-line": (chunk(HALF), Then.RESET),
    "reset mid-chunk": (chunk(HALF)[:40], Then.RESET),
    "chunks of no size": (chunk(HALF) + b"nonsense\r\n", Then.CLOSE),
}


@pytest.mark.parametrize("end", ENDS)
async def test_3_a_watch_that_ends_is_resumed_at_its_last_version_and_half_a_line_is_no_event(
    end: str,
) -> None:
    taken, ready = asyncio.Event(), asyncio.Event()
    last, then = ENDS[end]
    watches = [
        Answer((*streamed(MOVED).parts, taken, last), then),
        held(ready, streamed(event("ADDED", pod("c", "106")))),
    ]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await environment.holds("a@103")
        taken.set()
        await environment.watched(2)
        assert environment.names() == ["a@103"]
        ready.set()
        await followed(environment, "a@103", "c@106")
        assert versions(server.pods.watched) == ["100", "103"]
        assert len(server.pods.listed) == 1
        assert environment.time.slept == ([] if end == "clean" else [0.5])


@pytest.mark.parametrize("end", ENDS)
async def test_3_a_watch_that_lasted_and_brought_something_is_resumed_without_a_wait_however_it_ends(
    end: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    ready = asyncio.Event()
    last, then = ENDS[end]
    watches = [
        Answer((*streamed(MOVED).parts, ready, last), then),
        streamed(event("ADDED", pod("c", "106"))),
    ]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await environment.holds("a@103")
        environment.time.now += REOPEN_AT_ONCE_SECONDS
        ready.set()
        await followed(environment, "a@103", "c@106")
        assert versions(server.pods.watched) == ["100", "103"]
        assert environment.time.slept == []
        assert not environment.informer.counts.failures
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


BRIEF: dict[str, Callable[[int], Answer]] = {
    "nothing": lambda _: ended(),
    "an event": lambda version: ended(event("MODIFIED", pod("a", str(version)))),
    "a bookmark": lambda version: ended(bookmark(str(version))),
    "an event, and is cut": lambda version: streamed(
        event("MODIFIED", pod("a", str(version))), then=Then.CLOSE
    ),
}


@pytest.mark.parametrize("brought", BRIEF)
async def test_contract_8_of_watches_that_end_at_once_one_is_opened_without_a_wait_and_all_others_wait(
    brought: str,
) -> None:
    watches = [BRIEF[brought](version) for version in range(101, 301)]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        began = environment.time.now
        await until(lambda: environment.time.now - began >= 60.0 or len(server.pods.watched) > 150)
        asked, waits = len(server.pods.watched), len(environment.time.slept)
        assert asked <= waits + 2, "the first watch, and the one that was opened at once"
        assert waits >= 5
        assert min(environment.time.slept) == 0.5
        assert asked <= 60.0 / 0.5 + 2
        assert len(server.pods.listed) == 1


async def test_contract_8_each_watch_that_lasted_is_followed_by_one_without_a_wait_and_no_more() -> None:
    gates = {version: asyncio.Event() for version in (101, 102, 103)}
    long = [ended(event("MODIFIED", pod("a", str(version))), gate) for version, gate in gates.items()]
    brief = [ended()] * 2
    async with (
        Server(lists=[LISTED], watches=[*brief, *long, *brief]) as server,
        operating(server) as environment,
    ):
        for version, gate in gates.items():
            await environment.holds(f"a@{version}")
            assert environment.time.slept == [0.5]
            environment.time.now += REOPEN_AT_ONCE_SECONDS
            gate.set()
        await environment.watched(8)
        assert environment.time.slept == [0.5, 0.5, 1.0]


async def test_3_lines_come_in_whatever_pieces() -> None:
    lines = MOVED + b"\n" + event("ADDED", pod("b", "104")) + bookmark("110")
    watches = [streamed(*(lines[at : at + 7] for at in range(0, len(lines), 7)))]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await followed(environment, "a@103", "b@104")
        await until(lambda: environment.informer.state.store.version == "110")


# ---- Gone.


GONE: dict[str, Answer] = {
    "at start": refused(410, "Expired"),
    "in the stream": streamed(error(410, "Gone")),
    "as a plain answer": answer(status(410, "Expired")),
    "as a plain answer that ends in a newline": answer(json.dumps(status(410, "Expired")).encode() + b"\n"),
}


@each_row("gone", GONE)
async def test_4_a_version_that_is_gone_is_listed_anew_and_the_old_state_is_served_until_that_is_complete(
    gone: str,
) -> None:
    more = asyncio.Event()
    lists = [LISTED, listed("200", pod("b", "150"), then="1"), held(more, listed("200", pod("c", "160")))]
    async with Server(lists=lists, watches=[GONE[gone]]) as server, operating(server) as environment:
        await environment.listed(3)
        assert environment.names() == ["a@90"]
        assert environment.code() == 410
        more.set()
        await followed(environment, "b@150", "c@160")
        assert server.pods.listed[1]["resourceVersion"] == "100"
        assert server.pods.listed[1]["resourceVersionMatch"] == "NotOlderThan"
        assert versions(server.pods.watched) == ["100", "200"]
        assert environment.informer.counts.relists == {"410": 1}


@pytest.mark.parametrize("then", [refused(500), refused(429)])
async def test_the_reason_of_a_relist_is_the_failure_that_made_it_due(then: Answer) -> None:
    lists = [LISTED, then, refused(503), listed("300", pod("b", "150"))]
    async with (
        Server(lists=lists, watches=[streamed(error(410))]) as server,
        operating(server) as environment,
    ):
        await followed(environment, "b@150")
        assert environment.informer.counts.relists == {"410": 1}
        assert environment.informer.counts.failures["503"] == 1


# ---- Failures.


FAILURES: dict[str, Answer] = {
    **{f"{code} at start": refused(code, "Trouble") for code in (429, 500, 503, 504)},
    **{f"{code} in the stream": streamed(error(code, "Trouble")) for code in (429, 500, 503, 504)},
    "no answer": Answer((), Then.CLOSE),
}


@each_row("failure", FAILURES)
async def test_16_17_a_watch_that_is_refused_for_now_is_asked_for_again_less_and_less_and_never_listed(
    failure: str,
) -> None:
    watches = [FAILURES[failure]] * PATIENCE_FAILURES + [streamed(MOVED)]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await followed(environment, "a@103")
        assert versions(server.pods.watched) == ["100"] * (PATIENCE_FAILURES + 1)
        assert len(server.pods.listed) == 1
        # Where a connection that was used before breaks off, aiohttp asks again by itself, once.
        assert environment.time.slept == [0.5, 1.0, 2.0][: len(environment.time.slept)]


@pytest.mark.parametrize(
    "throttled",
    [
        refused(429, "TooManyRequests", retry_after="7"),
        streamed(error(429, details={"retryAfterSeconds": 7})),
    ],
    ids=["at start", "in the stream"],
)
async def test_16_a_server_that_says_when_to_come_back_is_left_alone_until_then(throttled: Answer) -> None:
    async with (
        Server(lists=[LISTED], watches=[throttled, streamed(MOVED)]) as server,
        operating(server) as environment,
    ):
        await followed(environment, "a@103")
        assert environment.time.slept == [7.5]


SENSELESS: dict[str, Any] = {
    "no JSON": b"{what?\n",
    "no object": b"[]\n",
    "an unknown type": event("SYNCED", pod("b", "105")),
    "no metadata": event("ADDED", {"kind": "Pod"}),
    "another kind": event("ADDED", pod("b", "105") | {"kind": "Secret"}),
    "a Table": event(
        "ADDED",
        {"kind": "Table", "metadata": {"name": "b", "uid": "u", "resourceVersion": "105"}, "rows": []},
    ),
    "no version": event("ADDED", pod("b", "")),
    "a bookmark without a version": bookmark(""),
    "no UTF-8 in a label": event("ADDED", pod("b", "105", note="?")).replace(b"?", b"\xff"),
}


@each_row("senseless", SENSELESS)
async def test_18_a_senseless_line_ends_the_stream_and_the_events_before_it_count(senseless: str) -> None:
    ready = asyncio.Event()
    watches = [
        streamed(MOVED, SENSELESS[senseless]),
        held(ready, streamed(event("ADDED", pod("c", "106")))),
    ]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await environment.watched(2)
        assert environment.names() == ["a@103"]
        ready.set()
        await followed(environment, "a@103", "c@106")
        assert versions(server.pods.watched) == ["100", "103"]
        assert environment.informer.counts.failures == {"garbled": 1}


async def test_18_a_line_that_makes_no_sense_again_and_again_leads_to_a_list() -> None:
    lists = [LISTED, listed("200", pod("b", "150"))]
    watches = [streamed(SENSELESS["no version"])] * (PATIENCE_FAILURES + 1)
    async with Server(lists=lists, watches=watches) as server, operating(server) as environment:
        await followed(environment, "b@150")
        assert versions(server.pods.watched) == [*["100"] * (PATIENCE_FAILURES + 1), "200"]
        assert environment.informer.counts.relists == {"garbled": 1}


# ---- What servers send in good faith.


async def test_12_13_replays_and_deletions_of_another_object_change_nothing() -> None:
    stranger = event("DELETED", pod("a", "101", uid="another"))
    watches = [
        streamed(MOVED, event("MODIFIED", pod("a", "102")), stranger, MOVED, event("ADDED", pod("b", "110")))
    ]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await followed(environment, "a@103", "b@110")


async def test_14_an_object_that_leaves_the_filter_is_never_reported_deleted_and_returns() -> None:
    back = asyncio.Event()
    watches = [streamed(event("DELETED", pod("a", "103")), back, event("ADDED", pod("a", "107")))]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await environment.holds()
        with pytest.raises(OutsideFilter) as caught:
            environment.cache.get("pods", "a", namespace="shop", default=None)
        assert caught.value.reason is Reason.HIDDEN
        back.set()
        await environment.holds("a@107")
        assert environment.cache.get("pods", "a", namespace="shop")["metadata"]["resourceVersion"] == "107"
