"""One recorder in one operator, in virtual time: which writes it makes, and what becomes of each Event."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from itertools import pairwise
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.messages import FieldCause
from kopf_selectcache.recorder.correlator import Limits
from kopf_selectcache.recorder.events import Occurrence, Reference
from tests.faults.hurried import VirtualTime

from .event_server import (
    SOURCE,
    EventServer,
    Request,
    check,
    down,
    logged,
    make,
    no_answer,
    now,
    occurrence,
    outcomes,
    passed,
    raise_,
    recording,
    refused,
    written,
)

pytestmark = pytest.mark.usefixtures("times")

LAX = Limits(burst=1_000_000, similar=1_000_000)
"""Limits that suppress nothing."""


async def test_a_newer_state_replaces_the_one_that_waits() -> None:
    server = EventServer()
    async with recording(server) as events:
        for _ in range(20):
            events.record(occurrence())
        await written(events)
        assert server.writes == ["POST"]
        assert server.counts() == {"web: It is deployed.": 20}
        assert outcomes(events) == {"created": 1, "coalesced": 19}


async def test_a_storm_stays_at_the_rate() -> None:
    """100,000 Events in a minute, about 200 objects."""
    server = EventServer()
    async with recording(server, Limits(burst=100_000)) as events:
        for second in range(60):
            for each in range(100_000 * second // 60, 100_000 * (second + 1) // 60):
                events.record(occurrence(f"web-{each % 200}", f"Try {each} has failed.", reason="Failed"))
            assert events.stats().waiting <= 1001
            await passed(1)
            check(events)
        per_second = Counter(int(request.at) for request in server.requests)
        assert max(per_second.values()) <= 20
        assert 600 <= len(server.requests) <= 611
        assert events.stats().recorded == 100_000


async def test_no_rate_is_none() -> None:
    server = EventServer()
    async with recording(server, LAX, writes_per_second=None) as events:
        for each in range(100):
            events.record(occurrence(f"web-{each}"))
        await written(events)
        assert {request.at for request in server.requests} == {0.0}


async def test_a_server_that_is_down_for_ten_minutes() -> None:
    server = EventServer()
    async with recording(server, LAX, waiting=50) as events:
        server.fail = down
        for second in range(600):
            events.record(occurrence(f"web-{second % 60}", f"{second % 120} is late."))
            await passed(1)
            assert events.stats().waiting <= 51
            check(events)
        assert len(server.requests) == 68
        assert events.stats().failed == 5
        server.fail = lambda _: None
        before = len(server.requests)
        await written(events)
        sent: dict[str, list[int]] = {}
        for request in server.requests[before:]:
            name = request.name or request.body["metadata"]["name"]
            sent.setdefault(name, []).append(request.body["count"])
        assert all(counts == sorted(set(counts)) for counts in sent.values())
        assert max(server.counts().values()) == 5  # The newest state.


async def test_a_write_is_tried_twelve_times() -> None:
    server = EventServer()
    server.fail = down
    async with recording(server) as events:
        events.record(occurrence())
        await written(events)
        times = [request.at for request in server.requests]
        pauses = [after - before for before, after in pairwise(times)]
        assert pauses == pytest.approx([5.0] + [10.0] * 10)
        assert outcomes(events) == {"failed": 1}
        # It has not been created, so that the next one is not a patch.
        server.fail = lambda _: None
        events.record(occurrence())
        await written(events)
        assert server.writes[12:] == ["POST"]
        assert server.counts() == {"web: It is deployed.": 2}


async def test_a_newer_state_replaces_the_one_that_is_tried() -> None:
    server = EventServer()
    server.fail = down
    async with recording(server) as events:
        events.record(occurrence())
        await passed(1)
        events.record(occurrence())
        server.fail = lambda _: None
        await written(events)
        assert server.writes == ["POST", "POST"]
        assert server.counts() == {"web: It is deployed.": 2}
        assert outcomes(events) == {"created": 1, "coalesced": 1}


# ---- Events that are there already, or no more.


async def test_an_operator_that_was_restarted_continues_its_events() -> None:
    server = EventServer()
    for counted in (3, 5, 7):
        async with recording(server) as events:
            events.record(occurrence())
            await written(events)
            events.record(occurrence())
            await written(events)
            if counted == 3:
                assert outcomes(events) == {"created": 1, "patched": 1}
            else:
                assert outcomes(events) == {"patched": 2}
        await passed(60)
    assert server.writes == ["POST", "PATCH"] + ["POST", "read", "PATCH", "PATCH"] * 2
    assert server.counts() == {"web: It is deployed.": 6}
    (event,) = server.events.values()
    assert event["firstTimestamp"] < event["lastTimestamp"]


async def test_an_event_whose_creation_was_not_answered_is_counted_once() -> None:
    server = EventServer()
    server.lose = lambda request: no_answer(request) if len(server.requests) == 1 else None
    async with recording(server) as events:
        events.record(occurrence())
        await written(events)
        assert server.writes == ["POST", "POST", "read"]
        assert server.counts() == {"web: It is deployed.": 1}
        assert outcomes(events) == {"created": 1}
        events.record(occurrence())
        await written(events)
        assert server.counts() == {"web: It is deployed.": 2}


@pytest.mark.parametrize("lost", [no_answer, lambda _: (_ for _ in ()).throw(refused(504)), "garbled"])
async def test_an_earlier_event_is_continued_although_an_answer_was_lost(lost: Any) -> None:
    def garble(_: object) -> None:
        raise Garbled("the answer is too large")

    server = EventServer()
    async with recording(server) as events:
        events.record(occurrence())
    await passed(60)
    before = len(server.requests)
    server.fail = lambda request: (
        (garble if lost == "garbled" else lost)(request) if len(server.requests) == before + 1 else None
    )
    async with recording(server) as events:
        events.record(occurrence())
        await written(events)
    assert server.counts() == {"web: It is deployed.": 2}


async def test_an_event_that_has_expired_is_created_again() -> None:
    server = EventServer()
    async with recording(server) as events:
        events.record(occurrence())
        await written(events)
        server.events.clear()
        events.record(occurrence())
        await written(events)
        assert server.writes == ["POST", "PATCH", "POST"]
        assert server.counts() == {"web: It is deployed.": 2}
        assert outcomes(events) == {"created": 2}


async def test_an_event_that_expires_while_it_is_continued_is_created() -> None:
    def expire(request: Request) -> None:
        if not request.body:
            server.events.clear()

    server = EventServer()
    async with recording(server) as events:
        events.record(occurrence())
    server.fail = expire
    async with recording(server) as events:
        events.record(occurrence())
        await written(events)
    assert server.writes == ["POST", "POST", "read", "POST"]
    assert server.counts() == {"web: It is deployed.": 1}


async def test_a_series_of_the_other_api_ends_where_the_core_api_continues() -> None:
    server = EventServer()
    async with recording(server) as events:
        events.record(occurrence())
        await written(events)
    (event,) = server.events.values()
    event["series"] = {"count": 5, "lastObservedTime": "2027-01-15T08:00:00.000000Z"}
    async with recording(server) as events:
        events.record(occurrence())
        await written(events)
    (event,) = server.events.values()
    assert ("series" in event, event["count"]) == (False, 6)


# ---- Refusals.


async def test_a_refusal_is_not_retried_and_logged_once_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = EventServer()
    causes = (FieldCause("message", "FieldValueInvalid", "hunter2"),)
    async with recording(server) as events:
        for name in "abc":
            server.fail = raise_(refused(422, "Invalid", causes=causes, message="hunter2"))
            events.record(occurrence(name, "hunter2"))
            await written(events)
        server.fail = raise_(refused(413, "RequestEntityTooLarge"))
        events.record(occurrence())
        await written(events)
        assert server.writes == ["POST"] * 4
        assert outcomes(events) == {"rejected": 4}
    assert logged(caplog) == [
        "The server rejects Events of webapps: 422 Invalid, for message. They are dropped and counted.",
        "The server rejects Events of webapps: 413 RequestEntityTooLarge. They are dropped and counted.",
    ]


async def test_a_missing_right_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    server = EventServer()
    server.fail = raise_(refused(403, "Forbidden"))
    async with recording(server) as events:
        for name in "ab":
            events.record(occurrence(name))
            await written(events)
        assert outcomes(events) == {"rejected": 2}
    assert logged(caplog) == [
        (
            "The Events of webapps can't be written without permission to create, patch events in shop."
            " Add to a Role in shop: - {apiGroups: [''], resources: [events], verbs: [create, patch]}."
            " `selectcache rbac` prints all permissions that the operator needs."
        )
    ]


async def test_a_busy_server_is_asked_again_when_it_says() -> None:
    server = EventServer()
    server.fail = lambda _: (
        raise_(refused(429, "TooManyRequests", retry_after=7.0))(_) if len(server.requests) < 3 else None
    )
    async with recording(server) as events:
        events.record(occurrence())
        await written(events)
        assert [request.at for request in server.requests] == pytest.approx([0.0, 7.0, 14.0])
        assert outcomes(events) == {"created": 1}


async def test_an_outage_is_logged_at_its_begin_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = EventServer()
    async with recording(server) as events:
        server.fail = raise_(refused(503, "ServiceUnavailable"))
        for name in "ab":
            events.record(occurrence(name))
        await passed(130)
        server.fail = lambda _: None
        await written(events)
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]


async def test_an_answer_that_cannot_be_read_is_a_lost_one() -> None:
    class Garbling(EventServer):
        async def send(self, *args: Any, **options: Any) -> bytes:
            answer = await super().send(*args, **options)
            return b"<html>" if len(self.requests) == 1 else answer

    server = Garbling()
    async with recording(server) as events:
        events.record(occurrence())
        await written(events)
        assert server.counts() == {"web: It is deployed.": 1}


async def test_an_error_of_the_transport_ends_one_write(caplog: pytest.LogCaptureFixture) -> None:
    server = EventServer()
    async with recording(server) as events:
        server.fail = raise_(KeyError("hunter2"))
        events.record(occurrence())
        await written(events)
        server.fail = lambda _: None
        events.record(occurrence("other"))
        await written(events)
        assert outcomes(events) == {"created": 1, "failed": 1}
    assert len(logged(caplog)) == 1


# ---- Suppression.


async def test_suppressed_events_are_counted_and_summarised() -> None:
    server = EventServer()
    async with recording(server, Limits(burst=2)) as events:
        for _ in range(5):
            events.record(occurrence())
        await written(events)
        assert outcomes(events) == {"created": 1, "coalesced": 1, "spam": 3}
        await passed(301)
        assert outcomes(events) == {"created": 2, "coalesced": 1, "spam": 3, "summaries": 1}
        assert len(server.events) == 2


async def test_an_event_about_an_event_is_not_recorded() -> None:
    server = EventServer()
    async with recording(server) as events:
        for version in ("v1", "events.k8s.io/v1", "example.com/v1"):
            about = Reference(version, "Event", "shop", "web.1", "uid")
            events.record(Occurrence(SOURCE, about, occurrence().type, "Seen", "It was seen."))
        await written(events)
        assert outcomes(events) == {"created": 1, "ignored": 2}


async def test_a_function_that_fails_costs_one_event(caplog: pytest.LogCaptureFixture) -> None:
    def key(_: object) -> str:
        raise ValueError("hunter2")

    async with recording(EventServer(), Limits(bucket_key=key)) as events:
        events.record(occurrence())
        await passed(1)
        assert outcomes(events) == {"failed": 1}
    assert len(set(logged(caplog))) == 1


# ---- Threads, beginning and end.


async def test_threads_record_at_once() -> None:
    server = EventServer()
    async with recording(server, LAX, writes_per_second=None) as events:

        def record(number: int) -> None:
            for each in range(500):
                events.record(occurrence(f"web-{each % 7}", f"{number}"))

        threads = [Thread(target=record, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        # They are not of the loop.
        while any(thread.is_alive() for thread in threads):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await written(events)
        assert events.stats().recorded == 4000
        assert sum(server.counts().values()) == 4000


async def test_events_before_the_start_wait_for_it() -> None:
    server = EventServer()
    events = make(server)
    events.record(occurrence())
    assert outcomes(events) == {"waiting": 1}
    events.start()
    await written(events)
    await events.end()
    assert outcomes(events) == {"created": 1}
    events.record(occurrence())
    assert outcomes(events) == {"created": 1, "unsent": 1}
    check(events)
    events.start()  # It has ended.
    assert len(asyncio.all_tasks()) == 1


async def test_a_recording_that_never_ran_ends(caplog: pytest.LogCaptureFixture) -> None:
    events = make(EventServer())
    events.record(occurrence())
    await events.end()
    assert outcomes(events) == {"unsent": 1}
    assert len(logged(caplog)) == 1


async def test_the_end_writes_the_waiting_events() -> None:
    server = EventServer()
    events = make(server, Limits(burst=2))
    events.start()
    for _ in range(4):
        events.record(occurrence())
    await events.end()
    assert outcomes(events) == {"created": 2, "coalesced": 1, "spam": 2, "summaries": 1}
    assert now() < 1


async def test_the_end_has_a_deadline(caplog: pytest.LogCaptureFixture) -> None:
    server = EventServer()
    server.took = 2.0
    events = make(server, LAX)
    events.start()
    for name in "abcdef":
        events.record(occurrence(name))
    await events.end(5.0)
    assert now() == 5.0
    assert outcomes(events) == {"created": 2, "unsent": 4}
    check(events)
    assert len(logged(caplog)) == 1


# ---- The counts.


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 2),
            st.sampled_from(["Normal", "Warning"]),
            st.sampled_from([0.0, 0.0, 0.1, 5.0, 400.0]),
            st.sampled_from(["", "", "down", "lost", "422", "429", "500"]),
        ),
        max_size=40,
    ),
    waiting=st.integers(1, 4),
)
def test_each_event_is_counted_once(steps: Any, waiting: int) -> None:
    async def main() -> None:
        server = EventServer()
        limits = Limits(burst=3, similar=3, remembered=5)
        async with recording(server, limits, waiting=waiting) as events:
            for name, message, type_, pause, failure in steps:
                server.fail = server.lose = lambda _: None
                if failure == "lost":
                    server.lose = no_answer
                elif failure == "down":
                    server.fail = down
                elif failure:
                    server.fail = raise_(refused(int(failure), retry_after=1.0))
                events.record(occurrence(f"web-{name}", f"{message}", type_=type_))
                check(events)
                await passed(pause)
                check(events)
                assert events.stats().waiting <= waiting + 1

    VirtualTime().run(main())  # Hypothesis takes no coroutines.


async def test_a_patch_is_refused_like_a_creation() -> None:
    server = EventServer()
    async with recording(server) as events:
        events.record(occurrence())
        await written(events)
        server.fail = raise_(refused(403, "Forbidden"))
        events.record(occurrence())
        await written(events)
        assert outcomes(events) == {"created": 1, "rejected": 1}
    server.fail = lambda request: None if request.method == "POST" else raise_(refused(403))(request)
    async with recording(server) as events:
        events.record(occurrence())
        await written(events)
        assert outcomes(events) == {"rejected": 1}
