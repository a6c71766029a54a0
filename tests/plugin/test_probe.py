"""The liveness probe over HTTP, of whole operators: what it tells, and when it fails."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import kopf
import pytest

from kopf_selectcache import Cached
from kopf_selectcache.informer.health import Health
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.settings.options import settings_of
from tests.apiserver.process import free_port
from tests.faults.environment import until
from tests.kopf_operators import Cluster, declaring, operating, run

PODS = "/api/v1/pods"
CODES = {Health.UNAUTHORIZED: 401, Health.FORBIDDEN: 403, Health.REJECTED: 422, Health.STALLED: 503}
"""The server's answer to the list that brings the cache into these states."""

LARGE = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "name": "large",
        "namespace": "shop",
        "uid": "u",
        "resourceVersion": "5",
        "labels": {"app": "web"},
    },
    "spec": {"padding": "x" * 100_000},
}


def free_endpoint() -> str:
    return f"http://127.0.0.1:{free_port()}/healthz"


async def probed(health: Health, *, failing: bool) -> tuple[int, Any]:
    """Run an operator until its cache is so, and ask its probe: give the code and what it tells."""
    settings, cluster = (
        declaring(
            **{
                "widgets.example.com" if health is Health.MISSING else "pods": Cached(
                    "app=web", max_bytes="64Ki"
                )
            }
        ),
        Cluster(),
    )
    if health is Health.OVERSIZED:
        cluster.objects = (LARGE,)
    declared = settings_of(settings)
    declared.failing_probe, declared.sync_timeout = failing, 0.001
    if health in CODES:
        cluster.refused[PODS] = CODES[health]
    elif health is Health.SYNCING:
        cluster.hold(PODS)
    endpoint = free_endpoint()
    async with operating(kopf.OperatorRegistry(), cluster, settings=settings, liveness_endpoint=endpoint):

        def is_so() -> bool:
            operator = operator_of(settings)
            return (
                operator is not None
                and operator._runtime.done()
                and all(informer.state.health is health for informer in operator.runtime.informers.values())
            )

        await until(is_so)
        return await probe(endpoint)


async def probe(endpoint: str) -> tuple[int, Any]:
    """Ask a probe: give the code and what it tells."""
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(endpoint) as response:
                    text = await response.text()
                    assert response.ok or text.startswith("500 Internal Server Error"), (
                        "Kopf lets the web server answer"
                    )
                    return response.status, json.loads(text)["selectcache.probe"] if response.ok else None
            except aiohttp.ClientConnectorError:
                continue  # Kopf has not opened it yet.


@pytest.mark.parametrize("health", [health for health in Health if health is not Health.STALE])
def test_it_tells_how_each_cache_is_doing_and_succeeds(health: Health) -> None:
    code, told = run(probed(health, failing=False))
    (report,) = told.values()
    assert (code, report["health"]) == (200, health.value)


@pytest.mark.parametrize("health", [health for health in Health if health is not Health.STALE])
def test_if_configured_it_fails_while_a_cache_is_stalled_unauthorized_or_forbidden(
    health: Health, caplog: pytest.LogCaptureFixture
) -> None:
    """And not in states that a restart would only prolong: it is tests/informer/test_informers_health.py that
    tells of stale caches."""
    code, told = run(probed(health, failing=True))
    assert code == (500 if health in (Health.STALLED, Health.UNAUTHORIZED, Health.FORBIDDEN) else 200)
    assert (told is None) is (code == 500)
    why = f"The cache of pods is {health.value}: "
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert any(why in message for message in errors) is (code == 500), "Kopf logs why"
    assert [record.name for record in caplog.records if record.exc_info] == (
        ["aiohttp.server"] if code == 500 else []
    )
