"""Values of a wrong type, too deep, or in an unknown field are refused in the real server's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .asking import DEFINITIONS, MAPS, Asked

PODS = "/api/v1/namespaces/default/pods"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def unmarshal(what: str, field: str, wanted: str) -> str:
    return f"json: cannot unmarshal {what} into Go struct field {field} of type {wanted}"


def test_a_sent_body_is_quoted_by_its_start(api: Asked) -> None:
    assert api.refused("POST", MAPS, b'{"kind": 5}')["message"].endswith('({"kind": 5})')
    assert api.refused("POST", MAPS, b'{"kind": 5, "apiVersion": "v1", "metadata": {}}')["message"].endswith(
        '({"kind": 5, "apiVersion": "v1" ...)'
    )


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        (PODS, {"spec": 1}, unmarshal("number", "Pod.spec", "v1.PodSpec")),
        (
            PODS,
            {"spec": {"initContainers": ["x"]}},
            unmarshal("string", "PodSpec.spec.initContainers", "v1.Container"),
        ),
        (
            PODS,
            {"spec": {"containers": [{"name": 5}]}},
            unmarshal("number", "Container.spec.containers.name", "string"),
        ),
        (
            "/api/v1/namespaces/default/services",
            {"spec": {"externalIPs": [5]}},
            unmarshal("number", "ServiceSpec.spec.externalIPs", "string"),
        ),
        (MAPS, {"data": {"a": 1}}, unmarshal("number", "ConfigMap.data", "string")),
        (MAPS, {"immutable": "yes"}, unmarshal("string", "ConfigMap.immutable", "bool")),
        (
            "/api/v1/namespaces/default/secrets",
            {"data": {"a": 1}},
            unmarshal("number", "Secret.data", "[]uint8"),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            {"rules": ["all"]},
            unmarshal("string", "ClusterRole.rules", "v1.PolicyRule"),
        ),
    ],
)
def test_fields_of_built_in_kinds_have_types(api: Asked, path: str, body: dict[str, Any], why: str) -> None:
    status = api.refused("POST", path, {"metadata": {"name": "a"}, **body})
    assert status["code"] == 400
    assert status["message"].endswith(f": {why}")
    assert " cannot be handled as a " in status["message"]


@pytest.mark.parametrize("body", [{"spec": 1}, {"spec": {"finalizers": 5}}, {"kind": 5}, {"apiVersion": {}}])
def test_a_patch_that_makes_an_object_unreadable_is_at_fault(api: Asked, body: dict[str, Any]) -> None:
    status = api.refused("PATCH", "/api/v1/namespaces/default", body)
    assert (status["code"], status["details"]["causes"][0]["field"]) == (422, "patch")
    assert "json: cannot unmarshal" in status["message"]


# ---- Definitions.


def definition(**version: Any) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Foo", "plural": "foos"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema, **version}],
        },
    }


def changed(path: str, value: object) -> dict[str, Any]:
    body = definition()
    *way, last = path.split(".")
    at: Any = body
    for key in way:
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
    at[last] = value
    return body


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("spec", [], unmarshal("array", "CustomResourceDefinition.spec", "v1.CustomResourceDefinitionSpec")),
        ("spec.group", 5, unmarshal("number", "CustomResourceDefinitionSpec.spec.group", "string")),
        (
            "spec.names.shortNames",
            [5],
            unmarshal("number", "CustomResourceDefinitionNames.spec.names.shortNames", "string"),
        ),
        (
            "spec.versions",
            ["a"],
            unmarshal(
                "string", "CustomResourceDefinitionSpec.spec.versions", "v1.CustomResourceDefinitionVersion"
            ),
        ),
        (
            "spec.versions.0.served",
            "x",
            unmarshal("string", "CustomResourceDefinitionVersion.spec.versions.served", "bool"),
        ),
        (
            "spec.versions.0.schema.openAPIV3Schema.properties",
            {"x": 5},
            unmarshal(
                "number",
                "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties",
                "v1.JSONSchemaProps",
            ),
        ),
        (
            "spec.versions.0.schema.openAPIV3Schema.required",
            5,
            unmarshal("number", "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.required", "[]string"),
        ),
    ],
)
def test_a_definition_of_the_wrong_types_is_refused_and_not_stored(
    api: Asked, path: str, value: object, why: str
) -> None:
    before = api.api.history.version
    status = api.refused("POST", DEFINITIONS, changed(path, value))
    assert (status["code"], status["message"]) == (
        400,
        f'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition: {why}',
    )
    assert api.api.history.version == before


@pytest.mark.parametrize(
    ("column", "fields"),
    [
        ({}, ["name", "type", "JSONPath"]),
        ({"name": "a", "type": "string"}, ["JSONPath"]),
        ({"name": "a", "type": "foo", "jsonPath": ".a"}, ["type"]),
        ({"name": "a", "type": "string", "jsonPath": "a"}, ["JSONPath"]),
    ],
)
def test_a_column_is_whole(api: Asked, column: dict[str, str], fields: list[str]) -> None:
    status = api.refused("POST", DEFINITIONS, definition(additionalPrinterColumns=[column]))
    assert status["code"] == 422
    assert [cause["field"] for cause in status["details"]["causes"]] == [
        f"spec.additionalPrinterColumns[0].{field}" for field in fields
    ]


# ---- Patches and options.


@pytest.mark.parametrize(
    ("step", "code", "message"),
    [
        (
            {"op": "add", "path": 1, "value": 1},
            400,
            "error decoding patch: " + unmarshal("number", "jsonPatchOp.path", "string"),
        ),
        (
            {"op": {}, "path": "/data"},
            400,
            "error decoding patch: " + unmarshal("object", "jsonPatchOp.op", "string"),
        ),
        (
            5,
            400,
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            {"op": "add", "path": None, "value": 1},
            422,
            "the server rejected our request due to an error in our request",
        ),
        (None, 422, "the server rejected our request due to an error in our request"),
    ],
)
def test_a_step_of_a_json_patch_is_made_of_texts(api: Asked, step: object, code: int, message: str) -> None:
    api.create("a", data={"a": "b"})
    status = api.refused("PATCH", f"{MAPS}/a", [step], content_type=JSON_PATCH)
    assert (status["code"], status["message"]) == (code, message)


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("dryRun", 1, unmarshal("number", "DeleteOptions.dryRun", "[]string")),
        ("dryRun", "All", unmarshal("string", "DeleteOptions.dryRun", "[]string")),
        ("dryRun", [1], unmarshal("number", "DeleteOptions.dryRun", "string")),
        ("gracePeriodSeconds", "1", unmarshal("string", "DeleteOptions.gracePeriodSeconds", "int64")),
        ("gracePeriodSeconds", 1.5, unmarshal("number 1.5", "DeleteOptions.gracePeriodSeconds", "int64")),
        (
            "propagationPolicy",
            5,
            unmarshal("number", "DeleteOptions.propagationPolicy", "v1.DeletionPropagation"),
        ),
        ("preconditions", {"uid": 5}, unmarshal("number", "Preconditions.preconditions.uid", "types.UID")),
        ("orphanDependents", "x", unmarshal("string", "DeleteOptions.orphanDependents", "bool")),
    ],
)
def test_how_to_delete_has_types(api: Asked, option: str, value: object, why: str) -> None:
    api.create("a")
    status = api.refused("DELETE", f"{MAPS}/a", {"kind": "DeleteOptions", "apiVersion": "v1", option: value})
    assert (status["code"], status["message"]) == (400, why)


@pytest.mark.parametrize(
    ("method", "path", "content_type"),
    [
        ("POST", MAPS, ""),
        ("PUT", f"{MAPS}/a", ""),
        ("DELETE", f"{MAPS}/a", ""),
        ("PATCH", f"{MAPS}/a", ""),
        ("PATCH", f"{MAPS}/a", JSON_PATCH),
        ("PATCH", f"{MAPS}/a", STRATEGIC),
    ],
)
@pytest.mark.parametrize("depth", [250, 100_000])
def test_a_body_that_is_too_deep_is_refused(
    api: Asked, method: str, path: str, content_type: str, depth: int
) -> None:
    api.create("a")
    status = api.refused(method, path, b'{"a":' * depth + b"1" + b"}" * depth, content_type=content_type)
    assert status["code"] == 400
    assert "invalid character '{' exceeded max depth" in status["message"]


def test_a_patch_that_piles_up_too_deep_is_refused(api: Asked) -> None:
    api.define()
    api.create(
        "w",
        path="/apis/example.com/v1/namespaces/default/widgets",
        apiVersion="example.com/v1",
        kind="Widget",
        spec={"a": {}},
    )
    deep = {"op": "add", "path": "/spec/a" + "/a" * 100, "value": {}}
    steps = [{"op": "add", "path": "/spec/a" + "/a" * level, "value": {}} for level in range(1, 100)]
    more = [{**deep, "value": json.loads('{"a":' * 150 + "{}" + "}" * 150)}]
    status = api.refused(
        "PATCH", "/apis/example.com/v1/namespaces/default/widgets/w", steps + more, content_type=JSON_PATCH
    )
    assert status["code"] == 422


# ---- Fields that there are not.


def test_unknown_fields_are_refused_where_that_is_asked_for(api: Asked) -> None:
    body = {"metadata": {"name": "a", "lables": {}}, "dta": {"a": "b"}, "zzz": 1}
    status = api.refused("POST", MAPS, body, query={"fieldValidation": "Strict"})
    assert (status["code"], status["message"]) == (
        400,
        (
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
            'unknown field "metadata.lables", unknown field "dta", unknown field "zzz"'
        ),
    )


@pytest.mark.parametrize(
    ("judging", "warning"),
    [
        ("", '299 - "unknown field \\"dta\\"", 299 - "unknown field \\"zzz\\""'),
        ("Warn", '299 - "unknown field \\"dta\\"", 299 - "unknown field \\"zzz\\""'),
        ("Ignore", None),
    ],
)
def test_unknown_fields_are_dropped_with_a_warning(api: Asked, judging: str, warning: str | None) -> None:
    answer = api.ask(
        "POST", MAPS, {"metadata": {"name": "a"}, "dta": {}, "zzz": 1}, query={"fieldValidation": judging}
    )
    assert (answer.code, answer.headers.get("Warning")) == (201, warning)
    assert not {"dta", "zzz"} & api.get(f"{MAPS}/a").keys()


@pytest.mark.parametrize(
    ("patch", "content_type"),
    [({"dta": {}}, ""), ({"dta": {}}, STRATEGIC), ([{"op": "add", "path": "/dta", "value": 1}], JSON_PATCH)],
)
def test_a_patch_of_unknown_fields_is_a_fault_of_the_patch(
    api: Asked, patch: object, content_type: str
) -> None:
    api.create("a")
    status = api.refused(
        "PATCH", f"{MAPS}/a", patch, content_type=content_type, query={"fieldValidation": "Strict"}
    )
    assert (status["code"], status["details"]["causes"][0]["field"]) == (422, "patch")
    assert status["message"].endswith('strict decoding error: unknown field "dta"')


def test_unknown_fields_of_custom_resources_are_those_that_the_schema_has_not_got(api: Asked) -> None:
    body = definition()
    schema = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"] = {
        "a": {"type": "string"},
        "l": {"type": "array", "items": {"type": "object"}},
    }
    assert api.ask("POST", DEFINITIONS, body).code == 201
    foo = {
        "apiVersion": "example.com/v1",
        "kind": "Foo",
        "metadata": {"name": "f"},
        "spec": {"z": 1, "a": "x", "l": [{"c": 1}]},
    }
    foos = "/apis/example.com/v1/namespaces/default/foos"
    status = api.refused("POST", foos, foo, query={"fieldValidation": "Strict"})
    assert (
        status["message"]
        == 'Foo in version "v1" cannot be handled as a Foo: strict decoding error: unknown field'
        ' "spec.l[0].c", unknown field "spec.z"'
    )
    assert (
        api.ask("POST", foos, foo).headers["Warning"]
        == '299 - "unknown field \\"spec.l[0].c\\"", 299 - "unknown field \\"spec.z\\""'
    )
    assert api.get(f"{foos}/f")["spec"] == {"a": "x", "l": [{}]}
