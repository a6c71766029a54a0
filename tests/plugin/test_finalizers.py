"""Finalizers of reconcilers: when they go on, which calls they lead to, and when they come off."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.api.status import Problem
from tests.plugin.reconciling import APPS, app, operated, serving
from tests.plugin.virtual import Times

DONE = "example.com/done"
LONG = 100.0
"""Seconds in which anything that is to come has come."""


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return kopf.OperatorRegistry()


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    return Times(monkeypatch)


def stored(cluster: EmbeddedCluster) -> dict[str, Any]:
    """Return the object as the server has it; an empty one if it is absent."""
    with suppress(Problem):
        return cluster.get(app())
    return {}


def finalizers(cluster: EmbeddedCluster) -> list[str]:
    found: list[str] = stored(cluster).get("metadata", {}).get("finalizers", [])
    return found


@pytest.mark.parametrize("name", ["done", "example.com/", "Example.com/done", "", True, ["example.com/done"]])
def test_18_a_finalizer_has_a_domain_and_a_name(name: Any, registry: kopf.OperatorRegistry) -> None:
    with pytest.raises(DeclarationError, match=r"finalizer is .*such as 'example.com/done'"):
        selectcache.reconcile(APPS, finalizer=name, registry=registry)


def test_18_a_finalizer_goes_on_before_the_first_call_and_comes_off_after_the_cleanup(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    calls: list[tuple[bool, bool, list[str]]] = []

    @selectcache.reconcile(APPS, registry=registry, finalizer=DONE, deleted=True)
    async def follow(meta: Any, deleted: bool, deleting: bool, **_: Any) -> None:
        calls.append((deleting, deleted, list(meta.get("finalizers", []))))

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await times.until(lambda: calls, within=10)
            await asyncio.sleep(LONG)
            assert calls == [(False, False, [DONE])]
            assert finalizers(cluster) == [DONE]
            cluster.delete(app())
            await times.until(lambda: not stored(cluster), within=10)
            await asyncio.sleep(LONG)
            assert calls[1] == (True, False, [DONE])
            assert [each[:2] for each in calls[2:]] == [(False, True)]

    times.run(main())
