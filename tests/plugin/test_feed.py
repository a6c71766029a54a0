"""Kopf's own handlers of a kind are fed from its cache: one list, one watch, and the events of Kopf."""

from __future__ import annotations

import kopf
import pytest

from tests.plugin.feeding import Events, config, feeding, in_loop, lists_of, serving


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return kopf.OperatorRegistry()


@in_loop
async def test_9_present_objects_come_with_no_type_and_then_each_change_in_order(
    registry: kopf.OperatorRegistry,
) -> None:
    events = Events()
    events.handle(registry)
    async with serving(config("old")) as cluster, feeding(registry, cluster):
        await events.see((None, "old"))
        cluster.create(config("new"))
        cluster.patch(config("new"), {"data": {"a": "1"}})
        cluster.delete(config("new"))
        await events.see(("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "new"))
        assert lists_of(cluster, "configmaps") == ["list", "watch"]
