"""Kinds named by classes of kubernetes and pykube: in declarations, in reads, as `kinds=`. These are
recognised by what they are like."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import kopf
import pytest

from kopf_selectcache import ReadError, Selector, settings_of, with_cache
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.errors import ConflictingSelectors, NoClient, UnknownKind
from kopf_selectcache.testing import FakeCache
from tests.cache.clients import APIObject, Pod, V1Pod, Widget, earlier, imported, model
from tests.cache.environment import pod, reading

WEB = pod("web-1", app="web")


@pytest.mark.parametrize(
    "given",
    [
        model("V1Event"),  # It stands for two kinds.
        model("V1PodList"),
        model("V1ObjectMeta"),
        model("VersionInfo"),
        model("V1beta1Deployment"),
        APIObject,
        type("Half", (APIObject,), {"version": "v1", "endpoint": None}),
        dict,
        model("V1Pod", "somewhere.else"),
    ],
)
def test_classes_that_name_no_kind_are_refused(given: Any) -> None:
    with pytest.raises(UnknownKind):
        settings_of(kopf.OperatorSettings()).selectors[given] = "app=web"
    for read in READS:
        with pytest.raises(ReadError):
            read(FakeCache([WEB], {"pods": ""}), given)


READS: list[Callable[[Any, Any], Any]] = [
    lambda cache, kind: cache.get(kind, "web-1", namespace="ns"),
    lambda cache, kind: cache.list_cached(kind),
    lambda cache, kind: cache.list(kind),
    lambda cache, kind: cache.exists(kind, "web-1", namespace="ns"),
    lambda cache, kind: cache.blocking.fetch(kind, "web-1", namespace="ns"),
    lambda cache, kind: cache.blocking.fetch_list(kind),
    lambda cache, kind: cache.explain(kind),
    lambda cache, kind: cache.blocking.is_deleted(kind, "web-1", namespace="ns"),
]


def test_filters_are_declared_by_class() -> None:
    select = settings_of(kopf.OperatorSettings()).selectors
    select[V1Pod] = "app=web"
    select |= {Widget: Selector(names=["w"])}
    assert list(select) == ["v1/pods", "example.com/v1/widgets"]
    assert str(select[Pod]) == "labels='app=web'"
    assert V1Pod in select
    with pytest.raises(ConflictingSelectors):
        select["pods"] = "app=db"
    del select[Pod]
    assert V1Pod not in select


def test_a_custom_resource_of_the_name_of_a_kind_is_not_that_kind() -> None:
    mine = Resource(Kind.unknown("example.com", "Pod", "pods", namespaced=True), "v1")
    own = {**WEB, "apiVersion": "example.com/v1"}
    with pytest.raises(ReadError):
        reading("", own, resource=mine, key="example.com/v1/pods").get(
            "example.com/v1/pods", "web-1", namespace="ns", as_=V1Pod
        )


def test_handlers_wait_for_kinds_named_by_class() -> None:
    with_cache(kinds=[V1Pod, Pod, "jobs"])
    with pytest.raises(UnknownKind):
        with_cache(kinds=[model("V1PodList")])


# ---- Objects of pykube have no client.


def test_an_object_of_pykube_says_that_it_has_no_client() -> None:
    found = reading("", WEB).get(Pod, "web-1", namespace="ns")
    with pytest.raises(NoClient):
        found.update()
    assert not hasattr(found.api, "session")


@pytest.mark.parametrize(
    "through", [copy.copy, copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))]
)  # Our own.
def test_an_object_of_pykube_can_be_copied_and_pickled(through: Callable[[Any], Any]) -> None:
    assert through(reading("", WEB).get(Pod, "web-1", namespace="ns")).obj == WEB


# ---- Models of earlier clients are made by the types that they name.


V1ObjectMeta = earlier(
    "V1ObjectMeta",
    {
        "name": "str",
        "creation_timestamp": "datetime",
        "labels": "dict(str, str)",
        "owner_references": "list[V1OwnerReference]",
        "raw": "object",
    },
    {
        "name": "name",
        "creation_timestamp": "creationTimestamp",
        "labels": "labels",
        "owner_references": "ownerReferences",
        "raw": "raw",
    },
)
V1OwnerReference = earlier(
    "V1OwnerReference", {"uid": "str", "api_version": "str"}, {"uid": "uid", "api_version": "apiVersion"}
)
V1Quantities = earlier("V1Quantities", {"size": "int"}, {"size": "size"})
Earlier = earlier(
    "V1Pod",
    {"metadata": "V1ObjectMeta", "spec": "Dict[str, V1Quantities]"},
    {"metadata": "metadata", "spec": "spec"},
)


def test_models_of_earlier_clients_are_made_part_by_part() -> None:
    obj = pod("web-1", app="web", owner="o-1")
    obj["metadata"] |= {"creationTimestamp": "2026-01-02T03:04:05Z", "raw": {"creationTimestamp": "x"}}
    obj["spec"] = {"cpu": {"size": 5}, "memory": "odd"}
    with imported(
        {"kubernetes_asyncio.client.models": [V1ObjectMeta, V1OwnerReference, V1Quantities, Earlier]}
    ):
        found = reading("", obj).get(Earlier, "web-1", namespace="ns")
        mine: object = reading("", obj).get(type("MyPod", (Earlier,), {}), "web-1", namespace="ns")
    assert (type(found), type(mine).__name__) == (Earlier, "MyPod")
    meta = found.metadata
    assert (type(meta), meta.name, meta.labels, meta.raw) == (
        V1ObjectMeta,
        "web-1",
        {"app": "web"},
        {"creationTimestamp": "x"},
    )
    assert meta.creation_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert [(type(each), each.uid, each.api_version) for each in meta.owner_references] == [
        (V1OwnerReference, "o-1", None)
    ]
    assert (
        found.local_vars_configuration
        is meta.local_vars_configuration
        is meta.owner_references[0].local_vars_configuration
    )
    assert (type(found.spec["cpu"]), found.spec["cpu"].size, found.spec["memory"]) == (V1Quantities, 5, "odd")
