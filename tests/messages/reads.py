"""Errors of reads from a cache: mistakes in the arguments, requests outside of the filter, parts that are not
stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec

from kopf_selectcache import AnyOf, Cached, LabelSelector, Selector
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.types import PinnedReads
from tests.cache.clients import Pod, current, imported
from tests.cache.environment import NODES, Environment, node, pod, reading
from tests.cache.test_reads import HARD, PIGEONS
from tests.messages.provoked import Provoked

WEB = pod("web-1", app="web")
SECRETIVE = Resource(Kind.unknown("x.io", "Thing", "things", namespaced=True), "v1", fields_known=False)
WEB_OR_DB = AnyOf([Selector("app=web", namespaces=["shop"]), Selector("app=db", namespaces=["shop"])])


TENANTS = LabelSelector.parse("tenant=yes")


def tenants(read: Callable[[FakeCache], Any], *names: str) -> Callable[[], Any]:
    """Return a function that reads a fake cache of the pods of namespaces with a label, which these have."""

    def provoke() -> Any:
        kind = {"apiVersion": "v1", "kind": "Namespace"}
        spaces = [kind | {"metadata": {"name": each, "labels": {"tenant": "yes"}}} for each in names]
        return read(FakeCache([WEB, *spaces], {"pods": Selector(namespaces=TENANTS)}))

    return provoke


class Strict(msgspec.Struct):
    """A struct that pods do not have all fields of."""

    kind: int
    node_name: str


class Needs(msgspec.Struct):
    """A struct with a field that is missing in pods."""

    node_name: str


async def later(_: object) -> None: ...


def web(read: Callable[[Cache], Any]) -> Callable[[], Any]:
    """Return a function that reads a cache of pods with app=web, and of such nodes."""

    def provoke() -> Any:
        environment = Environment()
        environment.declare("app=web").hold(WEB)
        environment.declare("app=web", NODES, "nodes").hold(node("n1", app="web"))
        return read(environment.cache())

    return provoke


def split_in_shop() -> FakeCache:
    """Return a split cache of one namespace."""
    split = Cached(Selector("app=web", namespaces=["shop"]), outside="metadata")
    return FakeCache([WEB, pod("db-1", app="db")], {"pods": split})


def unordered() -> Cache:
    """Return a cache of a server whose versions are no numbers."""
    environment = Environment()
    environment.declare("app=web").hold(WEB, version="abc")
    return environment.cache()


def fake(read: Callable[[FakeCache], Any]) -> Callable[[], Any]:
    """Return a function that reads a fake cache of pods and nodes."""
    return lambda: read(FakeCache([WEB], {"pods": "app=web", "nodes": ""}))


def ended(cache: Cache) -> PinnedReads:
    """Return a snapshot that has ended."""
    with cache.snapshot("pods") as now:
        return now


def awaited(read: Callable[[FakeCache], Coroutine[Any, Any, Any]]) -> Callable[[], Any]:
    """Return a function that awaits a read of a fake cache of pods with app=web."""

    async def work() -> Any:
        return await read(FakeCache([WEB], {"pods": "app=web"}))

    return lambda: asyncio.run(work())


def indexed(read: Callable[[FakeCache], Any]) -> Callable[[], Any]:
    """Return a function that reads a fake cache whose pods have indexes."""

    def provoke() -> Any:
        cache = FakeCache([WEB], {"pods": "app=web"})
        cache.blocking.add_index("pods", node="spec.nodeName", names=lambda obj: obj["metadata"]["name"])
        return read(cache)

    return provoke


def cut(read: Callable[[Cache], Any], **options: Any) -> Callable[[], Any]:
    """Return a function that reads pods of which only a part is stored."""
    return lambda: read(reading("", WEB, projection=Projection.of(**options)))


def status_of_a_model(cache: Cache) -> Any:
    with imported({"kubernetes.client.models": []}):
        model = current("V1Pod", {"status": "object"}, {"status": "status"})
        return cache.list_cached("pods", as_=model)[0].status


def unreadable(read: Callable[[Cache], Any]) -> Callable[[], Any]:
    """Return a function that reads pods of which one is nested too deeply."""

    def provoke() -> Any:
        deep: Any = "x"
        for _ in range(5000):
            deep = [deep]
        environment = Environment()
        informer = environment.declare("app=web").hold(WEB)
        data = msgspec.json.encode(pod("deep", app="web")).replace(
            b'"n1"', b"[" * 200_000 + b"1" + b"]" * 200_000
        )
        informer.tell(informer.state.store.put(informer.reader.record(data)))
        return read(environment.cache())

    return provoke


OUTSIDE = {
    "an object in a namespace without the label": tenants(
        lambda cache: cache.get("pods", "web-1", namespace="shop"), "blog"
    ),
    "objects in namespaces without the label": tenants(
        lambda cache: cache.list("pods", namespace=["shop", "infra"]), "blog"
    ),
    "objects, and no namespace has the label": tenants(lambda cache: cache.list_cached("pods")),
    "a read with a label selector of namespaces": tenants(
        lambda cache: cache.list_cached("pods", namespace=cast("Any", TENANTS))
    ),
    "get, hidden": web(lambda cache: cache.get("pods", "db-1", namespace="ns")),
    "get with a default, hidden": web(lambda cache: cache.get("pods", "db-1", namespace="ns", default=None)),
    "get of an excluded object": lambda: reading(Selector(namespaces=["a"])).get("pods", "x", namespace="b"),
    "get, undecided": lambda: reading(
        AnyOf([*HARD.branches, *(Selector(f"p{each} notin (h0,h1,h2,h3,h4,h5,h6)") for each in range(8))])
    ).get("pods", "x", namespace="ns"),
    "get by a filter of absence": lambda: reading(Selector("!legacy")).get("pods", "x", namespace="ns"),
    "get by two alternatives": lambda: reading(AnyOf([Selector("app=web"), Selector("app=db")])).get(
        "pods", "x", namespace="ns"
    ),
    "get of a proved absent object": lambda: reading(Selector(namespaces=["a"])).get(
        "pods", "x", namespace="a"
    ),
    "list of more than the filter": web(lambda cache: cache.list("pods")),
    "list with options": web(
        lambda cache: cache.list("pods", where={"spec.token": "canary"}, sort_by="metadata.name", limit=0)
    ),
    "list, undecided": lambda: reading(HARD).list("pods", labels=PIGEONS),
    "list of excluded objects": web(lambda cache: cache.list("pods", labels="app=db")),
    "list of several alternatives": lambda: reading(AnyOf(["app=web", "tier=gold"])).list("pods"),
    "count of several alternatives": lambda: reading(AnyOf(["app=web", "tier=gold"])).count("pods"),
    "list of alternatives that one request selects": lambda: reading(
        AnyOf([Selector(namespaces=["blog"]), Selector(namespaces=["shop"])])
    ).list("pods", labels="app=web"),
    "list of one of several alternatives": lambda: reading(WEB_OR_DB).list("pods", labels="app"),
    "a count beyond the namespaces of both sides": lambda: split_in_shop().list_outside("pods"),
    "hidden objects beyond these namespaces": lambda: split_in_shop().list_outside("pods"),
    "hidden objects of a cache that is not split": web(lambda cache: cache.list_outside("pods")),
    "count of more than the filter": web(lambda cache: cache.count("pods", labels="app in (web,db)")),
    "held of excluded objects": web(lambda cache: cache.list_cached("pods", labels="app=db")),
    "owned by an owner in another namespace": lambda: reading(Selector(namespaces=["a"])).list_cached(
        "pods", owner={"metadata": {"uid": "u", "namespace": "b"}}
    ),
    "all objects of an owner": web(lambda cache: cache.list("pods", owner=pod("web"), controller=True)),
    "the number of objects of an owner": web(lambda cache: cache.count("pods", owner=pod("web"))),
    "a controller without an owner": web(lambda cache: cache.list("pods", controller=True)),
    "list by a field that only the server knows": lambda: reading(
        Selector(), resource=SECRETIVE, key="things"
    ).list("things", fields="spec.color=red"),
    "explain by a field that only the server knows": lambda: reading(
        Selector(), resource=SECRETIVE, key="things"
    ).explain("things", fields="spec.color=red"),
    "wait_for excluded objects": awaited(lambda cache: cache.wait_for("pods", bool, labels="app=db")),
}

MISTAKES = {
    "an awaited read of the cache that a snapshot does not have": awaited(
        lambda cache: cache.snapshot("pods").fetch("pods", "a", namespace="shop")  # type: ignore[attr-defined]
    ),
    "an awaited read that a snapshot does not have, in a thread": web(
        lambda cache: cache.snapshot("pods").fetch("pods", "a", namespace="shop")  # type: ignore[attr-defined]
    ),
    "a read of the cache that a snapshot does not have": web(
        lambda cache: cache.snapshot("pods").info("pods")  # type: ignore[attr-defined]
    ),
    "live reads of a snapshot": web(
        lambda cache: cache.snapshot("pods").live.get("pods", "a", namespace="shop")  # type: ignore[attr-defined]
    ),
    "a write of a snapshot": web(lambda cache: cache.snapshot("pods").patch("pods")),  # type: ignore[attr-defined]
    "an unknown read of a snapshot": web(lambda cache: cache.snapshot("pods").lst("pods")),  # type: ignore[attr-defined]
    "an unknown read": web(lambda cache: cache.lst("pods")),  # type: ignore[attr-defined]
    "a read that is far from any": web(lambda cache: cache.query("pods")),  # type: ignore[attr-defined]
    "a write": web(lambda cache: cache.patch("pods")),  # type: ignore[attr-defined]
    "a deletion": web(lambda cache: cache.delete("pods")),  # type: ignore[attr-defined]
    "in": web(lambda cache: "pods" in cache),
    "a cache as a dict": web(lambda cache: cache["pods"]),  # type: ignore[index]  # The mistake.
    "a loop over a cache": web(list),  # type: ignore[arg-type]  # The mistake.
    "a namespaced object without a namespace": web(lambda cache: cache.get("pods", "x")),
    "an empty namespace": web(lambda cache: cache.get("pods", "x", namespace="")),
    "a cluster-scoped object with a namespace": web(lambda cache: cache.get("nodes", "n1", namespace="ns")),
    "cluster-scoped objects of a namespace": web(lambda cache: cache.list_cached("nodes", namespace="ns")),
    "a name of another type": web(lambda cache: cache.get("pods", {"metadata": {}}, namespace="ns")),  # type: ignore[call-overload]
    "a label selector with a mistake": web(lambda cache: cache.list("pods", labels="app in")),
    "a field that pods cannot be selected by": web(
        lambda cache: cache.list_cached("pods", fields="spec.volumes=x")
    ),
    "a pattern of namespaces": web(lambda cache: cache.list("pods", namespace="team-*")),
    "no kind": web(lambda cache: cache.list(["pods"])),  # type: ignore[call-overload]
    "an owner without a uid": web(lambda cache: cache.list_cached("pods", owner={"metadata": {}})),
    "an owner that is none": web(lambda cache: cache.list_cached("pods", owner=None)),
    "where is no dict": web(lambda cache: cache.list("pods", where="spec.x=y")),  # type: ignore[call-overload]
    "where has no path": web(lambda cache: cache.list("pods", where={"spec..x": "y"})),
    "where has a function": web(lambda cache: cache.list_cached("pods", where={"spec.x": len})),
    "where leads into a list": lambda: reading("", pod("a", owner="u")).list(
        "pods", where={"metadata.ownerReferences.uid": "u"}
    ),
    "sort_by is no path": web(lambda cache: cache.list_cached("pods", sort_by=5)),  # type: ignore[call-overload]
    "sort_by in descending order": web(lambda cache: cache.list_cached("pods", sort_by="-metadata.name")),
    "sort_by a dict": web(lambda cache: cache.list_cached("pods", sort_by="metadata.labels")),
    "limit is no number": web(lambda cache: cache.list_cached("pods", limit="3")),  # type: ignore[call-overload]
    "max_age is no number": web(lambda cache: cache.get("pods", "x", namespace="ns", max_age=-1)),
    "as_ is no form": web(lambda cache: cache.list_cached("pods", as_=5)),  # type: ignore[call-overload]
    "as_ is an async function": web(lambda cache: cache.list_cached("pods", as_=later)),
    "as_ is a struct with other fields": web(lambda cache: cache.list_cached("pods", as_=Strict)),
    "as_ is a struct with a missing field": web(lambda cache: cache.list_cached("pods", as_=Needs)),
    "index is no dict": web(lambda cache: cache.list_cached("pods", index="canary")),  # type: ignore[call-overload]
    "an index that there is not": indexed(lambda cache: cache.list_cached("pods", index={"nod": "n1"})),
    "an index where there is none": web(lambda cache: cache.list_cached("pods", index={"node": "n1"})),
    "a value of an index that is a list": indexed(
        lambda cache: cache.list_cached("pods", index={"node": ["n1"]})
    ),
    "an index that is added twice": indexed(lambda cache: cache.blocking.add_index("pods", node="spec.x")),
    "no index is added": indexed(lambda cache: cache.blocking.add_index("pods")),
    "an index whose function fails": indexed(lambda cache: cache.blocking.add_index("pods", bad=lambda _: 5)),  # type: ignore[arg-type,return-value]
    "a change of a view": web(lambda cache: cache.list_cached("pods", as_="view")[0].update(a=1)),  # type: ignore[attr-defined]
    "a change of a list": web(lambda cache: cache.list_cached("pods").append(1)),  # type: ignore[attr-defined]
}

WAITS = {
    "fetch of an impossible name": awaited(lambda cache: cache.fetch("pods", "a/b", namespace="ns")),
    "an awaited read in a sync handler": lambda: FakeCache().fetch("pods", "x", namespace="ns"),
    "a blocking read on the loop": awaited(lambda cache: cache.blocking.fetch("pods", "x", namespace="ns")),  # type: ignore[arg-type,return-value]
    "an unknown blocking read": web(lambda cache: cache.blocking.fetsch("pods")),  # type: ignore[attr-defined]
    "a timeout that is no number": awaited(
        lambda cache: cache.fetch("pods", "x", namespace="ns", timeout=-1)
    ),
    "a predicate that is none": awaited(lambda cache: cache.wait_for("pods", 5)),  # type: ignore[call-overload]
    "an async predicate": awaited(lambda cache: cache.wait_for("pods", later)),
    "a predicate that nothing satisfies": awaited(
        lambda cache: cache.wait_for("pods", lambda _: False, labels="app=web", timeout=0)
    ),
    "at_least is no body": awaited(lambda cache: cache.wait_synced(at_least=5)),  # type: ignore[arg-type]
    "at_least without a version": awaited(lambda cache: cache.wait_synced(at_least={"metadata": {}})),
    "a cache that is older than at_least": web(
        lambda cache: cache.list("pods", labels="app=web", at_least="99")
    ),
    "cached objects that are older than at_least": web(
        lambda cache: cache.list_cached("pods", at_least="99")
    ),
    "a snapshot that is older than at_least": fake(
        lambda cache: cache.snapshot("pods").__enter__().list("pods", labels="app=web", at_least="99")
    ),
    "a count of both sides that is older than at_least": lambda: FakeCache(
        [WEB], {"pods": Cached("app=web", outside="metadata")}
    ).list_outside("pods", at_least="99"),
    "hidden objects that are older than at_least": lambda: FakeCache(
        [WEB], {"pods": Cached("app=db", outside="metadata")}
    ).list_outside("pods", at_least="99"),
    "an object that is older than at_least": web(
        lambda cache: cache.get("pods", "web-1", namespace="ns", at_least="99")
    ),
    "a wait whose version is not reached": awaited(
        lambda cache: cache.wait_for("pods", bool, at_least="99", timeout=0.01)
    ),
    "at_least of a read is no object": web(lambda cache: cache.list_cached("pods", at_least=5)),
    "at_least of a read is no number": web(lambda cache: cache.list_cached("pods", at_least="abc")),
    "at_least of a read is of another kind": web(
        lambda cache: cache.list_cached("pods", at_least=node("n1") | {"kind": "Node"})
    ),
    "versions without an order": lambda: unordered().list_cached("pods", at_least="5"),
    "a size of batches that is no number": web(lambda cache: cache.list_cached("pods").batches(0)),
    "a snapshot of no kind": web(lambda cache: cache.snapshot()),
    "a read of a snapshot that is not open": web(lambda cache: cache.snapshot("pods").list_cached("pods")),
    "a read of a snapshot that has ended": fake(lambda cache: ended(cache).list_cached("pods")),
    "a read of a kind that a snapshot does not have": fake(
        lambda cache: cache.snapshot("pods").__enter__().list_cached("nodes")
    ),
    "at_least of a kind that is not declared": awaited(
        lambda cache: cache.wait_synced(at_least=node("n1") | {"kind": "Node"})
    ),
}

PARTS = {
    "get of an object outside of a split cache": lambda: FakeCache(
        [WEB], {"pods": Cached("app=db", outside="metadata")}
    ).get("pods", "web-1", namespace="ns"),
    "get of an object that is absent on both sides": lambda: FakeCache(
        [WEB], {"pods": Cached("app=db", outside="metadata")}
    ).get("pods", "web-2", namespace="ns"),
    "where looks at a dropped path": cut(
        lambda cache: cache.list("pods", where={"status.phase": "Running"}), drop=["status"]
    ),
    "where looks at a path that is not kept": cut(
        lambda cache: cache.list("pods", where={"status.phase": "Running"}), keep=["spec"]
    ),
    "where looks at a path where only metadata is received": cut(
        lambda cache: cache.list("pods", where={"status.phase": "Running"}), metadata_only=True
    ),
    "a field where only metadata is received": cut(
        lambda cache: cache.list("pods", fields="status.phase=Running"), metadata_only=True
    ),
    "a member of a partial object": cut(
        lambda cache: cache.list_cached("pods")[0]["status"], drop=["status"]
    ),
    "a member of a partial object of a client": cut(status_of_a_model, drop=["status"]),
    "a partial object that its client sends": cut(
        lambda cache: cache.list_cached("pods", as_=Pod)[0].update(), drop=["status"]
    ),
    "sort_by a path that is never stored": lambda: reading("", WEB).list_cached(
        "pods", sort_by="metadata.managedFields"
    ),
    "a struct of a dropped path": cut(
        lambda cache: cache.list_cached("pods", as_=msgspec.defstruct("Pod", [("status", dict)])),
        drop=["status"],
    ),
    "an index of a dropped path": lambda: FakeCache(
        [WEB], {"pods": Cached("app=web", drop=["status"])}
    ).blocking.add_index("pods", phase="status.phase"),
    "get of an unreadable object": unreadable(lambda cache: cache.get("pods", "deep", namespace="ns")),
    "list with an unreadable object": unreadable(lambda cache: cache.list("pods", labels="app=web")),
}


def provoke(provoked: Provoked) -> None:
    provoked.add_all(
        {
            "Outside the filter": OUTSIDE,
            "Mistakes in a read": MISTAKES,
            "Waits": WAITS,
            "Parts of objects": PARTS,
        }
    )
