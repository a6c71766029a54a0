"""Server-side apply where the embedded server differs from others: what it does not have, and what it tracks.

All else is in tests/conformance."""

from typing import Any

import pytest

from kopf_selectcache.testing.api import body
from kopf_selectcache.testing.api.managed_fields import Writer
from kopf_selectcache.testing.api.objects import How
from kopf_selectcache.testing.api.status import Problem
from tests.rows import each_row

from .writing import Store, shown

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "it"}}
MANAGER = Writer(named="a")


def applied(store: Store, kind: str, body: Any, writer: Writer = MANAGER, *, force: bool = False) -> Any:
    served = store.kind(kind, body["apiVersion"].rpartition("/")[2])
    return shown(
        store.objects.apply(
            served, "default", body["metadata"]["name"], body, How(writer=writer), force=force
        )
    )


def names(obj: Any) -> list[str]:
    return [item["manager"] for item in obj["metadata"].get("managedFields", ())]


def test_fields_are_not_tracked_of_objects_that_nobody_applies() -> None:
    store = Store()
    assert names(store.create("configmaps", "it", data={"k": "1"})) == []
    assert names(store.patch("configmaps", "it", {"data": {"k": "2"}}, writer=Writer(named="b"))) == []


def test_at_its_first_apply_such_an_object_belongs_to_before_first_apply() -> None:
    store = Store()
    store.create("configmaps", "it", data={"k": "1"})
    with pytest.raises(Problem) as caught:
        applied(store, "configmaps", {**CONFIG_MAP, "data": {"k": "2"}})
    assert caught.value.code == 409
    obj = applied(store, "configmaps", {**CONFIG_MAP, "data": {"k": "2"}}, force=True)
    assert names(obj) == ["a", "before-first-apply"]


def test_fields_are_tracked_of_objects_whose_creator_names_a_manager() -> None:
    store = Store()
    served = store.kind("configmaps")
    created = store.objects.create(served, "default", {**CONFIG_MAP, "data": {"k": "1"}}, How(writer=MANAGER))
    assert names(shown(created)) == ["a"]
    agent = Writer(user_agent="robot/1")
    assert names(store.patch("configmaps", "it", {"data": {"k": "2"}}, writer=agent)) == ["a", "robot"]


def test_deletion_leaves_the_managers_as_they_are() -> None:
    store = Store()
    body = {**CONFIG_MAP, "metadata": {"name": "it", "finalizers": ["example.com/f"]}}
    before = applied(store, "configmaps", body)
    after, gone = store.delete("configmaps", "it")
    assert not gone
    assert after["metadata"]["managedFields"] == before["metadata"]["managedFields"]


def test_an_apply_that_takes_the_last_finalizer_removes_the_object() -> None:
    store = Store()
    applied(store, "configmaps", {**CONFIG_MAP, "metadata": {"name": "it", "finalizers": ["example.com/f"]}})
    store.delete("configmaps", "it")
    applied(store, "configmaps", CONFIG_MAP)
    assert store.names("configmaps") == []


def test_events_of_the_newer_group_cannot_be_applied() -> None:
    store = Store()
    body = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "it"}}
    with pytest.raises(Problem) as caught:
        applied(store, "events.events.k8s.io", body)
    assert caught.value.code == 501


def test_items_without_keys_are_distinguished_by_their_values() -> None:
    """The server has none of them, as it validates the fields of built-in kinds."""
    store = Store()
    spec = {"template": {"spec": {"containers": [{"image": "i"}, "text"]}}}
    store.create("deployments.apps", "it", spec=spec)
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "it", "labels": {"a": "b"}}}
    assert applied(store, "deployments.apps", body)["spec"] == spec


def test_definitions_of_custom_resources_are_applied() -> None:
    store = Store()
    defined = store.define()
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com", "labels": {"a": "b"}},
    }
    served = store.kind("customresourcedefinitions.apiextensions.k8s.io")
    obj = shown(store.objects.apply(served, "", "widgets.example.com", body, How(writer=MANAGER)))
    assert obj["metadata"]["labels"] == {"a": "b"}
    assert obj["spec"] == defined["spec"]


@each_row("depth", [201, 100_000])
@each_row(("begin", "end"), [("[", "]"), ("{a: ", "}")])
def test_yaml_that_is_nested_too_deeply_is_refused(depth: int, begin: str, end: str) -> None:
    with pytest.raises(Problem) as caught:
        body.read(f"a: {begin * depth}{end * depth}".encode())
    assert caught.value.code == 400


@pytest.mark.parametrize("text", ["? [1]\n: 2", "a: !!binary x", "a: !!python/name:os.system x"])
def test_yaml_that_is_no_json(text: str) -> None:
    with pytest.raises(Problem) as caught:
        body.read(text.encode())
    assert caught.value.code == 400


def test_aliases_in_yaml_are_not_there_and_say_so() -> None:
    with pytest.raises(Problem) as caught:
        body.read(b"a: &x {b: c}\nd: *x\n")
    assert caught.value.code == 501


def test_a_manager_whose_name_is_before_that_of_the_joined_entry_is_joined_too() -> None:
    store = Store()
    applied(store, "configmaps", {**CONFIG_MAP, "data": {"k": "1"}})
    for number, name in enumerate(["a", *(f"b{number}" for number in range(10)), "a"]):
        store.patch("configmaps", "it", {"data": {f"k{number}": "1"}}, writer=Writer(named=name))
    obj = store.get("configmaps", "it")
    [joined] = [item for item in obj["metadata"]["managedFields"] if item["manager"] == "ancient-changes"]
    assert set(joined["fieldsV1"]["f:data"]) == {"f:k0", "f:k1", "f:k11"}
