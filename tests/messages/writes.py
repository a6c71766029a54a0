"""Errors of writes: refusals, lost answers, hidden objects, and objects that cannot be written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import kopf

from kopf_selectcache import AnyOf, Cached, Selector
from kopf_selectcache.cache.formats.given import plain
from kopf_selectcache.plugin.calls import make_plain
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.faults import Refuse
from tests.cache.environment import node, pod
from tests.messages.provoked import Provoked

Obj = dict[str, Any]


def made(name: str, **labels: str) -> Obj:
    """Return a pod that can be created."""
    metadata = {"name": name, "namespace": "ns", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}


WEB, DB = made("web-1", app="web"), made("db-1", app="db")
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": True}
CAUSES = [
    {"field": f"spec.f{each}", "reason": "FieldValueInvalid", "message": "it is too long" if each else ""}
    for each in range(7)
]
OWNED = [{"field": ".spec.replicas", "reason": "FieldManagerConflict", "message": 'conflict with "kubectl"'}]


def live(
    write: Callable[[Any], Any],
    *given: Refuse,
    objects: tuple[Obj, ...] = (WEB, DB),
    declared: Any = "app=web",
) -> Callable[[], Any]:
    """Return a function that writes, where the server refuses so."""

    def provoke() -> Any:
        cache = FakeCache(objects, {"pods": declared})
        for fault in given:
            for verb in ("create", "update", "patch", "delete"):
                cache.cluster.faults.add(fault, verb=verb, times=1)
        return write(cache.blocking.live)

    return provoke


def create(server: Any) -> Any:
    return server.create(made("web-2"), timeout=1)


def partly(write: Callable[[FakeCache], Any], **options: Any) -> Callable[[], Any]:
    return lambda: write(FakeCache([WEB], {"pods": Cached("app=web", **options)}))


LOST = Refuse(504, "Timeout", "it takes too long")
SAYS = "The server says why"
EITHER = AnyOf([Selector("app=web"), Selector(namespaces=["other"])])

REFUSED = {
    "create of an object that exists": live(lambda server: server.create(WEB)),
    "create without permission": live(
        create, Refuse(403, "Forbidden", 'pods is forbidden: User "x" cannot create resource "pods"')
    ),
    "create beyond a quota": live(create, Refuse(403, "Forbidden", "exceeded quota: pods")),
    "create with refused credentials": live(create, Refuse(401)),
    "create in a namespace that is absent": live(
        create, Refuse(404, "NotFound", 'namespaces "ns" not found')
    ),
    "create of a kind that is not served": live(create, Refuse(404, body=b"404 page not found")),
    "create of an invalid object": live(create, Refuse(422, "Invalid", SAYS, details={"causes": CAUSES})),
    "create that is invalid without causes": live(create, Refuse(422, "Invalid", SAYS)),
    "create of an object that cannot be read": live(create, Refuse(400, "BadRequest", SAYS)),
    "create of an invalid Secret": live(
        lambda server: server.create(SECRET), Refuse(422, "Invalid", "canary", details={"causes": CAUSES})
    ),
    "create on an overloaded server": live(create, Refuse(429, retry_after=60)),
    "create where something is gone": live(create, Refuse(410, "Gone", SAYS)),
    "create of an object that exists, whose answer is lost": live(lambda server: server.create(WEB), LOST),
    "replace of another version, whose answer is lost": live(
        lambda server: server.replace({**WEB, "metadata": {**WEB["metadata"], "resourceVersion": "1"}}),
        LOST,
    ),
    "create of a generated name whose answer is lost": live(
        lambda server: server.create({**WEB, "metadata": {"generateName": "web-", "namespace": "ns"}}), LOST
    ),
    "create of a generated name of a Secret whose answer is lost": live(
        lambda server: server.create({**SECRET, "metadata": {"generateName": "s-", "namespace": "ns"}}), LOST
    ),
    "a JSON patch whose answer is lost": live(
        lambda server: server.patch("pods", "web-1", [], namespace="ns", type="json", dry_run=False), LOST
    ),
    "patch of an absent object": live(lambda server: server.patch("pods", "x", {}, namespace="ns")),
    "delete of an absent object": live(lambda server: server.delete("pods", "x", namespace="ns")),
    "replace of another version": live(
        lambda server: server.replace({**WEB, "metadata": {**WEB["metadata"], "resourceVersion": "1"}})
    ),
    "apply of a field that somebody owns": live(
        lambda server: server.apply(WEB, field_manager="us"),
        Refuse(409, "Conflict", SAYS, details={"causes": OWNED}),
    ),
    "apply of a field that the kind does not have": live(lambda server: server.apply({**WEB, "spc": {}})),
    "apply of a value of another type": live(
        lambda server: server.apply({**WEB, "metadata": {**WEB["metadata"], "labels": 5}})
    ),
    "apply of a field that a Secret does not have": live(
        lambda server: server.apply({**SECRET, "dta": "canary"})
    ),
    "ensure of a hidden object": live(lambda server: server.ensure(made("db-1", app="web"))),
    "ensure of an object that two alternatives hide": live(
        lambda server: server.ensure(made("db-1", app="web")), declared=EITHER
    ),
    "adoption of an object with another label": live(
        lambda server: server.ensure(made("db-1", app="web"), adopt=True)
    ),
    "adoption of an object of another controller": live(
        lambda server: server.ensure(made("db-2", app="web"), adopt=True),
        objects=({**made("db-2"), "metadata": {**made("db-2")["metadata"], "ownerReferences": [OWNER]}},),
    ),
}

MISTAKES = {
    "no object": live(lambda server: server.create(5)),
    "an object without a kind": live(lambda server: server.create({"apiVersion": "v1"})),
    "an object without a name": live(lambda server: server.create({**WEB, "metadata": {}})),
    "a replaced object without a name": live(lambda server: server.replace({**WEB, "metadata": {}})),
    "an object without a namespace": live(lambda server: server.create({**WEB, "metadata": {"name": "a"}})),
    "a cluster-scoped object with a namespace": live(
        lambda server: server.create({**node("n1"), "metadata": {"name": "n1", "namespace": "ns"}})
    ),
    "an object with an impossible name": live(lambda server: server.create(made("a/b"))),
    "an object that is no JSON": live(lambda server: server.create({**WEB, "spec": object()})),
    "a patch with a set": live(
        lambda server: server.patch("pods", "a", {"spec": {"a": [{"x": {1}}]}}, namespace="ns")
    ),
    "a patch of a handler with a set": lambda: patched({"status": {"pods": [{"x": {1}}]}}),
    "a returned value with a set": lambda: plain("the returned value", {"pods": {1}}),
    "a patch with a call that is not awaited": lambda: patched({"status": {"x": asyncio.sleep(0)}}),
    "an object with an infinite number": live(
        lambda server: server.create({**WEB, "spec": {"replicas": float("inf")}})
    ),
    "an unknown option": live(lambda server: server.patch("pods", "a", {}, namespace="ns", foo=1)),
    "an option of another type": live(lambda server: server.create(WEB, dry_run="yes")),
    "a name of another type": live(lambda server: server.patch("pods", 5, {}, namespace="ns")),
    "a write of the status by its own name": live(lambda server: server.patch_status("pods", "a", "ns", {})),
    "a patch of an object in place of its names": live(lambda server: server.patch(WEB, {})),
    "a deletion of an object in place of its names": live(lambda server: server.delete(WEB)),
    "no changes": live(lambda server: server.patch("pods", "a", namespace="ns")),
    "changes of another type": live(
        lambda server: server.patch("pods", "a", {}, namespace="ns", type="json")
    ),
    "an unknown type of a patch": live(
        lambda server: server.patch("pods", "a", {}, namespace="ns", type="apply")
    ),
    "an impossible subresource": live(
        lambda server: server.patch("pods", "a", {}, namespace="ns", subresource="a/b")
    ),
    "an impossible precondition": live(lambda server: server.delete("pods", "a", namespace="ns", uid=5)),
    "an unknown propagation": live(
        lambda server: server.delete("pods", "a", namespace="ns", propagation="later")
    ),
    "an impossible grace period": live(
        lambda server: server.delete("pods", "a", namespace="ns", grace_period=-1)
    ),
    "a function that is none": live(lambda server: server.update("pods", "web-1", 5, namespace="ns")),
    "a function that is async": live(lambda server: server.update("pods", "web-1", later, namespace="ns")),
    "a function that renames": live(lambda server: server.update("pods", "web-1", rename, namespace="ns")),
    "an apply of an object that was read": live(
        lambda server: server.apply(
            {**WEB, "metadata": {"name": "a", "managedFields": [{}]}}, field_manager="us"
        )
    ),
    "an object of which a part is kept, replaced": partly(
        lambda cache: cache.blocking.live.replace(cache.get("pods", "web-1", namespace="ns")), drop=["spec"]
    ),
    "an object of which a part is kept, created": partly(
        lambda cache: cache.blocking.live.create(cache.get("pods", "web-1", namespace="ns")), drop=["spec"]
    ),
    "a plain copy of an object of which a part is kept, replaced": partly(
        lambda cache: cache.blocking.live.replace(dict(cache.get("pods", "web-1", namespace="ns"))),
        drop=["spec"],
    ),
    "a plain copy of an object of which a part is kept, created": partly(
        lambda cache: cache.blocking.live.create(dict(cache.get("pods", "web-1", namespace="ns"))),
        drop=["spec"],
    ),
    "an object of such a kind without a version": partly(
        lambda cache: cache.blocking.live.replace(WEB), keep=["metadata"]
    ),
    "an unknown write": live(lambda server: server.creat(WEB)),
    "a write in a thread that is not awaited": lambda: FakeCache([pod("a")], {}).live.create(WEB),
}


async def later(_: object) -> None: ...


def patched(changes: Obj) -> None:
    if (error := make_plain(kopf.Patch(changes))) is not None:
        raise error


def rename(obj: Obj) -> None:
    obj["metadata"]["name"] = "other"


def provoke(provoked: Provoked) -> None:
    for chapter, entries in {"Refused writes": REFUSED, "Mistakes in a write": MISTAKES}.items():
        for title, function in entries.items():
            provoked.add(chapter, title, function)
