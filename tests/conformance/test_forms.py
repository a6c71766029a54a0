"""The forms of an answer: JSON, metadata alone, tables, compressed; and what is said where none of them will
do."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.cluster import Cluster
from tests.apiserver.waiting import wait_until

from .applying import applied
from .places import (
    METADATA,
    METADATA_LIST,
    POD,
    TABLE,
    Place,
    fresh_group,
    fresh_place,
    names_of,
    once_ready,
    raw,
)


@pytest.fixture
def two(place: Place) -> Place:
    place.create("a", labels={"i": "1"}, stringData={"k": "v"}, metadata={"annotations": {"x": "y"}})
    place.create("b")
    return place


# ---- Metadata alone.


def test_metadata_of_an_object(two: Place) -> None:
    whole = two.get("a")
    assert two.get("a", accept=METADATA) == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": whole["metadata"],
    }


def test_metadata_of_a_list(two: Place) -> None:
    whole, listed = two.listed(), two.listed(accept=METADATA_LIST)
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert [item["metadata"] for item in listed["items"]] == [item["metadata"] for item in whole["items"]]
    assert all(item.keys() <= {"metadata", "kind", "apiVersion"} for item in listed["items"])


@pytest.mark.parametrize(
    "query", [{"labelSelector": "i=1"}, {"fieldSelector": "metadata.name=a"}, {"limit": 1}], ids=str
)
def test_metadata_are_selected_and_paged_as_objects_are(two: Place, query: dict[str, Any]) -> None:
    listed = two.listed(accept=METADATA_LIST, **query)
    assert names_of(listed) == ["a"]
    assert ("continue" in listed["metadata"]) == ("limit" in query)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_writes_can_be_answered_by_metadata(place: Place, method: str) -> None:
    if method != "POST":
        place.create("a", metadata={"finalizers": ["example.com/f"]})
    path = place.path() if method == "POST" else place.path("a")
    body = None if method == "DELETE" else {"metadata": {"name": "a", "labels": {"x": "1"}}}
    if method == "PATCH":
        body = {"metadata": {"labels": {"x": "1"}}}
    answer = place.api.request(method, path, body=body, accept=METADATA)
    assert (answer["kind"], answer.keys()) == ("PartialObjectMetadata", {"kind", "apiVersion", "metadata"})
    place.patch("a", {"metadata": {"finalizers": None}}) if method == "DELETE" else None


@pytest.mark.needs("definitions of custom resources")
def test_metadata_of_custom_resources(place: Place) -> None:
    group = fresh_group()
    place.api.create_crd(group, "v1", "Thing", "things")
    things = place.of("things", prefix=f"/apis/{group}/v1", kind="Thing")
    made = things.create("a", spec={"x": 1})
    assert things.get("a", accept=METADATA) == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"],
    }
    [item] = things.listed(accept=METADATA_LIST)["items"]
    assert item["metadata"] == made["metadata"]


# ---- Tables.


def test_a_table_of_a_list(two: Place) -> None:
    table = two.listed(accept=TABLE)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [(column["name"], column["type"]) for column in table["columnDefinitions"]] == [
        ("Name", "string"),
        ("Type", "string"),
        ("Data", "string"),
        ("Age", "string"),
    ]
    assert [row["cells"][:3] for row in table["rows"]] == [["a", "Opaque", 1], ["b", "Opaque", 0]]
    assert int(table["metadata"]["resourceVersion"]) > 0


COLUMNS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "configmaps": ({"data": {"a": "b"}}, ["Name", "Data", "Age"]),
    "serviceaccounts": ({}, ["Name", "Age"]),
    "pods": (
        POD,
        ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"],
    ),
    "leases": ({"spec": {"holderIdentity": "h"}}, ["Name", "Holder", "Age"]),
    "roles": ({"rules": []}, ["Name", "Created At"]),
}


@pytest.mark.needs("pods that nobody schedules")
@pytest.mark.parametrize(
    "plural",
    [
        pytest.param(plural, marks=pytest.mark.since("1.36", "1.33 has a column Secrets"))
        if plural == "serviceaccounts"
        else plural
        for plural in COLUMNS
    ],
)
def test_the_columns_of_a_kind(place: Place, plural: str) -> None:
    kind = place.of(plural)
    body, columns = COLUMNS[plural]
    kind.create("a", **body)
    table = kind.listed(accept=TABLE, fieldSelector="metadata.name=a")
    assert [column["name"] for column in table["columnDefinitions"]] == columns
    assert [len(row["cells"]) for row in table["rows"]] == [len(columns)]


@pytest.mark.needs("pods that nobody schedules")
def test_the_cells_of_a_pod(place: Place) -> None:
    pods = place.of("pods")
    pods.create("a", **POD)
    assert pods.listed(accept=TABLE)["rows"][0]["cells"][:4] == ["a", "0/1", "Pending", "0"]


@pytest.mark.needs("definitions of custom resources")
def test_custom_resources_have_the_columns_of_their_definition(place: Place) -> None:
    group = fresh_group()
    place.api.create_crd(group, "v1", "Thing", "things")
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}"
    things = place.of("things", prefix=f"/apis/{group}/v1", kind="Thing")
    things.create("a", spec={"size": 5})
    assert [column["name"] for column in things.listed(accept=TABLE)["columnDefinitions"]] == ["Name", "Age"]
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "None", "type": "string", "jsonPath": ".spec.none"},
    ]
    place.api.request(
        "PATCH",
        path,
        body=[{"op": "add", "path": "/spec/versions/0/additionalPrinterColumns", "value": columns}],
        content_type="application/json-patch+json",
    )
    wait_until(
        lambda: len(once_ready(lambda: things.listed(accept=TABLE))["columnDefinitions"]) == 3,
        "the columns to be known",
    )
    assert things.listed(accept=TABLE)["rows"][0]["cells"] == ["a", 5, None]


# ---- What the client accepts.


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "*/*",
        "",
        "application/json;q=0.9",
        "application/vnd.kubernetes.protobuf;q=0.1,application/json",
        "text/plain,application/json",
        "application/json; charset=utf-8",
    ],
)
def test_json_is_given_to_whoever_takes_it(two: Place, accept: str) -> None:
    answer = raw(two.api, two.path("b"), headers={"Accept": accept})
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.json()["metadata"]["name"] == "b"


def test_managed_fields_are_left_out_or_the_wish_is_ignored(two: Place) -> None:
    """Kubernetes leaves them out since KEP-5958, and ignores the wish before."""
    applied(two, "a", "one", metadata={"labels": {"x": "1"}})
    whole = two.get("a")
    assert whole["metadata"]["managedFields"]
    without = whole | {"metadata": {k: v for k, v in whole["metadata"].items() if k != "managedFields"}}
    assert two.get("a", accept="application/json;drop=metadata.managedFields") in (whole, without)
    metadata = two.get("a", accept=f"{METADATA};drop=metadata.managedFields")["metadata"]
    assert metadata in (whole["metadata"], without["metadata"])


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (f"{TABLE},application/json", "Table"),
        (f"application/json,{TABLE}", "SecretList"),
        (f"{METADATA_LIST},application/json", "PartialObjectMetadataList"),
        ("application/json;as=Nonsense;g=meta.k8s.io;v=v1,application/json", "SecretList"),
        ("application/json;as=Table;g=meta.k8s.io;v=v9,application/json", "SecretList"),
    ],
)
def test_the_first_form_that_there_is_is_given(two: Place, accept: str, kind: str) -> None:
    assert two.listed(accept=accept)["kind"] == kind


@pytest.mark.parametrize(
    "accept",
    [
        "text/plain",
        "image/png",
        "application/*",
        "application/json;as=Nonsense;g=meta.k8s.io;v=v1",
        "application/xml",
    ],
)
def test_an_unsupported_media_type_is_not_acceptable(two: Place, accept: str) -> None:
    for path in (two.path(), two.path("a")):
        answer = raw(two.api, path, headers={"Accept": accept})
        assert (answer.status, answer.json()["reason"]) == (406, "NotAcceptable")


def test_a_problem_is_answered_as_a_status_in_any_form(two: Place) -> None:
    for accept in (METADATA, METADATA_LIST, TABLE):
        answer = raw(two.api, two.path("none"), headers={"Accept": accept})
        assert (answer.status, answer.json()["kind"], answer.json()["apiVersion"]) == (404, "Status", "v1")


# ---- Compression.


@pytest.fixture(scope="module")
def large(api: Cluster) -> Iterator[Place]:
    with fresh_place(api) as place:
        for name in "abc":
            place.create(name, stringData={"k": "x" * 100_000})
        yield place


def test_a_large_answer_is_compressed_for_clients_that_accept_it(large: Place) -> None:
    answer = raw(large.api, large.path(), headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(answer.data) < 100_000
    assert names_of(json.loads(gzip.decompress(answer.data))) == ["a", "b", "c"]


def test_a_watch_is_not_compressed(large: Place) -> None:
    answer = raw(
        large.api,
        large.path(),
        headers={"Accept-Encoding": "gzip"},
        query={"watch": 1, "resourceVersion": 0, "timeoutSeconds": 1},
    )
    assert "Content-Encoding" not in answer.headers
    assert [json.loads(line)["type"] for line in answer.data.splitlines()] == ["ADDED"] * 3
