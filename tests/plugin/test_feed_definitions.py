"""Kopf's handlers of a custom resource are fed as soon as its definition is there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import kopf
import pytest

from kopf_selectcache import NotSynced
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import DropEvents
from tests.plugin.feeding import Events, app, feeding, serving, until
from tests.plugin.reconciling import CRD

APPS = {"example.com/v1/webapps": ""}
LONG = 3.0
"""Seconds: pauses that are longer take an hour."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let caches pause for an hour once the cluster does not serve their kind."""
    init = Runtime.__init__

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds if seconds < LONG else 3600)

    def with_long_pauses(runtime: Runtime, *args: Any, **options: Any) -> None:
        init(runtime, *args, **{**options, "sleep": sleep})

    monkeypatch.setattr(Runtime, "__init__", with_long_pauses)


@pytest.fixture
def app_events(registry: kopf.OperatorRegistry) -> Events:
    events = Events()
    events.handle(registry, "webapps")
    return events


def is_missing(settings: kopf.OperatorSettings) -> bool:
    operator = operator_of(settings)
    if operator is None:
        return False
    with suppress(NotSynced):
        return all(each.state.health is Health.MISSING for each in operator.runtime.informers.values())
    return False


async def test_2_handlers_of_a_definition_that_comes_later_are_fed_at_once(
    registry: kopf.OperatorRegistry, app_events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        async with feeding(registry, cluster, filters=APPS) as settings:
            # Kopf overlooks a definition that comes while it looks around for the first time.
            await until(lambda: "Unresolved resources" in caplog.text and is_missing(settings))
            await until(lambda: cluster.requests.where("watch", "customresourcedefinitions"))
            cluster.create(CRD)
            cluster.create(app("a"))
            await until(lambda: app_events)
        assert app_events.of("a") in ([None], ["ADDED"])


async def test_15_objects_that_went_with_their_definition_do_not_come_back_with_it(
    registry: kopf.OperatorRegistry, app_events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(app("a")) as cluster:
        # The cache does not hear of the deletion, so that its store has the object until the next list.
        cluster.faults.add(DropEvents({"DELETED"}), verb="watch", resource="webapps")
        async with feeding(registry, cluster, filters=APPS) as settings:
            await app_events.see((None, "a"))
            await until(lambda: cluster.requests.where("watch", "customresourcedefinitions"))
            cluster.delete(CRD)
            await until(lambda: "Unresolved resources" in caplog.text and is_missing(settings))
            app_events.clear()
            cluster.create(CRD)
            cluster.create(app("b"))
            await until(lambda: app_events.of("b"))
            assert app_events.of("b") in ([None], ["ADDED"])
            assert not app_events.of("a")
