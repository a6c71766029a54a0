"""Reconcilers with finalizers, and what happens to their objects on the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import kopf

import kopf_selectcache as selectcache
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.api.request import Answer, Request
from kopf_selectcache.testing.api.status import Problem
from kopf_selectcache.testing.faults import Fault
from tests.plugin.reconciling import APPS, app

DONE, OTHER = "example.com/done", "example.com/other"
LONG = 100.0
"""Seconds in which anything that is to come has come."""
PAUSE = 1.0
"""Seconds until the next call."""


def stored(cluster: EmbeddedCluster) -> dict[str, Any]:
    """Return the object as the server has it; an empty one if it is absent."""
    with suppress(Problem):
        return cluster.get(app())
    return {}


def finalizers(cluster: EmbeddedCluster) -> list[str]:
    found: list[str] = stored(cluster).get("metadata", {}).get("finalizers", [])
    return found


def set_finalizers(cluster: EmbeddedCluster, *names: str) -> None:
    cluster.patch(app(), {"metadata": {"finalizers": list(names)}})


def events_of(cluster: EmbeddedCluster) -> list[str]:
    events = cluster._admin.ask("GET", "/api/v1/namespaces/shop/events")["items"]
    return [each["message"] for each in events]


def finalized(*names: str) -> dict[str, Any]:
    obj = app()
    obj["metadata"]["finalizers"] = list(names)
    return obj


@dataclass(frozen=True, slots=True)
class Meanwhile(Fault):
    """Something happens before the server has a request, or before the client has its answer."""

    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None

    def asked(self, request: Request) -> Request:
        self.before()
        return request

    def answered(self, request: Request, answer: Answer) -> Answer:
        del request
        self.after()
        return answer


@dataclass(frozen=True, slots=True)
class Read(Fault):
    """Keeps the bodies of requests."""

    bodies: list[Any]

    def asked(self, request: Request) -> Request:
        self.bodies.append(json.loads(request.body))
        return request


@dataclass(frozen=True, slots=True)
class Change(Fault):
    """Changes the body of a request, as a webhook changes an object."""

    change: Callable[[Any], Any]

    def asked(self, request: Request) -> Request:
        return replace(request, body=json.dumps(self.change(json.loads(request.body))).encode())


class Call(NamedTuple):
    """One call of a reconciler, with the finalizers of its object."""

    deleting: bool
    deleted: bool
    retry: int
    finalizers: list[str]


class Calls(list[Call]):
    """The calls of one reconciler. `act` is what it does, and returns."""

    def __init__(
        self, registry: kopf.OperatorRegistry, act: Callable[..., object] = lambda **_: None, **options: Any
    ) -> None:
        super().__init__()

        @selectcache.reconcile(APPS, registry=registry, **{"finalizer": DONE, "id": "follow"} | options)
        async def follow(meta: Any, deleting: bool, deleted: bool, retry: int, **given: Any) -> object:
            self.append(Call(deleting, deleted, retry, list(meta.get("finalizers", []))))
            return act(deleting=deleting, deleted=deleted, retry=retry, meta=meta, **given)

    @property
    def cleanups(self) -> list[Call]:
        return [each for each in self if each.deleting]
