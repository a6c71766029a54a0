"""Objects of other clients of which only a part is stored: a member that is not stored raises NotKept, and no
client sends the part as the whole."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import kopf
import kubernetes.client
import kubernetes_asyncio.client
import pykube
import pytest

from kopf_selectcache import Cached, InvalidObject
from kopf_selectcache.errors import NotKept
from kopf_selectcache.testing import FakeCache
from tests.rows import each_row

CLIENTS: list[Any] = [kubernetes.client, kubernetes_asyncio.client]
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-1",
        "namespace": "shop",
        "labels": {"app": "web"},
        "annotations": {"a": "b"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-1", "controller": True}
        ],
    },
    "spec": {
        "nodeName": "n1",
        "hostNetwork": True,
        "tolerations": [{"key": "gpu"}],
        "containers": [
            {
                "name": "main",
                "image": "example.com/web",
                "ports": [{"containerPort": 80, "name": "http"}],
                "lifecycle": {"preStop": {"exec": {"command": ["stop"]}, "sleep": {"seconds": 1}}},
            }
        ],
    },
    "status": {"startTime": "2026-11-01T10:00:00Z", "phase": "Running"},
}


def part(kind: Any, *, as_: Any = None, obj: dict[str, Any] = POD, **options: Any) -> Any:
    plural = f"{obj['kind'].lower()}s"
    cache = FakeCache([obj], {f"v1/{plural}": Cached("", **options)})
    return cache.get(kind, obj["metadata"]["name"], namespace="shop", as_=as_)


@pytest.mark.parametrize("client", CLIENTS)
def test_13_a_member_that_is_not_stored_raises(client: Any) -> None:
    pod = part(client.V1Pod, keep=["metadata", "spec.nodeName"])
    assert isinstance(pod, client.V1Pod)
    assert type(pod).__name__ == "V1Pod"
    assert pod.partial == "keep=['metadata', 'spec.nodeName']"
    assert pod.spec.node_name == "n1"
    metadata = pod.metadata
    assert (metadata.name, metadata.annotations["a"], metadata.managed_fields) == ("web-1", "b", None)
    assert (pod.api_version, pod.kind) == ("v1", "Pod")
    missing: list[Callable[[], Any]] = [
        lambda: pod.status,
        lambda: pod.spec.containers[0].image,
        lambda: pod.spec.host_network,
        lambda: getattr(pod.spec, "host_network", None),
        lambda: hasattr(pod, "status"),
    ]
    for read in missing:
        with pytest.raises(NotKept, match="only stores a part of it: keep="):
            read()
    with pytest.raises(AttributeError) as raised:
        _ = pod.spec.host_netwrok
    assert not isinstance(raised.value, NotKept)


@pytest.mark.parametrize("client", CLIENTS)
def test_13_a_path_to_keep_goes_through_lists_and_special_names(client: Any) -> None:
    paths = [
        "spec.containers.name",
        "spec.containers.ports.containerPort",
        "status.startTime",
        "spec.volumes",
    ]
    pod = part("pods", as_=client.V1Pod, keep=[*paths, "spec.containers.lifecycle.preStop.exec"])
    container = pod.spec.containers[0]
    assert (container.name, container.ports[0].container_port) == ("main", 80)
    handler = container.lifecycle.pre_stop
    assert handler._exec.command == ["stop"]
    assert pod.status.start_time == datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert pod.spec.volumes is None, "it is stored, and the object has none"
    for model, name in (
        (container, "image"),
        (container.ports[0], "name"),
        (handler, "sleep"),
        (pod.metadata, "annotations"),
        (pod.metadata, "finalizers"),
        (pod.status, "phase"),
        (pod.spec, "tolerations"),
    ):
        with pytest.raises(NotKept):
            getattr(model, name)
    assert pod.metadata.owner_references[0].uid == "u-1"
    dropped = part(client.V1Pod, drop=["spec.containers.lifecycle.preStop.exec"])
    for name in ("_exec", *(["var_exec"] if client is kubernetes.client else [])):
        with pytest.raises(NotKept):
            getattr(dropped.spec.containers[0].lifecycle.pre_stop, name)
    assert dropped.spec.tolerations[0].key == "gpu"


@pytest.mark.parametrize("client", CLIENTS)
def test_13_a_dict_of_which_a_part_is_stored_raises_as_well(client: Any) -> None:
    metadata = {"name": "c", "namespace": "shop"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "x", "big": "y"}}
    found = part(client.V1ConfigMap, obj=config, drop=["data.big"])
    assert found.data["a"] == "x"
    with pytest.raises(NotKept):
        found.data["big"]
    assert found.binary_data is None
    with pytest.raises(NotKept):
        found.to_dict()


OPTIONS: list[Any] = [
    {"keep": ["metadata", "spec.nodeName"]},
    {"drop": ["spec.containers.image"]},
    {"metadata_only": True},
    {"transform": lambda obj: {**obj, "spec": {"nodeName": obj["spec"]["nodeName"]}}},
]


@each_row("options", OPTIONS)
@pytest.mark.parametrize("client", CLIENTS)
def test_13_no_client_sends_a_part_as_the_whole(client: Any, options: Any) -> None:
    pod = part(client.V1Pod, **options)
    sanitize: Any = client.ApiClient.sanitize_for_serialization
    api = client.ApiClient() if client is kubernetes.client else client.ApiClient.__new__(client.ApiClient)
    with pytest.raises(NotKept, match="needs a whole object"):
        pod.to_dict()
    for given in (pod, [pod], {"items": [pod]}):
        with pytest.raises(NotKept):
            sanitize(api, given)


@pytest.mark.parametrize("client", CLIENTS)
def test_13_no_client_sends_a_model_with_a_part_in_it(client: Any) -> None:
    pod = part(client.V1Pod, keep=["spec.nodeName", "spec.containers.name"])
    api = client.ApiClient() if client is kubernetes.client else client.ApiClient.__new__(client.ApiClient)
    for spec in (pod.spec, client.V1PodSpec(containers=pod.spec.containers)):
        around = client.V1Pod(metadata=client.V1ObjectMeta(name="a"), spec=spec)
        with pytest.raises(NotKept):
            api.sanitize_for_serialization(around)
        with pytest.raises(NotKept):
            around.to_dict()


@pytest.mark.parametrize("kind", [*(client.V1Pod for client in CLIENTS), pykube.Pod])
@each_row("options", OPTIONS)
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
def test_13_no_write_of_a_whole_object_takes_a_part_of_a_class(
    write: Callable[[FakeCache, Any], object], options: Any, kind: Any
) -> None:
    cache = FakeCache([POD], {"v1/pods": Cached("", **options)})
    pod = cache.get(kind, "web-1", namespace="shop")
    for each in (pod, copy.deepcopy(pod), pickle.loads(pickle.dumps(pod))):
        with pytest.raises(InvalidObject, match="only a part of the object is stored"):
            write(cache, each)
    assert cache.cluster.get(POD)["spec"]["hostNetwork"] is True


@pytest.mark.parametrize("client", CLIENTS)
def test_13_a_transform_may_have_left_out_whatever_is_missing(client: Any) -> None:
    pod = part(client.V1Pod, transform=OPTIONS[-1]["transform"])
    assert pod.spec.node_name == "n1"
    assert pod.status.phase == "Running"
    assert pod.metadata.labels == {"app": "web"}
    for model, name in ((pod.spec, "containers"), (pod.spec, "volumes"), (pod.status, "message")):
        with pytest.raises(NotKept):
            getattr(model, name)


@pytest.mark.parametrize("client", CLIENTS)
@each_row("made", [copy.copy, copy.deepcopy, lambda pod: pickle.loads(pickle.dumps(pod))])
def test_13_an_object_made_of_a_part_of_a_class_is_partial_as_well(client: Any, made: Any) -> None:
    pod = part(client.V1Pod, keep=["spec.containers.name", "spec.hostNetwork"])
    other = made(pod)
    assert other is not pod
    assert isinstance(other, client.V1Pod)
    assert (other.partial, other.spec.containers[0].name) == (pod.partial, "main")
    assert (other == pod, other != pod) == (True, False)
    for model in (other, other.spec, other.spec.containers[0]):
        with pytest.raises(NotKept):
            model.to_dict()
    with pytest.raises(NotKept):
        _ = other.spec.containers[0].image
    other.spec.host_network = False
    assert (other.spec.host_network, other == pod) == (False, made is copy.copy)


@pytest.mark.parametrize("client", CLIENTS)
def test_13_the_stored_part_is_shown_and_compared(client: Any) -> None:
    pod = part(client.V1Pod, keep=["spec.nodeName"])
    assert "'nodeName': 'n1'" in repr(pod) == str(pod) == pod.to_str()
    assert "status" not in repr(pod)
    whole = part(client.V1Pod)
    assert type(whole) is client.V1Pod
    assert (whole == pod, pod == whole, pod == "pod") == (False, False, False)
    assert whole == copy.deepcopy(whole)
    with pytest.raises(TypeError):
        hash(pod)
    same = client.V1PodSpec(node_name="n1", containers=[])
    same_part = part(client.V1Pod, keep=["spec.nodeName", "spec.containers"]).spec
    same_part.containers = []
    assert (same_part == same, same == same_part, same_part != same) == (True, True, False)


@pytest.mark.parametrize("client", CLIENTS)
def test_13_a_member_that_is_set_is_there(client: Any) -> None:
    pod = part(client.V1Pod, keep=["spec.nodeName"])
    pod.spec.host_network = True
    assert pod.spec.host_network is True
    with pytest.raises(NotKept):
        _ = pod.spec.containers
    pod.spec.containers = [client.V1Container(name="a")]
    assert pod.spec.containers[0].name == "a"
    with pytest.raises(NotKept):
        pod.to_dict()


def test_13_a_part_in_pykube_raises_and_is_not_sent() -> None:
    sent = list[str]()

    class Answer:
        def json(self) -> Any:
            return copy.deepcopy(POD)

    class Api:
        def raise_for_status(self, _: object) -> None:
            pass

        def patch(self, **given: Any) -> Answer:
            sent.append(given["data"])
            return Answer()

        post = patch

    pod = part(pykube.Pod, keep=["spec.containers.name"])
    assert isinstance(pod, pykube.Pod)
    assert (pod.name, pod.namespace, pod.labels) == ("web-1", "shop", {"app": "web"})
    assert pod.obj["spec"]["containers"] == [{"name": "main"}]
    reads: list[Callable[[], Any]] = [
        lambda: pod.obj["status"],
        lambda: pod.obj["spec"]["nodeName"],
        lambda: pod.obj["spec"]["containers"][0].get("image"),
        lambda: pod.annotations,
    ]
    for read in reads:
        with pytest.raises(NotKept):
            read()
    for other in (copy.copy(pod), copy.deepcopy(pod), pickle.loads(pickle.dumps(pod))):
        assert (type(other), other.partial) == (type(pod), "keep=['spec.containers.name']")
    pod.api = Api()
    writes: list[Callable[[], Any]] = [pod.update, pod.create]
    for write in writes:
        with pytest.raises(NotKept, match="needs a whole object"):
            write()
    assert sent == []
    pod.patch({"metadata": {"labels": {"a": "b"}}})
    assert (pod.partial, pod.obj["status"]["phase"]) == ("", "Running")
    pod.update()
    assert len(sent) == 2


@pytest.mark.parametrize("kind", [*(client.V1Pod for client in CLIENTS), pykube.Pod])
def test_a_part_is_an_object_for_everything_else(kind: Any) -> None:
    cache = FakeCache([POD], {"v1/pods": Cached("app=web", keep=["status"])})
    (pod,) = cache.list(kind, labels="app=web")
    assert cache.list_cached("pods", owner=pod) is not None
    assert cache.get("pods", "web-1", namespace="shop", at_least=pod)["kind"] == "Pod"
    kopf.label(pod, {"more": "x"})
    labels = pod.obj["metadata"]["labels"] if kind is pykube.Pod else pod.metadata.labels
    assert labels["more"] == "x"
    made = cache.blocking.live.replace(pod, subresource="status")
    assert type(made) is kind
    assert cache.cluster.get(POD)["spec"]["hostNetwork"] is True
