"""How objects are shown: the Accept header, what is whole, what is metadata alone, and what says of which
kind it is."""

import json

import pytest

from .asking import DEFINITIONS, MAPS, METADATA, METADATA_LIST, TABLE, WIDGETS, Asked, read

BETA = METADATA_LIST.replace("v=v1", "v=v1beta1")


# ---- Which form it is.


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "*/*",
        "",
        "application/json; charset=utf-8",
        "application/json;stream=watch",
        "application/vnd.kubernetes.protobuf,application/json",
        "application/yaml, application/json;q=0.5",
        "application/json;as=Foo;g=meta.k8s.io;v=v1,application/json",
        "application/json;as=Table;g=foo;v=v1,application/json",
    ],
)
def test_json_is_the_usual_form(api: Asked, accept: str) -> None:
    api.create("a")
    answer = api.ask("GET", f"{MAPS}/a", accept=accept)
    assert (read(answer)["kind"], answer.content_type) == ("ConfigMap", "application/json")


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (f"{TABLE},application/json", "Table"),
        (f"application/json,{TABLE}", "ConfigMapList"),
        (f"application/json;q=0.8,{METADATA_LIST};q=0.9", "PartialObjectMetadataList"),
        (
            f"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{METADATA_LIST},application/json",
            "PartialObjectMetadataList",
        ),
    ],
)
def test_the_most_preferred_available_form_counts(api: Asked, accept: str, kind: str) -> None:
    assert api.get(MAPS, accept=accept)["kind"] == kind


DROP = ";drop=metadata.managedFields"


def test_managed_fields_are_left_out_on_request(api: Asked) -> None:
    api.define()
    for path, api_version, kind in ((MAPS, "v1", "ConfigMap"), (WIDGETS, "example.com/v1", "Widget")):
        body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "labels": {"x": "1"}}}
        apply = {"query": {"fieldManager": "me"}, "content_type": "application/apply-patch+yaml"}
        assert api.ask("PATCH", f"{path}/a", body, **apply).code == 201
        whole, without = api.get(f"{path}/a"), api.get(f"{path}/a", accept=f"application/json{DROP}")
        assert whole["metadata"].pop("managedFields")
        assert without == whole
        assert api.get(f"{path}/a", accept=f"{METADATA}{DROP}")["metadata"] == whole["metadata"]
        listed = api.get(path, accept=f"application/json{DROP}")["items"]
        assert [each["metadata"] for each in listed if each["metadata"]["name"] == "a"] == [whole["metadata"]]
        assert "managedFields" in api.get(f"{path}/a", accept="application/json;drop=spec")["metadata"]


@pytest.mark.parametrize(
    "accept",
    ["text/html", "application/yaml", "application/vnd.kubernetes.protobuf", TABLE.replace("v1", "v2")],
)
def test_forms_that_there_are_not_are_not_acceptable(api: Asked, accept: str) -> None:
    for method, path in (("GET", MAPS), ("GET", f"{MAPS}/nothing"), ("POST", MAPS)):
        status = api.refused(method, path, {"metadata": {"name": "x"}}, accept=accept)
        assert (status["code"], status["reason"]) == (406, "NotAcceptable")
        assert status["message"].startswith("only the following media types are accepted: application/json")


def test_metadata_of_one_object_and_of_a_list_are_two_forms(api: Asked) -> None:
    api.create("a")
    api.define()
    refusals = [
        api.refused("GET", path, accept=accept)
        for path, accept in ((MAPS, METADATA), (f"{MAPS}/a", METADATA_LIST), (WIDGETS, METADATA))
    ]
    assert [(status["code"], status["message"]) for status in refusals] == [
        (
            406,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)",
        ),
        (
            406,
            (
                "you requested PartialObjectMetadataList, but the requested object is not a list"
                " (*core.ConfigMap)"
            ),
        ),
        (
            406,
            (
                "you requested PartialObjectMetadata, but the requested object is a list"
                " (*unstructured.UnstructuredList)"
            ),
        ),
    ]


# ---- Whole objects.


def test_objects_state_their_kind_and_those_in_lists_of_built_in_kinds_do_not(api: Asked) -> None:
    api.create("a")
    assert api.ask("GET", f"{MAPS}/a").body.startswith(
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"'
    )
    listed = api.get(MAPS)
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert list(listed["items"][0]) == ["metadata"]


def test_custom_resources_say_it_everywhere(api: Asked) -> None:
    api.define()
    api.widget("a", size=1)
    one, listed = api.get(f"{WIDGETS}/a"), api.get(WIDGETS)
    assert list(one)[:2] == ["apiVersion", "kind"]
    assert (listed["kind"], listed["apiVersion"], listed["items"]) == ("WidgetList", "example.com/v1", [one])


def test_an_empty_list_has_items(api: Asked) -> None:
    api.define()
    assert (api.get(MAPS)["items"], api.get(WIDGETS)["items"], api.get(MAPS, accept=TABLE)["rows"]) == (
        [],
        [],
        [],
    )


def test_an_empty_list_of_metadata_has_null(api: Asked) -> None:
    assert api.get(MAPS, accept=METADATA_LIST)["items"] is None


def test_lists_of_custom_resources_always_have_a_token(api: Asked) -> None:
    api.define()
    assert (api.get(WIDGETS)["metadata"]["continue"], "continue" in api.get(MAPS)["metadata"]) == ("", False)


def test_events_have_two_faces(api: Asked) -> None:
    old, new = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"
    api.create(
        "e", path=old, involvedObject={"kind": "Pod", "name": "p", "namespace": "default"}, message="hello"
    )
    [item] = api.get(new)["items"]
    assert (item["regarding"]["name"], item["note"]) == ("p", "hello")
    [event] = (json.loads(line) for line in api.watch(new, fieldSelector="regarding.name=p").lines())
    assert (event["object"]["apiVersion"], event["object"]["note"]) == ("events.k8s.io/v1", "hello")
    [event] = (json.loads(line) for line in api.watch(old, fieldSelector="involvedObject.name=p").lines())
    assert (event["object"]["apiVersion"], event["object"]["message"]) == ("v1", "hello")


# ---- Metadata alone.


def test_metadata_is_all_of_the_metadata_and_nothing_else(api: Asked) -> None:
    api.ask(
        "POST", MAPS, {"metadata": {"name": "a", "annotations": {"i": "{ü\\"}}, "data": {"metadata": "v"}}
    )
    whole = api.get(f"{MAPS}/a")
    shown = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]}
    assert api.get(f"{MAPS}/a", accept=METADATA) == shown
    listed = api.get(MAPS, accept=METADATA_LIST)
    assert (listed["kind"], listed["apiVersion"], listed["items"]) == (
        "PartialObjectMetadataList",
        "meta.k8s.io/v1",
        [shown],
    )


def test_metadata_comes_in_pages_and_in_its_older_version(api: Asked) -> None:
    api.create("a", "b", "c")
    listed = api.get(MAPS, accept=BETA, query={"limit": 2})
    assert (listed["apiVersion"], listed["metadata"]["remainingItemCount"]) == ("meta.k8s.io/v1beta1", 1)
    assert listed["metadata"]["continue"]
    assert listed["items"][0]["apiVersion"] == "meta.k8s.io/v1beta1"


def test_writes_answer_in_the_requested_form(api: Asked) -> None:
    created = api.ask("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, accept=METADATA)
    patched = api.ask("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"i": "1"}}}, accept=METADATA)
    assert [(answer.code, set(read(answer)), read(answer)["kind"]) for answer in (created, patched)] == [
        (code, {"kind", "apiVersion", "metadata"}, "PartialObjectMetadata") for code in (201, 200)
    ]


# ---- Tables.


def test_a_table_has_columns_rows_and_the_metadata_of_its_objects(api: Asked) -> None:
    version = api.create("a", "b", data={"k": "v"})
    table = api.get(MAPS, accept=TABLE, query={"limit": 1})
    assert (table["kind"], table["apiVersion"], table["metadata"]["resourceVersion"]) == (
        "Table",
        "meta.k8s.io/v1",
        str(version),
    )
    assert table["columnDefinitions"] == [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
        {"name": "Data", "type": "string", "format": "", "description": "", "priority": 0},
        {"name": "Age", "type": "string", "format": "", "description": "", "priority": 0},
    ]
    [row] = table["rows"]
    assert row == {"cells": ["a", 1, "0s"], "object": api.get(f"{MAPS}/a", accept=METADATA)}


def test_rows_hold_the_requested_part_of_their_objects(api: Asked) -> None:
    api.create("a", data={"k": "v"})
    for included, held in (("None", None), ("Object", api.get(f"{MAPS}/a"))):
        assert api.get(MAPS, accept=TABLE, query={"includeObject": included})["rows"][0]["object"] == held


def test_the_columns_of_custom_resources_are_those_of_their_definition(api: Asked) -> None:
    api.define(
        additionalPrinterColumns=[
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {
                "name": "Ready",
                "type": "string",
                "jsonPath": '.spec.conditions[?(@.type=="Ready")].status',
                "priority": 1,
            },
        ]
    )
    api.widget(
        "a", size=3, conditions=[{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]
    )
    api.widget("b")
    table = api.get(WIDGETS, accept=TABLE)
    assert [(each["name"], each["type"], each["priority"]) for each in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Ready", "string", 1),
    ]
    assert [row["cells"] for row in table["rows"]] == [["a", 3, "True"], ["b", None, None]]


def test_definitions_tell_when_they_were_made(api: Asked) -> None:
    api.define()
    table = api.get(DEFINITIONS, accept=TABLE)
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Created At"]
    assert table["rows"][0]["cells"] == ["widgets.example.com", "2026-01-01T00:00:00Z"]
