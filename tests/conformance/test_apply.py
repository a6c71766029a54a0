"""Server-side apply: what it makes of an object, who manages its fields, and what is refused."""

import json
from typing import Any

import pytest

from .applying import APPLY, applied, causes, fields, refused, whole
from .places import Place, raw, refusal

CHANGED = "the object has been modified; please apply your changes to the latest version and try again"
UNTYPED = "failed to create typed patch object (/it; /v1, Kind=ConfigMap)"
MERGE = "application/merge-patch+json"


@pytest.fixture
def maps(place: Place) -> Place:
    return place.of("configmaps")


# ---- Objects and their fields.


def test_an_absent_object_is_created_and_a_present_one_changed(maps: Place) -> None:
    codes = [
        raw(
            maps.api,
            maps.path("it"),
            method="PATCH",
            headers={"Content-Type": APPLY},
            query={"fieldManager": "a"},
            body=whole(maps, "it", data={"k": "1"}),
        ).status
        for _ in range(2)
    ]
    assert codes == [201, 200]
    assert maps.get("it")["data"] == {"k": "1"}


def test_the_entry_of_an_applier(maps: Place) -> None:
    obj = applied(maps, "it", "a", data={"k": "1"}, metadata={"labels": {"l": "1"}})
    [entry] = obj["metadata"]["managedFields"]
    assert entry.pop("time") == obj["metadata"]["creationTimestamp"]
    assert entry == {
        "manager": "a",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:l": {}}}},
    }


def test_applying_twice_is_no_change(maps: Place) -> None:
    first = applied(maps, "it", "a", data={"k": "1"}, metadata={"labels": {"l": "1"}})
    assert applied(maps, "it", "a", data={"k": "1"}, metadata={"labels": {"l": "1"}}) == first


def test_fields_that_are_no_longer_applied_go_unless_another_manager_owns_them(maps: Place) -> None:
    applied(maps, "it", "a", data={"mine": "1", "ours": "1"})
    applied(maps, "it", "b", data={"ours": "1", "theirs": "1"})
    assert applied(maps, "it", "a")["data"] == {"ours": "1", "theirs": "1"}


def test_fields_of_ordinary_writes_stay(maps: Place) -> None:
    applied(maps, "it", "a", data={"k": "1"})
    maps.patch("it", {"data": {"j": "1"}})
    obj = applied(maps, "it", "a", data={"n": "1"})
    assert obj["data"] == {"j": "1", "n": "1"}


@pytest.mark.parametrize(
    "body",
    [
        b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: it\ndata:\n  k: |\n    1\n  d: '2020-01-01'\n",
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"it"},"data":{"k":"1\\n","d":"2020-01-01"}}',
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: it}\ndata: {k: \"1\\n\", d: '2020-01-01'}\n---",
    ],
)
def test_the_body_is_yaml_or_json(maps: Place, body: bytes) -> None:
    obj = maps.api.request(
        "PATCH", maps.path("it"), body=body, content_type=APPLY, query={"fieldManager": "a"}
    )
    assert obj["data"] == {"k": "1\n", "d": "2020-01-01"}


def test_an_apply_is_one_event(maps: Place) -> None:
    start = applied(maps, "it", "a", data={"k": "1"})["metadata"]["resourceVersion"]
    with maps.watch(resourceVersion=start) as watch:
        applied(maps, "it", "b", data={"k": "1"})
        after = applied(maps, "it", "a", data={"k": "1", "j": "1"})
        events = [next(watch), next(watch)]
    assert [event["type"] for event in events] == ["MODIFIED", "MODIFIED"]
    assert events[1]["object"]["metadata"]["managedFields"] == after["metadata"]["managedFields"]


# ---- Conflicts.


def test_a_field_of_another_manager_is_a_conflict(maps: Place) -> None:
    applied(maps, "it", "a", data={"k": "1"})
    assert refused(maps, "it", "b", data={"k": "2"}) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Apply failed with 1 conflict: conflict with "a": .data.k',
        "reason": "Conflict",
        "details": {
            "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "a"', "field": ".data.k"}]
        },
        "code": 409,
    }
    assert maps.get("it")["data"] == {"k": "1"}


def test_force_takes_the_fields_of_others(maps: Place) -> None:
    applied(maps, "it", "a", data={"k": "1", "mine": "1"})
    applied(maps, "it", "b", data={"k": "1"})
    obj = applied(maps, "it", "c", force=True, data={"k": "2"})
    assert obj["data"] == {"k": "2", "mine": "1"}
    assert fields(obj) == {"a": {"f:data": {"f:mine": {}}}, "c": {"f:data": {"f:k": {}}}}


def test_an_ordinary_write_takes_fields_without_a_conflict(maps: Place) -> None:
    applied(maps, "it", "a", data={"k": "1", "j": "1"})
    obj = maps.patch("it", {"data": {"k": "2"}}, query={"fieldManager": "b"})
    assert fields(obj) == {"a": {"f:data": {"f:j": {}}}, "b*": {"f:data": {"f:k": {}}}}
    assert causes(refused(maps, "it", "a", data={"k": "1"})) == {('conflict with "b" using v1', ".data.k")}


# ---- Managers of ordinary writes.


def test_the_fields_of_a_creation(maps: Place) -> None:
    body = {
        "metadata": {
            "name": "it",
            "labels": {"a": "b"},
            "annotations": {"x": "y"},
            "finalizers": ["example.com/f"],
        },
        "data": {"k": "1"},
    }
    obj = maps.api.request("POST", maps.path(), body=body, query={"fieldManager": "creator"})
    assert fields(obj) == {
        "creator*": {
            "f:data": {".": {}, "f:k": {}},
            "f:metadata": {
                "f:annotations": {".": {}, "f:x": {}},
                "f:finalizers": {".": {}, 'v:"example.com/f"': {}},
                "f:labels": {".": {}, "f:a": {}},
            },
        }
    }
    maps.patch("it", {"metadata": {"finalizers": []}})


def test_the_fields_of_a_replacement(maps: Place) -> None:
    maps.api.request(
        "POST",
        maps.path(),
        body={"metadata": {"name": "it"}, "data": {"a": "1"}},
        query={"fieldManager": "creator"},
    )
    maps.replace(
        "it", {"metadata": {"name": "it"}, "data": {"a": "2", "b": "1"}}, query={"fieldManager": "r"}
    )
    assert fields(maps.get("it")) == {
        "creator*": {"f:data": {}},
        "r*": {"f:data": {"f:a": {}, "f:b": {}}},
    }
    maps.replace("it", {"metadata": {"name": "it"}, "data": {"b": "1"}}, query={"fieldManager": "other"})
    assert fields(maps.get("it")) == {"creator*": {"f:data": {}}, "r*": {"f:data": {"f:b": {}}}}


@pytest.mark.parametrize(
    ("agent", "manager"),
    [
        ("robot/1.0 (linux)", "robot"),
        ("robot", "robot"),
        ("a b/1", "a b"),
        ("/1", "unknown"),
        ("r" * 200, "r" * 128),
    ],
)
def test_the_manager_is_the_first_part_of_the_user_agent(maps: Place, agent: str, manager: str) -> None:
    applied(maps, "it", "a", data={"k": "1"})
    response = raw(
        maps.api,
        maps.path("it"),
        method="PATCH",
        headers={"Content-Type": MERGE, "User-Agent": agent},
        body={"data": {"j": "1"}},
    )
    assert fields(json.loads(response.data))[f"{manager}*"] == {"f:data": {"f:j": {}}}


def test_removed_fields_have_no_manager(maps: Place) -> None:
    applied(maps, "it", "a", data={"k": "1", "j": "1"})
    assert fields(maps.patch("it", {"data": {"k": None}})) == {"a": {"f:data": {"f:j": {}}}}


def test_of_more_than_ten_updaters_the_oldest_are_joined(maps: Place) -> None:
    applied(maps, "it", "a", data={"k": "1"})
    for number in range(12):
        maps.patch("it", {"data": {f"k{number}": "1"}}, query={"fieldManager": f"u{number}"})
    found = fields(maps.get("it"))
    assert len(found) == 11
    assert len(found["ancient-changes*"]["f:data"]) == 3


@pytest.mark.parametrize("sent", [[], [{}]])
def test_managers_can_be_dropped_and_a_later_applier_finds_the_fields_managed(maps: Place, sent: Any) -> None:
    applied(maps, "it", "a", data={"k": "1"})
    assert fields(maps.patch("it", {"metadata": {"managedFields": sent}})) == {}
    assert fields(maps.patch("it", {"data": {"j": "1"}}, query={"fieldManager": "b"})) == {}
    status = refused(maps, "it", "c", data={"j": "2"})
    assert causes(status) == {('conflict with "before-first-apply" using v1', ".data.j")}
    obj = applied(maps, "it", "c", force=True, data={"j": "2"})
    assert fields(obj) == {
        "c": {"f:data": {"f:j": {}}},
        "before-first-apply*": {"f:data": {".": {}, "f:k": {}}},
    }


# ---- The annotation of kubectl.


def test_kubectl_takes_over_objects_it_has_applied_on_its_side(maps: Place) -> None:
    body = whole(maps, "it", data={"k": "1", "j": "1"})
    last = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(body)}
    maps.api.request(
        "POST",
        maps.path(),
        body={**body, "metadata": {"name": "it", "annotations": last}},
        query={"fieldManager": "kubectl-client-side-apply"},
    )
    status = refused(maps, "it", "other", data={"k": "2"})
    assert causes(status) == {('conflict with "kubectl-client-side-apply" using v1', ".data.k")}
    obj = applied(maps, "it", "kubectl", data={"k": "2"})
    assert obj["data"]["k"] == "2"
    annotation = obj["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    assert json.loads(annotation)["data"] == {"k": "2"}


# ---- Lists and maps.


def test_containers_are_merged_by_name(place: Place) -> None:
    deployments = place.of("deployments")
    pod = {
        "containers": [
            {
                "name": "a",
                "image": "i",
                "env": [{"name": "E", "value": "1"}],
                "ports": [{"containerPort": 80}],
            }
        ],
        "nodeSelector": {"x": "y"},
    }
    template = {"metadata": {"labels": {"l": "m"}}, "spec": pod}
    spec = {"selector": {"matchLabels": {"l": "m"}}, "template": template}
    applied(deployments, "it", "a", spec=spec)
    more = [{"name": "b", "image": "j"}, {"name": "a", "env": [{"name": "F", "value": "2"}]}]
    obj = applied(deployments, "it", "b", spec={"replicas": 3, "template": {"spec": {"containers": more}}})
    found = obj["spec"]["template"]["spec"]["containers"]
    assert [item["name"] for item in found] == ["b", "a"]
    assert [item["name"] for item in found[1]["env"]] == ["E", "F"]
    assert fields(obj)["a"]["f:spec"]["f:template"]["f:spec"] == {
        "f:containers": {
            'k:{"name":"a"}': {
                ".": {},
                "f:env": {'k:{"name":"E"}': {".": {}, "f:name": {}, "f:value": {}}},
                "f:image": {},
                "f:name": {},
                "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
            }
        },
        "f:nodeSelector": {},
    }
    status = refused(
        deployments,
        "it",
        "b",
        spec={
            "template": {
                "spec": {"containers": [{"name": "a", "image": "z"}], "nodeSelector": {"z": "y"}},
            }
        },
    )
    assert causes(status) == {
        ('conflict with "a"', '.spec.template.spec.containers[name="a"].image'),
        ('conflict with "a"', ".spec.template.spec.nodeSelector"),
    }
    found = applied(deployments, "it", "b")["spec"]["template"]["spec"]["containers"]
    assert [(item["name"], item["image"], len(item["env"])) for item in found] == [("a", "i", 1)]


def test_finalizers_are_a_set(maps: Place) -> None:
    applied(maps, "it", "a", metadata={"finalizers": ["example.com/a", "example.com/b"]})
    obj = applied(maps, "it", "b", metadata={"finalizers": ["example.com/c", "example.com/b"]})
    assert sorted(obj["metadata"]["finalizers"]) == ["example.com/a", "example.com/b", "example.com/c"]
    obj = applied(maps, "it", "a", metadata={"finalizers": []})
    assert sorted(obj["metadata"]["finalizers"]) == ["example.com/b", "example.com/c"]
    maps.patch("it", {"metadata": {"finalizers": []}})


# ---- Refusals.


@pytest.mark.parametrize(
    ("query", "reason", "field"),
    [
        ({}, "FieldValueRequired", "fieldManager"),
        ({"fieldManager": "m" * 129}, "FieldValueTooLong", "fieldManager"),
        ({"fieldManager": "m\n"}, "FieldValueInvalid", "fieldManager"),
        ({"fieldManager": "m", "dryRun": "Some"}, "FieldValueNotSupported", "dryRun"),
    ],
)
def test_invalid_options(maps: Place, query: Any, reason: str, field: str) -> None:
    status = refusal(
        maps.api, "PATCH", maps.path("it"), body=whole(maps, "it"), content_type=APPLY, query=query
    )
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["details"]["kind"] == "PatchOptions"
    assert [(cause["reason"], cause["field"]) for cause in status["details"]["causes"]] == [(reason, field)]


@pytest.mark.parametrize(("method", "kind"), [("POST", "CreateOptions"), ("PUT", "UpdateOptions")])
def test_the_manager_of_any_write_is_checked(maps: Place, method: str, kind: str) -> None:
    maps.create("it")
    path = maps.path("it" if method == "PUT" else "")
    status = refusal(
        maps.api, method, path, body={"metadata": {"name": "it"}}, query={"fieldManager": "m" * 129}
    )
    assert (status["code"], status["details"]["kind"]) == (422, kind)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"metadata": {"managedFields": [{"manager": "a"}]}}, 400, "metadata.managedFields must be nil"),
        ({"kind": "Secret"}, 400, "invalid object type: /v1, Kind=Secret"),
        ({"apiVersion": "v2"}, 400, "invalid object type: /v2, Kind=ConfigMap"),
        (
            {"metadata": {"name": "other"}},
            400,
            "the name of the object (other) does not match the name on the URL (it)",
        ),
        (
            {"metadata": {"namespace": "other"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            {"metadata": {"resourceVersion": "1"}},
            409,
            f'Operation cannot be fulfilled on configmaps "it": {CHANGED}',
        ),
        (
            {"dta": {}},
            500,
            f"{UNTYPED}: .dta: field not declared in schema",
        ),
        ({"metadata": {"labels": 5}}, 500, f"{UNTYPED}: .metadata.labels: expected map, got &{{5}}"),
        ({"data": ["x"]}, 500, f"{UNTYPED}: .data: expected map, got &{{[x]}}"),
    ],
    ids=str,
)
def test_objects_that_cannot_be_applied(maps: Place, change: Any, code: int, message: str) -> None:
    maps.create("it", data={"k": "1"})
    metadata = {"name": "it", **change.pop("metadata", {})}
    body = {**whole(maps, "it", data={"k": "2"}), **change, "metadata": metadata}
    status = refusal(
        maps.api,
        "PATCH",
        maps.path("it"),
        body=body,
        content_type=APPLY,
        query={"fieldManager": "a", "force": "true"},
    )
    assert (status["code"], status["message"]) == (code, message)
    assert maps.get("it")["data"] == {"k": "1"}


@pytest.mark.parametrize("body", [b"{a: [b", b"[1]", b"text", b"", b"a: b: c"])
def test_bodies_that_are_no_objects(maps: Place, body: bytes) -> None:
    status = refusal(
        maps.api, "PATCH", maps.path("it"), body=body, content_type=APPLY, query={"fieldManager": "a"}
    )
    assert (status["code"], status["reason"]) == (400, "BadRequest")
