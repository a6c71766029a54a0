"""Namespaces that do not exist, and that an operator or its filters name: the log says so once, at the start
or when they are declared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import Caches, LabelSelector, Selector
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.protocol.messages import SLOW_SECONDS, Refusal
from kopf_selectcache.informer.namespaces import MOST_ASKED, absent
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from kopf_selectcache.testing.request_log import Asked
from tests.plugin.reconciling import config, operated
from tests.plugin.virtual import Times

FILTERS = {"v1/configmaps": Selector(namespaces=["shop", "other"])}
ASSIGNED = "'other' (named by settings.selectcache.selectors['v1/configmaps'])"


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    start = "Namespaces that do not exist: "
    return [text.removeprefix(start) for text in caplog.messages if text.startswith(start)]


def sentence(names: str) -> str:
    return f"{names}. Nothing is cached there until you create them."


@asynccontextmanager
async def started(
    cluster: EmbeddedCluster, filters: Any = FILTERS, **options: Any
) -> AsyncIterator[selectcache.Cache]:
    """Run an operator with these filters, once it has logged in."""
    async with operated(kopf.OperatorRegistry(), cluster, filters=filters, **options) as settings:
        cache = selectcache.cache_of(settings)
        await cache.wait_synced()
        yield cache


def is_asked(request: Asked) -> bool:
    """Return True for a request for one namespace. Kopf itself lists all."""
    return request.resource == "namespaces" and "fieldSelector" in request.query


def asked(cluster: EmbeddedCluster) -> list[str]:
    """Return the namespaces that the server was asked for, in their order."""
    return [
        each.query["fieldSelector"].removeprefix("metadata.name=")
        for each in cluster.requests.where(where=is_asked)
    ]


async def test_20_namespaces_that_do_not_exist_are_one_warning_at_the_start(
    times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    """The cache has their objects once they are created."""
    filters = FILTERS | {"v1/secrets": Selector(namespaces=["other", "nowhere"])}
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        async with started(cluster, filters) as cache:
            await times.until(lambda: warned(caplog), within=60)
            cluster.namespace("other")
            cluster.create(config("a") | {"metadata": {"name": "a", "namespace": "other"}})
            await cache.wait_for("configmaps", lambda _: True, namespace="other")
    nowhere = "'nowhere' (named by settings.selectcache.selectors['v1/secrets'])"
    assert warned(caplog) == [sentence(f"{nowhere}, {ASSIGNED}")]


async def test_20_a_namespace_of_the_operator_that_does_not_exist_is_a_warning(
    times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    """Patterns and cluster-scoped kinds name none."""

    def configure(settings: kopf.OperatorSettings) -> None:
        selectcache.settings_of(settings).defaults.namespaces = ["nowhere"]

    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        options: dict[str, Any] = {"clusterwide": False, "namespaces": ["shop", "other", "team-*"]}
        async with started(cluster, {"v1/nodes": ""}, configure=configure, **options):
            await times.until(lambda: warned(caplog), within=60)
    assert warned(caplog) == [sentence("'other' (named by kopf.operator(namespaces=...))")]


async def test_20_without_the_permission_to_read_namespaces_there_is_no_warning(
    times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        cluster.faults.add(Refuse(403), where=is_asked)
        async with started(cluster):
            await times.until(lambda: asked(cluster), within=60)
            for _ in range(3):
                await asyncio.sleep(SLOW_SECONDS)  # In virtual time.
        assert asked(cluster) == ["other"]
    assert warned(caplog) == []


async def test_20_after_a_failure_namespaces_are_asked_for_again(
    times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        cluster.faults.add(Refuse(500), where=is_asked, times=2)
        async with started(cluster):
            await times.until(lambda: warned(caplog), within=6 * SLOW_SECONDS)
        assert asked(cluster) == ["other", "other", "other", "shop"]
    assert warned(caplog) == [sentence(ASSIGNED)]


def test_20_a_filter_that_is_declared_or_changed_later_warns_of_its_own_namespaces(
    times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with EmbeddedCluster(tls=False) as cluster:
            cluster.namespace("shop")
            async with started(cluster) as cache:
                await times.until(lambda: len(warned(caplog)) == 1, within=60)
                await cache.declare("v1/secrets", Selector(namespaces=["late"]))
                await times.until(lambda: len(warned(caplog)) == 2, within=60)
                for namespace in ("later", "other"):
                    changing = asyncio.create_task(
                        cache.declare("v1/secrets", Selector(namespaces=[namespace]), replace=True)
                    )
                    while not changing.done():
                        cluster.bookmark()
                        await asyncio.sleep(0.1)
                    await changing
                await times.until(lambda: len(warned(caplog)) == 3, within=60)
            assert sorted(asked(cluster)) == ["late", "later", "other", "shop"]

    times.run(main())
    assert warned(caplog) == [
        sentence(ASSIGNED),
        sentence("'late' (named by cache.declare('v1/secrets', ...))"),
        sentence("'later' (named by cache.declare('v1/secrets', ...))"),
    ]


@pytest.mark.usefixtures("times")
async def test_20_filters_without_names_of_namespaces_ask_for_none(caplog: pytest.LogCaptureFixture) -> None:
    filters = {"v1/configmaps": "", "v1/secrets": Selector(namespaces=LabelSelector.parse("tenant=yes"))}
    async with EmbeddedCluster(tls=False) as cluster:
        async with started(cluster, filters):
            for _ in range(3):
                await asyncio.sleep(SLOW_SECONDS)  # In virtual time.
        assert asked(cluster) == []
    assert warned(caplog) == []


async def test_20_hundreds_of_namespaces_are_not_all_asked_for(
    times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    filters = {"v1/configmaps": Selector(namespaces=[f"ns-{number}" for number in range(MOST_ASKED + 5)])}
    async with EmbeddedCluster(tls=False) as cluster:
        async with started(cluster, filters):
            await times.until(lambda: warned(caplog), within=60)
        assert len(asked(cluster)) == MOST_ASKED
    assert len(warned(caplog)) == 1


async def test_20_caches_beside_those_of_the_operator_warn_of_their_namespaces(
    times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(tls=False) as cluster:
        login = kopf.ConnectionInfo(server=cluster.url, token=cluster.token)
        async with Caches({"v1/pods": "app=web"}, login=login, namespaces=["other"]):
            await times.until(lambda: warned(caplog), within=60)
    assert warned(caplog) == [sentence("'other' (named by Caches(namespaces=...))")]


@pytest.mark.parametrize(("code", "is_raised"), [(403, False), (500, True)])
def test_only_a_missing_right_to_list_namespaces_is_ignored(code: int, *, is_raised: bool) -> None:
    async def refuse(_: str) -> bool:
        raise Refused(Refusal(code))

    async def main() -> str:
        return await absent(refuse, {"other": "-n"})

    if is_raised:
        with pytest.raises(Refused):
            asyncio.run(main())
    else:
        assert asyncio.run(main()) == ""
