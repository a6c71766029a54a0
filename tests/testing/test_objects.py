"""Writes: what the embedded server makes of them, and what it refuses, as the real kube-apiserver does."""

from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache.testing.api.status import Problem

from .writing import POD, Store


@pytest.fixture
def store() -> Store:
    return Store()


def refused(code: int, reason: str, message: str, write: Callable[[], object]) -> Problem:
    with pytest.raises(Problem) as caught:
        write()
    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert message in caught.value.message
    return caught.value


# ---- Creating.


def test_a_write_changes_nothing_of_its_input(store: Store) -> None:
    store.define(
        schema={
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
            },
        }
    )
    body: dict[str, Any] = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "labels": {"l": "m"}},
        "spec": {"gone": 1},
    }
    store.objects.create(store.kind("widgets.example.com"), "default", body)
    assert body == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "labels": {"l": "m"}},
        "spec": {"gone": 1},
    }


def test_labels_and_field_values_are_read_once_with_the_write(store: Store) -> None:
    store.create("pods", "p", metadata={"labels": {"a": "b"}}, spec={**POD, "nodeName": "n"})
    stored = store.objects.get(store.kind("pods"), "default", "p")
    assert stored.labels == {"a": "b"}
    assert (stored.fields["spec.nodeName"], stored.fields["status.phase"]) == ("n", "Pending")


# ---- Changing.


def test_one_and_true_are_two_values(store: Store) -> None:
    store.define()
    store.create("widgets.example.com", "a", spec={"x": 1})
    assert store.patch("widgets.example.com", "a", {"spec": {"x": True}})["metadata"]["generation"] == 2
    before = store.create("controllerrevisions.apps", "a", data={"other": 1})
    after = store.patch("controllerrevisions.apps", "a", {"data": {"other": True}})
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("leases.coordination.k8s.io", {}),
        ("services", {}),
        ("events", {"involvedObject": {"namespace": "default"}}),
    ],
)
def test_a_put_creates_missing_objects_of_some_kinds(store: Store, kind: str, body: dict[str, Any]) -> None:
    assert store.put(kind, {"metadata": {"name": "new"}, **body})["metadata"]["uid"] == "uid-5"


def test_of_a_pods_spec_little_can_change(store: Store) -> None:
    store.create("pods", "p", spec=POD)
    assert store.patch("pods", "p", {"spec": {"activeDeadlineSeconds": 5}})["metadata"]["generation"] == 2
    refused(
        422,
        "Invalid",
        'Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than',
        lambda: store.patch("pods", "p", {"spec": {"nodeName": "n"}}),
    )


# ---- Status and generation.


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("pods", {"labels", "annotations"}),
        ("nodes", {"labels", "annotations", "ownerReferences"}),
        ("deployments.apps", {"annotations", "ownerReferences"}),
    ],
)
def test_how_much_metadata_is_written_with_a_status_depends_on_the_kind(
    store: Store, kind: str, written: set[str]
) -> None:
    store.create(kind, "a", spec=POD)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}
    patch = {"metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}, "ownerReferences": [owner]}}
    said = store.patch(kind, "a", patch, subresource="status")["metadata"]
    assert {"labels", "annotations", "ownerReferences"} & said.keys() == written


# ---- Single kinds.


def test_texts_of_a_secret_are_encoded_and_stored_as_data(store: Store) -> None:
    made = store.create("secrets", "s", stringData={"a": "b"})
    assert (made["data"], made["type"], "stringData" in made) == ({"a": "Yg=="}, "Opaque", False)
    assert store.patch("secrets", "s", {"stringData": {"c": "d"}})["data"] == {"a": "Yg==", "c": "ZA=="}
    refused(
        400,
        "BadRequest",
        "illegal base64 data at input byte 0",
        lambda: store.create("secrets", "t", data={"a": "b"}),
    )


def test_a_job_and_its_pods_carry_the_labels_by_which_they_are_found(store: Store) -> None:
    made = store.create("jobs.batch", "j", spec={"template": {"spec": POD}})
    labels = {
        "batch.kubernetes.io/controller-uid": made["metadata"]["uid"],
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": made["metadata"]["uid"],
        "job-name": "j",
    }
    assert made["metadata"]["labels"] == made["spec"]["template"]["metadata"]["labels"] == labels


def test_an_event_is_one_object_with_two_faces(store: Store) -> None:
    store.create(
        "events", "e", involvedObject={"namespace": "default", "kind": "Pod"}, reason="r", message="m"
    )
    stored = store.objects.get(store.kind("events.events.k8s.io"), "default", "e")
    assert stored.fields["involvedObject.kind"] == stored.fields["regarding.kind"] == "Pod"
    refused(
        422,
        "Invalid",
        'Event "f" is invalid: involvedObject.namespace: Invalid value: "": does not match event.namespace',
        lambda: store.create("events", "f", "kube-system", involvedObject={"kind": "Node"}),
    )


def test_the_role_of_a_binding_never_changes(store: Store) -> None:
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
    store.create("rolebindings.rbac.authorization.k8s.io", "b", roleRef=ref)
    refused(
        422,
        "Invalid",
        'Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"z"}: cannot change'
        " roleRef",
        lambda: store.patch("rolebindings.rbac.authorization.k8s.io", "b", {"roleRef": {"name": "z"}}),
    )
