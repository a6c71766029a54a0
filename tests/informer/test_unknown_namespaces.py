"""Caches that do not know yet which namespaces have the label of their filter: they can be changed and
followed, and say nothing about an object that depends on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.credentials import Vault

import kopf_selectcache as selectcache
from kopf_selectcache import Cached, Selector
from kopf_selectcache.cache.why import Standing
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.plugin.changes import deliver_changes
from kopf_selectcache.plugin.operator import launch
from kopf_selectcache.selectors.selector import labels_of_namespaces
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Fault, NotServed, Refuse, Silence
from tests.faults.environment import Time, reached, until
from tests.informer.test_namespaces_by_label import TENANTS, YES, mark, namespace, tenants
from tests.kopf_operators import context
from tests.secrets import Environment, secret

UNANSWERED = [Silence(), Refuse(403)]


@asynccontextmanager
async def unknown(fault: Fault) -> AsyncIterator[tuple[Environment, Any]]:
    """Cache the secrets of tenants, while the list of namespaces is not answered, or refused."""
    planned = []

    def who(cluster: EmbeddedCluster) -> str:
        planned.append(cluster.faults.add(fault, resource="namespaces"))
        return cluster.token

    async with tenants("shop", who=who) as environment:
        informer = environment.informer
        await planned[0].hit()
        await until(
            lambda: informer.state.resource and (isinstance(fault, Silence) or informer.state.part().error)
        )
        yield environment, planned[0]


@pytest.mark.parametrize("fault", UNANSWERED, ids=["silent", "refused"])
async def test_16_a_filter_changes_although_the_namespaces_of_the_present_one_are_unknown(
    fault: Fault,
) -> None:
    async with unknown(fault) as (environment, _):
        waiting = asyncio.create_task(environment.cache.wait_synced())
        changing = asyncio.create_task(environment.cache.declare("secrets", "", replace=True))
        assert await reached(changing.done)
        assert len(environment.cache.list_cached("secrets")) == 3
        with suppress(selectcache.ReadError):  # The cache was forbidden when it began.
            await waiting


async def test_16_while_a_cache_restarts_its_filter_is_the_declared_one() -> None:
    """The namespaces of the filter before it say nothing about the one that begins."""
    async with tenants("shop") as environment:
        cache, informer = environment.cache, environment.informer
        await cache.wait_synced()
        add = environment.cluster.faults.add
        fault = add(NotServed(), resource="secrets")
        # It restarts for as long as it does not know if the kind is served: else it would be refused.
        silence = add(Silence(), where=lambda asked: asked.path == "/api/v1")
        environment.cluster.cut("watch", "secrets")
        await silence.hit()
        assert informer.state.is_resolving
        fault.release()
        declared = [TENANTS, Selector("app=web")]
        changing = asyncio.create_task(cache.declare("secrets", declared, replace=True))
        await until(lambda: informer.declared == Cached(declared))
        mark(environment, "shop", {"metadata": {"labels": {"tenant": None}}})
        (labelled,) = environment.runtime.namespaces.of(labels_of_namespaces(TENANTS))
        await until(lambda: not labelled.present().names)
        assert informer.state.is_resolving
        assert informer.state.filter == informer.declared.filter
        silence.release()
        await changing


async def test_15_a_follower_of_an_unknown_namespace_goes_on_if_it_is_served() -> None:
    """A change begins the cache anew, since its kind was not served for a while."""
    async with tenants("shop", declared="") as environment:
        cache, informer = environment.cache, environment.informer
        seen: list[str] = []

        async def follow() -> None:
            async for change in cache.changes("secrets", namespace="shop"):
                seen.append(f"{change.cause} {change.name}")  # noqa: PERF401  # It is looked at meanwhile.

        task = asyncio.create_task(follow())
        await until(lambda: seen == ["entered s-0"])
        fault = environment.cluster.faults.add(NotServed(), resource="secrets")
        environment.cluster.cut("watch", "secrets")
        await fault.hit()
        await until(lambda: informer.state.is_resolving)
        environment.cluster.delete(secret("s-0", "shop"))
        changing = asyncio.create_task(cache.declare("secrets", TENANTS, replace=True))
        await until(lambda: informer.declared == Cached(TENANTS) or changing.done())
        fault.release()
        try:
            await changing
        except selectcache.errors.Missing:  # The new watch was refused before the release.
            await cache.declare("secrets", TENANTS, replace=True)
        await reached(lambda: len(seen) > 1 or task.done())
        assert seen == ["entered s-0", "deleted s-0"]
        task.cancel()


@pytest.mark.parametrize("given", ["shop", ["shop", "infra"], None])
async def test_15_a_handler_of_a_namespace_is_called_once_the_namespaces_are_known(given: Any) -> None:
    """At first, the operator may not list namespaces."""
    registry, seen = kopf.OperatorRegistry(), list[str]()

    @selectcache.on.change("secrets", registry=registry, **({} if given is None else {"namespace": given}))
    async def follow(name: str, cause: str, **_: Any) -> None:
        seen.append(f"{cause} {name}")

    cluster, settings = EmbeddedCluster(tls=False), kopf.OperatorSettings()
    with cluster.in_thread():
        cluster.namespace("shop")
        cluster.patch(namespace("shop"), YES)
        cluster.create(secret("a"))
        refused = cluster.faults.add(Refuse(403), resource="namespaces")
        vault, time = (Vault({"login": kopf.ConnectionInfo(server=cluster.url, token=cluster.token)}), Time())
        settings_of(settings).selectors["v1/secrets"] = TENANTS
        settings_of(settings).audit_interval = 0
        settings.peering.clusterwide = True
        runtimes = []

        def make(settings: kopf.OperatorSettings, *, namespaces: tuple[str, ...] | None) -> Runtime:
            runtimes.append(made := runtime_of(settings, vault, time, namespaces))
            return made

        with context(settings, vault):
            operator = launch(settings, make_runtime=make, registry=registry, beside=deliver_changes)
            await until(lambda: runtimes and runtimes[0].informer("v1/secrets").state.part().error)
            for _ in range(50):  # The handler begins to follow meanwhile.
                await asyncio.sleep(0)
            refused.release()
            await until(lambda: runtimes[0].informer("v1/secrets").state.ready)
            assert await reached(lambda: seen)
            cluster.delete(secret("a"))
            assert await reached(lambda: len(seen) == 2)
            operator.task.cancel()
            await asyncio.wait({operator.task})
        await vault.close()
    assert seen == ["entered a", "deleted a"]


def runtime_of(
    settings: kopf.OperatorSettings, vault: Vault, time: Time, namespaces: tuple[str, ...] | None
) -> Runtime:
    """Return a runtime whose time passes as fast as it is slept."""
    return Runtime(
        settings_of(settings),
        KopfTransport(vault, request_timeout=60, clock=time.clock, sleep=time.pause),
        namespaces=namespaces,
        chance=lambda: 0.5,
        logger=logging.getLogger("kopf_selectcache"),
        clock=time.clock,
        sleep=time.sleep,
    )


@pytest.mark.parametrize("fault", UNANSWERED, ids=["silent", "refused"])
async def test_1_why_says_nothing_of_a_label_that_it_does_not_know(fault: Fault) -> None:
    async with unknown(fault) as (environment, planned):
        found = await environment.cache.why("secrets", "s-0", namespace="shop")
        assert (found.standing, found.branches) == (Standing.UNKNOWN, ())
        planned.release()
        await until(lambda: environment.informer.state.ready)
        assert (await environment.cache.why("secrets", "s-0", namespace="shop")).standing is Standing.CACHED
