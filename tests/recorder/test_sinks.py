"""Functions and the log in the place of the server."""

from __future__ import annotations

import json
import logging
import math

import pytest

from kopf_selectcache.client.fence import Fence, fenced, time_left
from kopf_selectcache.recorder.correlator import Limits
from kopf_selectcache.recorder.events import Event

from .event_server import (
    EventServer,
    logged,
    occurrence,
    outcomes,
    passed,
    recording,
    written,
)

pytestmark = pytest.mark.usefixtures("times")

# ---- Sinks.


async def test_functions_and_the_log_get_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    seen: list[Event] = []

    def broken(_: Event) -> None:
        raise ValueError("hunter2")

    server = EventServer()
    async with recording(server, Limits(burst=2), sink=["log", broken, seen.append]) as events:
        events.record(occurrence())
        events.record(occurrence(type_="Warning", message="It\nis late."))
        events.record(occurrence())
        events.record(occurrence())
        await passed(301)
        assert outcomes(events) == {"handed": 4, "spam": 1, "summaries": 1}
    assert server.requests == []
    assert [event.count for event in seen[:3]] == [1, 1, 2]
    assert len(seen) == 4
    lines = logged(caplog, logging.INFO)
    assert lines[0] == "Event of Pod shop/web: Deployed: It is deployed."
    assert "Event of Pod shop/web: Deployed: It is late." in lines
    assert "An Event of webapps is lost, because it raised ValueError. It is counted as failed." in lines


async def test_the_sink_of_a_recorder_is_not_bound_to_the_run_that_has_started_its_task() -> None:
    left: list[float] = []

    def note(_: Event) -> None:
        left.append(time_left())

    with fenced(Fence(lambda: 7.0)):  # Of the run that records first.
        async with recording(EventServer(), Limits(burst=1), sink=note) as events:
            events.record(occurrence())
            events.record(occurrence())
            await passed(301)
            assert outcomes(events) == {"handed": 2, "spam": 1, "summaries": 1}
    assert left == [7.0, math.inf], "the summary is that of all runs"


async def test_a_function_gets_events_beside_the_server() -> None:
    seen: list[Event] = []
    server = EventServer()
    async with recording(server, Limits(burst=1), sink=["server", seen.append]) as events:
        events.record(occurrence())
        events.record(occurrence())
        await written(events)
        assert outcomes(events) == {"created": 1, "spam": 1}
    assert len(seen) == 2  # With the summary at the end.


# ---- Texts.


async def test_messages_and_bodies_are_json() -> None:
    server = EventServer()
    async with recording(server) as events:
        events.record(occurrence(message="\ud800" + "ä" * 2000))
        await written(events)
        (event,) = server.events.values()
        assert len(event["message"].encode()) <= 1024
        json.dumps(event)
