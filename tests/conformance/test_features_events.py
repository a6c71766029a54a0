"""The features of tests/FEATURES.md about Events, on both servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import Recorder
from tests.real.inprocess import until

from .places import Place
from .test_features_reconcile import create, operated, run

COMBINED = "(combined from similar events): "


@pytest.fixture
def configs(place: Place) -> Place:
    return place.of("configmaps")


@asynccontextmanager
async def handling(place: Place) -> AsyncIterator[tuple[selectcache.Cache, Any]]:
    """Run an operator; return the cache and the object of a handler."""
    called: list[tuple[selectcache.Cache, Any]] = []
    registry = kopf.OperatorRegistry()

    @selectcache.on.change("configmaps", registry=registry)
    async def keep(cache: selectcache.Cache, body: Any, **_: Any) -> None:
        called.append((cache, body))

    create(place, "web")
    async with operated(place, registry, "v1/configmaps"):
        await until(lambda: called, "the handler is called")
        yield called[0]


def events(place: Place) -> list[dict[str, Any]]:
    found = place.api.request("GET", f"/api/v1/namespaces/{place.namespace}/events")["items"]
    return [event for event in found if event["involvedObject"]["name"] == "web"]


def messages(place: Place) -> Counter[str]:
    """Return the count of each Event, by its message."""
    counts = Counter[str]()
    for event in events(place):
        counts[event["message"]] += event["count"]
    return counts


async def test_d1_d3_the_same_again_is_counted_and_another_message_is_another_event(configs: Place) -> None:
    async with handling(configs) as (cache, body):
        recorder = Recorder("webapps", cache)
        for message in ("one", "two", "one", "one"):
            recorder.record(body, "Normal", "Deployed", message)
        recorder.record(body, "Warning", "Deployed", "two")
        await until(lambda: messages(configs) == {"one": 3, "two": 2}, "all are counted")
        (name,) = {each["metadata"]["name"] for each in events(configs) if each["message"] == "one"}
        recorder.record(body, "Normal", "Deployed", "one")
        await until(lambda: messages(configs)["one"] == 4, "it is counted again")
        (event,) = (each for each in events(configs) if each["message"] == "one")
        assert (event["metadata"]["name"], event["type"], event["reason"]) == (name, "Normal", "Deployed")
        assert event["source"]["component"] == event["reportingComponent"] == "webapps"


async def test_d2_many_messages_become_one_event(configs: Place) -> None:
    async with handling(configs) as (cache, body):
        recorder = Recorder("webapps", cache)
        for number in range(15):
            recorder.record(body, "Normal", "Deployed", f"number {number}")
        await until(lambda: messages(configs).total() == 15, "all are counted")
        combined = [each for each in events(configs) if each["message"].startswith(COMBINED)]
        assert [each["count"] for each in combined] == [6]
        assert len(events(configs)) == 10
        assert "number 14" in combined[0]["message"]


async def test_d4_d5_each_object_has_a_limit_and_all_numbers_are_options(configs: Place) -> None:
    async with handling(configs) as (cache, body):
        recorders = [Recorder("webapps", cache), Recorder("backups", cache, burst=3, similar=2)]
        for number in range(40):
            for recorder in recorders:
                recorder.record(body, "Normal", f"Reason{number % 30}", "It happens")
                recorder.record(body, "Normal", f"Reason{number % 30}", "It happens")
        assert [recorder.stats().spam for recorder in recorders] == [80 - 25, 80 - 3]
        recorders[0].record(body, "Warning", "Failed", "Warnings have a limit of their own")
        await until(
            lambda: any(each["type"] == "Warning" for each in events(configs)), "the warning is there"
        )


async def test_d6_an_event_that_somebody_deletes_is_created_again(configs: Place) -> None:
    async with handling(configs) as (cache, body):
        recorder = Recorder("webapps", cache)
        recorder.record(body, "Normal", "Deployed", "again")
        await until(lambda: messages(configs) == {"again": 1}, "it is there")
        name = events(configs)[0]["metadata"]["name"]
        configs.api.request("DELETE", f"/api/v1/namespaces/{configs.namespace}/events/{name}")
        recorder.record(body, "Normal", "Deployed", "again")
        await until(lambda: messages(configs) == {"again": 2}, "it is there again")
        stats = recorder.stats()
        assert stats.emitted == sum(stats.outcomes.values()) + stats.waiting


async def test_e6_each_component_has_a_recorder_and_functions_may_see_its_events(configs: Place) -> None:
    async with handling(configs) as (cache, body):
        seen: list[str] = []
        for component in ("webapps", "backups"):
            recorder = Recorder(
                component, cache, sink=["server", lambda event: seen.append(event.occurrence.message)]
            )
            recorder.record(body, "Normal", "Deployed", f"by {component}")
        assert seen == ["by webapps", "by backups"]
        await until(lambda: len(events(configs)) == 2, "both are there")
        sources = {each["source"]["component"] for each in events(configs)}
        assert sources == {"webapps", "backups"}


def test_e7_a_reconciler_records_three_reasons_about_its_object(
    configs: Place, registry: kopf.OperatorRegistry
) -> None:
    @selectcache.reconcile("configmaps", registry=registry)
    async def tell(events: Recorder, body: Any, **_: Any) -> None:
        for reason in ("JobCreated", "Waiting", "JobComplete"):
            events.record(body, "Normal", reason, "Each minute")

    async def main() -> None:
        create(configs, "web")
        async with operated(configs, registry, "v1/configmaps"):
            await until(lambda: len(events(configs)) == 3, "all are there")
        assert {each["reason"] for each in events(configs)} == {"JobCreated", "Waiting", "JobComplete"}

    run(main())


def test_20_events_and_caches_in_a_namespace_that_does_not_exist_are_a_warning_each(
    configs: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with handling(configs) as (cache, body):
            recorder = Recorder("webapps", cache)
            for name in "ab":
                meta = {"name": name, "namespace": "nowhere"}
                about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
                recorder.record(about, "Normal", "Deployed", "It is deployed.")
            recorder.record(body, "Normal", "Deployed", "one")
            await until(lambda: messages(configs) == {"one": 1}, "all are written")
            await cache.declare("v1/secrets", selectcache.Selector(namespaces=["nowhere", configs.namespace]))
            found = await cache.why("secrets", "a", namespace="nowhere")
            assert not found.has_namespace
            await until(lambda: len(warned(caplog)) == 2, "the cache warns")

    run(main())
    event, declared = warned(caplog)
    assert event.startswith("The namespace 'nowhere' does not exist. The Events of webapps there are dropped")
    assert declared == (
        "Namespaces that do not exist: 'nowhere' (named by cache.declare('v1/secrets', ...)). Nothing is"
        " cached there until you create them."
    )


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "amespace" in text and "nowhere' " in text]
