"""Objects of other clients, written by `cache.live`: they are sent as the client itself would send them, and
come back as objects of their class."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import kubernetes.client
import kubernetes_asyncio.client
import pykube
import pytest

from kopf_selectcache import Conflict
from kopf_selectcache.selectors.kind_keys import to_dict
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.sample_objects import Population

MODELS = (kubernetes.client, kubernetes_asyncio.client)
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}


@pytest.fixture
def cache() -> FakeCache:
    return FakeCache(
        [NAMESPACE, *Population(seed=7, namespaces=["shop"]).pods(3)], {"pods": "", "deployments": ""}
    )


def deployment(client: ModuleType) -> Any:
    probe = client.V1Probe(http_get=client.V1HTTPGetAction(path="/", port="http"))
    container = client.V1Container(
        name="main",
        image="example.com/web",
        ports=[client.V1ContainerPort(container_port=80)],
        readiness_probe=probe,
    )
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"some_key": "x", "a.b/C_d": "y"}),
        spec=client.V1PodSpec(containers=[container]),
    )
    spec = client.V1DeploymentSpec(
        replicas=0, selector=client.V1LabelSelector(match_labels={"some_key": "x"}), template=template
    )
    return client.V1Deployment(metadata=client.V1ObjectMeta(name="web", namespace="shop"), spec=spec)


@pytest.mark.parametrize("client", MODELS)
def test_a_model_is_sent_as_the_client_sends_it(client: ModuleType) -> None:
    given = deployment(client)
    sent: Any = to_dict(given)
    if client is kubernetes.client:  # The other one needs a loop.
        assert sent == client.ApiClient().sanitize_for_serialization(given)
    assert sent["spec"]["template"]["spec"]["containers"][0]["ports"] == [{"containerPort": 80}]


@pytest.mark.parametrize("client", MODELS)
def test_a_model_comes_back_as_one(cache: FakeCache, client: ModuleType) -> None:
    live = cache.blocking.live
    made = live.create(deployment(client))
    assert type(made) is client.V1Deployment
    assert (made.api_version, made.kind, made.metadata.name) == ("apps/v1", "Deployment", "web")
    assert made.spec.template.spec.containers[0].readiness_probe.http_get.port == "http"
    made.spec.replicas = 3
    assert live.replace(made).spec.replicas == 3
    with pytest.raises(Conflict):
        live.replace(made)
    assert live.ensure(deployment(client)).spec.replicas == 3
    assert len(cache.list_cached("pods", owner=made)) == 0


@pytest.mark.parametrize("client", MODELS)
def test_a_model_that_was_read_is_written_back(cache: FakeCache, client: ModuleType) -> None:
    before = cache.list("pods")[0]
    cache.cluster.patch(before, {"status": {"containerStatuses": None}}, subresource="status")
    name = before["metadata"]["name"]
    pod = cache.blocking.live.get(client.V1Pod, name, namespace="shop")
    pod.metadata.labels["more"] = "x"
    changed = cache.blocking.live.replace(pod)
    assert type(changed) is client.V1Pod
    now = cache.get("pods", name, namespace="shop")
    assert now["metadata"]["labels"] == {**before["metadata"]["labels"], "more": "x"}
    assert now["spec"] == before["spec"]


def test_an_object_of_pykube_comes_back_with_its_client(cache: FakeCache) -> None:
    api = object()
    given = pykube.ConfigMap(api, {"metadata": {"name": "a", "namespace": "shop"}, "data": {"a": "b"}})
    made = cache.blocking.live.create(given)
    assert (type(made), made.api, made.obj["data"]) == (pykube.ConfigMap, api, {"a": "b"})
    made.obj["data"]["a"] = "c"
    assert cache.blocking.live.replace(made).obj["data"] == {"a": "c"}
