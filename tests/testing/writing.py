"""The embedded API's objects alone, written without requests: a clock that stands still, and names that
count."""

import datetime as dt
import itertools
import json
from collections.abc import Mapping
from typing import Any

from kopf_selectcache.testing.api.history import Change, History, Stored
from kopf_selectcache.testing.api.kinds import Kinds, Served
from kopf_selectcache.testing.api.managed_fields import Writer
from kopf_selectcache.testing.api.objects import How, Objects

MERGE = "application/merge-patch+json"
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
POD = {"containers": [{"name": "c", "image": "i"}]}


class Parts:
    """History, kinds and objects, wired as in a server."""

    def __init__(self) -> None:
        self.time = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        self.counter = itertools.count(1)
        self.history = History()
        self.kinds = Kinds()
        self.objects = Objects(
            self.history,
            self.kinds,
            now=self.now,
            new_uid=lambda: f"uid-{next(self.counter)}",
            suffix=lambda: "abcde",
        )

    def now(self) -> dt.datetime:
        return self.time


class Store(Parts):
    """Objects in one namespace, `default`; kinds are named as in error messages: `pods`, `jobs.batch`."""

    def kind(self, name: str, version: str = "") -> Served:
        found = [
            served for served in self.kinds if served.qualified == name and version in ("", served.version)
        ]
        assert found, f"{name} is not served"
        return found[0]

    def create(self, kind: str, name: str, namespace: str = "default", **body: Any) -> dict[str, Any]:
        served = self.kind(kind)
        said = {"name": name, **body.pop("metadata", {})}
        typed = {"apiVersion": served.api_version, "kind": served.kind} if served.custom else {}
        return shown(
            self.objects.create(
                served, namespace if served.namespaced else "", {**typed, "metadata": said, **body}
            )
        )

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        served = self.kind(kind)
        return shown(self.objects.get(served, namespace if served.namespaced else "", name))

    def put(
        self, kind: str, body: Mapping[str, Any], namespace: str = "default", **options: Any
    ) -> dict[str, Any]:
        served = self.kind(kind)
        typed = {"apiVersion": served.api_version, "kind": served.kind}
        name = options.pop("name", body["metadata"].get("name"))
        return shown(
            self.objects.update(
                served, namespace if served.namespaced else "", name, {**typed, **body}, **options
            )
        )

    def patch(
        self,
        kind: str,
        name: str,
        patch: object,
        namespace: str = "default",
        *,
        content_type: str = MERGE,
        writer: Writer | None = None,
        subresource: str = "",
    ) -> dict[str, Any]:
        served = self.kind(kind)
        data = json.dumps(patch).encode()
        how = How(writer=writer or Writer(subresource=subresource))
        return shown(
            self.objects.patch(served, namespace if served.namespaced else "", name, data, content_type, how)
        )

    def delete(
        self, kind: str, name: str, namespace: str = "default", **options: Any
    ) -> tuple[dict[str, Any], bool]:
        served = self.kind(kind)
        stored, gone = self.objects.delete(served, namespace if served.namespaced else "", name, options)
        return shown(stored), gone

    def names(self, kind: str, namespace: str = "") -> list[str]:
        return [name for _, name in self.history.keys(self.kind(kind).table, namespace=namespace)]

    def define(
        self, *, schema: Mapping[str, Any] | None = None, name: str = "widgets.example.com", **version: Any
    ) -> dict[str, Any]:
        """Define widgets; without a schema, they may hold anything."""
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        plural, _, group = name.partition(".")
        return self.create(
            DEFINITIONS,
            name,
            spec={
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": plural, "kind": "Widget"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": schema or anything},
                        **version,
                    }
                ],
            },
        )

    def changes(self, since: int, kind: str = "") -> list[Change]:
        return list(self.history.since(since, self.kind(kind).table if kind else None))


def shown(stored: Stored) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(stored.data)
    assert body["metadata"].get("resourceVersion", "0") == str(stored.version)
    return body
