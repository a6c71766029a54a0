"""Writes: what the embedded server makes of them, and what it refuses, as the real kube-apiserver does."""

from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache.testing.api.status import Problem

from .writing import POD, Store

UNCHANGEABLE = "field is immutable"


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


def test_a_new_object_gets_metadata_of_its_own_before_that_of_users(store: Store) -> None:
    made = store.create("configmaps", "a", metadata={"labels": {"x": "y"}}, data={"k": "v"})
    assert list(made) == ["metadata", "data"]
    assert made["metadata"] == {
        "name": "a",
        "namespace": "default",
        "uid": "uid-5",
        "resourceVersion": str(store.history.version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"x": "y"},
    }
    assert list(made["metadata"])[:4] == ["name", "namespace", "uid", "resourceVersion"]


def test_server_metadata_that_a_client_sends_is_ignored(store: Store) -> None:
    made = store.create(
        "configmaps",
        "a",
        metadata={
            "uid": "mine",
            "creationTimestamp": "2000-01-01T00:00:00Z",
            "deletionTimestamp": "2000-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 3,
            "selfLink": "x",
            "managedFields": [{}],
            "unknown": 1,
            "labels": {},
            "finalizers": [],
        },
    )["metadata"]
    assert set(made) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}
    assert made["uid"] != "mine"
    assert made["creationTimestamp"] == "2026-01-01T00:00:00Z"


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


def test_a_generated_name_has_its_prefix_cut_to_fit(store: Store) -> None:
    made = store.create("configmaps", "", metadata={"generateName": "x" * 70})
    assert made["metadata"]["name"] == "x" * 58 + "abcde"


def test_a_name_that_is_taken_is_refused(store: Store) -> None:
    store.create("configmaps", "a")
    problem = refused(
        409, "AlreadyExists", 'configmaps "a" already exists', lambda: store.create("configmaps", "a")
    )
    assert problem.details == {"name": "a", "kind": "configmaps"}


def test_the_namespace_must_be_there(store: Store) -> None:
    problem = refused(
        404, "NotFound", 'namespaces "no" not found', lambda: store.create("configmaps", "a", "no")
    )
    assert problem.details == {"name": "no", "kind": "namespaces"}


def test_the_namespace_of_the_body_must_be_that_of_the_path(store: Store) -> None:
    refused(
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
        lambda: store.create("configmaps", "a", metadata={"namespace": "other"}),
    )


def test_a_new_object_has_no_version_yet(store: Store) -> None:
    refused(
        500,
        "",
        "resourceVersion should not be set on objects to be created",
        lambda: store.create("configmaps", "a", metadata={"resourceVersion": "1"}),
    )


def test_an_object_of_another_kind_is_refused(store: Store) -> None:
    refused(
        400,
        "BadRequest",
        'Pod in version "v1" cannot be handled as a ConfigMap',
        lambda: store.put("configmaps", {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}),
    )


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"name": ""}, "metadata.name: Required value: name or generateName is required"),
        (
            {"name": "A_b"},
            'metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of',
        ),
        ({"labels": {"-a": "b"}}, 'metadata.labels: Invalid value: "-a": name part must consist of'),
        (
            {"labels": {"a": "b c"}},
            'metadata.labels: Invalid value: "b c": a valid label must be an empty string or',
        ),
        (
            {"annotations": {"a b": ""}},
            'metadata.annotations: Invalid value: "a b": name part must consist of',
        ),
        (
            {"finalizers": ["x"]},
            (
                'metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is'
                " it fully qualified"
            ),
        ),
        (
            {"ownerReferences": [{"kind": "Pod", "name": "x"}]},
            (
                '[metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty, '
                'metadata.ownerReferences.uid: Invalid value: "": must not be empty]'
            ),
        ),
    ],
)
def test_metadata_that_are_not_valid_are_refused(
    store: Store, metadata: dict[str, Any], message: str
) -> None:
    refused(422, "Invalid", message, lambda: store.create("configmaps", "a", metadata=metadata))
    assert store.names("configmaps") == []


def test_a_label_that_is_no_string_cannot_be_read(store: Store) -> None:
    refused(
        400,
        "BadRequest",
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        lambda: store.create("configmaps", "a", metadata={"labels": {"a": 5}}),
    )


def test_data_of_a_configmap_that_are_no_strings_cannot_be_read(store: Store) -> None:
    refused(
        400,
        "BadRequest",
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        lambda: store.create("configmaps", "a", data={"k": 5}),
    )


def test_a_dry_run_answers_as_the_write_would_and_writes_nothing(store: Store) -> None:
    before = store.history.version
    made = store.objects.create(
        store.kind("configmaps"), "default", {"metadata": {"name": "a"}}, dry_run=True
    )
    assert b'"name":"a"' in made.data
    assert b"resourceVersion" not in made.data
    assert store.history.version == before


def test_labels_and_field_values_are_read_once_with_the_write(store: Store) -> None:
    store.create("pods", "p", metadata={"labels": {"a": "b"}}, spec={**POD, "nodeName": "n"})
    stored = store.objects.get(store.kind("pods"), "default", "p")
    assert stored.labels == {"a": "b"}
    assert (stored.fields["spec.nodeName"], stored.fields["status.phase"]) == ("n", "Pending")


# ---- Changing.


def test_a_change_has_a_version_of_its_own_and_keeps_the_rest_of_the_metadata(store: Store) -> None:
    made = store.create("configmaps", "a")["metadata"]
    changed = store.put(
        "configmaps",
        {"metadata": {"name": "a", "creationTimestamp": "2000-01-01T00:00:00Z"}, "data": {"k": "v"}},
    )
    assert changed["metadata"] == {**made, "resourceVersion": str(store.history.version)}
    assert changed["metadata"]["resourceVersion"] != made["resourceVersion"]


@pytest.mark.parametrize("metadata", [{}, {"resourceVersion": "0"}, {"labels": {}}])
def test_a_write_that_changes_nothing_keeps_the_version(store: Store, metadata: dict[str, Any]) -> None:
    store.create("configmaps", "a", data={"k": "v"})
    before = store.history.version
    store.put("configmaps", {"metadata": {"name": "a", **metadata}, "data": {"k": "v"}})
    assert store.history.version == before


def test_one_and_true_are_two_values(store: Store) -> None:
    store.define()
    store.create("widgets.example.com", "a", spec={"x": 1})
    assert store.patch("widgets.example.com", "a", {"spec": {"x": True}})["metadata"]["generation"] == 2
    before = store.create("controllerrevisions.apps", "a", data={"other": 1})
    after = store.patch("controllerrevisions.apps", "a", {"data": {"other": True}})
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


def test_a_change_that_is_based_on_an_old_version_is_a_conflict(store: Store) -> None:
    old = store.create("configmaps", "a")
    store.put("configmaps", {**old, "data": {"k": "1"}})
    problem = refused(
        409,
        "Conflict",
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again",
        lambda: store.put("configmaps", {**old, "data": {"k": "2"}}),
    )
    assert problem.details == {"name": "a", "kind": "configmaps"}
    refused(
        409,
        "Conflict",
        "has been modified",
        lambda: store.patch(
            "configmaps", "a", {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}}
        ),
    )


def test_a_change_of_another_object_of_the_same_name_is_a_conflict(store: Store) -> None:
    store.create("configmaps", "a")
    refused(
        409,
        "Conflict",
        "Precondition failed: UID in precondition: other, UID in object meta: uid-5",
        lambda: store.put("configmaps", {"metadata": {"name": "a", "uid": "other"}}),
    )


@pytest.mark.parametrize("kind", ["leases.coordination.k8s.io", "poddisruptionbudgets.policy"])
def test_some_kinds_are_never_changed_without_saying_which_version(store: Store, kind: str) -> None:
    store.create(kind, "a")
    refused(
        422,
        "Invalid",
        f'{kind} "a" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update',
        lambda: store.put(kind, {"metadata": {"name": "a"}}),
    )


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
        ({}, "the name of the object (a based on URL) was undeterminable: name must be provided"),
        (
            {"name": "a", "namespace": "z"},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
)
def test_an_object_keeps_its_name(store: Store, metadata: dict[str, Any], message: str) -> None:
    store.create("configmaps", "a")
    refused(400, "BadRequest", message, lambda: store.put("configmaps", {"metadata": metadata}, name="a"))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"uid": "1"}, f'metadata.uid: Invalid value: "1": {UNCHANGEABLE}'),
        (
            {"deletionTimestamp": "2000-01-01T00:00:00Z"},
            f'metadata.deletionTimestamp: Invalid value: "2000-01-01T00:00:00Z": {UNCHANGEABLE}',
        ),
        (
            {"deletionGracePeriodSeconds": 7},
            f"metadata.deletionGracePeriodSeconds: Invalid value: 7: {UNCHANGEABLE}",
        ),
    ],
)
def test_a_change_of_a_constant_field_is_refused_once_in_words_and_listed_twice(
    store: Store, metadata: dict[str, Any], message: str
) -> None:
    store.create("configmaps", "a")
    problem = refused(422, "Invalid", message, lambda: store.patch("configmaps", "a", {"metadata": metadata}))
    assert problem.message == f'ConfigMap "a" is invalid: {message}'
    assert len((problem.details or {})["causes"]) == 2


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


@pytest.mark.parametrize("kind", ["configmaps", "pods", "deployments.apps"])
def test_of_most_kinds_a_put_creates_nothing(store: Store, kind: str) -> None:
    refused(
        404, "NotFound", f'{kind} "new" not found', lambda: store.put(kind, {"metadata": {"name": "new"}})
    )


def test_an_immutable_configmap_stays_as_it_is(store: Store) -> None:
    store.create("configmaps", "a", immutable=True, data={"k": "v"})
    refused(
        422,
        "Invalid",
        "data: Forbidden: field is immutable when `immutable` is set",
        lambda: store.patch("configmaps", "a", {"data": {"k": "w"}}),
    )


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


def test_a_status_is_written_through_its_subresource_alone(store: Store) -> None:
    made = store.create("pods", "p", spec=POD, status={"phase": "Running"})
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert (
        store.patch("pods", "p", {"status": {"phase": "Failed"}})["metadata"]["resourceVersion"]
        == made["metadata"]["resourceVersion"]
    )
    changed = store.put(
        "pods",
        {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}},
        subresource="status",
    )
    assert (changed["spec"], changed["status"]) == (POD, {"qosClass": "BestEffort", "phase": "Running"})


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


@pytest.mark.parametrize(
    ("kind", "patch", "generation"),
    [
        ("deployments.apps", {"spec": {"replicas": 3}}, 2),
        ("deployments.apps", {"metadata": {"labels": {"x": "y"}}}, 1),
        ("deployments.apps", {"metadata": {"annotations": {"x": "y"}}}, 2),
        ("statefulsets.apps", {"metadata": {"annotations": {"x": "y"}}}, 1),
        ("statefulsets.apps", {"spec": {"replicas": 3}}, 2),
        ("configmaps", {"data": {"x": "y"}}, None),
    ],
)
def test_the_generation_counts_desired_states(
    store: Store, kind: str, patch: object, generation: int | None
) -> None:
    store.create(kind, "a", metadata={"generation": 1})
    assert store.patch(kind, "a", patch)["metadata"].get("generation") == (
        1 if kind == "configmaps" else generation
    )


def test_a_client_cannot_set_the_generation(store: Store) -> None:
    assert store.create("deployments.apps", "a", metadata={"generation": 7})["metadata"]["generation"] == 1
    assert (
        store.patch("deployments.apps", "a", {"metadata": {"generation": 9}})["metadata"]["generation"] == 1
    )


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
