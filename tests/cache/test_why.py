"""`cache.why`: for one object, each branch of the filter, the right, and the state of the cache."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_selectcache import Cached, LabelSelector, NotDeclared, ReadError, Selector
from kopf_selectcache.cache.why import ask_server
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.faults import Refuse
from kopf_selectcache.types import Standing, Why
from tests.cache.environment import PODS, Server
from tests.cache.environment import pod as answered
from tests.cache.test_freshness import WEB
from tests.gated import gated
from tests.objects import pod

DB = {"app": "db"}


def fake(declared: Any = "app=web", *more: dict[str, Any], kind: str = "v1/pods") -> FakeCache:
    return FakeCache([pod("web-1", **WEB), pod("db-1", **DB), pod("bare"), *more], {kind: declared})


def fails(why: Why) -> list[tuple[str, ...]]:
    return [each.fails for each in why.branches]


def why(cache: FakeCache, name: str = "db-1", **options: Any) -> Why:
    return cache.blocking.why("pods", name, namespace="shop", **options)


def test_a_held_object_is_compared_with_each_branch() -> None:
    found = why(fake(["app=web", "tier=gold"]), "web-1")
    assert (found.standing, fails(found)) == (Standing.CACHED, [(), ("tier=gold",)])
    assert found.version
    assert found.object_version
    assert str(found).startswith("pods/web-1 in shop is cached, at version ")
    assert "\n  app=web: selects it\n" in str(found)


def test_an_object_outside_of_the_filter_fails_a_requirement_of_each_branch() -> None:
    found = why(fake(["app=web,tier", Selector("app=db", namespaces=["infra"]), Selector(names=["a", "b"])]))
    assert found.standing is Standing.OUTSIDE
    assert fails(found) == [("app=web", "tier"), ("namespace=infra",), ("name in (a,b)",)]
    assert found.branches[0].has == ("app=db", "no label tier")
    assert "pods/db-1 in shop exists, but the filter leaves it out:\n" in str(found)
    assert "app=web,tier: it needs app=web and tier, but it has app=db, no label tier\n" in str(found)
    assert "\nThe cache is synced, for 0 s, as of version " in str(found)


def test_20_the_namespaces_of_the_operator_stand_apart_from_the_filter() -> None:
    declared = ["app=web", Selector("app=db", namespaces=["infra"])]
    cache = FakeCache([pod("db-1", **DB)], {"v1/pods": declared}, namespaces=["shop"])
    found = why(cache)
    assert [each.operator_namespaces for each in found.branches] == [("shop",), ()]
    assert "\n  app=web (the operator runs with -n shop): it has app=db\n" in str(found)
    assert "\n  labels='app=db', namespaces=['infra']: it fails namespace=infra\n" in str(found)


def test_an_object_of_a_namespace_without_the_label_fails_that() -> None:
    infra = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "infra", "labels": {"tenant": "yes"}},
    }
    declared = Selector("app=db", namespaces=LabelSelector.parse("tenant=yes"))
    assert fails(why(fake(declared, infra))) == [("the label tenant=yes of its namespace",)]


def test_the_server_decides_about_fields() -> None:
    declared = Selector("app=db", fields="spec.nodeName=n1")
    mine = pod("mine", **DB) | {"spec": {"nodeName": "n1"}}
    cache = fake(declared, mine)
    assert fails(why(cache)) == [("spec.nodeName=n1",)]
    assert fails(why(cache, "mine")) == [()]
    assert why(cache, "mine").standing is Standing.CACHED
    cache = fake([declared, Selector(fields="metadata.name=other")])
    assert fails(why(cache, "web-1")) == [("app=db",), ("name=other",)]


def test_a_proof_of_absence_needs_no_request() -> None:
    cache = FakeCache([pod("web-1")], {"v1/pods": Selector(namespaces=["shop"])})
    cache.cluster.faults.add(Refuse(503), verb="get", resource="pods")
    assert why(cache, "gone").standing is Standing.ABSENT
    assert why(fake(), "gone").standing is Standing.ABSENT
    assert str(why(fake(), "gone")).startswith("pods/gone in shop doesn't exist.\n")


def test_without_asking_it_is_not_known_if_an_object_exists() -> None:
    found = why(fake(), ask=False)
    assert (found.standing, found.branches) == (Standing.UNKNOWN, ())
    assert "is not cached: it doesn't exist, or the filter leaves it out." in str(found)


def test_the_missing_right_is_named() -> None:
    cache = fake()
    cache.cluster.faults.add(Refuse(403), verb="get", resource="pods")
    found = why(cache)
    assert found.standing is Standing.UNKNOWN
    assert str(found.missing) == "get pods db-1 in shop"
    assert "\nPermission is missing to get pods db-1 in shop: - {apiGroups: ['']" in str(found)


def test_a_server_that_does_not_answer_is_no_proof() -> None:
    cache = fake()
    cache.cluster.faults.add(Refuse(503), verb="get", resource="pods")
    found = why(cache)
    assert (found.standing, found.unanswered[:3]) == (Standing.UNKNOWN, "503")
    assert "\nThe server doesn't answer: 503" in str(found)
    server = Server()
    server.answer("/api/v1/namespaces/shop/pods/db-1", answered("another", "shop"))

    async def main() -> Why:
        return await ask_server(server, Selector("app=web"), PODS, "shop", "db-1")

    assert asyncio.run(main()).standing is Standing.UNKNOWN


async def test_an_object_that_the_cache_has_not_received_yet_is_due() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        await environment.cut()
        (b,) = environment.cluster.create(pod("b", **WEB))
        found = await environment.cache.why("pods", "b", namespace="shop")
        assert (found.standing, fails(found)) == (Standing.DUE, [()])
        assert found.object_version == b["metadata"]["resourceVersion"]
        assert (found.state, found.since is not None) == ("synced", True)
        assert ", but it is not cached yet:" in str(found)


async def test_the_state_of_a_cache_that_cannot_be_read_is_shown_with_its_reason() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        environment.cluster.faults.add(Refuse(403), verb="list", resource="pods")
        environment.cluster.faults.add(Refuse(403), verb="watch", resource="pods")
        environment.cluster.cut("watch", "pods")
        await environment.clock.move_until(lambda: environment.informer.state.part().error is not None)
        found = await environment.cache.why("pods", "a", namespace="shop")
        assert (found.standing, found.state) == (Standing.DUE, "forbidden")
        assert "The cache is forbidden, for " in str(found)
        assert found.message


def test_nothing_of_a_secret_but_its_labels_is_shown() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "shop", "labels": DB, "annotations": {"note": "hunter2"}},
        "data": {"password": "aHVudGVyMg=="},
    }
    for declared in ("app=web", "app=db", Selector("app=db", fields="type=other")):
        cache = FakeCache([secret], {"v1/secrets": Cached(declared)})
        found = cache.blocking.why("secrets", "s", namespace="shop")
        assert "hunter2" not in f"{found}{found!r}"
        assert "aHVudGVyMg" not in f"{found}{found!r}"


def test_a_name_that_names_no_object_is_refused() -> None:
    cache = fake()
    for name, namespace in (("web-1", None), ("a/b", "shop"), (5, "shop"), ("web-1", "a/b")):
        with pytest.raises(ReadError):
            cache.blocking.why("pods", name, namespace=namespace)  # type: ignore[arg-type]
    with pytest.raises(NotDeclared):
        cache.blocking.why("configmaps", "a", namespace="shop")


def test_a_field_that_nobody_can_read_is_left_to_the_server() -> None:
    kind = find("pods")
    assert kind is not None
    server = Server()
    server.answer("/api/v1/namespaces/shop/pods/db-1", answered("db-1", "shop", app="db"))
    server.answer(
        "/api/v1/namespaces/shop/pods",
        {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": []},
    )

    async def main() -> Why:
        declared = Selector(fields="status.phase=Failed")
        return await ask_server(server, declared, Resource(kind, "v1"), "shop", "db-1")

    found = asyncio.run(main())
    assert str(found).endswith("fails status.phase=Failed")
    assert fails(found) == [("status.phase=Failed",)]
    assert server.asked[-1][1]["fieldSelector"] == "status.phase=Failed,metadata.name=db-1"
    assert all("PartialObjectMetadata" in each for each in server.accepted)
    server.answer(
        "/api/v1/namespaces/shop/pods",
        {
            "apiVersion": "v1",
            "kind": "PodList",
            "metadata": {"resourceVersion": "9"},
            "items": [answered("db-1", "shop", app="db")],
        },
    )
    assert asyncio.run(main()).standing is Standing.DUE


def test_a_field_that_a_cache_of_metadata_does_not_have_is_left_to_the_server() -> None:
    declared = Cached(Selector("app=db", fields="spec.nodeName=n1"), metadata_only=True)
    cache = fake(declared, pod("mine", **DB) | {"spec": {"nodeName": "n1"}})
    found = why(cache, "mine")
    assert (found.standing, found.branches[0].is_known) == (Standing.CACHED, False)
    assert fails(why(cache)) == [("spec.nodeName=n1",)]


def test_20_the_namespace_of_an_object_that_does_not_exist_is_named() -> None:
    """Either the filter excludes the object, or the cache proves that it is absent."""
    for declared in ("app=web", "", Selector("app=web", namespaces=["shop", "other"])):
        cache = fake(declared)
        found = cache.blocking.why("pods", "web-1", namespace="other")
        assert (found.standing, found.has_namespace) == (Standing.ABSENT, False)
        assert "pods/web-1 in other doesn't exist: the namespace 'other' doesn't exist.\n" in str(found)
        assert cache.blocking.why("pods", "gone", namespace="shop").has_namespace
        cache.cluster.namespace("other")
        assert cache.blocking.why("pods", "web-1", namespace="other").has_namespace


def test_20_a_namespace_that_may_not_be_read_is_not_named() -> None:
    cache = fake("")
    cache.cluster.faults.add(Refuse(403), verb="list", resource="namespaces")
    found = cache.blocking.why("pods", "web-1", namespace="other")
    assert (found.standing, found.has_namespace) == (Standing.ABSENT, True)


def test_20_no_namespace_is_asked_for_where_nothing_may_be_asked() -> None:
    assert fake("").blocking.why("pods", "web-1", namespace="other", ask=False).has_namespace
    assert fake("", kind="v1/nodes").blocking.why("nodes", "n2").has_namespace


# ---- Split caches.


async def test_a_split_cache_knows_an_object_outside_of_the_filter_and_asks_nothing() -> None:
    declared = Cached(["app=web,tier", Selector("app=db", fields="spec.nodeName=n1")], outside="metadata")
    objects = [pod("web-1", **WEB, tier="gold"), pod("db-1", **DB)]
    async with gated(declared, *objects) as environment:
        cache, before = environment.cache, len(environment.cluster.requests)
        found = await cache.why("pods", "db-1", namespace="shop")
        assert (found.standing, fails(found)) == (
            Standing.OUTSIDE,
            [("app=web", "tier"), ("spec.nodeName=n1",)],
        )
        assert all(each.is_known for each in found.branches)
        stored = environment.cluster.get(pod("db-1"))
        assert found.object_version == stored["metadata"]["resourceVersion"]
        assert (await cache.why("pods", "none", namespace="shop")).standing is Standing.ABSENT
        assert (await cache.why("pods", "web-1", namespace="shop")).standing is Standing.CACHED
        assert len(environment.cluster.requests) == before
        await environment.cut()
        cache.remember(*environment.cluster.create(pod("db-2", **DB)))
        before = len(environment.cluster.requests)
        found = await cache.why("pods", "db-2", namespace="shop")
        assert (found.standing, fails(found)[1]) == (Standing.OUTSIDE, ("spec.nodeName=n1",))
        assert len(environment.cluster.requests) == before
