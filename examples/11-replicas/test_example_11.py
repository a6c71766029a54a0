"""Test the operator: a call of the reconciler alone, in milliseconds, and two replicas on a cluster."""

import asyncio
import runpy
from pathlib import Path

import kopf
import pytest

from kopf_selectcache.testing import FakeCache

OPERATOR = Path(__file__).with_name("example.py")


def page(namespace="shop", **fields):
    metadata = {"name": "front", "namespace": namespace, "uid": "1"}
    return {"apiVersion": "example.com/v1", "kind": "Page", "metadata": metadata, **fields}


@pytest.fixture
def module(registry):
    """The operator's module, with its handlers in a registry of their own."""
    return runpy.run_path(str(OPERATOR))


@pytest.fixture
def _is_replica(monkeypatch):
    monkeypatch.setenv("POD_NAME", "pages-1")
    monkeypatch.setenv("NAMESPACE", "default")


@pytest.mark.usefixtures("_is_replica")
def test_a_page_is_published(module):
    settings = kopf.OperatorSettings()
    module["configure"](settings=settings)
    body, patch = page(spec={"title": "Tea & milk"}), kopf.Patch()
    cache = FakeCache([body], settings)
    arguments = {"body": body, "name": "front", "namespace": "shop", "spec": body["spec"], "patch": patch}
    asyncio.run(module["publish"](cache=cache, **arguments))
    made = cache.get("configmaps", "front", namespace="shop")
    assert made["data"] == {"index.html": "<h1>Tea &amp; milk</h1>"}
    assert patch["status"] == {"replica": "pages-1"}


@pytest.mark.usefixtures("_is_replica")
def test_a_replica_handles_all_namespaces_while_it_is_alone(cluster, operator):
    cluster.apply(OPERATOR.with_name("crd.yaml"))
    cluster.apply(OPERATOR.with_name("sample.yaml"))
    metadata = {"name": "pages-shard-pages-1", "namespace": "default"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    with operator(OPERATOR, "-A"):
        for namespace in ("shop", "office", "lab", "press", "studio", "garden"):
            cluster.wait_for(page(namespace), lambda now: now.get("status") == {"replica": "pages-1"})
    assert "holderIdentity" not in cluster.get(lease)["spec"], "it has left"
