"""Objects that are created and replaced: what the server makes of their metadata, what it refuses, and in
which words."""

import re
from typing import Any

import pytest

from tests.apiserver.cluster import Cluster

from .places import SPECS, Place, raw, refusal, short, since_worded, take

# ---- What the server adds.


def test_a_new_object_has_a_uid_a_version_and_the_time(place: Place) -> None:
    metadata = place.create("a")["metadata"]
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", metadata["uid"]
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert int(metadata["resourceVersion"]) > 0
    assert {
        key: metadata[key]
        for key in metadata
        if key not in ("uid", "creationTimestamp", "resourceVersion", "managedFields")
    } == {"name": "a", "namespace": place.namespace}


def test_a_creation_is_answered_with_201_and_a_change_with_200(place: Place) -> None:
    assert raw(place.api, place.path(), method="POST", body={"metadata": {"name": "a"}}).status == 201
    assert raw(place.api, place.path("a"), method="PUT", body={"metadata": {"name": "a"}}).status == 200


def test_each_write_of_the_cluster_has_a_higher_version(place: Place) -> None:
    versions = [
        int(place.create("a")["metadata"]["resourceVersion"]),
        int(place.of("configmaps").create("a")["metadata"]["resourceVersion"]),
        int(place.label("a", x="1")),
        int(place.of("configmaps").label("a", x="1")),
    ]
    assert versions == sorted(set(versions))


def test_uid_and_creation_time_are_the_servers(place: Place) -> None:
    made = place.create("a", metadata={"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z"})
    assert made["metadata"]["uid"] != "mine"
    assert not made["metadata"]["creationTimestamp"].startswith("2001")
    changed = place.replace("a", {"metadata": {"name": "a", "creationTimestamp": "2001-01-01T00:00:00Z"}})
    assert changed["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


@pytest.mark.parametrize("field", ["deletionTimestamp", "deletionGracePeriodSeconds"])
def test_an_object_is_never_created_as_already_deleted(place: Place, field: str) -> None:
    made = place.create("a", metadata={field: "2001-01-01T00:00:00Z" if field == "deletionTimestamp" else 5})
    assert field not in made["metadata"]


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"a": "1"}},
        {"annotations": {"b": "2"}},
        {"finalizers": ["example.com/f"]},
        {"labels": {"a": ""}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}]},
        {
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": "c",
                    "uid": "u",
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ]
        },
    ],
    ids=str,
)
def test_metadata_set_by_users_is_stored(place: Place, metadata: dict[str, Any]) -> None:
    made = place.create("a", metadata=metadata)
    assert made["metadata"].items() >= metadata.items()
    assert place.get("a")["metadata"].items() >= metadata.items()
    place.patch("a", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    "empty",
    [{"labels": {}}, {"annotations": {}}, {"finalizers": []}, {"ownerReferences": []}, {"labels": None}],
    ids=str,
)
def test_empty_metadata_is_left_out(place: Place, empty: dict[str, Any]) -> None:
    assert place.create("a", metadata=empty)["metadata"].keys().isdisjoint(empty)


# ---- Names.


def test_a_name_is_made_of_generate_name(place: Place) -> None:
    one, other = (
        place.api.request("POST", place.path(), body={"metadata": {"generateName": "web-"}})["metadata"]
        for _ in range(2)
    )
    assert re.fullmatch(r"web-[bcdfghjklmnpqrstvwxz2456789]{5}", one["name"])
    assert one["generateName"] == "web-"
    assert one["name"] != other["name"]


def test_a_generated_name_is_cut_where_it_would_be_too_long(place: Place) -> None:
    made = place.api.request("POST", place.path(), body={"metadata": {"generateName": "x" * 70}})
    assert re.fullmatch("x{58}[a-z0-9]{5}", made["metadata"]["name"])


def test_no_name_is_refused(place: Place) -> None:
    status = refusal(place.api, "POST", place.path(), body={"metadata": {}})
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert (
        status["message"]
        == 'Secret "" is invalid: metadata.name: Required value: name or generateName is required'
    )
    assert status["details"] == {
        "kind": "Secret",
        "causes": [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }
        ],
    }


SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must"
    " start and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
    " alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must"
    " start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used"
    " for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Upper", SUBDOMAIN),
        ("a_b", SUBDOMAIN),
        ("-a", SUBDOMAIN),
        ("a-", SUBDOMAIN),
        ("a..b", SUBDOMAIN),
        ("x" * 254, "must be no more than 253 characters"),
    ],
    ids=lambda text: text[:10],
)
def test_a_bad_name_is_refused(place: Place, name: str, why: str) -> None:
    status = refusal(place.api, "POST", place.path(), body={"metadata": {"name": name}})
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"] == f'Secret "{name}" is invalid: metadata.name: Invalid value: "{name}": {why}'


def test_a_name_that_is_taken_is_a_conflict(place: Place) -> None:
    place.create("a")
    assert refusal(place.api, "POST", place.path(), body={"metadata": {"name": "a"}}) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'secrets "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "secrets"},
        "code": 409,
    }


# ---- What is refused.


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"labels": {"a b": "x"}}, f'metadata.labels: Invalid value: "a b": {KEY}'),
        ({"labels": {"a": "-x"}}, f'metadata.labels: Invalid value: "-x": {VALUE}'),
        pytest.param(
            {"labels": {"a": "x" * 64}},
            f'metadata.labels: Invalid value: "{"x" * 64}": must be no more than 63 bytes',
            marks=since_worded,
        ),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "v1", "kind": "", "name": "n", "uid": "u"}]},
            'metadata.ownerReferences.kind: Invalid value: "": must not be empty',
            marks=since_worded,
        ),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n"}]},
            'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
            marks=since_worded,
        ),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "apps/", "kind": "K", "name": "n", "uid": "u"}]},
            'metadata.ownerReferences.apiVersion: Invalid value: "apps/": version must not be empty',
            marks=since_worded,
        ),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}]},
            (
                'metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"n",'
                '"uid":"u"}: /v1, Kind=Event is disallowed from being an owner'
            ),
            marks=since_worded,
        ),
        pytest.param(
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid, "controller": True}
                    for uid in "uv"
                ]
            },
            (
                'metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"K","name":"n",'
                '"uid":"u","controller":true},{"apiVersion":"v1","kind":"K","name":"n","uid":"v",'
                '"controller":true}]: Only one reference can have Controller set to true. '
                'Found "true" in references for K/n and K/n'
            ),
            marks=since_worded,
        ),
        (
            {"finalizers": ["unqualified"]},
            (
                'metadata.finalizers[0]: Invalid value: "unqualified": name is neither a standard finalizer'
                " name nor is it fully qualified"
            ),
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_metadata_is_refused(place: Place, metadata: dict[str, Any], message: str) -> None:
    status = refusal(place.api, "POST", place.path(), body={"metadata": {"name": "a", **metadata}})
    assert (status["code"], status["reason"], status["message"]) == (
        422,
        "Invalid",
        f'Secret "a" is invalid: {message}',
    )


def test_a_new_object_has_no_version(place: Place) -> None:
    status = refusal(
        place.api, "POST", place.path(), body={"metadata": {"name": "a", "resourceVersion": "5"}}
    )
    assert (status["code"], status["message"]) == (
        500,
        "resourceVersion should not be set on objects to be created",
    )


def test_another_namespace_than_that_of_the_path_is_refused(place: Place) -> None:
    status = refusal(
        place.api, "POST", place.path(), body={"metadata": {"name": "a", "namespace": "default"}}
    )
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert (
        status["message"]
        == "the namespace of the provided object does not match the namespace sent on the request"
    )


def test_a_namespace_that_is_not_there_is_not_found(api: Cluster) -> None:
    assert refusal(api, "POST", "/api/v1/namespaces/nowhere/secrets", body={"metadata": {"name": "a"}}) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'namespaces "nowhere" not found',
        "reason": "NotFound",
        "details": {"name": "nowhere", "kind": "namespaces"},
        "code": 404,
    }


def test_an_object_of_another_kind_is_refused(place: Place) -> None:
    status = refusal(
        place.api, "POST", place.path(), body={"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}
    )
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert "Pod" in status["message"]
    assert "Secret" in status["message"]


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"nonsense", b'"text"', b'{"metadata": []}', b'{"metadata": {"name": 5}}']
)
def test_a_body_that_is_no_object_is_refused(place: Place, body: bytes) -> None:
    answer = raw(place.api, place.path(), method="POST", body=body)
    assert (answer.status, answer.json()["reason"]) == (400, "BadRequest")


def test_another_type_of_content_is_refused(place: Place) -> None:
    answer = raw(place.api, place.path(), method="POST", headers={"Content-Type": "text/plain"}, body=b"{}")
    assert (answer.status, answer.json()["reason"]) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/none"),
        ("PUT", "/none"),
        ("PATCH", "/none"),
        ("DELETE", "/none"),
    ],
)
def test_a_missing_path_is_not_found(place: Place, method: str, path: str) -> None:
    status = refusal(
        place.api,
        method,
        place.path() + path,
        body=None if method in ("GET", "DELETE") else {"metadata": {"name": "none"}},
    )
    assert (status["code"], status["reason"], status["message"]) == (
        404,
        "NotFound",
        'secrets "none" not found',
    )
    assert status["details"] == {"name": "none", "kind": "secrets"}


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nonsense",
        "/apis/example.org/v1/things",
        "/apis/apps/v9/deployments",
        "/api/v1/namespaces/default/nonsense/a",
    ],
)
def test_a_resource_that_is_not_served_is_not_found(api: Cluster, path: str) -> None:
    status = refusal(api, "GET", path)
    if "text" in status:
        assert status == {"code": 404, "text": "404 page not found\n"}
    else:
        assert (status["code"], status["message"], status["details"]) == (
            404,
            "the server could not find the requested resource",
            {},
        )


@pytest.mark.parametrize(("method", "suffix"), [("POST", "/a"), ("PUT", ""), ("PATCH", "")])
def test_a_method_that_makes_no_sense_is_refused(place: Place, method: str, suffix: str) -> None:
    status = refusal(place.api, method, place.path() + suffix, body={"metadata": {"name": "a"}})
    assert (status["code"], status["reason"]) == (405, "MethodNotAllowed")
    assert status["message"] == "the server does not allow this method on the requested resource"


# ---- Replacing.


def test_a_replacement_on_an_older_version_is_a_conflict(place: Place) -> None:
    old = place.create("a")
    place.label("a", x="1")
    assert refusal(place.api, "PUT", place.path("a"), body=old) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "Conflict",
        "code": 409,
        "message": (
            'Operation cannot be fulfilled on secrets "a": the object has been modified; '
            "please apply your changes to the latest version and try again"
        ),
        "details": {"name": "a", "kind": "secrets"},
    }


@pytest.mark.parametrize(
    ("metadata", "code", "message"),
    [
        ({"name": "b"}, 400, "the name of the object (b) does not match the name on the URL (a)"),
        ({}, 400, "the name of the object (a based on URL) was undeterminable: name must be provided"),
        (
            {"name": "a", "namespace": "default"},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ({"name": "a", "resourceVersion": "x"}, 500, 'strconv.ParseUint: parsing "x": invalid syntax'),
    ],
    ids=str,
)
def test_a_replacement_of_something_else_is_refused(
    place: Place, metadata: dict[str, str], code: int, message: str
) -> None:
    place.create("a")
    status = refusal(place.api, "PUT", place.path("a"), body={"metadata": metadata})
    assert (status["code"], status["message"]) == (code, message)


def test_a_replacement_of_another_object_of_the_name_is_a_conflict(place: Place) -> None:
    uid = place.create("a")["metadata"]["uid"]
    status = refusal(place.api, "PUT", place.path("a"), body={"metadata": {"name": "a", "uid": "other"}})
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert f"Precondition failed: UID in precondition: other, UID in object meta: {uid}" in status["message"]


@pytest.mark.parametrize("plural", ["leases", "secrets", "configmaps", "roles", "pods", "jobs"])
def test_some_kinds_are_created_by_replacing_a_missing_object(place: Place, plural: str) -> None:
    kind = place.of(plural)
    body: Any = {
        "metadata": {"name": "a"},
        **({"rules": []} if plural == "roles" else {"spec": SPECS[plural][0]} if plural in SPECS else {}),
    }
    answer = raw(place.api, kind.path("a"), method="PUT", body=body)
    assert answer.status == (201 if plural in ("leases", "roles") else 404)


# ---- Writes that change nothing.


def test_a_replacement_that_changes_nothing_keeps_the_version(place: Place) -> None:
    old = place.create("a", labels={"x": "1"}, stringData={"k": "v"})
    assert place.replace("a", old)["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    "patch",
    [
        {},
        {"metadata": {"labels": {"x": "1"}}},
        {"metadata": {"annotations": {"none": None}}},
        {"data": {"k": "dg=="}},
    ],
    ids=str,
)
def test_a_patch_that_changes_nothing_keeps_the_version_and_is_no_event(
    place: Place, patch: dict[str, Any]
) -> None:
    old = place.create("a", labels={"x": "1"}, stringData={"k": "v"})["metadata"]["resourceVersion"]
    with place.watch(resourceVersion=old) as watch:
        assert place.patch("a", patch)["metadata"]["resourceVersion"] == old
        later = place.label("a", x="2")
        assert short(take(watch, 1)) == [("MODIFIED", "a", later)]


# ---- Immutable parts.


def test_a_secret_keeps_its_type(place: Place) -> None:
    place.create("a")
    status = refusal(place.api, "PATCH", place.path("a"), body={"type": "example.com/other"})
    assert (status["code"], status["message"]) == (
        422,
        'Secret "a" is invalid: type: Invalid value: "example.com/other": field is immutable',
    )


def test_an_immutable_secret_keeps_its_data(place: Place) -> None:
    place.create("a", immutable=True, stringData={"k": "v"})
    status = refusal(place.api, "PATCH", place.path("a"), body={"stringData": {"k": "w"}})
    assert (status["code"], status["message"]) == (
        422,
        'Secret "a" is invalid: data: Forbidden: field is immutable when `immutable` is set',
    )


# ---- What is there although nobody sent it.


@pytest.mark.parametrize(
    "plural", ["leases", "resourcequotas", "networkpolicies", "poddisruptionbudgets", "limitranges"]
)
def test_a_spec_is_there_though_none_was_sent(place: Place, plural: str) -> None:
    prefixes = {
        "networkpolicies": "/apis/networking.k8s.io/v1",
        "poddisruptionbudgets": "/apis/policy/v1",
        "leases": "/apis/coordination.k8s.io/v1",
    }
    kind = place.of(plural, prefix=prefixes.get(plural, "/api/v1"))
    made = kind.create("a")
    assert isinstance(made["spec"], dict)
    assert ("status" in made) == (plural in ("resourcequotas", "poddisruptionbudgets"))


# ---- Dry runs.


def test_a_dry_creation_is_answered_and_not_stored(place: Place) -> None:
    made = place.api.request("POST", place.path(), query={"dryRun": "All"}, body={"metadata": {"name": "a"}})
    assert made["metadata"]["uid"]
    assert "resourceVersion" not in made["metadata"]
    assert place.names() == []


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_dry_change_is_answered_and_not_stored(place: Place, method: str) -> None:
    before = place.create("a")
    body = {"metadata": {"name": "a", "labels": {"x": "1"}}}
    answer = place.api.request(
        method, place.path("a"), query={"dryRun": "All"}, body=None if method == "DELETE" else body
    )
    if method != "DELETE":
        assert answer["metadata"]["labels"] == {"x": "1"}
        assert answer["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert place.get("a") == before


# ---- What is served of it.


def test_a_terminating_namespace_takes_nothing_new(place: Place) -> None:
    place.create("held", metadata={"finalizers": ["example.com/f"]})
    place.api.request("DELETE", f"/api/v1/namespaces/{place.namespace}")
    status = refusal(place.api, "POST", place.path(), body={"metadata": {"name": "a"}})
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert (
        status["message"]
        == f'secrets "a" is forbidden: unable to create new content in namespace {place.namespace} because it'
        " is being terminated"
    )
    assert status["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {place.namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    place.patch("held", {"metadata": {"finalizers": None}})
