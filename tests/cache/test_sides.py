"""Contract 9 in a split cache: both sides have the handler's own object, and the own writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import Cache, Cached, NotFound, OutsideFilter, ReadError, Selector
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.types import Reason
from tests.both_sides import on_both_sides
from tests.cache.test_freshness import WEB
from tests.gated import Gated, gated
from tests.objects import pod

Obj = dict[str, Any]
SPLIT = Cached("app=web", outside="metadata")
DB = {"app": "db"}
OWNER = {"metadata": {"uid": "o-1", "namespace": "shop"}}


def node(**labels: str) -> Obj:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "o-1"}
    metadata = {"name": "n1", "labels": labels, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def called_with(environment: Gated, body: Obj, *, deleted: bool = False) -> Cache:
    """Return the cache of a handler."""
    return Cache(environment.operator.runtime, own=body, deleted=deleted)


def sides(cache: Cache) -> tuple[int, int, list[str]]:
    """Return the number of objects of both sides and of both together, and the names of those outside."""
    hidden = sorted(each.name for each in cache.list_outside("pods"))
    return len(cache.list_cached("pods")), on_both_sides(cache, "pods"), hidden


async def test_9_a_handler_finds_its_own_object_on_the_side_where_it_is() -> None:
    async with gated(SPLIT, pod("a", **WEB), pod("b", **DB)) as environment:
        await environment.cut()
        created, cluster = environment.cluster.create(pod("c", **DB))[0], environment.cluster
        assert sides(environment.cache) == (1, 2, ["b"])
        assert sides(called_with(environment, created)) == (1, 3, ["b", "c"])
        left = cluster.patch(pod("a"), {"metadata": {"labels": DB}})
        assert sides(called_with(environment, left)) == (0, 2, ["a", "b"])
        entered = cluster.patch(pod("b"), {"metadata": {"labels": WEB}})
        assert sides(called_with(environment, entered)) == (2, 2, [])
        gone = cluster.get(pod("b"))
        cluster.delete(pod("b"), grace_period=0)
        gone["metadata"]["resourceVersion"] = str(cluster.version)
        assert sides(called_with(environment, gone, deleted=True)) == (1, 1, [])
        assert sides(environment.cache) == (1, 2, ["b"])


@pytest.mark.parametrize("labels", [WEB, DB])
async def test_9_an_own_deletion_hides_no_later_object_of_that_name(labels: dict[str, str]) -> None:
    async with gated(SPLIT, pod("a", **WEB)) as environment:
        await environment.cut()
        await environment.cache.live.delete("pods", "a", namespace="shop", grace_period=0)
        assert sides(environment.cache) == (0, 0, [])
        (later,) = environment.cluster.create(pod("a", **labels))
        cache = called_with(environment, later)
        assert sides(cache) == ((1, 1, []) if labels is WEB else (0, 1, ["a"]))
        assert sides(environment.cache) == (0, 0, [])
        try:
            assert cache.get("pods", "a", namespace="shop")["metadata"]["uid"] == later["metadata"]["uid"]
        except (NotFound, OutsideFilter) as error:
            found = (getattr(error, "reason", None), getattr(error, "uid", None))
            assert (labels, *found) == (DB, Reason.OUTSIDE, later["metadata"]["uid"])
        await environment.cache.live.delete("pods", "a", namespace="shop", grace_period=0)
        with pytest.raises(NotFound):
            cache.get("pods", "a", namespace="shop")
        assert sides(cache) == (0, 0, [])


async def test_9_the_newer_of_an_own_write_and_the_body_is_shown() -> None:
    async with gated(SPLIT, pod("a", **WEB)) as environment:
        await environment.cut()
        left = environment.cluster.patch(pod("a"), {"metadata": {"labels": DB | {"at": "1"}}})
        cache = called_with(environment, left)
        await cache.live.patch("pods", "a", {"metadata": {"labels": {"at": "2"}}}, namespace="shop")
        assert [each.labels["at"] for each in cache.list_outside("pods")] == ["2"]
        newest = environment.cluster.patch(pod("a"), {"metadata": {"labels": {"at": "3"}}})
        assert [each.labels["at"] for each in called_with(environment, newest).list_outside("pods")] == ["3"]
        assert [each.labels["at"] for each in cache.list_outside("pods")] == ["2"]


def test_hidden_objects_of_a_cluster_scoped_kind_have_an_owner_with_a_namespace() -> None:
    cache = FakeCache([node(app="db")], {"nodes": SPLIT})
    assert [each.name for each in cache.list_outside("nodes", owner=OWNER)] == ["n1"]
    with pytest.raises(ReadError, match="the owner is None"):
        cache.list_outside("nodes", owner=None)
    assert cache.list_outside("nodes", owner={"metadata": {"uid": "o-2", "namespace": "shop"}}) == []
    with pytest.raises(ReadError):
        cache.list_outside("nodes", owner=OWNER, namespace="shop")


def test_the_objects_of_the_filter_are_on_one_side_in_each_cache() -> None:
    cache = FakeCache([pod("a", **WEB), pod("b", **DB)], {"v1/pods": "app=web"})
    assert (on_both_sides(cache, "pods", labels="app=web"), cache.list_outside("pods", labels="app=web")) == (
        1,
        [],
    )
    for read in (lambda: on_both_sides(cache, "pods"), lambda: cache.list_outside("pods")):
        with pytest.raises(OutsideFilter, match="outside='metadata'"):
            read()


def test_a_request_beyond_the_namespaces_of_both_sides_names_these() -> None:
    split = Cached(Selector("app=web", namespaces=["shop"]), outside="metadata")
    cache = FakeCache([pod("a", **WEB), pod("b", **DB)], {"v1/pods": split})
    for read in (lambda: on_both_sides(cache, "pods"), lambda: cache.list_outside("pods")):
        with pytest.raises(OutsideFilter) as raised:
            read()
        # None is hidden with this label.
        assert "labels='app=web', namespace='shop'" not in raised.value.line
        assert raised.value.witness is not None
        assert raised.value.witness.namespace != "shop"
    assert [each.name for each in cache.list_outside("pods", namespace="shop")] == ["b"]


def test_a_request_of_both_sides_while_no_namespace_has_the_label_is_outside() -> None:
    split = Cached(Selector("app=web", namespaces=LabelSelector.parse("tenant=yes")), outside="metadata")
    cache = FakeCache([pod("a", **WEB)], {"v1/pods": split})
    reads: tuple[Callable[[], object], ...] = (
        lambda: on_both_sides(cache, "pods"),
        lambda: cache.list_outside("pods"),
        lambda: cache.list_outside("pods", namespace="shop"),
    )
    for read in reads:
        with pytest.raises(OutsideFilter) as raised:
            read()
        assert raised.value.reason is Reason.EXCLUDED


def test_a_split_cache_explains_where_the_objects_outside_are() -> None:
    objects = [pod("a", **WEB), pod("b", **DB)]
    cache, other = (FakeCache(objects, {"v1/pods": declared}) for declared in (SPLIT, "app=web"))
    explained, plain = (each.explain("pods", labels="app=db") for each in (cache, other))
    assert (explained.looks_at, explained.is_split, plain.is_split) == (0, True, False)
    assert len(f"{explained}".splitlines()) == len(f"{plain}".splitlines()) + 1
    assert "cache.list_outside" not in str(cache.explain("pods", labels="app=web"))
