"""docs/migrating.md: both sides of each change write the same, from the same objects."""

import re
from pathlib import Path
from typing import Any

import kopf.testing
import pytest

from kopf_selectcache.testing import EmbeddedCluster

from .pages import DOCS, Fence, fences

PAGE = DOCS / "migrating.md"
STARTED = DOCS / "getting-started.md"
SHOP = {
    "apiVersion": "example.com/v1",
    "kind": "WebApp",
    "metadata": {"name": "shop", "namespace": "shop"},
    "spec": {"team": "blue", "node": "node01", "image": "none"},
}
WRITTEN = {
    "by_label": ["blue-1", "blue-2"],
    "by_owner": ["blue-2", "red-1"],
    "by_name": "7",
    "by_field": ["blue-1", "red-1"],
    "by_function": ["blue-1", "blue-2", "red-1"],
    "counted": 2,
    "listed": ["blue-1", "blue-2"],
    "written": "7",
}
OF_OTHERS = ("listed", "written")
"""What the side `before` needs another client for."""
# Tests with that client run these: tests/clients/test_migrating.py.
OF_CLIENTS = ("import kubernetes",)


def sides() -> dict[str, list[Fence]]:
    """Return the fences of the page by their first line; without those that need a client."""
    found: dict[str, list[Fence]] = {"both": [], "before": [], "after": []}
    for fence in fences(PAGE, "python"):
        if not any(each in fence.text for each in OF_CLIENTS):
            first = re.match(r"# (before|after)\n", fence.text)
            found[first[1] if first else "both"].append(fence)
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
    assert shown["after"] == list(WRITTEN)
    assert shown["before"] == [name for name in WRITTEN if name not in OF_OTHERS]


@pytest.mark.parametrize("side", ["before", "after"])
def test_before_and_after_write_the_same(side: str, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    sources, operator = sides(), tmp_path / "operator.py"
    operator.write_text("\n".join(fence.text for fence in sources["both"] + sources[side]))
    expected = {name: value for name, value in WRITTEN.items() if side == "after" or name not in OF_OTHERS}
    populate(cluster)
    with kopf.testing.KopfRunner(["run", "-A", "--standalone", str(operator)]):
        assert (
            cluster.wait_for(SHOP, lambda now: set(now.get("status", {})) == set(expected))["status"]
            == expected
        )
