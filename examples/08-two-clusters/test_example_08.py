"""Test the operator: the comparison alone, and the whole operator on two clusters."""

import asyncio
import runpy
from pathlib import Path

import pytest

from kopf_selectcache.testing import EmbeddedCluster, FakeCache

OPERATOR = Path(__file__).with_name("example.py")


def config(name, namespace="default", labels=None, **data):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture
def module(registry):
    """The operator's module, with its handlers in a registry of their own."""
    return runpy.run_path(str(OPERATOR))


def test_copies_become_equal_to_what_is_shared(module):
    shared, copied = {"example.com/shared": "yes"}, module["COPIED"]
    hub = FakeCache(
        [
            config("a", "registry", shared, x="1"),
            config("b", "registry", shared),
            config("private", "registry"),
        ],
        {"v1/configmaps": module["SHARED"]},
    )
    here = [config("a", labels=copied, x="changed", z="by hand"), config("old", labels=copied), config("own")]
    cache = FakeCache(here, {"v1/configmaps": copied})
    for _ in range(2):
        asyncio.run(module["copy_all"](hub, cache))
        found = {each["metadata"]["name"]: each.get("data", {}) for each in cache.list_cached("configmaps")}
        assert found == {"a": {"x": "1"}, "b": {}}
    assert cache.cluster.get(config("own"))


def test_the_operator_follows_the_hub(cluster, operator, tmp_path, monkeypatch):
    shared = {"example.com/shared": "yes"}
    with EmbeddedCluster().in_thread() as hub:
        monkeypatch.setenv("HUB_KUBECONFIG", str(hub.kubeconfig(tmp_path / "hub.kubeconfig")))
        hub.namespace("registry")
        hub.create(config("prices", "registry", shared, tea="3"), config("draft", "registry", tea="1"))
        with operator(OPERATOR, "-n", "default"):
            cluster.wait_for(config("prices"), lambda now: now["data"] == {"tea": "3"})
            hub.patch(config("prices", "registry"), {"data": {"tea": "4"}})
            cluster.wait_for(config("prices"), lambda now: now["data"] == {"tea": "4"})
            hub.create(config("hours", "registry", shared))
            cluster.wait_for(config("hours"), bool)
            hub.patch(config("prices", "registry"), {"metadata": {"labels": {"example.com/shared": None}}})
            cluster.wait_deleted(config("prices"))
