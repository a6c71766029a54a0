"""Events into namespaces that do not exist, or do not exist any more: which of them the log names."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kopf_selectcache.core.protocol.messages import FieldCause, Refusal
from kopf_selectcache.recorder._delivery import EventLog
from kopf_selectcache.recorder._queue import WaitingWrite
from kopf_selectcache.recorder.events import Api, Event

from .event_server import EventServer, logged, occurrence, outcomes, raise_, recording, refused, written

pytestmark = pytest.mark.usefixtures("times")

TERMINATING = refused(
    403, "Forbidden", causes=(FieldCause("metadata.namespace", "NamespaceTerminating", ""),)
)
ABSENT = refused(404, "NotFound", message='namespaces "shop" not found')


async def test_20_a_namespace_that_does_not_exist_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """No Event is tried again, and those that come once there is the namespace are written."""
    server = EventServer()
    async with recording(server) as events:
        server.fail = raise_(ABSENT)
        for name in "abc":
            events.record(occurrence(name))
            await written(events)
        assert server.writes == ["POST"] * 3
        assert outcomes(events) == {"rejected": 3}
        server.fail = lambda _: None
        events.record(occurrence("d"))
        await written(events)
        assert outcomes(events) == {"rejected": 3, "created": 1}
    assert logged(caplog) == [
        "The namespace 'shop' does not exist. The Events of webapps there are dropped and counted."
    ]


@pytest.mark.parametrize("first", [TERMINATING, None])
async def test_20_a_namespace_that_is_deleted_is_no_warning(
    first: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = EventServer()
    async with recording(server) as events:
        server.fail = raise_(first) if first is not None else lambda _: None
        events.record(occurrence("a"))
        await written(events)
        server.fail = raise_(ABSENT)
        events.record(occurrence("b"))
        await written(events)
        assert outcomes(events)["rejected"] >= 1
    assert logged(caplog) == []


def test_20_namespaces_without_end_make_no_log_without_end(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog("webapps", logging.getLogger("kopf_selectcache"))
    for number in range(1_100):
        name = f"ns-{number}"
        item = WaitingWrite("key", Event(occurrence(), name, "web.1", 1, 0.0, 0.0), is_new=True)
        log.rejected(Refusal(404, "NotFound", f'namespaces "{name}" not found'), Api.CORE, item)
    assert len(logged(caplog)) == 1_000
