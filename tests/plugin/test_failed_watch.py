"""Kopf's own watch of a kind fails for good. What Kopf does then depends on its version; caches do not depend
on that watch."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from importlib.metadata import version
from typing import Any

import kopf
import pytest
from kopf._cogs.clients.watching import WatchingError

import kopf_selectcache as selectcache
from kopf_selectcache.testing.faults import ErrorEvent, Refuse
from tests.conftest import is_older
from tests.faults.environment import reached, run
from tests.plugin.reconciling import config, operated, serving

ENDS = not is_older(version("kopf"), "1.45")
"""Whether Kopf ends the operator. Before 1.45 it goes on, and calls the handlers of the kind no more."""


def labelled(name: str) -> dict[str, Any]:
    made = config(name)
    return made | {"metadata": made["metadata"] | {"labels": {"app": "web"}}}


def test_an_operator_whose_own_watch_fails_ends_or_goes_on_with_its_caches(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    seen, changed, steps = list[str](), list[str](), list[bool]()

    @kopf.on.event("configmaps", registry=registry)
    async def see(name: str, **_: Any) -> None:
        seen.append(name)

    @selectcache.on.change("v1/configmaps", registry=registry)
    async def change(name: str, **_: Any) -> None:
        changed.append(name)

    async def main() -> None:
        async with serving(labelled("first")) as cluster:
            cluster.faults.add(
                ErrorEvent(Refuse(500), after_events=1),
                verb="watch",
                resource="configmaps",
                where=lambda asked: "labelSelector" not in asked.query,  # Ours has one.
            )
            async with operated(registry, cluster, filters={"v1/configmaps": "app=web"}):
                steps.append(await reached(lambda: "first" in seen and "first" in changed))
                cluster.create(labelled("second"))
                steps.append(
                    await reached(lambda: "Watcher for configmaps.v1@none has failed" in caplog.text)
                )
                if not ENDS:
                    cluster.create(labelled("third"))
                    steps.extend([await reached(lambda: "third" in changed), "third" not in seen])

    with caplog.at_level(logging.ERROR, "kopf"), pytest.raises(WatchingError) if ENDS else nullcontext():
        run(main())
    assert steps == [True] * (2 if ENDS else 4)
