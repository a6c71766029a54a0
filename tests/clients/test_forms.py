"""Objects of a cache as those of other clients: the models of `kubernetes`, the objects of `pykube`, and
recipes for `kr8s` and `lightkube`."""

from __future__ import annotations

import asyncio
import inspect
import json
from types import ModuleType
from typing import Any

import kopf
import kr8s.asyncio.objects
import kubernetes.aio.client
import kubernetes.client
import kubernetes_asyncio.client
import lightkube.generic_resource
import lightkube.resources.core_v1
import pykube
import pytest
from kubernetes.client import V1Pod

from kopf_selectcache import Cached, ReadError, Selector, settings_of, with_cache
from kopf_selectcache.core.selection.kinds import BUILT_IN
from kopf_selectcache.errors import UnknownKind
from kopf_selectcache.selectors.kind_keys import key_of
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.sample_objects import Population

from .environment import Environment

LACKING = list(Population(seed=7, namespaces=["shop"]).pods(60))
"""Their statuses lack the images, without which the schema has none."""


def complete(pod: dict[str, Any]) -> dict[str, Any]:
    statuses = [
        {**each, "image": "example.com/web", "imageID": "example.com/web@sha256:1"}
        for each in pod["status"]["containerStatuses"]
    ]
    return {**pod, "status": {**pod["status"], "containerStatuses": statuses}}


PODS = [complete(pod) for pod in LACKING]
POD = PODS[0]
NAME = POD["metadata"]["name"]
MODELS = (kubernetes.client, kubernetes_asyncio.client, kubernetes.aio.client)
OWNED = {"metadata": {"uid": POD["metadata"]["ownerReferences"][0]["uid"]}}


@pytest.fixture
def cache() -> FakeCache:
    return FakeCache(PODS, {V1Pod: ""})


def deserialized(obj: dict[str, Any], model: str) -> Any:
    """Return what the client makes of an answer of the server."""
    return kubernetes.client.ApiClient().deserialize(json.dumps(obj), model, "application/json")  # type: ignore[no-untyped-call, unused-ignore]


# ---- kubernetes.


@pytest.mark.parametrize("client", MODELS)
def test_every_kind_that_the_client_has_a_model_of_is_named_by_it(client: ModuleType) -> None:
    models = {
        name: model
        for name in dir(client)
        if inspect.isclass(model := getattr(client, name)) and "client.models." in model.__module__
    }
    named: dict[Any, str] = {}
    for name, model in models.items():
        try:
            key = key_of(model)
        except UnknownKind:
            continue
        assert key not in named
        named[key] = name
    assert len(named) > 60
    for kind in BUILT_IN:
        for version in kind.versions:
            group = (kind.group or "core").partition(".")[0].capitalize()
            names = {f"{group}{version.capitalize()}{kind.kind}", f"{version.capitalize()}{kind.kind}"}
            if names & models.keys():
                assert named["/".join(filter(None, (kind.group, version, kind.plural)))] in names


@pytest.mark.parametrize("model", ["V1ObjectMeta", "V1PodList", "V1Status", "VersionInfo", "V1PodSpec"])
def test_models_of_other_things_are_refused(model: str) -> None:
    with pytest.raises(UnknownKind, match=model):
        key_of(getattr(kubernetes.client, model))


def test_events_of_both_groups_are_distinguished() -> None:
    assert (key_of(kubernetes.client.CoreV1Event), key_of(kubernetes.client.EventsV1Event)) == (
        "v1/events",
        "events.k8s.io/v1/events",
    )


def test_a_model_equals_the_one_the_client_makes_of_the_servers_answer(cache: FakeCache) -> None:
    models = {model.metadata.name: model for model in cache.list(V1Pod)}
    assert len(models) == len(PODS)
    for pod in cache.list("pods"):
        model = models[pod["metadata"]["name"]]
        assert type(model) is V1Pod
        assert model == deserialized(pod, "V1Pod")
        assert (model.api_version, model.kind, model.metadata.uid) == ("v1", "Pod", pod["metadata"]["uid"])


def test_a_model_is_written_as_it_was_read(cache: FakeCache) -> None:
    pod = cache.get(V1Pod, NAME, namespace="shop")
    written = json.dumps(
        kubernetes.client.ApiClient().sanitize_for_serialization(pod), sort_keys=True
    ).replace("+00:00", "Z")  # type: ignore[no-untyped-call, unused-ignore]
    assert json.loads(written) == cache.get("pods", NAME, namespace="shop")


@pytest.mark.parametrize("client", [kubernetes_asyncio.client, kubernetes.aio.client])
async def test_a_model_equals_the_one_an_asynchronous_client_makes_of_the_servers_answer(
    cache: FakeCache, client: Any
) -> None:
    async with client.ApiClient() as api:
        for pod in cache.list("pods"):
            text = json.dumps(pod)
            earlier = client is kubernetes_asyncio.client  # Than version 37.
            expected = (
                api.deserialize(type("Answer", (), {"data": text}), "V1Pod")
                if earlier
                else api.deserialize(text, "V1Pod", "application/json")
            )
            found = cache.get(client.V1Pod, pod["metadata"]["name"], namespace="shop")
            assert (type(found), type(found.spec.containers[0])) == (client.V1Pod, client.V1Container)
            assert found == expected


def test_a_model_that_is_extended_is_made_as_well(cache: FakeCache) -> None:
    class MyPod(V1Pod):  # type: ignore[misc, unused-ignore]  # Where the client is not installed, it is Any.
        @property
        def node(self) -> Any:
            return self.spec.node_name

    assert cache.get(MyPod, NAME, namespace="shop").node == POD["spec"]["nodeName"]


def test_an_object_the_client_cannot_read_is_reported_without_a_value() -> None:
    cache = FakeCache(LACKING, {"pods": ""})
    with pytest.raises(
        ReadError,
        match=(
            f"^shop/{NAME} can't be read as V1Pod: the client raised ValidationError for V1ContainerStatus:"
            " image "
        ),
    ) as info:
        cache.get(V1Pod, NAME, namespace="shop")
    values = [each["value"] for container in POD["spec"]["containers"] for each in container["env"]]
    assert not [value for value in values if value in str(info.value)]


def test_kopf_takes_the_models_of_a_cache(cache: FakeCache) -> None:
    child, owner = (
        cache.get(V1Pod, NAME, namespace="shop"),
        cache.get("pods", PODS[1]["metadata"]["name"], namespace="shop", as_="view"),
    )
    kopf.append_owner_reference(child, owner=owner)
    assert child.metadata.owner_references[-1].uid == owner.metadata.uid


# ---- pykube.


def test_an_object_of_pykube_is_read_from_a_cache(cache: FakeCache) -> None:
    pod = cache.get(pykube.Pod, NAME, namespace="shop")
    assert (type(pod), pod.name, pod.namespace, pod.obj) == (
        pykube.Pod,
        NAME,
        "shop",
        cache.get("pods", NAME, namespace="shop"),
    )
    assert {each.name for each in cache.list_cached(pykube.Pod, owner=OWNED)} >= {NAME}


@pytest.mark.parametrize(
    "call",
    [
        lambda pod: pod.reload(),
        lambda pod: pod.delete(),
        lambda pod: pod.exists(),
        lambda pod: pod.update(),
        lambda pod: pod.logs(),
    ],
)
def test_an_object_of_pykube_needs_a_client_to_write_or_read_with(cache: FakeCache, call: Any) -> None:
    with pytest.raises(
        ReadError,
        match=r"^this object was read from a cache, .*\nGive it one: pod\.api = pykube\.HTTPClient\(",
    ):
        call(cache.get(pykube.Pod, NAME, namespace="shop"))


def test_an_object_of_pykube_is_written_once_it_has_a_client(environment: Environment) -> None:
    environment.create(environment.config_map("a", app="web"))
    held = FakeCache([environment.get("ConfigMap", "a")], {"configmaps": ""}).get(
        pykube.ConfigMap, "a", namespace=environment.namespace
    )
    held.api = client = pykube.HTTPClient(pykube.KubeConfig.from_file(str(environment.kubeconfig())))
    held.patch({"metadata": {"annotations": {"seen": "yes"}}})
    client.session.close()
    assert environment.get("ConfigMap", "a")["metadata"]["annotations"] == {"seen": "yes"}


def test_kinds_of_pykube_are_those_of_its_classes(environment: Environment) -> None:
    classes: list[Any] = [
        each
        for each in vars(pykube.objects).values()
        if inspect.isclass(each) and issubclass(each, pykube.objects.APIObject) and hasattr(each, "endpoint")
    ]
    assert len(classes) > 20
    for each in classes:
        assert key_of(each) == f"{each.version}/{each.endpoint}"
    client = pykube.HTTPClient(pykube.KubeConfig.from_file(str(environment.kubeconfig())))
    widgets = pykube.object_factory(client, f"{environment.group}/v1", "Widget")
    client.session.close()
    cache = FakeCache([environment.widget("w", color="red")], {widgets: ""})
    assert [(type(each), each.obj["spec"]["color"]) for each in cache.list(widgets)] == [(widgets, "red")]


# ---- Declared and waited for.


def test_filters_and_kinds_are_named_by_the_classes_of_both() -> None:
    select = settings_of(kopf.OperatorSettings()).selectors
    select[V1Pod] = "app=web"
    select[pykube.Deployment] = Selector(names=["web"])
    assert set(select) == {"v1/pods", "apps/v1/deployments"}
    with_cache(kinds=[V1Pod, pykube.Deployment])


@pytest.mark.parametrize("kind", [V1Pod, pykube.Pod])
def test_a_part_is_marked_and_the_whole_is_not(kind: Any) -> None:
    cache = FakeCache(PODS, {"pods": Cached("", drop=["status"])})
    assert cache.get(kind, NAME, namespace="shop").partial == "drop=['status']"
    assert type(cache.blocking.fetch(kind, NAME, namespace="shop", whole=True)) is kind


@pytest.mark.parametrize(
    "as_",
    [
        *(
            getattr(module, name)
            for module in (kubernetes.client, kubernetes_asyncio.client)
            for name in ("V1PodList", "V1ObjectMeta", "V1ConfigMap", "CoreV1Api", "ApiClient")
        ),
        pykube.ConfigMap,
        pykube.HTTPClient,
    ],
)
def test_a_wrong_class_is_refused(cache: FakeCache, as_: Any) -> None:
    with pytest.raises(
        ReadError, match=rf"^{as_.__name__} is not a class of pods\.\nUse the class of v1/Pod$"
    ):
        cache.get("pods", NAME, namespace="shop", as_=as_)


# ---- The recipes of docs/reads.md.


@pytest.mark.filterwarnings(
    "ignore:Kubernetes version:UserWarning"
)  # It knows none that is newer than itself.
def test_an_object_of_kr8s_is_made_by_a_function_with_a_client(environment: Environment) -> None:
    environment.create(environment.config_map("a", app="web"))
    held = FakeCache([environment.get("ConfigMap", "a")], {"configmaps": ""})

    async def main() -> None:
        api = await kr8s.asyncio.api(kubeconfig=str(environment.kubeconfig()))

        def to_config_map(obj: dict[str, Any]) -> kr8s.asyncio.objects.ConfigMap:
            return kr8s.asyncio.objects.ConfigMap(obj, api=api)

        (found,) = held.list("configmaps", as_=to_config_map)
        assert (found.name, found.namespace, found.raw["data"]) == ("a", environment.namespace, {"name": "a"})
        await found.label({"seen": "yes"})
        await api._session.aclose()

    asyncio.run(main())
    assert environment.get("ConfigMap", "a")["metadata"]["labels"] == {"app": "web", "seen": "yes"}


def test_an_object_of_lightkube_is_made_by_its_own_function(cache: FakeCache) -> None:
    lightkube_pod = lightkube.resources.core_v1.Pod
    found = cache.get("pods", NAME, namespace="shop", as_=lightkube_pod.from_dict)
    assert type(found) is lightkube_pod
    assert found.spec.nodeName == POD["spec"]["nodeName"]


def test_a_custom_resource_of_lightkube_is_made_by_its_own_function() -> None:
    widget = lightkube.generic_resource.create_namespaced_resource("example.com", "v1", "Widget", "widgets")
    obj = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "shop"},
        "spec": {"size": 1},
    }
    found = FakeCache([obj], {"example.com/v1/widgets": ""}).get(
        "example.com/v1/widgets", "w", namespace="shop", as_=widget.from_dict
    )
    assert (type(found), found.metadata.name, found["spec"]) == (widget, "w", {"size": 1})
