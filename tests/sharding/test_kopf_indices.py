"""Handlers of a range that comes wait for indices, and for nothing else."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import kopf
import pytest

from tests.faults.environment import reached
from tests.plugin.reconciling import CRD

from .test_kopf_handlers import SPACE, moved


async def test_others_do_not_wait_for_an_object_whose_kind_is_removed() -> None:
    registry, seen, go_on = kopf.OperatorRegistry(), list[str](), asyncio.Event()

    @kopf.index("webapps", registry=registry, id="index")
    async def index(name: str, **_: object) -> str:
        await go_on.wait()
        return name

    @kopf.on.event("configmaps", registry=registry)
    async def event(name: str, **_: object) -> None:
        seen.append(name)

    async with moved(registry, "no selectors", "x") as replica:
        go_on.set()
        metadata = {"name": "web", "namespace": SPACE}
        app = {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": metadata, "spec": {}}
        replica.cluster.create(CRD)
        replica.cluster.create(app)
        assert await reached(lambda: seen and replica.indexed)
        await replica.drain()
        seen.clear()
        go_on.clear()
        await replica.give()
        await replica.rest()
        assert seen == []
        replica.cluster.delete(CRD)
        assert await reached(lambda: seen == ["x"])


async def test_other_objects_do_not_wait_for_a_daemon_that_does_not_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    registry, seen, end = kopf.OperatorRegistry(), list[str](), threading.Event()

    def is_x(name: str, **_: object) -> bool:
        return name == "x"

    @kopf.daemon("configmaps", registry=registry, when=is_x)
    def daemon(**_: object) -> None:
        seen.append("daemon")
        end.wait()

    @kopf.index("configmaps", registry=registry, id="index")
    async def index(name: str, **_: object) -> str:
        return name

    @kopf.on.event("configmaps", registry=registry)
    async def event(name: str, **_: Any) -> None:
        seen.append(name)

    async with moved(registry, "fed", "x", "y") as replica:
        try:
            assert await reached(lambda: {*seen} == {"daemon", "x", "y"})
            replica.take()
            for range_ in range(64):
                replica.shards.stop(range_)
            seen.clear()
            await replica.give()
            assert await reached(lambda: seen == ["y"])
        finally:
            end.set()
        assert await reached(lambda: {*seen} == {"daemon", "x", "y"})
    assert f"Kopf's handlers of {SPACE}/x wait for a daemon of the object that has not ended" in caplog.text
