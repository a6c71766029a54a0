"""A namespace of a cluster, and short words for what conformance tests do in it. Its plain kind is the
Secret.

Secrets, since clusters put ConfigMaps and ServiceAccounts of their own into each namespace.
"""

import itertools
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest
import urllib3

from tests.apiserver.client import ApiError, Watch
from tests.apiserver.cluster import Cluster
from tests.apiserver.waiting import wait_until

# What the real API server 1.33 does differently, of what all others are held to.
since_watch_list = pytest.mark.since(
    "1.34", "initial events need the feature WatchList, which 1.33 has off by default"
)
since_worded = pytest.mark.since("1.36", "1.33 words it differently")
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
INITIAL = {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": True}
POD: dict[str, Any] = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}
SPECS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pods": (POD["spec"], {"activeDeadlineSeconds": 9}),
    "deployments": ({"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}, {"replicas": 3}),
    "replicasets": ({"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}, {"replicas": 3}),
    "daemonsets": ({"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}, {"minReadySeconds": 3}),
    "statefulsets": (
        {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE, "serviceName": "s"},
        {"replicas": 3},
    ),
    "jobs": ({"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}, {"parallelism": 3}),
    "cronjobs": (
        {
            "schedule": "* * * * *",
            "jobTemplate": {"spec": {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}},
        },
        {"suspend": True},
    ),
    "services": ({"ports": [{"port": 80}]}, {"sessionAffinity": "ClientIP"}),
    "leases": ({"holderIdentity": "a"}, {"holderIdentity": "b"}),
}
"""Of some kinds, the least spec that is valid, and a change of it."""
GROUPS = {
    "secrets": "/api/v1",
    "configmaps": "/api/v1",
    "pods": "/api/v1",
    "services": "/api/v1",
    "podtemplates": "/api/v1",
    "serviceaccounts": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "events": "/api/v1",
    "endpoints": "/api/v1",
    "deployments": "/apis/apps/v1",
    "statefulsets": "/apis/apps/v1",
    "daemonsets": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "cronjobs": "/apis/batch/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "roles": "/apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
}


@dataclass(frozen=True)
class Place:
    """One namespace. Kinds are given by their plurals; paths of custom resources by `prefix`, such as
    `/apis/g/v1`."""

    api: Cluster
    namespace: str
    plural: str = "secrets"
    prefix: str = ""
    kind: str = ""

    def of(self, plural: str, *, prefix: str = "", kind: str = "") -> "Place":
        """Give the same namespace, with another kind."""
        return Place(self.api, self.namespace, plural, prefix, kind)

    def path(self, name: str = "", *, everywhere: bool = False) -> str:
        prefix = self.prefix or GROUPS[self.plural]
        where = prefix if everywhere else f"{prefix}/namespaces/{self.namespace}"
        return f"{where}/{self.plural}{'/' if name else ''}{name}"

    def create(self, *names: str, labels: Any = None, metadata: Any = None, **body: Any) -> Any:
        """Create objects; give the last one as it was answered."""
        made = None
        for name in names:
            said = {
                "name": name,
                **({"labels": dict(labels)} if labels is not None else {}),
                **(metadata or {}),
            }
            made = self.api.request("POST", self.path(), body={**self.typed(), "metadata": said, **body})
        return made

    def typed(self) -> dict[str, str]:
        """What the body of a custom resource must say."""
        return {"apiVersion": self.prefix.removeprefix("/apis/"), "kind": self.kind} if self.kind else {}

    def get(self, name: str, **options: Any) -> Any:
        return self.api.request("GET", self.path(name), **options)

    def version_of(self, name: str) -> str:
        version: str = self.get(name)["metadata"]["resourceVersion"]
        return version

    @property
    def version(self) -> str:
        """The version of a list of now."""
        version: str = self.api.request("GET", self.path())["metadata"]["resourceVersion"]
        return version

    def patch(self, name: str, body: object, **options: Any) -> Any:
        return self.api.request("PATCH", self.path(name), body=body, **options)

    def label(self, name: str, **labels: str | None) -> str:
        """Change labels; give the version of that."""
        version: str = self.patch(name, {"metadata": {"labels": labels}})["metadata"]["resourceVersion"]
        return version

    def replace(self, name: str, body: object, **options: Any) -> Any:
        return self.api.request("PUT", self.path(name), body=body, **options)

    def delete(self, name: str, **options: Any) -> Any:
        return self.api.request("DELETE", self.path(name), **options)

    def listed(self, *, accept: Any = None, everywhere: Any = False, **query: Any) -> Any:
        return self.api.request("GET", self.path(everywhere=everywhere), query=query, accept=accept)

    def names(self, **query: Any) -> list[str]:
        return names_of(self.listed(**query))

    def watch(
        self, *, accept: Any = None, everywhere: Any = False, deadline: Any = 60, **query: Any
    ) -> Watch:
        return self.api.watch(self.path(everywhere=everywhere), query=query, accept=accept, deadline=deadline)


@contextmanager
def fresh_place(api: Cluster) -> Iterator[Place]:
    """Give a namespace as long as the `with` block lasts."""
    place = Place(api, api.namespace(prefix="conformance"))
    try:
        yield place
    finally:
        with suppress(ApiError):  # A test may have deleted it.
            api.request("DELETE", f"/api/v1/namespaces/{place.namespace}")


def names_of(listed: Mapping[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def refusal(api: Cluster, method: str, path: str, **options: Any) -> Any:
    """Ask for what is refused; give the answer's body, a Status, whose code is that of the answer."""
    with pytest.raises(ApiError) as caught:
        api.request(method, path, **options)
    status, body = caught.value.status, caught.value.body
    if not isinstance(body, dict):
        return {"code": status, "text": body}
    assert body["code"] == status
    return body


def take(watch: Watch, count: int) -> list[dict[str, Any]]:
    """Wait for the next `count` events."""
    return list(itertools.islice(watch, count))


def short(events: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Give type, name and version of each event."""
    return [
        (
            event["type"],
            event["object"]["metadata"].get("name", ""),
            event["object"]["metadata"]["resourceVersion"],
        )
        for event in events
    ]


def raw(
    api: Cluster,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, object] | None = None,
    body: object = None,
    token: str | None = None,
) -> urllib3.BaseHTTPResponse:
    """Make a request and give the answer with its headers; the body is as it came, gzip and all."""
    said = {
        "Authorization": f"Bearer {api.token if token is None else token}",
        "Content-Type": "application/json",
        **(headers or {}),
    }
    return api._http.request(
        method,
        f"{api.url}{path}{'?' if query else ''}{urlencode(query or {})}",
        headers={key: value for key, value in said.items() if value},
        body=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
        decode_content=False,
    )


def pages(place: Place, **query: Any) -> Iterator[Any]:
    """Give the pages of a list, one after the other."""
    goes_on: str | None = ""
    while goes_on is not None:
        page = place.listed(**query, **({"continue": goes_on} if goes_on else {}))
        yield page
        goes_on = page["metadata"].get("continue")


def once_ready(ask: Callable[[], Any]) -> Any:
    """Ask until the storage of a custom resource is set up: servers say 429 or 503 while they do that, 404
    before."""

    def asked() -> Any:
        try:
            return ask()
        except ApiError as error:
            if error.status in {404, 429, 503}:
                return None
            raise

    return wait_until(asked, "the custom resource is served")


def fresh_group(word: str = "conformance") -> str:
    """Give an API group that nobody has used: definitions are of the whole cluster, which others use, too."""
    return f"{word}-{secrets.token_hex(4)}.example.com"
