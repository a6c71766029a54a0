"""`lightkube`: its models of built-in kinds, and generic resources made from definitions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightkube
import lightkube.generic_resource
import pytest
from lightkube import ApiError
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import PatchType

from .environment import Environment


def connected(kubeconfig: Path) -> Any:
    return lightkube.Client(config=lightkube.KubeConfig.from_file(kubeconfig))


@pytest.fixture
def client(environment: Environment) -> Iterator[Any]:
    with connected(environment.kubeconfig()) as client:
        yield client


@pytest.fixture
def widget_class(client: Any, environment: Environment) -> Any:
    """The class of widgets, as the client makes it from their definition."""
    lightkube.generic_resource.create_resources_from_crd(
        client.get(CustomResourceDefinition, f"widgets.{environment.group}")
    )
    return lightkube.generic_resource.get_generic_resource(f"{environment.group}/v1", "Widget")


def names(listed: Any) -> list[str]:
    return [one.metadata.name for one in listed]


def test_objects_are_created_read_and_listed_by_selectors_and_pages(
    client: Any, environment: Environment
) -> None:
    for name, app in (("a", "web"), ("b", "db"), ("c", "web")):
        client.create(ConfigMap(metadata=ObjectMeta(name=name, labels={"app": app}), data={"is": name}))
    assert client.get(ConfigMap, "a").data == {"is": "a"}
    assert names(client.list(ConfigMap, labels={"app": "web"})) == ["a", "c"]
    assert names(client.list(ConfigMap, labels={"app": ("web", "db")}, fields={"metadata.name": "b"})) == [
        "b"
    ]
    assert names(
        client.list(ConfigMap, namespace="*", fields={"metadata.namespace": environment.namespace})
    ) == [
        "a",
        "b",
        "c",
    ]
    listed = client.list(ConfigMap, chunk_size=2)
    assert names(listed) == ["a", "b", "c"]
    assert int(listed.resourceVersion) > 0


def test_custom_objects_are_created_read_and_listed_by_selectors(
    client: Any, widget_class: Any, environment: Environment
) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        client.create(widget_class.from_dict(environment.widget(name, color=color)))
    assert client.get(widget_class, "b").spec == {"color": "blue", "size": 1}
    assert names(client.list(widget_class, fields={"spec.color": "red"})) == ["a", "c"]
    assert names(client.list(widget_class, fields={"spec.color": "red"}, chunk_size=1)) == ["a", "c"]


def test_a_watch_sees_changes_and_resumes_where_it_was(client: Any, environment: Environment) -> None:
    environment.create(environment.config_map("a", app="web"))
    events = client.watch(ConfigMap, labels={"app": "web"}, resource_version=environment.version("ConfigMap"))
    environment.create(environment.config_map("b", app="web"), environment.config_map("c", app="db"))
    kind, obj = next(events)
    assert (kind, obj.metadata.name) == ("ADDED", "b")
    environment.relabel("ConfigMap", "b", app="db")  # While it is open.
    kind, obj = next(events)
    assert (kind, obj.metadata.labels) == ("DELETED", {"app": "web"})
    events.close()
    environment.relabel("ConfigMap", "a", more="yes")
    again = client.watch(ConfigMap, labels={"app": "web"}, resource_version=obj.metadata.resourceVersion)
    kind, obj = next(again)
    assert (kind, obj.metadata.name) == ("MODIFIED", "a")
    again.close()


def test_a_watch_that_the_server_ends_goes_on_where_it_was(
    client: Any, widget_class: Any, environment: Environment
) -> None:
    environment.create(environment.widget("a"))
    events = client.watch(widget_class, server_timeout=1)
    assert next(events)[1].metadata.name == "a"
    environment.create(environment.widget("b"))
    assert next(events)[1].metadata.name == "b"
    environment.patch("Widget", "b", {"spec": {"size": 2}})
    kind, obj = next(events)
    assert (kind, obj.metadata.name) == ("MODIFIED", "b")
    events.close()


def test_objects_are_patched(client: Any, widget_class: Any, environment: Environment) -> None:
    environment.create(environment.config_map("a", app="web", tier="gold"), environment.widget("w"))
    client.create(
        Pod(
            metadata=ObjectMeta(name="p"),
            spec=PodSpec(containers=[Container(name="main", image="a"), Container(name="side", image="b")]),
        )
    )
    pod = client.patch(
        Pod, "p", {"spec": {"containers": [{"name": "side", "image": "c"}]}}
    )  # A strategic merge patch.
    assert [(one.name, one.image) for one in pod.spec.containers] == [("main", "a"), ("side", "c")]
    assert client.set(ConfigMap, "a", labels={"tier": None}).metadata.labels == {"app": "web"}
    changed = client.patch(
        ConfigMap,
        "a",
        [{"op": "test", "path": "/data/name", "value": "a"}, {"op": "remove", "path": "/data/name"}],
        patch_type=PatchType.JSON,
    )
    assert not changed.data
    assert client.patch(widget_class, "w", {"spec": {"size": 2}}, patch_type=PatchType.MERGE).spec == {
        "color": "red",
        "size": 2,
    }


def test_refusals_are_the_clients_own_errors(client: Any, environment: Environment) -> None:
    environment.create(environment.config_map("a"))
    with pytest.raises(ApiError) as caught:
        client.get(ConfigMap, "nope")
    assert (caught.value.status.code, caught.value.status.reason, caught.value.status.details.name) == (
        404,
        "NotFound",
        "nope",
    )
    with pytest.raises(ApiError) as caught:
        client.create(ConfigMap(metadata=ObjectMeta(name="a")))
    assert (caught.value.status.code, caught.value.status.reason) == (409, "AlreadyExists")
    with connected(environment.kubeconfig_of_nobody()) as nobody, pytest.raises(ApiError) as caught:
        names(nobody.list(ConfigMap))
    assert (caught.value.status.code, caught.value.status.reason) == (403, "Forbidden")
