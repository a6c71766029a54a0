"""`owner=` of `list`, `list_cached` and `count`: the objects that an object owns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import Cached, Key, OutsideFilter, ReadError, Selector
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.types import Reason
from tests.cache.environment import Obj, pod
from tests.rows import each_row
from tests.told import told

OWNER: Obj = {"metadata": {"name": "web", "namespace": "shop", "uid": "u-1"}}
CLUSTER_SCOPED: Obj = {"metadata": {"name": "web", "uid": "u-1"}}


def owned(name: str, *uids: str, namespace: str = "shop", controller: str = "", **labels: str) -> Obj:
    """Return a pod with these owners, of which one may be the controller."""
    made = pod(name, namespace, **labels)
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": each, "uid": each}
        | ({"controller": True} if each == controller else {})
        for each in uids
    ]
    return made


PODS = [
    owned("mine", "u-1", controller="u-1", app="web"),
    owned("also", "u-2", "u-1", controller="u-2", app="web"),
    owned("other", "u-2", app="web"),
    owned("db", "u-1", app="db"),
    owned("far", "u-1", namespace="infra", app="web"),
    pod("alone", "shop", app="web"),
]


def cached(declared: Any = "app=web") -> FakeCache:
    return FakeCache(PODS, {"v1/pods": declared, "v1/nodes": ""})


def names(objects: Any) -> list[str]:
    return sorted(key.name for key in objects.keys())  # noqa: SIM118  # They are no keys of a dict.


def test_controller_narrows_to_the_objects_that_the_owner_controls() -> None:
    cache = cached()

    assert names(cache.list_cached("pods", owner=OWNER, controller=True)) == ["mine"]
    assert names(cache.list_cached("pods", owner=OWNER, controller=True, sort_by="metadata.name")) == ["mine"]
    assert names(cache.list_cached("pods", owner=OWNER, controller=False)) == ["also", "mine"]


@each_row(
    ("options", "found"),
    [
        ({"labels": "app=db"}, ["db"]),
        ({"labels": {"app": "web"}, "limit": 1, "sort_by": "metadata.name"}, ["also"]),
        ({"names": ["mine", "other"]}, ["mine"]),
        ({"where": {"spec.nodeName": "n1"}}, ["also", "mine"]),
        ({"where": {"spec.nodeName": "n2"}}, []),
        ({"index": {"node": "n1"}}, ["also", "mine"]),
        ({"index": {"node": "n1"}, "controller": True}, ["mine"]),
        ({"namespace": "infra"}, ["far"]),
        ({"namespace": ["infra", "shop"]}, ["also", "far", "mine"]),
    ],
)
def test_an_owner_goes_with_the_other_options(options: dict[str, Any], found: list[str]) -> None:
    cache = cached(Cached("app in (web,db)", index={"node": "spec.nodeName"}))
    if "labels" not in options:
        options = {**options, "labels": "app=web"}

    assert names(cache.list_cached("pods", owner=OWNER, **options)) == found


def test_a_complete_read_is_served_where_the_filter_has_the_namespace_of_the_owner() -> None:
    cache = cached(Selector(namespaces=["shop"]))

    assert names(cache.list("pods", owner=OWNER)) == ["also", "db", "mine"]
    assert cache.count("pods", owner=OWNER) == 3
    assert cache.count("pods", owner=OWNER, controller=True) == 1
    with pytest.raises(OutsideFilter):
        cache.list("pods", owner=CLUSTER_SCOPED)


@each_row(
    ("read", "way"),
    [
        (
            lambda cache: cache.list("pods", owner=OWNER, controller=True),
            "To read what is cached: cache.list_cached('pods', owner=..., controller=True)",
        ),
        (
            lambda cache: cache.count("pods", owner=OWNER),
            "To read what is cached: len(cache.list_cached('pods', owner=...))",
        ),
    ],
)
def test_a_complete_read_is_refused_where_the_filter_is_narrower_and_names_list_cached(
    read: Callable[[FakeCache], Any], way: str
) -> None:
    with pytest.raises(OutsideFilter) as caught:
        read(cached())

    assert caught.value.reason is Reason.OVERLAPS
    assert way in told(caught.value)


def test_an_owner_whose_namespace_is_never_cached_is_refused() -> None:
    with pytest.raises(OutsideFilter) as caught:
        cached(Selector(namespaces=["infra"])).list_cached("pods", owner=OWNER)

    assert caught.value.reason is Reason.EXCLUDED


@each_row("owner", ["u-1", None, {}, {"metadata": {"name": "web"}}, 5, Key("web", namespace="shop")])
@each_row("verb", ["list", "list_cached", "count"])
def test_a_value_that_is_no_object_with_a_uid_is_no_owner(verb: str, owner: object) -> None:
    with pytest.raises(ReadError, match="the owner") as caught:
        getattr(cached(), verb)("pods", owner=owner)

    assert told(caught.value).endswith(". Give the body of an object")


@each_row(
    ("options", "text"),
    [
        ({"controller": True}, "controller= needs owner="),
        ({"owner": OWNER, "controller": 1}, "controller is 1"),
    ],
)
def test_a_controller_is_true_or_false_beside_an_owner(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ReadError, match=text):
        cached().list_cached("pods", **options)
