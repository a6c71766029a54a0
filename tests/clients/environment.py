"""A namespace for one client to work in: what it finds there, what others do there meanwhile, and kubeconfigs
to get there."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"color": {"type": "string"}, "size": {"type": "integer"}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


@dataclass(frozen=True)
class Environment:
    api: Cluster
    namespace: str
    group: str
    folder: Path

    def kubeconfig(self) -> Path:
        """Return the admin's."""
        return self.api.kubeconfig(self.folder / "kubeconfig", namespace=self.namespace)

    def kubeconfig_of_nobody(self) -> Path:
        """Return that of a user who may do nothing."""
        return self.api.kubeconfig(
            self.folder / "nobody", token=self.api.user("nobody").token, namespace=self.namespace
        )

    # ---- What is there.

    def config_map(self, name: str, **labels: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": self.namespace, "labels": labels}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"name": name}}

    def widget(
        self, name: str, *, color: str = "red", finalizers: Sequence[str] = (), **labels: str
    ) -> dict[str, Any]:
        metadata = {
            "name": name,
            "namespace": self.namespace,
            "labels": labels,
            "finalizers": list(finalizers),
        }
        return {
            "apiVersion": f"{self.group}/v1",
            "kind": "Widget",
            "metadata": metadata,
            "spec": {"color": color, "size": 1},
        }

    # ---- What others do meanwhile.

    def create(self, *objects: dict[str, Any]) -> None:
        for obj in objects:
            self.api.request("POST", self._path(obj["kind"]), body=obj)

    def get(self, kind: str, name: str) -> Any:
        return self.api.request("GET", self._path(kind, name))

    def names(self, kind: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.api.request("GET", self._path(kind))["items"]]

    def patch(self, kind: str, name: str, changes: object) -> None:
        self.api.request("PATCH", self._path(kind, name), body=changes)

    def relabel(self, kind: str, name: str, **labels: str) -> None:
        self.patch(kind, name, {"metadata": {"labels": labels}})

    def delete(self, kind: str, name: str) -> None:
        self.api.request("DELETE", self._path(kind, name))

    def version(self, kind: str) -> str:
        """Return the resourceVersion of a list of now."""
        version: str = self.api.request("GET", self._path(kind))["metadata"]["resourceVersion"]
        return version

    def clean_up(self) -> None:
        """Delete the namespace: by now finalizers hold nothing of it that a test is about."""
        with suppress(ApiError):
            self.api.request("DELETE", f"/api/v1/namespaces/{self.namespace}")

    def _path(self, kind: str, name: str = "") -> str:
        root = f"/apis/{self.group}/v1" if kind == "Widget" else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{kind.lower()}s{'/' if name else ''}{name}"
