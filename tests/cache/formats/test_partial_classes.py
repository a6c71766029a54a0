"""Objects of other clients of which only a part is stored. The classes look like those of the clients;
tests/clients/test_parts.py has the real ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from kopf_selectcache import Cached, InvalidObject
from kopf_selectcache.errors import NotKept
from kopf_selectcache.testing import FakeCache
from tests.cache.clients import Pod, current, earlier, imported
from tests.rows import each_row

TYPES: dict[str, dict[str, tuple[str, str]]] = {
    "V1ObjectMeta": {
        "name": ("str", "name"),
        "namespace": ("str", "namespace"),
        "resource_version": ("str", "resourceVersion"),
        "annotations": ("dict(str, str)", "annotations"),
        "managed_fields": ("list[object]", "managedFields"),
        "creation_timestamp": ("datetime", "creationTimestamp"),
    },
    "V1Container": {
        "name": ("str", "name"),
        "image": ("str", "image"),
        "_from": ("list[str]", "command"),
        "resources": ("object", "resources"),
        "args": ("list[str]", "args"),
    },
    "V1PodSpec": {
        "node_name": ("str", "nodeName"),
        "host_network": ("bool", "hostNetwork"),
        "node_selector": ("dict(str, str)", "nodeSelector"),
        "containers": ("list[V1Container]", "containers"),
    },
    "V1PodStatus": {"phase": ("str", "phase")},
    "V1Pod": {
        "api_version": ("str", "apiVersion"),
        "kind": ("str", "kind"),
        "metadata": ("V1ObjectMeta", "metadata"),
        "spec": ("V1PodSpec", "spec"),
        "status": ("V1PodStatus", "status"),
    },
}


def made_by(make: Callable[..., Any], client: str) -> tuple[str, dict[str, Any]]:
    classes = {}
    for name, members in TYPES.items():
        types = {member: of for member, (of, _) in members.items()}
        keys = {member: key for member, (_, key) in members.items()}
        classes[name] = make(name, types, keys)
    return f"{client}.client.models", classes


CLIENTS = [made_by(earlier, "kubernetes_asyncio"), made_by(current, "kubernetes")]
CLASSES = [classes["V1Pod"] for _, classes in CLIENTS]

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "shop", "creationTimestamp": "2026-11-01T10:00:00Z"},
    "spec": {
        "nodeName": "n1",
        "nodeSelector": {"a": "b", "big": "x"},
        "containers": [
            {
                "name": "main",
                "image": "none",
                "command": ["y"],
                "args": ["a"],
                "resources": {"limits": {"cpu": "1"}},
            }
        ],
    },
}
TO_NODE: Any = {"transform": lambda obj: {**obj, "spec": {"nodeName": "n1", "nodeSelector": {"a": "b"}}}}


@pytest.fixture(autouse=True)
def _imported() -> Any:
    with imported({name: list(classes.values()) for name, classes in CLIENTS}):
        yield


def cache_of(**options: Any) -> FakeCache:
    return FakeCache([POD], {"v1/pods": Cached("", **options)})


def part(kind: Any, **options: Any) -> Any:
    return cache_of(**options).get(kind, "web-1", namespace="shop")


def raises_not_kept(model: Any, *names: str) -> None:
    for name in names:
        with pytest.raises(
            NotKept, match=f"the object has no '{name}', because the cache only stores a part"
        ):
            getattr(model, name, None)


@pytest.mark.parametrize("kind", CLASSES)
def test_13_a_member_of_a_class_that_is_not_stored_raises(kind: Any) -> None:
    pod = part(kind, keep=["spec.nodeName", "metadata"])
    raises_not_kept(pod, "status")
    assert isinstance(pod, kind)
    assert (pod.partial, pod.spec.node_name) == ("keep=['metadata', 'spec.nodeName']", "n1")
    assert pod.metadata.creation_timestamp == datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert pod.metadata.managed_fields is None, "nobody misses them"
    raises_not_kept(pod.spec, "containers", "host_network", "node_selector")
    raises_not_kept(part(kind, keep=["spec"]).metadata, "annotations")
    with pytest.raises(NotKept):
        hasattr(pod, "status")
    with pytest.raises(AttributeError):
        _ = pod.spec.nodename


@pytest.mark.parametrize("kind", CLASSES)
def test_13_a_stored_path_leads_through_lists_of_a_class(kind: Any) -> None:
    pod = part(
        kind, keep=["spec.containers.name", "spec.containers.args", "spec.nodeSelector.a", "status.phase"]
    )
    (container,) = pod.spec.containers
    assert (container.name, container.args, pod.spec.node_selector) == ("main", ["a"], {"a": "b"})
    raises_not_kept(container, "image", "_from", "resources")
    with pytest.raises(NotKept):
        pod.spec.node_selector.get("big")
    assert pod.status.phase == "Pending"
    dropped = part(
        kind, drop=["spec.containers.resources.limits", "spec.containers.command"]
    ).spec.containers[0]
    with pytest.raises(NotKept):
        dropped.resources["limits"]
    raises_not_kept(dropped, "_from")


@pytest.mark.parametrize("kind", CLASSES)
def test_13_whatever_a_transform_may_have_left_out_raises(kind: Any) -> None:
    pod = part(kind, **TO_NODE)
    assert (pod.spec.node_name, pod.spec.node_selector) == ("n1", {"a": "b"})
    raises_not_kept(pod.spec, "containers", "host_network")


@pytest.mark.parametrize("kind", CLASSES)
@each_row("options", [{"keep": ["spec.nodeName"]}, {"drop": ["spec.nodeSelector.big"]}, TO_NODE])
def test_13_a_part_of_a_class_is_no_whole_object_for_its_client(kind: Any, options: Any) -> None:
    pod = part(kind, **options)
    for model in (pod, pod.spec):
        for name in ("to_dict", "model_dump", "openapi_types"):
            with pytest.raises(NotKept, match=rf"{type(model).__name__}.{name} needs a whole object"):
                getattr(model, name, None)


@pytest.mark.parametrize("kind", CLASSES)
@each_row("made", [copy.copy, copy.deepcopy])
def test_13_a_copy_of_a_part_of_a_class_is_partial_as_well(kind: Any, made: Callable[[Any], Any]) -> None:
    pod = part(kind, keep=["spec.containers.name", "spec.hostNetwork"])
    other = made(pod)
    assert other is not pod
    assert isinstance(other, kind)
    assert (other.partial, other == pod, other != pod) == (pod.partial, True, False)
    raises_not_kept(other.spec, "node_name")
    raises_not_kept(other.spec.containers[0], "image")
    other.spec.host_network = True
    assert (other == pod) is (made is copy.copy)
    assert other != "pod"
    assert repr(other) == str(other)
    assert "'hostNetwork': True" in repr(other)


@pytest.mark.parametrize("kind", CLASSES)
def test_13_a_member_of_a_part_that_is_set_is_there(kind: Any) -> None:
    pod = part(kind, keep=["spec.containers.name"])
    pod.spec.node_name = "n2"
    pod.spec.containers[0]._from = ["z"]
    assert (pod.spec.node_name, pod.spec.containers[0]._from) == ("n2", ["z"])
    raises_not_kept(pod.spec, "host_network")
    with pytest.raises(NotKept):
        _ = pod.to_dict


@pytest.mark.parametrize("kind", [*CLASSES, Pod])
@each_row(
    "write",
    [
        lambda cache, obj: cache.blocking.live.replace(obj),
        lambda cache, obj: cache.blocking.live.apply(obj),
        lambda cache, obj: cache.blocking.live.create(obj),
        lambda cache, obj: cache.blocking.live.ensure(obj),
        lambda cache, obj: cache.blocking.live.update("pods", "web-1", lambda _: obj, namespace="shop"),
    ],
)
def test_13_no_write_takes_a_part_of_a_class(write: Callable[[FakeCache, Any], object], kind: Any) -> None:
    cache = cache_of(drop=["spec.containers.command"])
    obj = cache.get(kind, "web-1", namespace="shop")
    with pytest.raises(InvalidObject, match="only a part of the object is stored, drop="):
        write(cache, obj)
    assert cache.cluster.get(POD)["spec"]["containers"][0]["command"] == ["y"]


@pytest.mark.parametrize("kind", [*CLASSES, Pod])
def test_a_status_of_a_part_of_a_class_is_written_and_comes_back_as_one(kind: Any) -> None:
    cache = cache_of(keep=["status"])
    obj = cache.get(kind, "web-1", namespace="shop")
    made = cache.blocking.live.replace(obj, subresource="status")
    assert type(made) is kind
    assert cache.cluster.get(POD)["spec"]["nodeName"] == "n1"


def test_13_a_part_of_pykube_raises_and_is_not_sent_until_the_whole_is_loaded() -> None:
    pod = part(Pod, keep=["spec.containers.name"])
    other, sent = copy.deepcopy(pod), list[str]()
    assert (type(other), other.partial, other.obj == pod.obj) == (type(pod), pod.partial, True)
    pod.api = SimpleNamespace(
        patch=lambda url: sent.append(f"patch {url}"), post=lambda url: sent.append(f"post {url}")
    )
    assert issubclass(type(pod), Pod)
    assert (pod.partial, pod.obj["spec"]["containers"]) == (
        "keep=['spec.containers.name']",
        [{"name": "main"}],
    )
    for read in (
        lambda: pod.obj["status"],
        lambda: pod.obj["spec"]["containers"][0].get("image"),
        lambda: pod.obj["metadata"].setdefault("annotations", {}),
        pod.update,
        pod.create,
    ):
        with pytest.raises(NotKept):
            read()
    assert pod.obj["metadata"].setdefault("name", "x") == "web-1"
    with pytest.raises(NotKept):
        part(Pod, **TO_NODE).obj["other"]

    pod.obj = dict(POD)
    pod.update()
    pod.create()
    assert (pod.partial, sent) == ("", ["patch pods", "post pods"])


class Careless(Pod):
    def __init__(self, api: Any, obj: Any) -> None:
        super().__init__(api, obj)
        self.node = obj["spec"]["nodeName"]


def test_13_a_class_that_looks_at_a_member_that_is_not_stored_raises() -> None:
    assert part(Careless).node == "n1"
    with pytest.raises(NotKept):
        part(Careless, drop=["spec"])
