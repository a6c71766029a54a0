"""Custom resources: served with their definition, checked and pruned by its schema, gone with it, and there
again."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.apiserver.client import ApiError
from tests.apiserver.cluster import ANYTHING, Cluster
from tests.apiserver.waiting import wait_until

from .places import Place, fresh_group, names_of, once_ready, refusal, short, take

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEXT = {"type": "string"}
pytestmark = pytest.mark.needs("definitions of custom resources")


def schema_of(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": status or {}},
        },
    }


STRICT = schema_of(
    text=TEXT,
    given={**TEXT, "default": "usual"},
    number={"type": "integer", "minimum": 1, "maximum": 5},
    word={**TEXT, "enum": ["red", "blue"]},
    list={"type": "array", "items": {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}},
    free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
)
WALL = schema_of({"phase": TEXT}, color=TEXT, size={"type": "integer"}, wet={"type": "boolean"}, other=TEXT)


def define(place: Place, *, word: str = "Thing", **options: Any) -> Place:
    """Define a custom resource in a group of its own; give the place of its objects."""
    group = fresh_group()
    place.api.create_crd(group, "v1", word, f"{word.lower()}s", **options)
    return place.of(f"{word.lower()}s", prefix=f"/apis/{group}/v1", kind=word)


def definition(things: Place) -> str:
    return f"{DEFINITIONS}/{things.plural}.{group_of(things)}"


def group_of(things: Place) -> str:
    return things.prefix.split("/")[2]


# A real server needs seconds for a new kind. So these are shared, and those that are changed are defined
# anew.

Sharing = Callable[[Place, str], Place]


@pytest.fixture(scope="module")
def shared(api: Cluster) -> Sharing:
    """Give objects of a kind that tests share, in the test's own namespace."""
    base = Place(api, "none")
    options: dict[str, dict[str, Any]] = {
        "loose": {},
        "status": {"status": True, "short_names": ["th"]},
        "strict": {"schema": STRICT},
        "wall": {
            "word": "Wall",
            "status": True,
            "selectable_fields": [".spec.color", ".spec.size", ".spec.wet", ".status.phase"],
            "schema": WALL,
        },
    }
    defined: dict[str, Place] = {}

    def share(place: Place, name: str) -> Place:
        if name not in defined:
            defined[name] = define(base, **options[name])
        kind = defined[name]
        return place.of(kind.plural, prefix=kind.prefix, kind=kind.kind)

    return share


@pytest.fixture
def things(place: Place, shared: Sharing) -> Place:
    """Objects that can hold anything."""
    return shared(place, "loose")


@pytest.fixture
def own(place: Place) -> Place:
    """Objects that can hold anything, of a definition that is nobody else's."""
    return define(place)


# ---- The definition.


def test_a_definition_is_completed_and_says_that_it_is_served(things: Place) -> None:
    crd = things.api.request("GET", definition(things))
    assert crd["spec"]["names"] | {"shortNames": []} == {
        "plural": "things",
        "singular": "thing",
        "kind": "Thing",
        "listKind": "ThingList",
        "shortNames": [],
    }
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert {c["type"]: c["status"] for c in crd["status"]["conditions"]}.items() >= {
        "NamesAccepted": "True",
        "Established": "True",
    }.items()
    assert crd["status"]["storedVersions"] == ["v1"]
    assert crd["status"]["acceptedNames"]["plural"] == "things"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metadata": {"name": "other.example.com"}}, "metadata.name"),
        ({"scope": "Nowhere"}, "spec.scope"),
        ({"versions": []}, "spec.versions"),
        ({"group": ""}, "spec.group"),
    ],
    ids=str,
)
def test_a_definition_that_makes_no_sense_is_invalid(
    api: Cluster, change: dict[str, Any], message: str
) -> None:
    group = fresh_group()
    metadata = change.pop("metadata", {"name": f"things.{group}"})
    spec = {
        "group": group,
        "scope": "Namespaced",
        "names": {"kind": "Thing", "plural": "things"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANYTHING}}
        ],
        **change,
    }
    status = refusal(api, "POST", DEFINITIONS, body={"metadata": metadata, "spec": spec})
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert message in [cause["field"] for cause in status["details"]["causes"]]


def test_a_custom_resource_can_be_discovered(place: Place, shared: Sharing) -> None:
    things = shared(place, "status")
    resources = {
        resource["name"]: resource for resource in place.api.request("GET", things.prefix)["resources"]
    }
    thing = resources["things"]
    assert (thing["kind"], thing["singularName"], thing["namespaced"], thing["shortNames"]) == (
        "Thing",
        "thing",
        True,
        ["th"],
    )
    assert set(thing["verbs"]) == {
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    }
    assert set(resources["things/status"]["verbs"]) == {"get", "patch", "update"}
    groups = {group["name"]: group for group in place.api.request("GET", "/apis")["groups"]}
    assert groups[group_of(things)]["preferredVersion"] == {
        "groupVersion": things.prefix.removeprefix("/apis/"),
        "version": "v1",
    }


def test_a_resource_of_the_cluster_is_in_no_namespace(place: Place) -> None:
    group = fresh_group()
    place.api.create_crd(group, "v1", "Star", "stars", namespaced=False)
    made = place.api.request(
        "POST",
        f"/apis/{group}/v1/stars",
        body={"apiVersion": f"{group}/v1", "kind": "Star", "metadata": {"name": "sun"}},
    )
    assert "namespace" not in made["metadata"]
    assert names_of(place.api.request("GET", f"/apis/{group}/v1/stars")) == ["sun"]
    assert refusal(place.api, "GET", f"/apis/{group}/v1/namespaces/{place.namespace}/stars")["code"] == 404


# ---- Objects.


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            {"apiVersion": None},
            400,
            "the API version in the data () does not match the expected API version (GROUP/v1)",
        ),
        (
            {"apiVersion": "example.org/v1"},
            400,
            "the API version in the data (example.org/v1) does not match the expected API version (GROUP/v1)",
        ),
        (
            {"kind": None},
            400,
            (
                "the object provided is unrecognized (must be of type Thing): couldn't get version/kind; json"
                " parse error"
            ),
        ),
        ({"kind": "Other"}, 422, 'Other.GROUP "a" is invalid: kind: Invalid value: "Other": must be Thing'),
    ],
    ids=str,
)
def test_an_object_must_name_kind_and_version(
    things: Place, body: dict[str, Any], code: int, message: str
) -> None:
    sent = {
        key: value
        for key, value in {**things.typed(), "metadata": {"name": "a"}, **body}.items()
        if value is not None
    }
    status = refusal(things.api, "POST", things.path(), body=sent)
    assert status["code"] == code
    if "Kind" not in status["message"]:
        assert status["message"] == message.replace("GROUP", group_of(things))


@pytest.mark.parametrize("content_type", ["application/strategic-merge-patch+json"])
def test_custom_resources_know_no_strategic_patch(things: Place, content_type: str) -> None:
    things.create("a")
    status = refusal(things.api, "PATCH", things.path("a"), body={}, content_type=content_type)
    assert (status["code"], status["reason"]) == (415, "UnsupportedMediaType")


@pytest.fixture
def with_status(place: Place, shared: Sharing) -> Place:
    return shared(place, "status")


def test_with_a_status_subresource_the_status_is_written_through_it_alone(with_status: Place) -> None:
    things = with_status
    assert "status" not in things.create("a", spec={"x": 1}, status={"y": 1})
    assert "status" not in things.patch("a", {"status": {"y": 1}})
    before = things.get("a")["metadata"]
    changed = things.api.request(
        "PATCH",
        things.path("a/status"),
        body={"status": {"y": 1}, "spec": {"x": 2}, "metadata": {"labels": {"l": "1"}}},
    )
    assert (changed["status"], changed["spec"], "labels" in changed["metadata"]) == (
        {"y": 1},
        {"x": 1},
        False,
    )
    assert changed["metadata"]["generation"] == before["generation"] == 1
    assert int(changed["metadata"]["resourceVersion"]) > int(before["resourceVersion"])
    assert things.patch("a", {"spec": {"x": 2}})["status"] == {"y": 1}
    assert things.get("a")["metadata"]["generation"] == 2
    assert things.get("a/status")["status"] == {"y": 1}


# ---- Schemas.


@pytest.fixture
def strict(place: Place, shared: Sharing) -> Place:
    """Objects of a schema: two texts of which one has a default, a number between 1 and 5, and a list."""
    return shared(place, "strict")


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({}, {"given": "usual"}),
        ({"given": "own"}, {"given": "own"}),
        ({"unknown": 1}, {"given": "usual"}),
        ({"text": "a", "x": {"y": 1}}, {"given": "usual", "text": "a"}),
        ({"list": [{"name": "a", "x": 1}]}, {"given": "usual", "list": [{"name": "a"}]}),
        ({"free": {"x": {"y": 1}}}, {"given": "usual", "free": {"x": {"y": 1}}}),
        ({"number": 3}, {"given": "usual", "number": 3}),
    ],
    ids=str,
)
def test_fields_unknown_to_the_schema_are_dropped_and_defaults_are_filled_in(
    strict: Place, spec: Any, kept: Any
) -> None:
    assert strict.create("a", spec=spec)["spec"] == kept
    assert strict.get("a")["spec"] == kept


@pytest.mark.parametrize(
    "spec",
    [
        {"text": 5},
        {"text": ["a"]},
        {"number": "3"},
        {"number": 1.5},
        {"number": 0},
        {"number": 6},
        {"word": "green"},
        {"list": {}},
        {"list": [{}]},
        {"list": ["a"]},
        [],
        "text",
    ],
    ids=str,
)
def test_a_value_that_the_schema_forbids_is_invalid(strict: Place, spec: Any) -> None:
    status = refusal(
        strict.api, "POST", strict.path(), body={**strict.typed(), "metadata": {"name": "a"}, "spec": spec}
    )
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["details"]["causes"][0]["field"].startswith("spec")
    strict.create("b", spec={})
    assert refusal(strict.api, "PATCH", strict.path("b"), body={"spec": spec})["code"] == 422


# ---- Fields.


@pytest.fixture
def walls(place: Place, shared: Sharing) -> Place:
    """Objects with a text, a number and a flag that can be selected by; five of them."""
    walls = shared(place, "wall")
    for name, spec in {
        "red": {"color": "red", "size": 1},
        "blue": {"color": "blue", "size": 0, "wet": False},
        "wet": {"color": "red", "wet": True},
        "bare": {},
        "big": {"size": 1000000, "color": ""},
    }.items():
        walls.create(name, spec=spec)
    return walls


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("spec.color=red", "red wet"),
        ("spec.color!=red", "bare big blue"),
        ("spec.color=", "bare big"),
        ("spec.size=1", "red"),
        ("spec.size=0", "blue"),
        ("spec.size=", "bare wet"),
        ("spec.size=1000000", "big"),
        ("spec.size=1e6", ""),
        ("spec.wet=true", "wet"),
        ("spec.wet=false", "blue"),
        ("spec.wet=", "bare big red"),
        ("spec.color=red,spec.wet=true", "wet"),
        ("metadata.name=red,spec.color=blue", ""),
        ("status.phase=", "bare big blue red wet"),
    ],
)
def test_custom_resources_are_selected_by_the_fields_of_their_definition(
    walls: Place, selector: str, names: str
) -> None:
    assert walls.names(fieldSelector=selector) == names.split()


def test_fields_of_custom_resources_have_edges(walls: Place) -> None:
    start = walls.version_of("red")
    with walls.watch(fieldSelector="spec.color=red", resourceVersion=start, labelSelector="!done") as watch:
        left = walls.patch("red", {"spec": {"color": "green"}})["metadata"]["resourceVersion"]
        entered = walls.patch("blue", {"spec": {"color": "red"}})["metadata"]["resourceVersion"]
        events = [event for event in take(watch, 3) if event["object"]["metadata"]["name"] != "wet"]
    assert short(events) == [("DELETED", "red", left), ("ADDED", "blue", entered)]
    assert events[0]["object"]["spec"]["color"] == "red"


# ---- Versions.


def test_one_object_is_served_in_several_versions(place: Place) -> None:
    group = fresh_group()
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": ANYTHING}}
        for name in ("v1beta1", "v1")
    ]
    place.api.request(
        "POST",
        DEFINITIONS,
        body={
            "metadata": {"name": f"things.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": "Thing", "plural": "things"},
                "versions": versions,
            },
        },
    )
    old, new = (
        place.of("things", prefix=f"/apis/{group}/{version}", kind="Thing") for version in ("v1beta1", "v1")
    )
    once_ready(old.listed)
    once_ready(new.listed)
    made = old.create("a", spec={"x": 1})
    shown = new.get("a")
    assert (made["apiVersion"], shown["apiVersion"]) == (f"{group}/v1beta1", f"{group}/v1")
    assert (shown["metadata"]["uid"], shown["spec"]) == (made["metadata"]["uid"], {"x": 1})
    with new.watch(resourceVersion="0") as watch:
        assert next(watch)["object"]["apiVersion"] == f"{group}/v1"
    wait_until(
        lambda: group in [item["name"] for item in place.api.request("GET", "/apis")["groups"]],
        "the group to be discovered",
    )
    found = {item["name"]: item for item in place.api.request("GET", "/apis")["groups"]}[group]
    assert [version["version"] for version in found["versions"]] == ["v1", "v1beta1"]


def test_a_version_that_is_not_served_any_more_is_not_found(own: Place) -> None:
    things = own
    path = definition(things)
    crd = things.api.request("GET", path)
    crd["spec"]["versions"] = [
        {**crd["spec"]["versions"][0], "served": False},
        {**crd["spec"]["versions"][0], "name": "v2", "storage": False},
    ]
    things.api.request("PUT", path, body=crd)
    wait_until(lambda: _status(things) == 404, "the version to be gone")
    v2 = things.of("things", prefix=things.prefix.replace("/v1", "/v2"), kind="Thing")
    assert once_ready(v2.listed)["items"] == []


# ---- Deletion of the definition.


def _status(things: Place) -> int:
    try:
        things.listed()
    except ApiError as error:
        return error.status
    return 200


def test_with_its_definition_a_resource_is_gone_with_all_objects(own: Place) -> None:
    things = own
    things.create("a", "b")
    things.api.request("DELETE", definition(things))
    wait_until(lambda: _status(things) == 404, "the resource to be gone")
    wait_until(lambda: _is_gone(things), "the definition to be gone")
    assert refusal(things.api, "GET", things.path())["code"] == 404


def test_a_definition_that_comes_back_has_no_objects(own: Place) -> None:
    things = own
    things.create("a")
    things.api.request("DELETE", definition(things))
    wait_until(lambda: _is_gone(things), "the definition to be gone")
    group = group_of(things)
    things.api.create_crd(group, "v1", "Thing", "things")
    assert once_ready(things.listed)["items"] == []
    things.create("a")


def test_a_watch_sees_the_objects_go_and_ends_with_the_definition(own: Place) -> None:
    things = own
    start = things.create("a")["metadata"]["resourceVersion"]
    with things.watch(resourceVersion=start) as watch:
        things.api.request("DELETE", definition(things))
        events = list(watch)
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("DELETED", "a")]


@pytest.mark.since(
    "1.36", "1.33 refuses to create objects of a terminating definition with 405 instead of 403"
)
def test_a_definition_waits_for_objects_with_finalizers(own: Place) -> None:
    things = own
    things.create("a", metadata={"finalizers": ["example.com/f"]})
    things.api.request("DELETE", definition(things))
    wait_until(lambda: "deletionTimestamp" in things.get("a")["metadata"], "the object to be marked")
    crd = things.api.request("GET", definition(things))
    assert "deletionTimestamp" in crd["metadata"]
    assert "customresourcecleanup.apiextensions.k8s.io" in crd["metadata"]["finalizers"]
    status = refusal(things.api, "POST", things.path(), body={**things.typed(), "metadata": {"name": "b"}})
    assert (status["code"], status["reason"], status["message"]) == (
        403,
        "Forbidden",
        (
            f'things.{group_of(things)} "b" is forbidden: create not allowed while custom resource definition'
            " is terminating"
        ),
    )
    things.patch("a", {"metadata": {"finalizers": None}})
    wait_until(lambda: _is_gone(things), "the definition to be gone")


def _is_gone(things: Place) -> bool:
    try:
        things.api.request("GET", definition(things))
    except ApiError as error:
        return error.status == 404
    return False
