"""Deletion: what is answered, preconditions, finalizers, many at once, and namespaces."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.cluster import Cluster

from .places import POD, SPECS, Place, names_of, raw, refusal, short, take

FINALIZER = "example.com/f"


# ---- One object.


def test_a_delete_removes_the_object_and_answers_with_a_status(place: Place) -> None:
    uid = place.create("a")["metadata"]["uid"]
    assert place.delete("a") == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "secrets", "uid": uid},
    }
    assert refusal(place.api, "GET", place.path("a"))["code"] == 404


@pytest.mark.parametrize(
    "plural", ["services", "serviceaccounts", "podtemplates", "secrets", "configmaps", "leases", "roles"]
)
def test_some_kinds_are_shown_a_last_time(place: Place, plural: str) -> None:
    kind = place.of(plural)
    template = {"metadata": {"labels": {"a": "b"}}, **POD}
    body: Any = (
        {"template": template}
        if plural == "podtemplates"
        else {"rules": []}
        if plural == "roles"
        else {"spec": SPECS[plural][0]}
        if plural in SPECS
        else {}
    )
    kind.create("a", **body)
    answer = kind.delete("a")
    assert (answer["kind"] == "Status") == (plural in ("secrets", "configmaps", "leases", "roles"))


@pytest.mark.needs("pods that nobody schedules")
@pytest.mark.parametrize(
    ("spec", "query", "gone"),
    [
        ({}, {}, True),
        ({}, {"gracePeriodSeconds": 0}, True),
        ({}, {"gracePeriodSeconds": 5}, True),
        ({"nodeName": "n"}, {}, False),
        ({"nodeName": "n"}, {"gracePeriodSeconds": 5}, False),
        ({"nodeName": "n"}, {"gracePeriodSeconds": 0}, True),
    ],
    ids=str,
)
def test_a_pod_on_a_node_waits_for_it(
    place: Place, spec: dict[str, str], query: dict[str, int], gone: bool
) -> None:
    pods = place.of("pods")
    pods.create("a", spec={**POD["spec"], **spec})
    answer = pods.delete("a", query=query)
    assert answer["kind"] == "Pod"
    assert (pods.names() == []) == gone
    if not gone:
        metadata = pods.get("a")["metadata"]
        assert metadata["deletionGracePeriodSeconds"] == query.get("gracePeriodSeconds", 30)
        assert "deletionTimestamp" in metadata
        pods.delete("a", query={"gracePeriodSeconds": 0})
        assert pods.names() == []


@pytest.mark.parametrize("key", ["uid", "resourceVersion"])
@pytest.mark.parametrize("fits", [True, False])
def test_preconditions_must_hold(place: Place, key: str, fits: bool) -> None:
    metadata = place.create("a")["metadata"]
    body = {"preconditions": {key: metadata[key] if fits else "1"}}
    if fits:
        place.delete("a", body=body)
        assert place.names() == []
    else:
        status = refusal(place.api, "DELETE", place.path("a"), body=body)
        assert (status["code"], status["reason"]) == (409, "Conflict")
        word, became = (
            ("UID", "deleted and then recreated") if key == "uid" else ("ResourceVersion", "modified")
        )
        assert (
            status["message"]
            == f'Operation cannot be fulfilled on Secret "a": the {word} in the precondition (1) does not'
            f" match the {word} in record ({metadata[key]}). The object might have been {became}"
        )
        assert place.names() == ["a"]


@pytest.mark.since("1.36", "1.33 answers 500")
@pytest.mark.parametrize("body", [b"{", b"[]", b'{"kind": "Pod", "apiVersion": "v1"}'])
def test_invalid_delete_options_are_refused(place: Place, body: bytes) -> None:
    place.create("a")
    answer = raw(place.api, place.path("a"), method="DELETE", body=body)
    assert (answer.status, place.names()) == (400, ["a"])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kind": "DeleteOptions", "apiVersion": "v1"},
        {"propagationPolicy": "Background"},
        {"gracePeriodSeconds": 0},
        {"gracePeriodSeconds": 30},
        {"orphanDependents": False},
    ],
    ids=str,
)
def test_options_that_ask_for_nothing_special_delete(place: Place, options: dict[str, Any]) -> None:
    place.create("a")
    place.delete("a", body=options)
    assert place.names() == []


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        ({"propagationPolicy": "Orphan"}, ["orphan"]),
        ({"orphanDependents": True}, ["orphan"]),
    ],
    ids=str,
)
@pytest.mark.needs("no controllers")
def test_a_policy_for_dependents_is_left_to_the_collector_of_garbage(
    place: Place, options: dict[str, Any], finalizers: list[str]
) -> None:
    place.create("a")
    place.delete("a", body=options)
    metadata = place.get("a")["metadata"]
    assert metadata["finalizers"] == finalizers
    assert metadata["deletionGracePeriodSeconds"] == 0
    place.patch("a", {"metadata": {"finalizers": None}})
    assert place.names() == []


@pytest.mark.needs("no controllers")
@pytest.mark.parametrize(
    ("before", "options", "after"),
    [
        (["orphan", FINALIZER], {}, ["orphan", FINALIZER]),
        (["orphan", FINALIZER], {"propagationPolicy": "Orphan"}, ["orphan", FINALIZER]),
        (["orphan", FINALIZER], {"propagationPolicy": "Foreground"}, [FINALIZER, "foregroundDeletion"]),
        (["foregroundDeletion", FINALIZER], {"propagationPolicy": "Background"}, [FINALIZER]),
        (["foregroundDeletion", FINALIZER], {"orphanDependents": False}, [FINALIZER]),
    ],
    ids=str,
)
def test_finalizers_of_the_collector_are_those_of_the_policy(
    place: Place, before: list[str], options: dict[str, Any], after: list[str]
) -> None:
    place.create("a", metadata={"finalizers": before})
    assert place.delete("a", body=options)["metadata"]["finalizers"] == after
    place.patch("a", {"metadata": {"finalizers": None}})


@pytest.mark.needs("no controllers")
@pytest.mark.parametrize(
    ("before", "after"), [([], ["orphan"]), (["foregroundDeletion"], ["foregroundDeletion"])]
)
def test_dependents_of_a_job_are_orphaned_by_default(
    place: Place, before: list[str], after: list[str]
) -> None:
    jobs = place.of("jobs")
    jobs.create("a", spec=SPECS["jobs"][0], metadata={"finalizers": before})
    assert jobs.delete("a")["metadata"]["finalizers"] == after
    jobs.patch("a", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    "options",
    [
        {"propagationPolicy": "Nonsense"},
        {"propagationPolicy": ""},
        {"propagationPolicy": "Orphan", "orphanDependents": True},
    ],
    ids=str,
)
def test_policies_without_sense_are_invalid(place: Place, options: dict[str, Any]) -> None:
    place.create("a")
    status = refusal(place.api, "DELETE", place.path("a"), body=options)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert place.names() == ["a"]


# ---- Finalizers.


@pytest.fixture
def held(place: Place) -> Iterator[Place]:
    """A namespace with an object that is deleted, and held by its finalizer."""
    place.create("a", metadata={"finalizers": [FINALIZER]}, stringData={"k": "v"})
    place.delete("a")
    yield place
    if place.names():
        place.patch("a", {"metadata": {"finalizers": None}})


def test_a_finalizer_holds_an_object_in_deletion_and_it_is_marked(held: Place) -> None:
    metadata = held.get("a")["metadata"]
    assert metadata["finalizers"] == [FINALIZER]
    assert metadata["deletionGracePeriodSeconds"] == 0
    assert metadata["deletionTimestamp"] >= metadata["creationTimestamp"]


def test_the_answer_to_a_deletion_that_is_held_is_the_object(place: Place) -> None:
    place.create("a", metadata={"finalizers": [FINALIZER]})
    answer = place.delete("a")
    assert (answer["kind"], "deletionTimestamp" in answer["metadata"]) == ("Secret", True)
    place.patch("a", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("how", ["merge", "json", "put"])
def test_without_finalizers_it_goes(held: Place, how: str) -> None:
    if how == "merge":
        answer = held.patch("a", {"metadata": {"finalizers": []}})
    elif how == "json":
        answer = held.patch(
            "a",
            [{"op": "remove", "path": "/metadata/finalizers/0"}],
            content_type="application/json-patch+json",
        )
    else:
        now = held.get("a")
        del now["metadata"]["finalizers"]
        answer = held.replace("a", now)
    assert (answer["kind"], answer["metadata"]["name"], "finalizers" in answer["metadata"]) == (
        "Secret",
        "a",
        False,
    )
    assert held.names() == []


def test_an_object_in_deletion_takes_no_more_finalizers(held: Place) -> None:
    status = refusal(
        held.api, "PATCH", held.path("a"), body={"metadata": {"finalizers": [FINALIZER, "example.com/g"]}}
    )
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found"
        ' new finalizers []string{"example.com/g"}' in status["message"]
    )


def test_the_name_is_taken_until_it_is_gone(held: Place) -> None:
    status = refusal(held.api, "POST", held.path(), body={"metadata": {"name": "a"}})
    assert (status["code"], status["reason"]) == (409, "AlreadyExists")
    assert status["message"] in (
        'object is being deleted: secrets "a" already exists',
        'secrets "a" already exists',
    )


@pytest.mark.needs("no controllers")
@pytest.mark.parametrize("plural", ["deployments", "jobs", "pods"])
def test_a_deletion_that_is_held_counts_the_generation_up(place: Place, plural: str) -> None:
    kind = place.of(plural)
    kind.create("a", spec=SPECS[plural][0], metadata={"finalizers": [FINALIZER]})
    kind.delete("a", body={"propagationPolicy": "Background"})
    assert kind.get("a")["metadata"]["generation"] == 2
    kind.patch("a", {"metadata": {"finalizers": None}})


# ---- Many.


def test_a_collection_is_deleted_and_answered(place: Place) -> None:
    place.create("a", "b", "c")
    answer = place.api.request("DELETE", place.path())
    assert (answer["kind"], names_of(answer)) == ("SecretList", ["a", "b", "c"])
    assert place.names() == []


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ({"labelSelector": "i=1"}, ["b", "c"]),
        ({"fieldSelector": "metadata.name!=a"}, ["a"]),
        ({"labelSelector": "none"}, ["a", "b", "c"]),
        ({"labelSelector": "i", "fieldSelector": "metadata.name=b"}, ["a", "c"]),
        ({"limit": 2}, ["c"]),
        ({"dryRun": "All"}, ["a", "b", "c"]),
    ],
    ids=str,
)
def test_only_selected_objects_of_a_collection_are_deleted(
    place: Place, query: dict[str, Any], left: list[str]
) -> None:
    place.create("a", labels={"i": "1"})
    place.create("b", labels={"i": "2"})
    place.create("c")
    place.api.request("DELETE", place.path(), query=query)
    assert place.names() == left


def test_each_deletion_is_an_event_with_a_version_of_its_own(place: Place) -> None:
    start = place.create("a", "b", "c")["metadata"]["resourceVersion"]
    with place.watch(resourceVersion=start) as watch:
        place.api.request("DELETE", place.path())
        events = short(take(watch, 3))
    assert sorted(event[:2] for event in events) == [("DELETED", "a"), ("DELETED", "b"), ("DELETED", "c")]
    versions = [int(version) for _, _, version in events]
    assert versions == sorted(set(versions))


@pytest.mark.needs("all namespaces")
@pytest.mark.parametrize("path", ["/api/v1/secrets", "/api/v1/namespaces"])
def test_nobody_deletes_a_kind_in_all_namespaces(api: Cluster, path: str) -> None:
    status = refusal(api, "DELETE", path, query={"labelSelector": "no=such"})
    assert (status["code"], status["reason"]) == (405, "MethodNotAllowed")


# ---- Namespaces.


def test_a_namespace_is_active_and_labelled_with_its_name(place: Place) -> None:
    namespace = place.api.request("GET", f"/api/v1/namespaces/{place.namespace}")
    assert namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] == place.namespace
    assert (namespace["spec"], namespace["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})


def test_a_namespace_that_is_deleted_is_terminating_while_something_is_in_it(place: Place) -> None:
    place.create("a", metadata={"finalizers": [FINALIZER]})
    answer = place.api.request("DELETE", f"/api/v1/namespaces/{place.namespace}")
    assert (answer["kind"], answer["status"]["phase"], "deletionTimestamp" in answer["metadata"]) == (
        "Namespace",
        "Terminating",
        True,
    )
    now = place.api.request("GET", f"/api/v1/namespaces/{place.namespace}")
    assert (now["status"]["phase"], now["spec"]["finalizers"]) == ("Terminating", ["kubernetes"])
    place.patch("a", {"metadata": {"finalizers": None}})


@pytest.mark.needs("the cluster's own namespaces")
@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_the_first_namespaces_stay(api: Cluster, name: str) -> None:
    status = refusal(api, "DELETE", f"/api/v1/namespaces/{name}")
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
