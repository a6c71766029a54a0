"""Events that the server lacks, since it has refused to create them: their next occurrence creates them."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache.recorder.correlator import Limits

from .event_server import EventServer, occurrence, outcomes, recording, refused, written

pytestmark = pytest.mark.usefixtures("times")


def refuse(_: Any) -> None:
    raise refused(422, "Invalid")


async def test_an_event_whose_creation_is_refused_is_created_when_it_occurs_again_meanwhile() -> None:
    server = EventServer()
    async with recording(server) as events:

        def refuse_once(request: Any) -> None:
            server.fail = lambda _: None
            events.record(occurrence())
            refuse(request)

        server.fail = refuse_once
        events.record(occurrence())
        await written(events)
        assert server.writes == ["POST", "POST"]
        assert outcomes(events) == {"rejected": 1, "created": 1}


async def test_events_that_the_server_lacks_are_remembered_within_the_limit() -> None:
    server = EventServer()
    server.fail = refuse
    async with recording(server, Limits(remembered=1)) as events:
        for name in "aba":
            events.record(occurrence(name))
            await written(events)
        assert server.writes == ["POST"] * 3
        assert outcomes(events) == {"rejected": 3}
