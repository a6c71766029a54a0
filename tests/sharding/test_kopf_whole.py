"""Admission, indices, activities and Events: Kopf does these in each replica, or in one of them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import repeat
from typing import Any

import kopf
import pytest

from kopf_selectcache import Sharding, _kopf
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Fault, Refuse, Silence
from tests.faults.environment import reached, until
from tests.plugin.reconciling import operated
from tests.plugin.test_probe import free_endpoint, probe

from .processes import configmap
from .test_handlers import CONFIGMAPS, Movable, sharded, shards_of

NAME = "web.example.com"


def admitting(number: int, sharding: Sharding | None) -> Callable[[kopf.OperatorSettings], None]:
    """Have a replica serve a webhook at a URL of its own."""

    async def server(_: Any) -> AsyncIterator[Any]:
        yield {"url": f"https://replica-{number}.example.com"}
        await asyncio.Event().wait()

    def configure(settings: kopf.OperatorSettings) -> None:
        if sharding is not None:
            sharded(sharding)(settings)
        settings.admission.managed, settings.admission.server = NAME, server

    return configure


def validating() -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.validate("configmaps", id="check", registry=registry)(lambda **_: None)
    return registry


def written(cluster: EmbeddedCluster) -> list[str]:
    """Return the URLs in the configuration."""
    kind = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    found = cluster._admin.ask("GET", kind)["items"]
    return [each["clientConfig"]["url"] for of in found for each in of.get("webhooks") or ()]


def url(number: int) -> list[str]:
    return [f"https://replica-{number}.example.com/check"]


async def test_the_replica_that_gets_the_name_of_the_configuration_writes_it() -> None:
    async with EmbeddedCluster(tls=False) as cluster:
        first, second = (admitting(each, Sharding(static=(0, 1))) for each in (1, 2))
        async with operated(validating(), cluster, filters=CONFIGMAPS, configure=first) as one:
            assert await reached(lambda: written(cluster) == url(1))
            mine = shards_of(one)
            range_ = mine.range_of(("", NAME))
            mine.ownership, own = Movable(), mine.ownership
            await mine.drain(range_)
            mine.cool({range_})
            async with operated(validating(), cluster, filters=CONFIGMAPS, configure=second) as two:
                assert await reached(lambda: written(cluster) == url(2))
                others = shards_of(two)
                others.ownership, mine.ownership = Movable(), own
                await others.drain(range_)
                others.cool({range_})
                mine.start({range_})
                assert await reached(lambda: written(cluster) == url(1))
            assert written(cluster) == url(1), "the second does not handle it"
        assert written(cluster) == url(1), "other replicas serve it"
        patches = [each for each in cluster.requests if each.name == NAME and each.verb == "patch"]
        assert all(" range=" in each.agent for each in patches), "nobody else writes it"


async def test_kopf_without_other_replicas_removes_the_webhooks_at_its_end() -> None:
    async with EmbeddedCluster(tls=False) as cluster:
        first, second = admitting(1, Sharding(static=(0, 1))), admitting(2, None)
        async with operated(validating(), cluster, filters=CONFIGMAPS, configure=first):
            assert await reached(lambda: written(cluster) == url(1))
        async with operated(validating(), cluster, filters=CONFIGMAPS, configure=second):
            assert await reached(lambda: written(cluster) == url(2))
        assert written(cluster) == []


async def ended(operator: AbstractAsyncContextManager[kopf.OperatorSettings]) -> None:
    """Wait until an operator has ended."""
    async with operator as settings:
        assert await reached(lambda: operator_of(settings))
        assert await reached(lambda: operator_of(settings) is None)


@pytest.mark.parametrize(
    ("fault", "expected"), [(Refuse(404), _kopf.APINotFoundError), (Silence(), TimeoutError)]
)
async def test_a_configuration_that_may_not_be_written_ends_the_operator_as_ever(
    fault: Fault, expected: type[Exception]
) -> None:
    def configure(settings: kopf.OperatorSettings) -> None:
        admitting(0, Sharding(static=(0, 1)))(settings)
        settings.networking.error_backoffs = []
        settings.networking.request_timeout = 0.5 if expected is TimeoutError else 60.0

    async with EmbeddedCluster(tls=False) as cluster:
        cluster.faults.add(fault, verb="create", resource="validatingwebhookconfigurations")
        with pytest.raises(expected):
            await ended(operated(validating(), cluster, filters=CONFIGMAPS, configure=configure))


async def test_a_configuration_whose_range_goes_meanwhile_is_written_once_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def configure(settings: kopf.OperatorSettings) -> None:
        admitting(1, Sharding(static=(0, 1)))(settings)
        settings.networking.error_backoffs = repeat(0.0)

    caplog.set_level(logging.INFO)
    async with EmbeddedCluster(tls=False) as cluster:
        refusal = cluster.faults.add(Refuse(503), verb="create", resource="validatingwebhookconfigurations")
        async with operated(validating(), cluster, filters=CONFIGMAPS, configure=configure) as one:
            assert await reached(lambda: refusal.hits)
            shards = shards_of(one)
            own, shards.ownership = shards.ownership, Movable()
            assert await reached(lambda: "was not sent" in caplog.text)
            cluster.faults.clear()
            shards.ownership = own
            shards.start({shards.range_of(("", NAME))})
            assert await reached(lambda: written(cluster) == url(1))


OBJECT = configmap("team-0", "x", 0)


def take_all(settings: kopf.OperatorSettings) -> None:
    """Have another replica handle all keys."""
    shards_of(settings).ownership = Movable()


@pytest.mark.parametrize("kind", ["create in a thread", "create", "daemon in a thread", "timer"])
async def test_kopf_writes_nothing_for_a_handler_that_outlives_its_range(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its new owner does."""
    begun, go_on = threading.Event(), threading.Event()
    decorators: dict[str, Any] = {"create": kopf.on.create, "daemon": kopf.daemon, "timer": kopf.timer}

    def registry_of(owner: str) -> kopf.OperatorRegistry:
        def label(body: kopf.Body, patch: kopf.Patch) -> None:
            kopf.event(body, type="Normal", reason=owner, message="It is labelled.")
            patch.metadata.labels["by"] = owner

        def in_thread(**kwargs: Any) -> None:
            begun.set()
            go_on.wait(60)
            label(kwargs["body"], kwargs["patch"])

        async def in_task(**kwargs: Any) -> None:
            begun.set()
            await until(go_on.is_set)
            label(kwargs["body"], kwargs["patch"])

        registry = kopf.OperatorRegistry()
        function: Any = in_thread if "thread" in kind else in_task
        decorators[kind.split(maxsplit=1)[0]]("configmaps", id="handle", registry=registry)(function)
        return registry

    def configure(settings: kopf.OperatorSettings) -> None:
        sharded(Sharding(static=(0, 1)))(settings)
        settings.posting.enabled = True

    caplog.set_level(logging.INFO)
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("team-0")
        cluster.create(OBJECT)

        def reasons() -> set[str]:
            events = cluster._admin.ask("GET", "/api/v1/namespaces/team-0/events")["items"]
            return {each["reason"] for each in events}

        async with operated(registry_of("first"), cluster, filters=CONFIGMAPS, configure=configure) as one:
            assert await reached(begun.is_set)
            if not kind.startswith("create"):
                assert await reached(lambda: "finalizers" in cluster.get(OBJECT)["metadata"])
            before = cluster.get(OBJECT)
            take_all(one)
            go_on.set()
            assert await reached(lambda: "was not sent" in caplog.text)
        assert (cluster.get(OBJECT), reasons() & {"first", "Logging"}) == (before, set())
        async with operated(registry_of("second"), cluster, filters=CONFIGMAPS, configure=configure):
            assert await reached(lambda: cluster.get(OBJECT)["metadata"]["labels"].get("by") == "second")
            assert await reached(lambda: "second" in reasons())


def is_sharded(settings: kopf.OperatorSettings) -> bool:
    operator = operator_of(settings)
    return operator is not None and operator.shards is not None


async def test_activities_run_in_each_replica() -> None:
    calls = list[str]()

    def registry_of(number: int) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        def noting(name: str) -> Any:
            return lambda **_: calls.append(f"{name} {number}")

        for name in ("startup", "cleanup", "probe"):
            getattr(kopf.on, name)(id=name, registry=registry)(noting(name))
        return registry

    async with EmbeddedCluster(tls=False) as cluster:
        for number in (0, 1):
            endpoint, configure = free_endpoint(), sharded(Sharding(static=(number, 2)))
            async with operated(
                registry_of(number),
                cluster,
                filters=CONFIGMAPS,
                configure=configure,
                liveness_endpoint=endpoint,
            ) as one:
                assert await reached(partial(is_sharded, one))
                code, report = await probe(endpoint)
                assert (code, report["sharding"]) == (200, {"condition": "its ranges never move"})
    assert calls == [f"{each} {number}" for number in (0, 1) for each in ("startup", "probe", "cleanup")]
