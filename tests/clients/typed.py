"""What type checkers make of reads with the classes of other clients: mypy and pyright are run over this
file, by test_types.py.

What is wrong must be wrong to both: each ignores what is expected, and complains where there is nothing to
ignore."""

from __future__ import annotations

from typing import Any, assert_type

import kopf
import kubernetes_asyncio.client
import pykube
from kubernetes.client import V1Deployment, V1Pod
from lightkube.resources.core_v1 import Pod as LightPod

from kopf_selectcache import Cache, Key, Objects, SyncCache, current, on, settings_of, with_cache
from kopf_selectcache.types import Audit, BodyView, ChangePlan, Why

Obj = dict[str, Any]


class MyPod(V1Pod):
    """A class of a user's own, made from one of a client."""


class Widget(pykube.objects.NamespacedAPIObject):
    version = "example.com/v1"
    endpoint = "widgets"
    kind = "Widget"


def to_pod(obj: Obj) -> LightPod:
    return LightPod(**obj)


def declare(settings: kopf.OperatorSettings) -> None:
    select = settings_of(settings).selectors
    select[V1Pod] = "app=web"
    select[pykube.Deployment] = {"app": "web"}
    select |= {Widget: "", "jobs": "app=web"}


@with_cache(kinds=[V1Pod, pykube.Deployment, "jobs"])
def handle(cache: Cache, **_: Any) -> None:
    found = cache.get(V1Pod, "a", namespace="ns")
    assert_type(found, V1Pod)
    assert_type(cache.get(V1Pod, "a", namespace="ns", default=None), V1Pod | None)
    assert_type(cache.get(MyPod, "a", namespace="ns"), MyPod)
    assert_type(cache.get("pods", "a", namespace="ns", as_=V1Pod), V1Pod)
    assert_type(cache.get("pods", "a", namespace="ns", as_=V1Pod, default=None, max_age=90), V1Pod | None)
    assert_type(cache.get(V1Pod, "a", namespace="ns", as_="view"), BodyView)
    assert_type(cache.get(V1Pod, "a", namespace="ns", as_=bytes), bytes)
    assert_type(cache.get(V1Pod, "a", namespace="ns", as_=MyPod), MyPod)
    assert_type(cache.get(pykube.Pod, "a", namespace="ns"), pykube.Pod)
    assert_type(cache.get(Widget, "a", namespace="ns", default=None), Widget | None)
    assert_type(cache.list(V1Pod, namespace="ns", labels="app=web"), list[V1Pod])
    assert_type(cache.list_cached("pods", as_=pykube.Pod), list[pykube.Pod])
    assert_type(cache.list_cached("pods", as_=to_pod), list[LightPod])
    assert_type(cache.list_cached(V1Deployment, owner={"metadata": {"uid": "u"}}), list[V1Deployment])
    assert_type(cache.list_cached("pods").keys(), list[Key])
    if found.spec is not None:
        assert_type(found.spec.node_name, str | None)


@on.change("pods", registry=kopf.OperatorRegistry())
def in_threads(cache: SyncCache, **_: Any) -> None:
    """Each verb that is awaited elsewhere: with a name, a class, and `as_=`."""
    sync = cache
    assert_type(sync.get(V1Pod, "a", namespace="ns"), V1Pod)
    assert_type(sync.list("pods", as_="view"), Objects[BodyView])
    assert_type(current(SyncCache), SyncCache)
    assert_type(current().get("pods", Key("a", namespace="ns")), Obj)
    assert_type(sync.fetch("pods", "a", namespace="ns"), Obj)
    assert_type(sync.fetch("pods", "a", namespace="ns", default=None), Obj | None)
    assert_type(sync.fetch(V1Pod, "a", namespace="ns", whole=True), V1Pod)
    assert_type(sync.fetch(V1Pod, "a", namespace="ns", default=5), V1Pod | int)
    assert_type(sync.fetch("pods", "a", namespace="ns", as_=V1Pod), V1Pod)
    assert_type(sync.fetch("pods", "a", namespace="ns", as_="view"), BodyView)
    assert_type(sync.fetch_list("pods"), Objects[Obj])
    assert_type(sync.fetch_list(pykube.Pod, limit=5), list[pykube.Pod])
    assert_type(sync.fetch_list("pods", as_=to_pod), list[LightPod])
    assert_type(sync.fetch_list(V1Pod, as_="view"), Objects[BodyView])
    assert_type(sync.wait_for("pods", bool), Obj)
    assert_type(sync.wait_for(V1Pod, bool, timeout=5), V1Pod)
    assert_type(sync.wait_for("pods", bool, as_=V1Pod), V1Pod)
    assert_type(sync.is_deleted(V1Pod, "a", namespace="ns"), bool)
    assert_type(sync.why("pods", "a", namespace="ns"), Why)
    assert_type(sync.plan("pods", "app=web", keep=["spec"]), ChangePlan)
    assert_type(sync.audit(V1Pod), Audit)
    sync.wait_deleted("pods", "a", namespace="ns", timeout=5)
    sync.wait_synced(5)
    sync.declare(V1Pod, "app=web", drop=["status"])
    sync.declare(V1Pod, "app=db", replace=True)
    sync.add_index(V1Pod, node="spec.nodeName")
    sync.undeclare(V1Pod)
    live = sync.live
    assert_type(live.get("pods", "a", namespace="ns"), Obj)
    assert_type(live.get(V1Pod, "a", namespace="ns", default=None), V1Pod | None)
    assert_type(live.get("pods", "a", namespace="ns", as_=to_pod), LightPod)
    assert_type(live.list(V1Pod, labels="app=web"), list[V1Pod])
    assert_type(live.list("pods", as_="view"), Objects[BodyView])
    pod = live.create(V1Pod())
    assert_type(pod, V1Pod)
    assert_type(live.create({}), Obj)
    assert_type(live.replace(pod, subresource="status"), V1Pod)
    assert_type(live.apply(pod, force=True, as_="view"), BodyView)
    assert_type(live.ensure(pod, adopt=True, as_=to_pod), LightPod)
    assert_type(live.patch(V1Pod, "a", {}, namespace="ns"), V1Pod)
    assert_type(live.patch("pods", "a", [], namespace="ns", type="json"), Obj)
    assert_type(live.update("pods", "a", lambda obj: obj, namespace="ns"), Obj)
    assert_type(live.update(V1Pod, "a", print, namespace="ns", as_="view"), BodyView)
    live.delete(V1Pod, "a", namespace="ns", propagation="orphan")


async def wait(cache: Cache) -> None:
    assert_type(cache.blocking, SyncCache)
    assert_type(current(Cache), Cache)
    assert_type(await cache.fetch("pods", "a", namespace="ns"), Obj)
    assert_type(await cache.fetch("pods", "a", namespace="ns", default=None), Obj | None)
    assert_type(await cache.fetch(V1Pod, "a", namespace="ns"), V1Pod)
    assert_type(await cache.fetch(V1Pod, "a", namespace="ns", default=None), V1Pod | None)
    assert_type(await cache.fetch_list(V1Pod, labels="app=web"), list[V1Pod])
    assert_type(await cache.fetch_list("pods", as_="view"), Objects[BodyView])
    assert_type(await cache.wait_for(Widget, bool, namespace="ns"), Widget)
    assert_type(await cache.wait_for("pods", bool, as_=V1Pod), V1Pod)
    assert_type(
        await cache.fetch(kubernetes_asyncio.client.V1Pod, "a", namespace="ns"),
        kubernetes_asyncio.client.V1Pod,
    )
    live = cache.live
    assert_type(await live.get(V1Pod, "a", namespace="ns"), V1Pod)
    assert_type(await live.list(V1Pod), list[V1Pod])
    assert_type(await live.create(V1Pod()), V1Pod)
    assert_type(await live.replace({}, as_=V1Pod), V1Pod)
    assert_type(await live.apply({}), Obj)
    assert_type(await live.ensure(V1Pod(), as_="view"), BodyView)
    assert_type(await live.patch(V1Pod, "a", {}, namespace="ns"), V1Pod)
    assert_type(await live.update(V1Pod, "a", print, namespace="ns"), V1Pod)


def slip(cache: Cache) -> None:
    cache.get(V1Pod, "a", namespace="ns", as_="dict")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    cache.get("pods", "a", namespace="ns", as_=5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    cache.get(V1Pod(), "a", namespace="ns")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    cache.list(V1Pod, label="app=web")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    cache.list_cached(V1Pod, label="app=web")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    cache.count(V1Pod, label="app=web")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    cache.blocking.fetch(V1Pod, "a", namespace="ns", timout=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    cache.blocking.live.create(V1Pod(), force=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    print(cache.get(V1Pod, "a", namespace="ns")["spec"])  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
    print(cache.get(V1Pod, "a", namespace="ns").nodename)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    cache.get("pods", "a", namespace="ns", as_="view")["spec"] = {}  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
