"""Makes the objects that tests put into clusters and caches."""

from __future__ import annotations

from typing import Any


def pod(
    name: str = "web-1", namespace: str = "shop", *, node: str = "", phase: str = "", **labels: str
) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "none"}]} | ({"nodeName": node} if node else {})
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return made | {"status": {"phase": phase}} if phase else made


def config_map(name: str, *, data: dict[str, str] | None = None, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "labels": labels}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return made if data is None else made | {"data": data}


def custom_resource(
    kind: str, *, plural: str = "", group: str = "example.com", **version: Any
) -> dict[str, Any]:
    """Make the definition of a custom resource. Its only version declares what `version` has."""
    plural = plural or f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema, **version}],
        },
    }
