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

from kopf_selectcache import NotDeclared, ReadError, Selector, settings_of, with_cache
from kopf_selectcache.core.selection.kinds import BUILT_IN, Kind, Resource
from kopf_selectcache.errors import ConflictingSelectors, NoClient, UnknownKind
from kopf_selectcache.selectors.kind_keys import key_of
from kopf_selectcache.testing import FakeCache
from tests.cache.clients import APIObject, Pod, V1Pod, Widget, earlier, imported, model
from tests.cache.environment import pod, reading
from tests.rows import each_row

WEB = pod("web-1", app="web")


@each_row(
    ("name", "key"),
    [
        ("V1Pod", "v1/pods"),
        ("V1Job", "batch/v1/jobs"),
        ("V2HorizontalPodAutoscaler", "autoscaling/v2/horizontalpodautoscalers"),
        ("V1HorizontalPodAutoscaler", "autoscaling/v1/horizontalpodautoscalers"),
        ("V1beta1ResourceClaim", "resource.k8s.io/v1beta1/resourceclaims"),
        ("ResourceV1ResourceClaim", "resource.k8s.io/v1/resourceclaims"),
        ("CoreV1Event", "v1/events"),
        ("EventsV1Event", "events.k8s.io/v1/events"),
        ("V1CSIDriver", "storage.k8s.io/v1/csidrivers"),
        ("V1CustomResourceDefinition", "apiextensions.k8s.io/v1/customresourcedefinitions"),
    ],
)
@each_row(
    "module",
    [
        "kubernetes.client.models.any",
        "kubernetes_asyncio.client.models.any",
        "kubernetes.aio.client.models.any",
    ],
)
def test_a_model_of_the_kubernetes_client_names_its_kind_and_version(
    name: str, key: str, module: str
) -> None:
    assert key_of(model(name, module)) == key


def test_every_kind_of_kubernetes_can_be_named_by_a_model() -> None:
    for kind in BUILT_IN:
        for version in kind.versions:
            short = f"{version.capitalize()}{kind.kind}"
            prefix = (kind.group or "core").partition(".")[0].capitalize()
            keys = {
                "/".join(filter(None, (each.group, version, each.plural)))
                for each in BUILT_IN
                if each.kind == kind.kind and version in each.versions
            }
            key = "/".join(filter(None, (kind.group, version, kind.plural)))
            assert key_of(model(f"{prefix}{short}")) == key
            if keys == {key}:
                assert key_of(model(short)) == key


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


def test_a_class_of_pykube_names_its_version_and_endpoint() -> None:
    assert key_of(Pod) == "v1/pods"
    assert key_of(Widget) == "example.com/v1/widgets"


def test_a_subclass_names_what_its_base_does() -> None:
    assert key_of(type("MyPod", (V1Pod,), {})) == key_of(type("MyPod", (Pod,), {})) == "v1/pods"
    mine: object = reading("", WEB).get(type("MyPod", (V1Pod,), {}), "web-1", namespace="ns")
    assert type(mine).__name__ == "MyPod"


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


def test_what_is_declared_by_class_is_read_by_name_and_the_other_way_round() -> None:
    assert FakeCache([WEB], {V1Pod: ""}).exists("pods", "web-1", namespace="ns")
    assert FakeCache([WEB], {"po": ""}).exists(V1Pod, "web-1", namespace="ns")
    with pytest.raises(NotDeclared):
        FakeCache([WEB], {V1Pod: ""}).list_cached(model("V1Job"))


def test_custom_resources_are_read_by_classes_of_ones_own() -> None:
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "shop"},
        "spec": {"size": 1},
    }
    cache = FakeCache([widget], {Widget: ""})
    found = cache.get(Widget, "w", namespace="shop")
    assert (type(found), found.obj["spec"]) == (Widget, {"size": 1})
    assert cache.blocking.fetch(Widget, "none", namespace="shop", default=None) is None


def test_a_custom_resource_of_the_name_of_a_kind_is_not_that_kind() -> None:
    mine = Resource(Kind.unknown("example.com", "Pod", "pods", namespaced=True), "v1")
    own = {**WEB, "apiVersion": "example.com/v1"}
    with pytest.raises(ReadError):
        reading("", own, resource=mine, key="example.com/v1/pods").get(
            "example.com/v1/pods", "web-1", namespace="ns", as_=V1Pod
        )


def test_a_kind_that_is_newer_than_the_table_is_read_by_a_class_and_a_custom_resource_is_not() -> None:
    new, v1 = model("V1Novelty"), {"apiVersion": "apps/v1", "kind": "Novelty", "metadata": WEB["metadata"]}
    for group, kept in (("apps", True), ("example.com", False)):
        cache = reading(
            "",
            v1 | {"apiVersion": f"{group}/v1"},
            resource=Resource(Kind.unknown(group, "Novelty", "novelties", namespaced=True), "v1"),
            key="novelties",
        )
        if kept:
            assert type(cache.get("novelties", "web-1", namespace="ns", as_=new)) is new
        else:
            with pytest.raises(ReadError):
                cache.get("novelties", "web-1", namespace="ns", as_=new)


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
    "through",
    [copy.copy, copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))],
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


def test_a_kind_that_is_too_new_for_the_table_is_made_if_it_is_of_a_group_of_kubernetes() -> None:
    new = Resource(
        Kind.unknown("scheduling.k8s.io", "CompositePodGroup", "compositepodgroups", namespaced=True),
        "v1alpha3",
    )
    obj = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "5"},
    }
    cache = reading("", obj, resource=new, key="scheduling.k8s.io/v1alpha3/compositepodgroups")
    assert (
        vars(
            cache.get(
                "scheduling.k8s.io/v1alpha3/compositepodgroups",
                "a",
                namespace="ns",
                as_=model("V1alpha3CompositePodGroup"),
            )
        )
        == obj
    )
