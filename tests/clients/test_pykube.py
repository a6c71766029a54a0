"""`pykube-ng`: its objects, queries and watches. It knows no pages and no deletion of many."""

from collections.abc import Iterator
from typing import Any

import pykube
import pytest

from .environment import Environment


@pytest.fixture
def api_client(environment: Environment) -> Iterator[Any]:
    client = pykube.HTTPClient(pykube.KubeConfig.from_file(str(environment.kubeconfig())))
    yield client
    client.session.close()


@pytest.fixture
def widget_class(api_client: Any, environment: Environment) -> Any:
    """The class of widgets, as the client makes it from what it discovers."""
    return pykube.object_factory(api_client, f"{environment.group}/v1", "Widget")


def test_objects_are_created_read_and_listed_by_selectors(api_client: Any, environment: Environment) -> None:
    for name, app in (("a", "web"), ("b", "db"), ("c", "web")):
        pykube.ConfigMap(api_client, environment.config_map(name, app=app)).create()
    query = pykube.ConfigMap.objects(api_client)
    assert query.get(name="a").obj["data"] == {"name": "a"}
    assert [one.name for one in query.filter(selector={"app": "web"})] == ["a", "c"]
    assert [
        one.name
        for one in query.filter(selector={"app__in": {"web", "db"}}, field_selector={"metadata.name": "b"})
    ] == ["b"]
    assert [
        one.name
        for one in query.filter(
            namespace=pykube.all,
            selector="app=db",
            field_selector={"metadata.namespace": environment.namespace},
        )
    ] == ["b"]


def test_a_list_can_be_a_table(api_client: Any, widget_class: Any, environment: Environment) -> None:
    environment.create(environment.widget("a"))
    table = widget_class.objects(api_client).as_table()
    assert ([column["name"] for column in table.columns], [row["cells"][0] for row in table.rows]) == (
        ["Name", "Age"],
        ["a"],
    )


def test_a_watch_sees_changes_and_resumes_where_it_was(api_client: Any, environment: Environment) -> None:
    environment.create(environment.config_map("a", app="web"))
    query = pykube.ConfigMap.objects(api_client).filter(selector="app=web")
    events = query.watch(since=query.response["metadata"]["resourceVersion"])
    stream = iter(events)
    environment.create(environment.config_map("b", app="web"), environment.config_map("c", app="db"))
    event = next(stream)
    assert (event.type, event.object.name) == ("ADDED", "b")
    environment.relabel("ConfigMap", "b", app="db")  # While it is open.
    event = next(stream)
    assert (event.type, event.object.labels) == ("DELETED", {"app": "web"})
    events.response.close()
    environment.relabel("ConfigMap", "a", more="yes")
    again = query.watch(since=event.object.metadata["resourceVersion"])
    event = next(iter(again))
    assert (event.type, event.object.name) == ("MODIFIED", "a")
    again.response.close()


def test_objects_are_patched_and_updated(
    api_client: Any, widget_class: Any, environment: Environment
) -> None:
    environment.create(environment.config_map("a", app="web"), environment.widget("w"))
    config = pykube.ConfigMap.objects(api_client).get(name="a")
    config.patch({"data": {"name": None, "more": "x"}})  # It is a merge patch.
    assert environment.get("ConfigMap", "a")["data"] == {"more": "x"}
    widget = widget_class.objects(api_client).get(name="w")
    widget.obj["spec"]["size"] = 2
    widget.labels["app"] = "web"
    widget.update()
    assert (widget.obj["spec"]["size"], environment.get("Widget", "w")["metadata"]["labels"]) == (
        2,
        {"app": "web"},
    )


def test_refusals_are_the_clients_own_errors(api_client: Any, environment: Environment) -> None:
    environment.create(environment.config_map("a"))
    with pytest.raises(pykube.exceptions.ObjectDoesNotExist):
        pykube.ConfigMap.objects(api_client).get(name="nope")
    with pytest.raises(pykube.exceptions.HTTPError) as caught:
        pykube.ConfigMap(api_client, environment.config_map("a")).create()
    assert caught.value.code == 409
    nobody = pykube.HTTPClient(pykube.KubeConfig.from_file(str(environment.kubeconfig_of_nobody())))
    with pytest.raises(pykube.exceptions.HTTPError) as caught:
        pykube.ConfigMap.objects(nobody).get(name="a")
    assert caught.value.code == 403
    nobody.session.close()


def test_resources_of_a_definition_are_discovered(
    api_client: Any, widget_class: Any, environment: Environment
) -> None:
    assert (widget_class.endpoint, widget_class.__mro__[1]) == ("widgets", pykube.objects.NamespacedAPIObject)
    with pytest.raises(ValueError, match="unknown resource kind"):
        pykube.object_factory(api_client, f"{environment.group}/v1", "Gadget")
    assert api_client.version[0] == "1"
