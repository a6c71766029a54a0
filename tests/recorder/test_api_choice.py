"""The API in which Events are written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kopf_selectcache.recorder.events import ServerEvent, server_event

from .event_server import (
    GROUP,
    EventServer,
    logged,
    occurrence,
    outcomes,
    passed,
    recording,
    refused,
    written,
)

pytestmark = pytest.mark.usefixtures("times")

Allowed = Callable[[Mapping[str, str]], bool]
CORE_ROOT, GROUP_ROOT = "/api/v1/namespaces/shop/events", f"/apis/{GROUP}/v1/namespaces/shop/events"


def roots(server: EventServer) -> list[str]:
    return [request.path for request in server.requests if request.method == "POST"]


@pytest.mark.parametrize(
    ("allowed", "served", "root", "lines"),
    [
        (lambda _: True, True, CORE_ROOT, ["written in the API v1."]),
        (lambda asked: asked["group"] == GROUP, True, GROUP_ROOT, [f"written in the API {GROUP}/v1."]),
        (lambda asked: asked["group"] == GROUP, False, CORE_ROOT, ["without permission to"]),
        (lambda asked: asked["verb"] == "create", True, CORE_ROOT, ["without permission to"]),
        (lambda _: False, True, CORE_ROOT, ["without permission to"]),
    ],
    ids=["both", "group", "not served", "no patch", "none"],
)
async def test_the_rights_choose_the_api(
    allowed: Allowed, served: bool, root: str, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = EventServer()
    server.allowed, server.served = allowed, served
    async with recording(server, api="auto") as events:
        for name in "ab":
            events.record(occurrence(name))
            await written(events)
        assert roots(server) == [root, root]
    messages = logged(caplog, logging.INFO)
    assert len(messages) == len(lines)
    assert all(line in message for line, message in zip(lines, messages, strict=True))


async def test_rights_that_are_granted_later_are_found_after_a_minute() -> None:
    server = EventServer()
    server.allowed = lambda _: False
    async with recording(server, api="auto") as events:
        for name, second in (("a", 0), ("b", 30), ("c", 61)):
            await passed(second)
            events.record(occurrence(name))
            await written(events)
            server.allowed = lambda asked: asked["group"] == GROUP
        assert roots(server) == [CORE_ROOT, CORE_ROOT, GROUP_ROOT]


async def test_a_login_that_may_not_ask_writes_in_the_core_api() -> None:
    server = EventServer()

    def forbid(_: object) -> bool:
        raise refused(403, "Forbidden")

    server.allowed = forbid
    async with recording(server, api="auto") as events:
        events.record(occurrence())
        await written(events)
        assert roots(server) == [CORE_ROOT]


async def test_the_choice_is_retried_while_the_server_is_down() -> None:
    server = EventServer()
    tries: list[int] = []

    def allow(asked: Mapping[str, str]) -> bool:
        tries.append(1)
        if len(tries) == 1:
            raise refused(503, "ServiceUnavailable")
        return asked["group"] == GROUP

    async def get(*_: Any, **__: Any) -> bytes:
        if len(tries) < 7:
            raise refused(500)
        return b"{}"

    server.allowed = allow
    server.get = get  # type: ignore[method-assign]
    async with recording(server, api="auto") as events:
        events.record(occurrence())
        await written(events)
        assert outcomes(events) == {"created": 1}
        assert roots(server) == [GROUP_ROOT]


async def test_events_of_the_group_have_the_fields_the_server_requires() -> None:
    server = EventServer()
    async with recording(server, api=f"{GROUP}/v1") as events:
        related = occurrence("other").about
        events.record(occurrence(related=related, annotations={"a": "b"}))
        await written(events)
        await passed(60)
        events.record(occurrence(related=related, annotations={"a": "b"}))
        await written(events)
    (event,) = server.events.values()
    assert event == {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Event",
        "metadata": {
            "name": event["metadata"]["name"],
            "namespace": "shop",
            "resourceVersion": "1",
            "annotations": {"a": "b"},
        },
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "shop",
            "name": "web",
            "uid": "uid-web",
        },
        "related": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "shop",
            "name": "other",
            "uid": "uid-other",
        },
        "type": "Normal",
        "reason": "Deployed",
        "note": "It is deployed.",
        "eventTime": "2027-01-15T08:00:00.000000Z",
        "action": "Deployed",
        "reportingController": "webapps",
        "reportingInstance": "webapps",
        "series": {"count": 2, "lastObservedTime": event["series"]["lastObservedTime"]},
    }
    assert event["series"]["lastObservedTime"].startswith("2027-01-15T08:01:00.")


async def test_an_event_of_the_group_is_continued_by_its_series() -> None:
    server = EventServer()
    for _ in range(2):
        async with recording(server, api=f"{GROUP}/v1") as events:
            events.record(occurrence())
            await written(events)
        await passed(60)
    (event,) = server.events.values()
    assert event["series"]["count"] == 2
    assert server.requests[-1].body.keys() == {"series"}


def test_the_count_of_an_event_is_the_highest_that_it_has() -> None:
    first = "2027-01-15T08:00:00Z"
    assert server_event({}) == ServerEvent(1, None, None)
    assert server_event({"count": 3, "firstTimestamp": first}) == ServerEvent(
        3, 1_800_000_000.0, 1_800_000_000.0
    )
    assert server_event({"count": None, "deprecatedCount": 4, "series": {"count": 2}}).count == 4
    assert server_event({"firstTimestamp": "yesterday"}).first is None
