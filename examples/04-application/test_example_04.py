"""Test an operator: a handler alone, in milliseconds, and the whole operator on a cluster, in a second.

The fixtures come with the package (`pip install '.[testing]'` in a clone of its repository); no cluster is
needed.
"""

import asyncio
import runpy
from pathlib import Path

import kopf
import pytest

from kopf_selectcache.testing import FakeCache

OPERATOR = Path(__file__).with_name("example.py")
SHOP = {
    "apiVersion": "example.com/v1",
    "kind": "Application",
    "metadata": {"name": "shop", "namespace": "default", "uid": "1"},
}


def pod(name, *, uid, ready, **labels):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": "example.com/v1",
                    "kind": "Application",
                    "name": "shop",
                    "uid": uid,
                    "controller": True,
                }
            ],
        },
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@pytest.fixture
def module(registry):
    """The operator's module, with its handlers in a registry of their own."""
    return runpy.run_path(str(OPERATOR))


def test_a_handler_counts_the_pods_that_it_can_see(module):
    settings = kopf.OperatorSettings()
    module["configure"](settings=settings)
    cache = FakeCache(
        [
            pod("shop-1", uid="1", ready=True, **{module["OURS"]: "shop"}),
            pod("shop-2", uid="1", ready=False, **{module["OURS"]: "shop"}),
            pod(
                "shop-3", uid="1", ready=True
            ),  # It lacks the label, so the filter hides it, as in production.
        ],
        settings,
    )
    patch, spec = kopf.Patch(), {"currency": "USD"}
    asyncio.run(
        module["reconcile"](cache=cache, body=SHOP, name="shop", namespace="default", spec=spec, patch=patch)
    )
    assert patch["status"] == {"currency": "USD", "ready": "1/2"}
    assert cache.get("configmaps", "shop", namespace="default")["data"] == {"currency": "USD"}


def test_the_operator_writes_the_status(cluster, operator):
    cluster.apply(OPERATOR.with_name("crd.yaml"))
    (shop,) = cluster.create(SHOP)
    owned = pod("shop-1", uid=shop["metadata"]["uid"], ready=True, **{"example.com/app": "shop"})
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shop", "namespace": "default"}}
    with operator(OPERATOR, "-A"):
        cluster.wait_for(SHOP, lambda now: now.get("status") == {"currency": "EUR", "ready": "0/0"})
        cluster.create(owned)
        cluster.wait_for(SHOP, lambda now: now["status"]["ready"] == "1/1")
        cluster.patch(config, {"data": {"currency": "USD"}})  # It is changed back.
        cluster.wait_for(config, lambda now: now["data"] == {"currency": "EUR"})
        cluster.delete(config)
        cluster.wait_for(config, lambda now: now["data"] == {"currency": "EUR"})
