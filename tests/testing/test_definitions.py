"""Custom resources: served the moment they are defined, shaped by their schema, and gone with their
definition."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kopf_selectcache.testing.api.status import Problem
from tests.testing.asking import facts_of

from .writing import DEFINITIONS, Store

WIDGETS = "widgets.example.com"
FIELD = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}},
}


@pytest.fixture
def store() -> Store:
    return Store()


def schema_of(spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": spec, **more}}}


# ---- Serving.


def test_its_conditions_follow_as_a_change_of_their_own(store: Store) -> None:
    store.define()
    added, modified = store.changes(4, DEFINITIONS)
    assert (added.before, modified.before) == (None, added.after)
    made = store.get(DEFINITIONS, WIDGETS)
    assert [(item["type"], item["status"]) for item in made["status"]["conditions"]] == [
        ("NamesAccepted", "True"),
        ("Established", "True"),
    ]
    assert made["status"]["acceptedNames"] == made["spec"]["names"]
    assert made["spec"]["names"]["listKind"] == "WidgetList"


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("wrong", {}, 'metadata.name: Invalid value: "wrong": must be spec.names.plural+"."+spec.group'),
        (
            WIDGETS,
            {"versions": [{"name": "v1", "served": True, "storage": True}]},
            "spec.versions[0].schema.openAPIV3Schema: Required value",
        ),
        (WIDGETS, {"scope": ""}, "spec.scope: Required value"),
        (
            "widgets.example",
            {"group": "example"},
            'spec.group: Invalid value: "example": should be a domain with at least one dot',
        ),
        (
            WIDGETS,
            {
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": FIELD},
                        "selectableFields": [{"jsonPath": ".spec.size"}],
                    }
                ]
            },
            (
                'spec.selectableFields[0].jsonPath: Invalid value: ".spec.size": is an invalid path: does not'
                " refer to a valid field"
            ),
        ),
    ],
)
def test_a_definition_that_cannot_be_served_is_refused(
    store: Store, name: str, spec: dict[str, Any], message: str
) -> None:
    whole = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": FIELD}}],
        **spec,
    }
    with pytest.raises(Problem) as caught:
        store.create(DEFINITIONS, name, spec=whole)
    assert (caught.value.code, caught.value.message) == (
        422,
        f'CustomResourceDefinition.apiextensions.k8s.io "{name}" is invalid: {message}',
    )


def test_objects_can_be_selected_by_fields_that_their_definition_gets_later(store: Store) -> None:
    store.define(schema=FIELD)
    store.create(WIDGETS, "a", spec={"color": "red"})
    versions = store.get(DEFINITIONS, WIDGETS)["spec"]["versions"]
    store.patch(
        DEFINITIONS,
        WIDGETS,
        {"spec": {"versions": [{**versions[0], "selectableFields": [{"jsonPath": ".spec.color"}]}]}},
    )
    assert "spec.color" in store.kind(WIDGETS).fields.fields
    assert store.objects.get(store.kind(WIDGETS), "default", "a").fields["spec.color"] == "red"


def test_after_going_back_to_a_backup_that_is_served_which_was_defined_then(store: Store) -> None:
    store.define()
    backup = store.history.backup()
    store.define(name="gadgets.example.com")
    store.history.restore(backup)
    store.objects.restored()
    assert store.kinds.find("example.com", "v1", "widgets") is not None
    assert store.kinds.find("example.com", "v1", "gadgets") is None


# ---- Ending.


def test_a_definition_stays_while_a_finalizer_holds_one_of_its_objects(store: Store) -> None:
    store.define()
    store.create(WIDGETS, "a", metadata={"finalizers": ["example.com/x"]})
    store.delete(DEFINITIONS, WIDGETS)
    with pytest.raises(Problem) as caught:
        store.create(WIDGETS, "b")
    assert facts_of(caught.value) == (403, "Forbidden", [])
    store.patch(WIDGETS, "a", {"metadata": {"finalizers": []}})
    assert store.names(DEFINITIONS) == []
    assert store.kinds.find("example.com", "v1", "widgets") is None


# ---- Objects.


def test_numbers_without_a_fraction_are_stored_without_a_point(store: Store) -> None:
    store.define()
    store.create(WIDGETS, "a", spec={"x": 1.0, "y": 1.5, "z": [2e3]})
    assert json.dumps(store.get(WIDGETS, "a")["spec"]) == '{"x": 1, "y": 1.5, "z": [2000]}'


@pytest.mark.parametrize(
    ("properties", "sent", "kept"),
    [
        ({"a": {"type": "string"}}, {"a": "x", "b": 1}, {"a": "x"}),
        ({"a": {"type": "string", "default": "x"}}, {}, {"a": "x"}),
        ({"a": {"type": "string", "default": "x"}}, {"a": None}, {"a": "x"}),
        ({"a": {"type": "string"}}, {"a": None}, {}),
        ({"a": {"type": "string", "nullable": True, "default": "x"}}, {"a": None}, {"a": None}),
        (
            {"o": {"type": "object", "default": {}, "properties": {"d": {"type": "string", "default": "x"}}}},
            {},
            {"o": {"d": "x"}},
        ),
        (
            {
                "l": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"d": {"type": "string", "default": "x"}}},
                }
            },
            {"l": [{}, {"d": "y", "e": 1}]},
            {"l": [{"d": "x"}, {"d": "y"}]},
        ),
        (
            {"m": {"type": "object", "additionalProperties": {"type": "integer"}}},
            {"m": {"x": 1}},
            {"m": {"x": 1}},
        ),
        (
            {"p": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            {"p": {"x": {"y": None}}},
            {"p": {"x": {"y": None}}},
        ),
        (
            {"e": {"type": "object", "x-kubernetes-embedded-resource": True}},
            {"e": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "f": 1}},
            {"e": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}}},
        ),
    ],
)
def test_a_schema_drops_unknown_fields_and_fills_in_defaults(
    store: Store, properties: dict[str, Any], sent: object, kept: object
) -> None:
    store.define(schema=schema_of(properties))
    made = store.create(WIDGETS, "a", spec=sent, other=1)
    assert made["spec"] == kept
    assert "other" not in made


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (
            {"type": "integer"},
            "1",
            'Invalid value: "string": spec.a in body must be of type integer: "string"',
        ),
        (
            {"type": "integer"},
            True,
            'Invalid value: "boolean": spec.a in body must be of type integer: "boolean"',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            True,
            'Invalid value: "boolean": spec.a in body must be of type integer,string: "boolean"',
        ),
        (
            {"type": "integer", "minimum": 1},
            0,
            "Invalid value: 0: spec.a in body should be greater than or equal to 1",
        ),
        (
            {"type": "integer", "maximum": 1},
            2,
            "Invalid value: 2: spec.a in body should be less than or equal to 1",
        ),
        ({"type": "string", "enum": ["x", "y"]}, "z", 'Unsupported value: "z": supported values: "x", "y"'),
        (
            {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"},
            "A",
            'Invalid value: "A": spec.a in body should be at least 2 chars long',
        ),
        (
            {"type": "string", "pattern": "^[a-z]+$"},
            "A",
            "Invalid value: \"A\": spec.a in body should match '^[a-z]+$'",
        ),
        ({"type": "string", "maxLength": 2}, "abc", "Too long: may not be more than 2 bytes"),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 1},
            ["a", "b"],
            "Too many: 2: must have at most 1 items",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            [],
            "Invalid value: 0: spec.a in body should have at least 1 items",
        ),
    ],
)
def test_a_value_that_the_schema_forbids_is_refused(
    store: Store, schema: dict[str, Any], value: object, message: str
) -> None:
    store.define(schema=schema_of({"a": schema}))
    with pytest.raises(Problem) as caught:
        store.create(WIDGETS, "w", spec={"a": value})
    assert (caught.value.code, caught.value.message) == (
        422,
        f'Widget.example.com "w" is invalid: spec.a: {message}',
    )


def test_inner_values_are_named_by_their_path(store: Store) -> None:
    store.define(
        schema=schema_of(
            {
                "l": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "m": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
            required=["r"],
        )
    )
    with pytest.raises(Problem) as caught:
        store.create(WIDGETS, "w", spec={"l": [{"a": 5}], "m": {"x": "y"}})
    assert [cause["field"] for cause in (caught.value.details or {})["causes"]] == [
        "spec.l[0].a",
        "spec.m.x",
        "spec.r",
    ]


def test_a_number_may_be_whole_and_either_kind_of_value_where_both_are_allowed(store: Store) -> None:
    store.define(schema=schema_of({"n": {"type": "number"}, "e": {"x-kubernetes-int-or-string": True}}))
    store.create(WIDGETS, "a", spec={"n": 1, "e": "x"})
    store.create(WIDGETS, "b", spec={"n": 1.5, "e": 1})
    assert store.names(WIDGETS) == ["a", "b"]
