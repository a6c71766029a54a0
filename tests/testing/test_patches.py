"""Merge patches and JSON patches, with the real server's library's own ideas of RFC 6902."""

import json
from typing import Any

import pytest

from kopf_selectcache.testing.api import patches
from kopf_selectcache.testing.api.status import Problem
from tests.rows import each_row

from .writing import Store

CONFIG_MAPS = Store().kind("configmaps")


def patched(obj: dict[str, Any], patch: object, content_type: str = patches.JSON) -> dict[str, Any]:
    return patches.read(json.dumps(patch).encode(), content_type, CONFIG_MAPS)(obj)


@each_row(
    ("step", "expected"),
    [
        ({"op": "add", "path": "/b", "value": 1}, {"a": {"k": [1, 2]}, "b": 1}),
        ({"op": "add", "path": "/a/k/-", "value": 3}, {"a": {"k": [1, 2, 3]}}),
        ({"op": "add", "path": "/a/k/0", "value": 3}, {"a": {"k": [3, 1, 2]}}),
        ({"op": "add", "path": "/a/x~1y~0", "value": 3}, {"a": {"k": [1, 2], "x/y~": 3}}),
        ({"op": "add", "path": "/b"}, {"a": {"k": [1, 2]}, "b": None}),
        ({"op": "remove", "path": "/a/k/0"}, {"a": {"k": [2]}}),
        ({"op": "remove", "path": "/a/k/-1"}, {"a": {"k": [1]}}),
        ({"op": "replace", "path": "/a/k/1", "value": 5}, {"a": {"k": [1, 5]}}),
        ({"op": "replace", "path": "/a/new", "value": 5}, {"a": {"k": [1, 2], "new": 5}}),
        ({"op": "move", "from": "/a/k", "path": "/m"}, {"a": {}, "m": [1, 2]}),
        ({"op": "copy", "from": "/a/k", "path": "/m"}, {"a": {"k": [1, 2]}, "m": [1, 2]}),
        ({"op": "test", "path": "/a/k", "value": [1, 2]}, {"a": {"k": [1, 2]}}),
        ({"op": "test", "path": "/a/none", "value": None}, {"a": {"k": [1, 2]}}),
    ],
)
def test_each_step_of_a_json_patch(step: object, expected: object) -> None:
    assert patched({"a": {"k": [1, 2]}}, [step]) == expected


@each_row(
    "steps",
    [
        [{"op": "test", "path": "/a/k", "value": [1]}],
        [{"op": "test", "path": "/a/none", "value": 1}],
        [{"op": "test", "path": "/a/k/0", "value": True}],
        [{"op": "remove", "path": "/a/none"}],
        [{"op": "move", "from": "/none", "path": "/a/x"}],
        [{"op": "add", "path": "/none/x", "value": 1}],
        [{"op": "add", "path": "/a/k/7", "value": 1}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "frob", "path": "/a", "value": 1}],
        [{"op": "add"}],
        [{"op": "add", "path": "/b", "value": 1}, {"op": "test", "path": "/b", "value": 2}],
    ],
)
def test_a_step_that_fails_fails_the_patch(steps: object) -> None:
    obj = {"a": {"k": [1, 2]}}
    with pytest.raises(Problem) as caught:
        patched(obj, steps)
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.message == "the server rejected our request due to an error in our request"
    assert obj == {"a": {"k": [1, 2]}}


@each_row(
    ("patch", "content_type", "message"),
    [
        (
            [1],
            patches.MERGE,
            (
                "error decoding patch: json: cannot unmarshal array into Go value of type"
                " map[string]interface {}"
            ),
        ),
        (
            "x",
            patches.MERGE,
            (
                "error decoding patch: json: cannot unmarshal string into Go value of type"
                " map[string]interface {}"
            ),
        ),
        (
            {},
            patches.JSON,
            (
                "error decoding patch: json: cannot unmarshal object into Go value of type"
                " []handlers.jsonPatchOp"
            ),
        ),
        (
            [1],
            patches.STRATEGIC,
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
    ],
)
def test_a_patch_of_another_shape_cannot_be_read(patch: object, content_type: str, message: str) -> None:
    with pytest.raises(Problem) as caught:
        patched({}, patch, content_type)
    assert (caught.value.code, caught.value.message) == (400, message)


def test_server_side_apply_of_scales_is_not_there_and_says_so() -> None:
    with pytest.raises(Problem) as caught:
        patches.read(b"{}", patches.APPLY, CONFIG_MAPS)
    assert caught.value.code == 501


def test_a_patch_that_makes_an_object_unreadable_is_reported_as_the_patchs_fault() -> None:
    store = Store()
    store.create("configmaps", "a", data={"k": "v"})
    with pytest.raises(Problem) as caught:
        store.patch("configmaps", "a", {"data": {"k": 5}})
    assert caught.value.code == 422
    assert caught.value.message.startswith(' "" is invalid: patch: Invalid value: "{')
    assert caught.value.message.endswith(
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    )
    assert store.get("configmaps", "a")["data"] == {"k": "v"}
