"""Patches: what each kind of patch makes of an object, and how those that cannot be applied are refused."""

from typing import Any

import pytest

from .places import Place, raw, refusal

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
LABELS = {"a": "1", "b": "2"}


@pytest.fixture
def maps(place: Place) -> Place:
    """The ConfigMaps of a namespace, with one: its data are LABELS, and its labels and annotations, too."""
    maps = place.of("configmaps")
    maps.create("it", metadata={"labels": LABELS, "annotations": LABELS}, data=LABELS)
    return maps


# ---- Merge patches.


@pytest.mark.parametrize(
    ("patch", "data"),
    [
        ({"data": {"c": "3"}}, {"a": "1", "b": "2", "c": "3"}),
        ({"data": {"a": "9"}}, {"a": "9", "b": "2"}),
        ({"data": {"a": None}}, {"b": "2"}),
        ({"data": {"a": None, "b": None}}, None),
        ({"data": {"none": None}}, {"a": "1", "b": "2"}),
        ({"data": None}, None),
        ({"data": {}}, {"a": "1", "b": "2"}),
        ({}, {"a": "1", "b": "2"}),
        ({"metadata": {}}, {"a": "1", "b": "2"}),
        ({"data": {"a": ""}}, {"a": "", "b": "2"}),
    ],
    ids=str,
)
def test_a_merge_patch_sets_and_removes(maps: Place, patch: Any, data: Any) -> None:
    for content_type in (MERGE, STRATEGIC):
        assert maps.patch("it", patch, content_type=content_type).get("data") == data
    assert maps.get("it").get("data") == data


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize(
    ("patch", "now"),
    [
        ({"a": None}, {"b": "2"}),
        ({"c": "3"}, {"a": "1", "b": "2", "c": "3"}),
        ({"a": None, "b": None}, None),
        (None, None),
    ],
    ids=str,
)
def test_labels_and_annotations_are_patched_one_by_one(
    maps: Place, content_type: str, part: str, patch: Any, now: Any
) -> None:
    assert (
        maps.patch("it", {"metadata": {part: patch}}, content_type=content_type)["metadata"].get(part) == now
    )


@pytest.mark.parametrize(
    ("content_type", "now"), [(MERGE, ["example.com/b"]), (STRATEGIC, ["example.com/a", "example.com/b"])]
)
def test_finalizers_are_replaced_by_a_merge_patch_and_added_by_a_strategic_one(
    maps: Place, content_type: str, now: list[str]
) -> None:
    maps.patch("it", {"metadata": {"finalizers": ["example.com/a"]}})
    patched = maps.patch("it", {"metadata": {"finalizers": ["example.com/b"]}}, content_type=content_type)
    assert sorted(patched["metadata"]["finalizers"]) == now
    maps.patch("it", {"metadata": {"finalizers": []}})


def test_a_patch_on_an_older_version_is_a_conflict(maps: Place) -> None:
    old = maps.version_of("it")
    maps.label("it", x="1")
    status = refusal(
        maps.api, "PATCH", maps.path("it"), body={"metadata": {"resourceVersion": old}, "data": {"a": "9"}}
    )
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert (
        status["message"]
        == 'Operation cannot be fulfilled on configmaps "it": the object has been modified; please apply your'
        " changes to the latest version and try again"
    )


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (
            {"metadata": {"name": "other"}},
            "the name of the object (other) does not match the name on the URL (it)",
        ),
        (
            {"metadata": {"namespace": "other"}},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
    ids=str,
)
def test_a_patch_that_moves_the_object_is_refused(maps: Place, patch: Any, message: str) -> None:
    status = refusal(maps.api, "PATCH", maps.path("it"), body=patch)
    assert (status["code"], status["reason"], status["message"]) == (400, "BadRequest", message)


@pytest.mark.parametrize(
    "patch",
    [
        {"data": {"a": 5}},
        {"data": {"a": {"b": "c"}}},
        {"data": ["a"]},
        {"metadata": {"labels": {"a": 5}}},
        {"metadata": {"labels": ["a"]}},
        {"metadata": "text"},
        {"metadata": {"finalizers": "text"}},
        {"metadata": {"annotations": {"a": True}}},
    ],
    ids=str,
)
def test_a_patch_that_makes_no_object_is_invalid(maps: Place, patch: Any) -> None:
    status = refusal(maps.api, "PATCH", maps.path("it"), body=patch)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "patch"
    assert maps.get("it")["data"] == LABELS


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"a": "-x"}}},
        {"data": {"a b": "c"}},
        {"metadata": {"annotations": {"a b": ""}}},
    ],
    ids=str,
)
def test_a_patch_that_makes_an_invalid_object_is_invalid(maps: Place, patch: Any) -> None:
    status = refusal(maps.api, "PATCH", maps.path("it"), body=patch)
    assert (status["code"], status["reason"], status["details"]["kind"]) == (422, "Invalid", "ConfigMap")


@pytest.mark.parametrize("content_type", [MERGE, JSON, STRATEGIC])
@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"text"])
def test_an_invalid_patch_is_refused(maps: Place, content_type: str, body: bytes) -> None:
    answer = raw(maps.api, maps.path("it"), method="PATCH", headers={"Content-Type": content_type}, body=body)
    assert (answer.status, answer.json()["reason"]) == (400, "BadRequest")


# ---- JSON patches.


@pytest.mark.parametrize(
    ("patch", "data"),
    [
        ([], {"a": "1", "b": "2"}),
        ([{"op": "add", "path": "/data/c", "value": "3"}], {"a": "1", "b": "2", "c": "3"}),
        ([{"op": "add", "path": "/data/a", "value": "9"}], {"a": "9", "b": "2"}),
        ([{"op": "replace", "path": "/data/a", "value": "9"}], {"a": "9", "b": "2"}),
        ([{"op": "replace", "path": "/data", "value": {"z": "0"}}], {"z": "0"}),
        ([{"op": "remove", "path": "/data/a"}], {"b": "2"}),
        ([{"op": "remove", "path": "/data"}], None),
        ([{"op": "move", "from": "/data/a", "path": "/data/c"}], {"b": "2", "c": "1"}),
        ([{"op": "copy", "from": "/data/a", "path": "/data/c"}], {"a": "1", "b": "2", "c": "1"}),
        ([{"op": "test", "path": "/data/a", "value": "1"}, {"op": "remove", "path": "/data/a"}], {"b": "2"}),
        (
            [
                {"op": "add", "path": "/data/x~1y", "value": "3"},
                {"op": "move", "from": "/data/x~1y", "path": "/data/c"},
            ],
            {"a": "1", "b": "2", "c": "3"},
        ),
        ([{"op": "add", "path": "/metadata/labels/example.com~1x", "value": "3"}], {"a": "1", "b": "2"}),
        ([{"op": "replace", "path": "/data/none", "value": "9"}], {"a": "1", "b": "2", "none": "9"}),
        ([{"op": "copy", "from": "/data/none", "path": "/data/c"}], {"a": "1", "b": "2", "c": ""}),
        (
            [{"op": "remove", "path": "/data/a"}, {"op": "add", "path": "/data/a", "value": "9"}],
            {"a": "9", "b": "2"},
        ),
    ],
    ids=str,
)
def test_a_json_patch_runs_its_operations_in_order(maps: Place, patch: Any, data: Any) -> None:
    assert maps.patch("it", patch, content_type=JSON).get("data") == data
    assert maps.get("it").get("data") == data


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "test", "path": "/data/a", "value": "9"}],
        [{"op": "test", "path": "/data/none", "value": "9"}],
        [{"op": "remove", "path": "/data/none"}],
        [{"op": "add", "path": "/none/deep", "value": "9"}],
        [{"op": "move", "from": "/data/none", "path": "/data/c"}],
        [{"op": "remove", "path": "/data/a"}, {"op": "test", "path": "/data/b", "value": "9"}],
    ],
    ids=str,
)
def test_a_json_patch_that_does_not_apply_changes_nothing(maps: Place, patch: Any) -> None:
    before = maps.get("it")
    status = refusal(maps.api, "PATCH", maps.path("it"), body=patch, content_type=JSON)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert maps.get("it") == before


@pytest.mark.parametrize("given", ["same", "older"])
def test_a_test_of_the_version_guards_a_change(maps: Place, given: str) -> None:
    """By that, Kopf takes care that its finalizers do not overwrite those of others."""
    version = maps.version_of("it")
    if given == "older":
        maps.label("it", x="1")
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/f"]},
    ]
    if given == "same":
        assert maps.patch("it", patch, content_type=JSON)["metadata"]["finalizers"] == ["example.com/f"]
        maps.patch("it", {"metadata": {"finalizers": None}})
    else:
        status = refusal(maps.api, "PATCH", maps.path("it"), body=patch, content_type=JSON)
        assert (status["code"], status["reason"]) == (422, "Invalid")
        assert "finalizers" not in maps.get("it")["metadata"]


# ---- Lists.


@pytest.fixture
def pods(place: Place) -> Place:
    pods = place.of("pods")
    containers = [{"name": "one", "image": "a"}, {"name": "two", "image": "b"}]
    pods.create("it", spec={"containers": containers})
    return pods


def images(pod: Any) -> dict[str, str]:
    return {container["name"]: container["image"] for container in pod["spec"]["containers"]}


@pytest.mark.needs("pods that nobody schedules")
def test_a_strategic_patch_finds_containers_by_name(pods: Place) -> None:
    patch = {"spec": {"containers": [{"name": "two", "image": "c"}]}}
    assert images(pods.patch("it", patch, content_type=STRATEGIC)) == {"one": "a", "two": "c"}


@pytest.mark.needs("pods that nobody schedules")
def test_conditions_of_a_status_are_patched_by_their_type(pods: Place) -> None:
    status = pods.path("it/status")
    for condition in (
        {"type": "Ready", "status": "True"},
        {"type": "Other", "status": "True"},
        {"type": "Ready", "status": "False"},
    ):
        pods.api.request(
            "PATCH", status, body={"status": {"conditions": [condition]}}, content_type=STRATEGIC
        )
    conditions = pods.get("it")["status"]["conditions"]
    assert {condition["type"]: condition["status"] for condition in conditions} == {
        "Ready": "False",
        "Other": "True",
    }


@pytest.mark.needs("pods that nobody schedules")
def test_an_item_can_be_taken_out_by_a_strategic_patch(maps: Place) -> None:
    maps.patch("it", {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}})
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    assert maps.patch("it", patch, content_type=STRATEGIC)["metadata"]["finalizers"] == ["example.com/b"]
    maps.patch("it", {"metadata": {"finalizers": None}})


def test_a_status_is_patched_through_its_subresource(place: Place) -> None:
    kind = place.of("persistentvolumeclaims")
    kind.create(
        "it",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "none-such",
        },
    )
    kind.api.request("PATCH", kind.path("it/status"), body={"status": {"phase": "Lost"}})
    assert kind.get("it")["status"]["phase"] == "Lost"


def test_an_object_is_patched_as_kopf_does_it(place: Place) -> None:
    """Annotations, labels and finalizers in one merge patch, with what is gone as null."""
    maps = place.of("configmaps")
    maps.create("it", metadata={"annotations": {"kopf.zalando.org/progress": "{}"}}, data={})
    patch = {
        "metadata": {
            "annotations": {
                "kopf.zalando.org/last-handled-configuration": '{"x":1}\n',
                "kopf.zalando.org/progress": None,
            },
            "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"],
        }
    }
    patched = maps.patch("it", patch)
    assert patched["metadata"]["annotations"] == {"kopf.zalando.org/last-handled-configuration": '{"x":1}\n'}
    assert patched["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    maps.patch("it", {"metadata": {"finalizers": []}})
