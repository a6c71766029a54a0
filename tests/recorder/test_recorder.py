"""Recorders, in front of an embedded cluster."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError, Recorder
from kopf_selectcache.cache.access import as_current
from kopf_selectcache.informer.metrics import Collector
from kopf_selectcache.recorder.recorder import end_recordings
from kopf_selectcache.recorder.recording import event_metrics, recordings_of
from tests.faults.environment import run, until
from tests.secrets import Environment, caching

WEB: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
}
PREFIX = "kopf_selectcache_"
REFERENCE = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "web", "uid": "u"}


async def events(environment: Environment, namespace: str = "shop") -> list[dict[str, Any]]:
    found = await environment.cache.live.list("v1/events", namespace=namespace)
    return [dict(each) for each in found]


async def written(recorder: Recorder) -> None:
    await until(lambda: recorder.stats().waiting == 0)


async def test_an_event_is_written_with_the_known_data_of_its_object() -> None:
    async with caching("app=web") as environment:
        recorder = Recorder("webapps", environment.cache, host="node-1")
        assert recorder.component == "webapps"
        related = REFERENCE | {"name": "other", "fieldPath": "data.a"}
        recorder.record(WEB, "Warning", "BackupFailed", "No space.", action="Backup", related=related)
        await written(recorder)
        (event,) = await events(environment)
        wanted = {
            "involvedObject": REFERENCE | {"resourceVersion": "7"},
            "related": related,
            "type": "Warning",
            "reason": "BackupFailed",
            "message": "No space.",
            "action": "Backup",
            "source": {"component": "webapps", "host": "node-1"},
            "reportingComponent": "webapps",
            "reportingInstance": "node-1",
            "count": 1,
        }
        assert {key: event[key] for key in wanted} == wanted
        await end_recordings(environment.runtime)


async def test_an_event_about_an_object_of_the_cluster_is_in_the_namespace_default() -> None:
    async with caching("app=web") as environment:
        for api in ("v1", "events.k8s.io/v1"):
            recorder = Recorder(api.replace("/", "."), environment.cache, api=api)
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
            recorder.record(node, "Normal", "Seen", "It is there.")
            await written(recorder)
        assert len(await events(environment, "default")) == 2
        await end_recordings(environment.runtime)


async def test_objects_of_the_cache_are_recorded_in_each_form() -> None:
    objects = [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web", "namespace": "shop"}}]
    async with caching(selectcache.EVERYTHING, *objects) as environment:
        await environment.cache.wait_synced()
        recorder = Recorder("webapps", environment.cache)
        for form in (None, "view"):
            obj = environment.cache.get("secrets", "web", namespace="shop", as_=form)
            recorder.record(obj, "Normal", "Seen", "It is there.")
            await written(recorder)
        (event,) = await events(environment)
        assert (event["count"], event["involvedObject"]["kind"]) == (2, "Secret")
        assert event["involvedObject"]["uid"]
        await end_recordings(environment.runtime)


def test_each_operator_has_a_state_of_its_own() -> None:
    recorder = Recorder("webapps")

    async def main() -> None:
        async with caching("app=web") as environment, AsyncExitStack() as stack:
            stack.enter_context(as_current(environment.cache))
            for _ in range(2):
                recorder.record(WEB, "Normal", "Deployed", "It is deployed.")
                await written(recorder)
            assert len(recordings_of(environment.runtime)) == 1
            assert recorder.stats().recorded == 2
            assert [each["count"] for each in await events(environment)] == [2]
            await end_recordings(environment.runtime)

    run(main())
    run(main())


@dataclass
class UnhashableSink:
    seen: list[Any] = field(default_factory=list)

    def __call__(self, event: Any) -> None:
        self.seen.append(event)


async def test_a_recorder_made_anew_continues_the_one_before() -> None:
    async with caching("app=web") as environment:
        for _ in range(3):
            recorder = Recorder("webapps", environment.cache)
            recorder.record(WEB, "Normal", "Deployed", "It is deployed.")
        (recording,) = recordings_of(environment.runtime)
        assert recording.stats().recorded == 3
        for sink in (UnhashableSink(), UnhashableSink()):
            recorder = Recorder("webapps", environment.cache, sink=sink)
            recorder.record(WEB, "Normal", "Deployed", "It is deployed.")
            assert len(sink.seen) == 1
        await end_recordings(environment.runtime)


async def test_the_end_of_the_caches_is_that_of_recorders() -> None:
    async with caching("app=web") as environment:
        recorder = Recorder("webapps", environment.cache)
        recorder.record(WEB, "Normal", "Deployed", "It is deployed.")
        environment.runtime.end()
        await asyncio.sleep(0)
        assert recorder.stats().unsent == 1


async def test_an_operator_whose_loop_is_closed_is_not_disturbed() -> None:
    caches = []
    async with caching("app=web") as environment:
        caches.append(environment.cache)
    recorder = Recorder("webapps", caches[0])
    recorder.record(WEB, "Normal", "Deployed", "It is deployed.")
    assert recorder.stats().waiting == 1


async def test_the_metrics_add_up() -> None:
    async with caching("app=web") as environment:
        for waiting in (10, 20):  # Of one name.
            recorder = Recorder("webapps", environment.cache, burst=2, waiting=waiting)
            for _ in range(4):
                recorder.record(WEB, "Normal", "Deployed", "It is deployed.")
        collector = Collector(tuple, further=lambda: event_metrics(environment.runtime))
        for waiting in (2, 0):
            samples = [each for family in collector.collect() for each in family.samples]
            found = {(each.name, each.labels.get("outcome")): each.value for each in samples}
            emitted = found.pop((PREFIX + "emitted_events_total", None))
            assert found[PREFIX + "waiting_events", None] == waiting
            assert found[PREFIX + "recorded_events_total", "spam"] == 4
            assert sum(found.values()) == emitted
            assert {each.labels["component"] for each in samples} == {"webapps"}
            await end_recordings(environment.runtime)


# ---- Declarations.


def test_an_option_that_does_not_exist_is_refused() -> None:
    options: Any = {"bursts": 3}
    with pytest.raises(DeclarationError, match=r"Recorder\(\) has no option 'bursts'. Did you mean burst\?"):
        Recorder("webapps", **options)


def test_outside_of_handlers_a_recorder_needs_a_cache() -> None:
    with pytest.raises(DeclarationError):
        Recorder("webapps").record(WEB, "Normal", "Deployed", "It is deployed.")


@pytest.mark.parametrize(
    "options",
    [
        {"component": ""},
        {"component": "web apps"},
        {"component": None},
        {"cache": 1},
        {"host": "x" * 129},
        {"host": None},
        {"writes_per_second": 0},
        {"writes_per_second": True},
        {"waiting": 0},
        {"waiting": True},
        {"api": "v2"},
        {"sink": []},
        {"sink": "file"},
        {"burst": 0},
    ],
    ids=str,
)
def test_a_bad_recorder_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        Recorder(**({"component": "webapps"} | options))


@pytest.mark.parametrize(
    "given",
    [
        {"type": "Error"},
        {"type": None},
        {"reason": ""},
        {"reason": "It has failed"},
        {"reason": "X" * 129},
        {"reason": None},
        {"action": None},
        {"action": "x" * 129},
        {"message": b"bytes"},
        {"obj": 1},
        {"obj": {}},
        {"obj": {"apiVersion": "v1", "kind": "Pod", "metadata": {}}},
        {"obj": {"apiVersion": "v1", "kind": "Pod"}},
        {"related": "a"},
    ],
    ids=str,
)
def test_a_bad_event_is_refused(given: dict[str, Any]) -> None:
    usual = {"obj": WEB, "type": "Normal", "reason": "Deployed", "message": "It is deployed."}
    with pytest.raises(DeclarationError):
        Recorder("webapps").record(**(usual | given))


async def test_nothing_is_written_after_the_end() -> None:
    async with caching("app=web") as environment:
        await end_recordings(environment.runtime)
        recorder = Recorder("webapps", environment.cache)
        recorder.record(WEB, "Normal", "Deployed", "It is deployed.")
        assert recorder.stats().unsent == 1
