"""Reads that no answer can be given to: mistakes, what was dropped, what only the server knows, caches that are not ready."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import Forbidden, NotDeclared, NotKept, NotSynced, OutsideFilter, ReadError, Selector
from kopf_selectcache.cache import Cache
from kopf_selectcache.core.fields import Kind
from kopf_selectcache.core.resources import Resource

from .world import NODES, PODS, World, pod, reading

WEB = pod("web-1", app="web")

Read = Callable[[Cache], Any]


# ---- What is no good as a read. None of it may be a declaration error: Kopf would drop a creation for good.


@pytest.mark.parametrize(("read", "message"), [
    (lambda cache: cache.get("pods", "x"),
     "pods are namespaced, and cache.get('pods', 'x') names no namespace. Name it: cache.get('pods', 'x', namespace)"),
    (lambda cache: cache.get("nodes", "x", "ns"),
     "nodes are cluster-scoped, and cache.get('nodes', 'x', 'ns') names a namespace. Leave it out: cache.get('nodes', 'x')"),
    (lambda cache: cache.held("nodes", namespace="ns"),
     "nodes are cluster-scoped, and cache.held('nodes', namespace='ns') names a namespace. Leave it out: cache.held('nodes')"),
    (lambda cache: cache.get("pods", "a/b", "ns"),
     "names= has 'a/b', which cannot be a name of an object. Correct or remove it"),
    (lambda cache: cache.list("pods", label="app in"),
     ("label selector 'app in', column 7: expected '(' before the values, found the end. "
      "Write it like 'app=web,tier in (gold,silver),!legacy'")),
    (lambda cache: cache.held("pods", field="spec.volumes=x"), "Pod cannot be selected by the field 'spec.volumes'"),
    (lambda cache: cache.count("pods", field="spec.volumes=x"), "Pod cannot be selected by the field 'spec.volumes'"),
    (lambda cache: cache.owned({"metadata": {}}, "pods"),
     "cache.owned() was given an owner without a metadata.uid. Write: cache.owned(body, 'pods')"),
])
def test_mistakes_are_read_errors_with_a_remedy(read: Read, message: str) -> None:
    world = World()
    world.declare("app=web").hold()
    world.declare("app=web", NODES, "nodes").hold()
    with pytest.raises(ReadError) as info:
        read(world.cache())
    assert type(info.value) is ReadError
    assert str(info.value).startswith(message)


@pytest.mark.parametrize("read", [
    lambda cache: cache.list("pods", where={"metadata.managedFields": None}),
    lambda cache: cache.held("pods", sort_by=("metadata", "managedFields", "0")),
])
def test_what_was_dropped_cannot_be_asked_for(read: Read) -> None:
    with pytest.raises(NotKept, match=r"looks at metadata\.managedFields, which is dropped before pods are stored"):
        read(reading(Selector(), WEB))


# ---- The state of a cache.

EVERY_READ: list[Read] = [
    lambda cache: cache.get("pods", "web-1", "ns"),
    lambda cache: cache.exists("pods", "web-1", "ns"),
    lambda cache: cache.list("pods", label="app=web"),
    lambda cache: cache.held("pods"),
    lambda cache: cache.owned({"metadata": {"uid": "u"}}, "pods"),
    lambda cache: cache.count("pods", label="app=web"),
    lambda cache: cache.age("pods"),
    lambda cache: cache.explain("pods"),
]


@pytest.mark.parametrize("read", EVERY_READ)
def test_no_read_answers_for_a_kind_that_is_not_declared(read: Read) -> None:
    with pytest.raises(NotDeclared):
        read(World().cache())


@pytest.mark.parametrize("read", EVERY_READ)
@pytest.mark.parametrize("resource", [PODS, None])
def test_no_read_answers_before_the_first_complete_list(read: Read, resource: Resource | None) -> None:
    world = World()
    world.declare("app=web", resource)
    with pytest.raises(NotSynced) as info:
        read(world.cache())
    assert str(info.value) == (
        "The cache of pods is not synced: the first complete list has not come yet. Wait for it: await cache.wait_synced()")


def test_not_synced_says_what_is_in_the_way() -> None:
    world = World()
    feed = world.declare("app=web")
    feed.trouble, feed.remedy = "pods: the server answers 500 InternalError", "It is asked again"
    with pytest.raises(NotSynced) as info:
        world.cache().held("pods")
    assert str(info.value) == "The cache of pods is not synced: pods: the server answers 500 InternalError. It is asked again"


@pytest.mark.parametrize("read", EVERY_READ)
def test_no_read_answers_from_a_cache_that_cannot_be_kept_even_if_it_was_synced(read: Read) -> None:
    world = World()
    world.declare("app=web").hold(WEB).error = Forbidden("pods: no", remedy="Grant it")
    with pytest.raises(Forbidden, match=r"pods: no\. Grant it"):
        read(world.cache())


def test_reads_are_counted_by_verb_and_outcome() -> None:
    world = World()
    counts = world.declare("app=web").hold(WEB).counts
    cache = world.cache()
    cache.get("pods", "web-1", "ns")
    cache.get("pods", "web-1", "ns")
    for read in (lambda: cache.get("pods", "db-1", "ns"), lambda: cache.list("pods")):
        with pytest.raises(OutsideFilter):
            read()
    with pytest.raises(ReadError):
        cache.held("pods", field="spec.volumes=x")
    assert counts.reads == {
        ("get", "served"): 2, ("get", "OutsideFilter"): 1, ("list", "OutsideFilter"): 1, ("held", "ReadError"): 1}


# ---- Fields that only the server knows.

SECRETIVE = Resource(Kind.unknown("x.io", "Thing", "things", namespaced=True), "v1", fields_known=False)
THING = {
    "apiVersion": "x.io/v1", "kind": "Thing", "spec": {"color": "red"},
    "metadata": {"name": "t", "namespace": "ns", "uid": "u", "resourceVersion": "5"},
}


def test_a_field_that_the_filter_sees_to_needs_no_looking_at() -> None:
    cache = reading(Selector(field="spec.color=red"), THING, resource=SECRETIVE, key="things")
    assert cache.list("things", field="spec.color=red") == [THING]


def test_a_field_that_only_the_server_can_look_at() -> None:
    cache = reading(Selector(), THING, resource=SECRETIVE, key="things")
    with pytest.raises(ReadError) as info:
        cache.list("things", field="spec.color=red")
    assert str(info.value) == (
        "cache.list('things', field='spec.color=red') selects by spec.color, and only the server knows which value of "
        "things.x.io that is. To ask the server: await cache.fetch_list('things', field='spec.color=red'); "
        "or look at a path of the objects: where={'spec.color': ...}"
    )
    assert cache.list("things", where={"spec.color": "red"}) == [THING]
