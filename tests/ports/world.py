"""A cluster for the operators that copy Secrets, and which of their copies are wrong in it."""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kopf_selectcache.testing import Asked, EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster
from tests.apiserver.server import ApiServer
from tests.apiserver.waiting import wait_until
from tests.conftest import client_of
from tests.real.proxy import Proxy
from tests.real.test_examples import EXAMPLES, define

EXAMPLE = EXAMPLES / "10-copied-secrets"
OURS = {"example.com/managed-by": "clustersecrets"}
USER = "operator"
ALL = ({"apiGroups": ("*",), "resources": ("*",), "verbs": ("*",)},)
PATHS = {"Namespace": "/api/v1/namespaces", "ClusterSecret": "/apis/example.com/v1/clustersecrets"}

Obj = dict[str, Any]


def encoded(**data: str) -> dict[str, str]:
    return {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}


def secret(name: str, namespace: str, **data: str) -> Obj:
    return {"kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": encoded(**data)}


def clustersecret(name: str, data: Mapping[str, Any], **fields: Any) -> Obj:
    return {
        "apiVersion": "example.com/v1",
        "kind": "ClusterSecret",
        "metadata": {"name": name},
        "data": dict(data),
        **fields,
    }


def source(name: str, namespace: str) -> Obj:
    return {"valueFrom": {"secretKeyRef": {"name": name, "namespace": namespace}}}


def path_of(obj: Mapping[str, Any], *, named: bool = True) -> str:
    metadata = obj["metadata"]
    where = PATHS.get(obj["kind"]) or f"/api/v1/namespaces/{metadata['namespace']}/secrets"
    return f"{where}/{metadata['name']}" if named else where


class World(ABC):
    """A cluster, what people do in it, and what happens between it and the operator."""

    api: Cluster
    """A client of the server, as its admin."""
    token: str | None = None
    """The operator's."""
    address: str | None = None
    """Where the operator reaches the server, if that is another place than the server's own."""

    def __init__(self, api: Cluster) -> None:
        self.api = api
        self.foreign: dict[str, Obj] = {}
        """The Secrets of somebody else that have the name of a copy, by path."""
        define(api, EXAMPLE / "crd.yaml")

    # ---- What people do.

    def create(self, *objects: Obj) -> None:
        for obj in objects:
            self.api.request("POST", path_of(obj, named=False), body=obj)

    def namespaces(self, *names: str) -> None:
        self.create(*({"kind": "Namespace", "metadata": {"name": name}} for name in names))

    def others(self, *objects: Obj) -> None:
        """Create Secrets of somebody else that have the name of a copy."""
        self.create(*objects)
        self.leave(*objects)

    def leave(self, *objects: Obj) -> None:
        """Expect that the operator leaves these Secrets as they are."""
        for path in map(path_of, objects):
            self.foreign[path] = self.api.request("GET", path)["data"]

    def patch(self, obj: Obj, changes: Mapping[str, Any]) -> None:
        self.api.request("PATCH", path_of(obj), body=changes)

    def delete(self, *objects: Obj) -> None:
        for obj in objects:
            self.foreign.pop(path_of(obj), None)
            self.api.request("DELETE", path_of(obj))

    def end_namespace(self, name: str) -> None:
        """Delete a namespace and what is in it, as the controller of namespaces does."""
        path = path_of({"kind": "Namespace", "metadata": {"name": name}})
        self.api.request("DELETE", path)
        try:
            secrets = self.api.request("GET", f"{path}/secrets")["items"]
            self.api.request("GET", path)
        except ApiError:
            return  # The embedded server has ended it.
        for each in secrets:
            with suppress(ApiError):  # The operator has deleted it meanwhile.
                self.api.request("DELETE", f"{path}/secrets/{each['metadata']['name']}")
        ending = self.api.request("GET", path)
        self.api.request("PUT", f"{path}/finalize", body={**ending, "spec": {"finalizers": []}})

    # ---- What happens between the server and the operator.

    @abstractmethod
    def cut(self) -> None:
        """End all watches of the operator."""

    @abstractmethod
    def gap(self) -> Any:
        """Keep the operator from the server in a `with` block, and have the server forget its history at the
        end.
        """

    # ---- The judgement.

    def wrong(self) -> list[str]:
        """Return what is wrong with the copies."""
        namespaces = {
            each["metadata"]["name"]
            for each in self.api.request("GET", PATHS["Namespace"])["items"]
            if "deletionTimestamp" not in each["metadata"]
        }
        secrets = {path_of({"kind": "Secret", **each}): each for each in self.secrets()}
        wanted: dict[str, Obj] = {}
        found = []
        for each in self.api.request("GET", PATHS["ClusterSecret"])["items"]:
            if "deletionTimestamp" in each["metadata"]:
                found.append(f"not deleted yet: {each['metadata']['name']}")
            else:
                wanted.update(_copies(each, namespaces, secrets))
        for path, content in wanted.items():
            there = secrets.get(path)
            if there is None:
                found.append(f"missing: {path}")
            elif path not in self.foreign and not _is_like(there, content):
                found.append(f"stale: {path}")
        for path, there in secrets.items():
            is_ours = OURS.items() <= there["metadata"].get("labels", {}).items()
            if is_ours and path not in wanted and there["metadata"]["namespace"] in namespaces:
                found.append(f"superfluous: {path}")
        for path, data in self.foreign.items():
            if (
                path not in secrets
                or secrets[path].get("data") != data
                or "labels" in secrets[path]["metadata"]
            ):
                found.append(f"overwritten: {path}")
        return sorted(found)

    def versions(self) -> dict[str, str]:
        """Return the version of each Secret, by its path."""
        return {
            path_of({"kind": "Secret", **each}): each["metadata"]["resourceVersion"]
            for each in self.secrets()
        }

    def secrets(self) -> list[Obj]:
        items: list[Obj] = self.api.request("GET", "/api/v1/secrets")["items"]
        return items


def _copies(body: Obj, namespaces: set[str], secrets: Mapping[str, Obj]) -> Iterator[tuple[str, Obj]]:
    """Yield the path and the content of each copy that a ClusterSecret should have."""
    name, content = body["metadata"]["name"], {"type": body.get("type", "Opaque"), "data": body["data"]}
    labels = {**body.get("labels", {}), **OURS}
    origin = ""
    if "valueFrom" in body["data"]:
        ref = body["data"]["valueFrom"]["secretKeyRef"]
        origin = path_of({"kind": "Secret", "metadata": ref})
        content = {key: secrets[origin][key] for key in ("type", "data")}
    for namespace in namespaces:
        path = path_of({"kind": "Secret", "metadata": {"name": name, "namespace": namespace}})
        if path != origin and _matches(body, namespace):
            yield path, {**content, "labels": labels}


def _matches(body: Obj, namespace: str) -> bool:
    def any_of(patterns: list[str]) -> bool:
        return any(re.fullmatch(pattern, namespace) for pattern in patterns)

    return any_of(body.get("matchNamespace", [".*"])) and not any_of(body.get("avoidNamespaces", []))


def _is_like(there: Obj, content: Obj) -> bool:
    labels = there["metadata"].get("labels", {})
    return (there.get("data", {}), there["type"]) == (content["data"], content["type"]) and (
        content["labels"].items() <= labels.items()
    )


class EmbeddedWorld(World):
    """On the embedded server. It ends with the cluster that is given."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__(client_of(cluster))
        self.cluster = cluster
        self.token = cluster.user(USER, ALL)

    def requests(self) -> list[Asked]:
        """Return the operator's requests that are answered."""
        return self.cluster.requests.where(user=USER, where=lambda asked: asked.code != 0)

    def changes(self) -> list[Asked]:
        """Return those that have changed something."""
        return [asked for asked in self.requests() if asked.method != "GET" and asked.code < 300]

    def cut(self) -> None:
        self.cluster.cut("watch", user=USER)

    @contextmanager
    def gap(self) -> Iterator[None]:
        refused = self.cluster.faults.add(Refuse(503), user=USER)
        self.cut()
        yield
        self.cluster.compact()
        refused.release()


class RealWorld(World):
    """On a real server, with a proxy before it."""

    def __init__(self, server: ApiServer, proxy: Proxy) -> None:
        super().__init__(server)
        self._server = server
        self._proxy = proxy
        self.address = proxy.url

    def cut(self) -> None:
        self._proxy.end_streams(lambda _: True)

    @contextmanager
    def gap(self) -> Iterator[None]:
        self._proxy.hold(lambda _: True)
        self.cut()
        yield
        self._server.expire()
        self._server.wait_ready()
        wait_until(self._is_served, "the ClusterSecrets are served again")
        self._proxy.release()

    def _is_served(self) -> bool:
        try:
            self.wrong()
        except ApiError as error:
            if error.status in {429, 503}:  # The storage of a kind begins anew.
                return False
            raise
        return True


def source_text(file: Path) -> str:
    """Return the text of an operator, which tries again soon where it could not write."""
    return file.read_text().replace("AGAIN = 60", "AGAIN = 1")
