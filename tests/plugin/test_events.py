"""The events of handlers and of Kopf, through recorders."""

from __future__ import annotations

import logging
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError, _kopf
from kopf_selectcache.plugin.caches import Route
from kopf_selectcache.plugin.handlers import check_handlers
from kopf_selectcache.recorder.recording import MOST_WAITING_EVENTS
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster
from tests.faults.environment import until
from tests.plugin.test_change_handlers import operating
from tests.secrets import labelled, secret


def events_of(cluster: EmbeddedCluster) -> dict[tuple[str, str], int]:
    """Return how often each event about the Secrets has happened, by type and reason."""
    events = cluster._admin.ask("GET", "/api/v1/namespaces/shop/events")["items"]
    counts: dict[tuple[str, str], int] = {}
    for event in events:
        key = event["type"], event["reason"]
        counts[key] = counts.get(key, 0) + event.get("count", 1)
    return counts


def routed(settings: kopf.OperatorSettings) -> None:
    settings_of(settings).events = True


async def test_events_of_kopf_are_counted_and_have_the_types_of_the_api(
    registry: kopf.OperatorRegistry,
) -> None:
    @kopf.on.event("secrets", registry=registry)
    async def tell(body: kopf.Body, **_: Any) -> None:
        for _time in range(3):
            kopf.event(body, type="Normal", reason="Made", message="It is there.")
        kopf.exception(body, reason="Failed", exc=ValueError("wrong"))
        kopf.event(body, type="Nonsense", reason="Odd")
        kopf.event(body, type="Debug", reason="Seen")

    async with operating(registry, secret("a", app="web"), configure=routed) as cluster:
        expected = {
            ("Normal", "Made"): 3,
            ("Warning", "Failed"): 1,
            ("Warning", "Odd"): 1,
            ("Normal", "Seen"): 1,
        }
        await until(lambda: events_of(cluster) == expected)
        assert len(cluster._admin.ask("GET", "/api/v1/namespaces/shop/events")["items"]) == 4


async def test_log_records_of_objects_are_recorded_as_settings_posting_has_them(
    registry: kopf.OperatorRegistry,
) -> None:
    def configure(settings: kopf.OperatorSettings) -> None:
        routed(settings)
        settings.posting.loggers, settings.posting.level = True, logging.WARNING

    @kopf.on.create("secrets", registry=registry)
    async def tell(logger: Any, **_: Any) -> None:
        logger.info("Not this one.")
        logger.warning("It is strange.")
        logger.warning("It is strange.")

    async with operating(registry, secret("a", app="web"), configure=configure) as cluster:
        await until(lambda: events_of(cluster) == {("Warning", "Logging"): 2})


async def test_without_the_option_kopf_posts_its_events_itself(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.event("secrets", registry=registry)
    async def tell(body: kopf.Body, **_: Any) -> None:
        kopf.event(body, type="Error", reason="Failed")

    async with operating(registry, secret("a", app="web")) as cluster:
        await until(lambda: events_of(cluster) == {("Error", "Failed"): 1})


@pytest.mark.parametrize("is_async", [True, False])
async def test_handlers_get_the_recorder_of_the_operator(
    registry: kopf.OperatorRegistry, is_async: bool
) -> None:
    async def note_async(events: selectcache.Recorder, body: Any, **_: Any) -> None:
        events.record(body, "Normal", "Seen", "A handler has seen it.")

    def note(events: selectcache.Recorder, body: Any, **_: Any) -> None:
        events.record(body, "Normal", "Seen", "A handler has seen it.")

    handler = note_async if is_async else note
    kopf.on.event("secrets", registry=registry)(selectcache.with_cache(handler))
    selectcache.on.change("secrets", registry=registry)(handler)
    async with operating(registry, secret("a", app="web")) as cluster:
        await until(lambda: events_of(cluster).get(("Normal", "Seen")) == 2)
        cluster.patch(secret("a"), labelled(tier="gold"))
        await until(lambda: events_of(cluster).get(("Normal", "Seen")) == 4)
        (event,) = cluster._admin.ask("GET", "/api/v1/namespaces/shop/events")["items"]
        assert event["source"]["component"] == "kopf"


async def test_events_before_the_end_of_the_operator_are_written(registry: kopf.OperatorRegistry) -> None:
    seen: list[str] = []

    @selectcache.on.change("secrets", registry=registry)
    async def note(events: selectcache.Recorder, body: Any, name: str, **_: Any) -> None:
        events.record(body, "Normal", "Seen", f"{name} is there.")
        seen.append(name)

    objects = [secret(f"a-{number}", app="web") for number in range(20)]
    async with operating(registry, *objects) as cluster:
        await until(lambda: len(seen) == 20)
    assert events_of(cluster) == {("Normal", "Seen"): 20}


async def test_a_name_of_kopfs_settings_that_does_not_fit_stops_no_handler(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    @selectcache.on.change("secrets", registry=registry)
    async def note(events: selectcache.Recorder, body: Any, **_: Any) -> None:
        events.record(body, "Normal", "Seen", "A handler has seen it.")

    def configure(settings: kopf.OperatorSettings) -> None:
        settings.posting.reporting_component = "web apps!"

    async with operating(registry, secret("a", app="web"), configure=configure) as cluster:
        await until(lambda: events_of(cluster) == {("Normal", "Seen"): 1})
        assert "settings.posting: Recorder(): component is 'web apps!'" in caplog.text


def test_a_handler_without_a_cache_cannot_take_events(registry: kopf.OperatorRegistry) -> None:
    async def create(events: Any, **_: Any) -> None: ...

    handler: Any = create
    kopf.on.create("secrets", registry=registry)(handler)

    with pytest.raises(DeclarationError, match="takes events, which Kopf does not pass"):
        check_handlers(registry)


def test_events_wait_for_the_login_in_bounded_memory(caplog: pytest.LogCaptureFixture) -> None:
    ref = {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "uid": "1"}
    route, seen = Route(), list[Any]()

    class Recorder:
        def record(self, *args: Any) -> None:
            seen.append(args)
            if args[2] == "Bad":
                raise DeclarationError("it has no name", remedy="Name it")

    for number in range(MOST_WAITING_EVENTS + 1):
        route.take(event_about(ref, f"Reason{number}"))
    recorder: Any = Recorder()
    route.open(recorder)
    assert [each[2] for each in seen] == [f"Reason{number}" for number in range(1, MOST_WAITING_EVENTS + 1)]
    with caplog.at_level(logging.WARNING):
        route.take(event_about(ref, "bad"))
    assert "An event can't be recorded: it has no name" in caplog.text


def event_about(ref: Any, reason: str) -> Any:
    return _kopf.K8sEvent(ref=ref, type="Normal", reason=reason, message="")
