"""docs/migrating.md: both sides of each change write the same, from the same objects. In example 12, the
reconciler takes over the objects of Kopf's handlers.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

import kopf.testing
import pytest

from kopf_selectcache.testing import EmbeddedCluster, FakeCache
from kopf_selectcache.testing._operator import OperatorRun

from .pages import DOCS, ROOT, Fence, fences

PAGE = DOCS / "migrating.md"
STARTED = DOCS / "getting-started.md"
BEFORE, AFTER = (ROOT / "examples/12-from-handlers" / name for name in ("before.py", "example.py"))
SHOP: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "WebApp",
    "metadata": {"name": "shop", "namespace": "shop"},
    "spec": {"team": "blue", "image": "none"},
}
WRITTEN = {
    "by_label": ["blue-1", "blue-2"],
    "by_owner": ["blue-2", "red-1"],
    "by_name": "7",
    "by_function": ["blue-1", "blue-2", "red-1"],
    "by_group": {"Running": 3, "Pending": 1},
}


def sides() -> dict[str, list[Fence]]:
    """Return the fences of the page by their first line."""
    found: dict[str, list[Fence]] = {"both": [], "before": [], "after": [], "at most": []}
    for fence in fences(PAGE, "python"):
        first = re.match(r"# (before\n|after\n|at most)", fence.text)
        found[first[1].strip() if first else "both"].append(fence)
    return found


def populate(cluster: EmbeddedCluster) -> None:
    """Create the objects that both sides read, and some that they must not."""
    (definition,) = (fence.text for fence in fences(STARTED) if fence.name == "crd.yaml")
    cluster.apply(definition)
    for namespace in ("shop", "office"):
        cluster.namespace(namespace)
    (shop,) = cluster.create(SHOP)
    owner = {"apiVersion": "example.com/v1", "kind": "WebApp", "name": "shop", "uid": shop["metadata"]["uid"]}
    cluster.create(
        pod("blue-1", node="node01", team="blue"),
        pod("blue-2", owner=owner, phase="Pending", team="blue"),
        pod("red-1", node="node01", owner=owner, team="red"),
        pod("blue-3", namespace="office", team="blue"),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "shop", "namespace": "shop"},
            "data": {"price": "7"},
        },
    )


def pod(
    name: str,
    *,
    namespace: str = "shop",
    node: str = "node02",
    owner: Any = None,
    phase: str = "Running",
    **labels: str,
) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": namespace,
        "labels": labels,
        "ownerReferences": [owner] if owner else [],
    }
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}


def test_each_change_is_shown_from_both_sides() -> None:
    shown = {
        side: [re.findall(r"status\['(\w+)'\]", fence.text)[0] for fence in sides()[side]]
        for side in ("before", "after")
    }
    assert shown == {"before": list(WRITTEN), "after": list(WRITTEN)}


@pytest.mark.parametrize("side", ["before", "after"])
def test_before_and_after_write_the_same(side: str, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    sources, operator = sides(), tmp_path / "operator.py"
    operator.write_text("\n".join(fence.text for fence in sources["both"] + sources[side]))
    populate(cluster)
    with kopf.testing.KopfRunner(["run", "-A", "--standalone", str(operator)]):
        found = cluster.wait_for(SHOP, lambda now: set(now.get("status", {})) == set(WRITTEN))
    assert found["status"] == WRITTEN


def test_a_reconciler_writes_at_most_once_in_its_interval(registry: kopf.OperatorRegistry) -> None:
    assert registry is kopf.get_default_registry()
    (fence,) = sides()["at most"]
    made: dict[str, Any] = {}
    exec(fence.text, made)  # A reader runs it, too.  # noqa: S102
    shop = SHOP | {"metadata": SHOP["metadata"] | {"uid": "1"}}
    cache, memo = FakeCache([shop], {"v1/pods": "team"}), kopf.Memo()

    def call() -> tuple[Any, dict[str, Any]]:
        patch = kopf.Patch()
        left = asyncio.run(made["count"](body=shop, cache=cache, memo=memo, patch=patch))
        return left, dict(patch)

    assert call() == (None, {"status": {"pods": 0}})
    owner = {"apiVersion": "example.com/v1", "kind": "WebApp", "name": "shop", "uid": "1"}
    cache.cluster.create(pod("blue-1", owner=owner, team="blue"))
    memo["next"] += 3600
    left, patched = call()
    assert patched == {}
    assert left > 0
    memo["next"] = 0
    assert call() == (None, {"status": {"pods": 1}})


# ---- The whole operator.

KOPFS = "kopf.zalando.org/KopfFinalizerMarker"
WEB: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "WebApp",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"image": "nginx:1", "host": "example.com"},
}
ROUTES: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "routes", "namespace": "front"},
}
ROUTE = {"shop.web": "example.com"}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
}
POD = {
    "metadata": {"labels": {"webapp": "web"}},
    "spec": {"containers": [{"name": "web", "image": "nginx:1"}]},
}
LEFT = {
    "finalizers": [KOPFS],
    "annotations": {
        "kopf.zalando.org/last-handled-configuration": '{"spec":{"image":"nginx:1","host":"example.com"}}\n'
    },
}
"""The metadata that Kopf's handlers leave. The tests of tests/clients run them, and compare."""


def prepare(cluster: EmbeddedCluster) -> None:
    """Create everything that the whole operator needs."""
    (definition,) = (fence.text for fence in fences(STARTED) if fence.name == "crd.yaml")
    cluster.apply(definition)
    cluster.namespace("shop")
    cluster.namespace("front")


def leave(cluster: EmbeddedCluster) -> None:
    """Create everything that Kopf's handlers have left."""
    (made,) = cluster.create(WEB | {"metadata": WEB["metadata"] | LEFT, "status": {"ready": 0}})
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "WebApp",
        "name": "web",
        "uid": made["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = DEPLOYMENT["metadata"] | {"labels": {"webapp": "web"}, "ownerReferences": [owner]}
    spec = {"selector": {"matchLabels": {"webapp": "web"}}, "template": POD}
    cluster.create(DEPLOYMENT | {"metadata": metadata, "spec": spec}, ROUTES | {"data": ROUTE})


def image_of(deployment: Any) -> str:
    image: str = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    return image


def writes(cluster: EmbeddedCluster) -> list[str]:
    verbs = ("create", "update", "patch", "delete")
    return [f"{asked.verb} {asked.path}" for asked in cluster.requests.where() if asked.verb in verbs]


def test_the_reconciler_takes_over_the_state_left_by_kopfs_handlers_without_a_write(
    cluster: EmbeddedCluster, operator: type[OperatorRun]
) -> None:
    prepare(cluster)
    leave(cluster)
    with operator(AFTER, "-A", "--standalone") as running:
        cluster.requests.wait("watch", "webapps")
        cluster.patch(WEB, {"spec": {"host": "new.example.com"}})
        cluster.wait_for(ROUTES, lambda now: now.get("data") == {"shop.web": "new.example.com"})
        assert writes(cluster) == ["patch /api/v1/namespaces/front/configmaps/routes"]
        cluster.delete(WEB)
        cluster.wait_deleted(WEB)
        assert not cluster.get(ROUTES).get("data")
        cluster.wait_deleted(DEPLOYMENT)
    assert "failed" not in running.output


def test_the_reconciler_creates_and_restores_and_follows(
    cluster: EmbeddedCluster, operator: type[OperatorRun]
) -> None:
    prepare(cluster)
    cluster.create(ROUTES)
    with operator(AFTER, "-A", "--standalone"):
        cluster.create(WEB)
        cluster.wait_for(WEB, lambda now: now.get("status") == {"ready": 0})
        assert image_of(cluster.get(DEPLOYMENT)) == "nginx:1"
        assert cluster.get(ROUTES)["data"] == ROUTE
        cluster.patch(WEB, {"spec": {"image": "nginx:2"}})
        cluster.wait_for(DEPLOYMENT, lambda now: image_of(now) == "nginx:2")
        cluster.patch(DEPLOYMENT, {"status": {"readyReplicas": 1, "replicas": 1}}, subresource="status")
        cluster.wait_for(WEB, lambda now: now["status"] == {"ready": 1})
        cluster.patch(ROUTES, {"data": {"shop.web": None}})
        cluster.wait_for(ROUTES, lambda now: now.get("data") == ROUTE)
        cluster.delete(DEPLOYMENT)
        cluster.wait_for(DEPLOYMENT, lambda now: image_of(now) == "nginx:2")
