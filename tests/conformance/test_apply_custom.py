"""Server-side apply of custom resources: their schemas say what is merged, and how."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from .applying import applied, causes, fields, refused, whole
from .places import Place, fresh_group, once_ready, since_worded

KEYLESS = (
    'associative list with keys has an element that omits all key fields ["id"] (and doesn\'t have default'
    " values for any key fields)"
)
KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]}
TEXT = {"type": "string"}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "color": TEXT,
                "size": {"type": "integer", "default": 7},
                "keyed": {
                    "type": "array",
                    **KEYED,
                    "items": {
                        "type": "object",
                        "required": ["id"],
                        "properties": {"id": TEXT, "v": TEXT, "d": {"type": "string", "default": "d"}},
                    },
                },
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
                "list": {"type": "array", "items": TEXT},
                "map": {"type": "object", "additionalProperties": TEXT},
                "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": TEXT},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "part": {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": TEXT,
                "conditions": {
                    "type": "array",
                    **KEYED,
                    "items": {"type": "object", "required": ["id"], "properties": {"id": TEXT, "v": TEXT}},
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def widget_group(api: Any) -> Iterator[str]:
    """A group with a definition of widgets, by the schema above."""
    group = fresh_group()
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = {"plural": "widgets", "kind": "Widget"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
    spec = {
        "group": group,
        "scope": "Namespaced",
        "names": names,
        "versions": [{**version, "subresources": {"status": {}}}],
    }
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": spec,
    }
    api.request("POST", path, body=body)
    yield group
    api.request("DELETE", f"{path}/widgets.{group}")


@pytest.fixture
def widgets(place: Place, widget_group: str) -> Place:
    widgets = place.of("widgets", prefix=f"/apis/{widget_group}/v1", kind="Widget")
    once_ready(widgets.listed)
    return widgets


FULL: Mapping[str, Any] = {
    "color": "red",
    "keyed": [{"id": "1", "v": "x"}],
    "set": ["a", "b"],
    "list": ["q"],
    "map": {"x": "y"},
    "whole": {"x": "y"},
    "any": {"deep": {"list": [1, {"a": 2}]}},
    "part": {"a": "1"},
}
OTHER: Mapping[str, Any] = {
    "keyed": [{"id": "2", "v": "x"}],
    "set": ["b", "c"],
    "map": {"z": "y"},
    "any": {"deep": {"more": 1}},
    "part": {"b": "2"},
}


def test_the_fields_of_a_custom_resource(widgets: Place) -> None:
    obj = applied(widgets, "it", "a", spec=FULL)
    assert obj["spec"] == {**FULL, "size": 7, "keyed": [{"id": "1", "v": "x", "d": "d"}]}
    assert fields(obj) == {
        "a": {
            "f:spec": {
                "f:any": {"f:deep": {".": {}, "f:list": {}}},
                "f:color": {},
                "f:keyed": {'k:{"id":"1"}': {".": {}, "f:id": {}, "f:v": {}}},
                "f:list": {},
                "f:map": {"f:x": {}},
                "f:part": {"f:a": {}},
                "f:set": {'v:"a"': {}, 'v:"b"': {}},
                "f:whole": {},
            }
        }
    }


def test_custom_resources_are_merged_by_their_schema(widgets: Place) -> None:
    applied(widgets, "it", "a", spec=FULL)
    merged = applied(widgets, "it", "b", spec=OTHER)["spec"]
    assert merged == {
        **FULL,
        "size": 7,
        "keyed": [{"id": "1", "v": "x", "d": "d"}, {"id": "2", "v": "x", "d": "d"}],
        "set": ["a", "b", "c"],
        "map": {"x": "y", "z": "y"},
        "any": {"deep": {"list": [1, {"a": 2}], "more": 1}},
        "part": {"a": "1", "b": "2"},
    }
    left = applied(widgets, "it", "a", spec={"color": "red"})["spec"]
    assert left == {**OTHER, "color": "red", "size": 7, "keyed": [{"id": "2", "v": "x", "d": "d"}]}
    assert applied(widgets, "it", "b", spec={})["spec"] == {"color": "red", "size": 7}


def test_the_conflicts_of_a_custom_resource(widgets: Place) -> None:
    applied(widgets, "it", "a", spec=FULL)
    wish = {
        "keyed": [{"id": "1", "v": "z"}],
        "list": ["z"],
        "whole": {"x": "z"},
        "any": {"deep": {"list": []}},
        "part": {"a": "z"},
        "size": 9,
    }
    assert causes(refused(widgets, "it", "b", spec=wish)) == {
        ('conflict with "a"', path)
        for path in (
            '.spec.keyed[id="1"].v',
            ".spec.list",
            ".spec.whole",
            ".spec.any.deep.list",
            ".spec.part.a",
        )
    }


def test_the_fields_of_a_created_custom_resource_have_its_defaults(widgets: Place) -> None:
    body = {
        **whole(widgets, "it"),
        "spec": {"color": "b", "keyed": [{"id": "1"}], "set": ["x"], "part": {"a": "1"}, "map": {}},
    }
    obj = widgets.api.request("POST", widgets.path(), body=body, query={"fieldManager": "c"})
    assert fields(obj) == {
        "c*": {
            "f:spec": {
                ".": {},
                "f:color": {},
                "f:keyed": {".": {}, 'k:{"id":"1"}': {".": {}, "f:d": {}, "f:id": {}}},
                "f:map": {},
                "f:part": {".": {}, "f:a": {}},
                "f:set": {".": {}, 'v:"x"': {}},
                "f:size": {},
            }
        }
    }


# ---- The status.


@pytest.mark.since("1.36", "1.33 says that the manager owns labels, although it does not change them")
def test_the_status_is_applied_by_its_subresource_only(widgets: Place) -> None:
    obj = applied(widgets, "it", "a", spec={"color": "red"}, status={"phase": "A"})
    assert "status" not in obj
    obj = applied(
        widgets,
        "it",
        "s",
        sub="/status",
        spec={"color": "blue"},
        metadata={"labels": {"l": "1"}},
        status={"phase": "B", "conditions": [{"id": "1", "v": "T"}]},
        force=True,
    )
    assert (obj["spec"]["color"], obj["status"]["phase"]) == ("red", "B")
    assert "labels" not in obj["metadata"]
    assert fields(obj) == {
        "a": {"f:spec": {"f:color": {}}},
        "s/status": {
            "f:status": {
                "f:conditions": {'k:{"id":"1"}': {".": {}, "f:id": {}, "f:v": {}}},
                "f:phase": {},
            }
        },
    }
    status = refused(widgets, "it", "t", sub="/status", status={"phase": "C"})
    assert causes(status) == {('conflict with "s" with subresource "status"', ".status.phase")}


# ---- Refusals.


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"colr": "red"}, ".spec.colr: field not declared in schema"),
        ({"part": {"c": "1"}}, ".spec.part.c: field not declared in schema"),
        ({"color": 5}, ".spec.color: expected string, got &value.valueUnstructured{Value:5}"),
        ({"map": []}, ".spec.map: expected map, got &{[]}"),
        ({"set": ["a", "a"]}, '.spec.set: duplicate entries for key [="a"]'),
        ({"keyed": [{"id": "1"}, {"id": "1"}]}, '.spec.keyed: duplicate entries for key [id="1"]'),
        pytest.param(
            {"keyed": [{"v": "1"}]},
            f".spec.keyed: element 0: {KEYLESS}",
            marks=since_worded,
        ),
        (
            {"keyed": ["1"]},
            ".spec.keyed: element 0: associative list with keys may not have non-map elements",
        ),
    ],
    ids=str,
)
def test_custom_resources_that_do_not_fit_their_schema(
    widgets: Place, widget_group: str, spec: Any, why: str
) -> None:
    status = refused(widgets, "it", "a", spec=spec)
    where = f"/it; {widget_group}/v1, Kind=Widget"
    assert (status["code"], status["message"]) == (
        500,
        f"failed to create typed patch object ({where}): {why}",
    )
