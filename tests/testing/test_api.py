"""The API as a whole: who is asked what first, paths, methods, bodies, codes; as the real server."""

import json
from typing import Any

import pytest

from kopf_selectcache.testing.api.request import Answer, Request, User

from .asking import ALL_MAPS, DEFINITIONS, MAPS, WIDGETS, Asked, names, read

PODS = "/api/v1/namespaces/default/pods"
JOE, WRONG = "joe", "wrong"  # Tokens.
NOT_FOUND = "the server could not find the requested resource"
NOT_ALLOWED = "the server does not allow this method on the requested resource"
REFERENCE = {"metadata": {"name": "a"}}


# ---- Who asks, and whether they may.


def test_a_wrong_token_is_unauthorized_whatever_is_asked(api: Asked) -> None:
    for path in (MAPS, "/version", "/nothing"):
        status = api.refused("GET", path, token=WRONG)
        assert (status["code"], status["reason"], status["message"]) == (401, "Unauthorized", "Unauthorized")


def test_rights_are_checked_before_existence(api: Asked) -> None:
    api.api.users.add(JOE, User("joe"))
    for path in (MAPS, "/api/v1/nothing", "/apis/example.com/v1/nothing", "/nothing"):
        status = api.refused("GET", path, token=JOE)
        assert (status["code"], status["reason"]) == (403, "Forbidden")


def test_rights_are_checked_before_errors_in_the_request(api: Asked) -> None:
    api.api.users.add(JOE, User("joe"))
    assert api.refused("GET", MAPS, token=JOE, query={"limit": "x"})["code"] == 403
    assert api.refused("POST", MAPS, b"{", token=JOE)["code"] == 403


def test_whoever_is_impersonated_counts(api: Asked) -> None:
    headers = {"authorization": "Bearer admin", "impersonate-user": "joe"}
    answer = api.api.answer(Request("GET", MAPS, headers=headers))
    assert isinstance(answer, Answer)
    assert (
        json.loads(answer.body)["message"]
        == 'configmaps is forbidden: User "joe" cannot list resource "configmaps" in API group "" in the'
        ' namespace "default"'
    )


def test_a_question_about_rights_is_answered(api: Asked) -> None:
    body = {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}
    answer = api.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert (answer.code, read(answer)["status"]["allowed"]) == (201, True)
    assert api.refused("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")["code"] == 405


def test_a_token_of_a_service_account_is_a_user(api: Asked) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    api.create("joe", path=accounts)
    token = read(api.ask("POST", f"{accounts}/joe/token", {"spec": {}}))["status"]["token"]
    assert (
        'User "system:serviceaccount:default:joe" cannot' in api.refused("GET", MAPS, token=token)["message"]
    )


# ---- Paths and methods.


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/ping"])
def test_anybody_may_ask_whether_it_is_well(api: Asked, path: str) -> None:
    answer = api.ask("GET", path)
    assert (answer.code, answer.body, answer.content_type) == (200, b"ok", "text/plain; charset=utf-8")


def test_it_says_which_version_it_does_as(api: Asked) -> None:
    version = api.get("/version")
    assert (version["major"], version["minor"], version["gitVersion"]) == ("1", "36", "v1.36.3")


def test_its_root_lists_the_available_paths(api: Asked) -> None:
    api.define()
    paths = api.get("/")["paths"]
    assert {
        "/api/v1",
        "/apis/apps/v1",
        "/apis/example.com",
        "/apis/example.com/v1",
        "/healthz",
        "/version",
    } <= set(paths)
    assert paths == sorted(paths)


@pytest.mark.parametrize("path", ["/api", "/apis/apps/v1", MAPS, f"{MAPS}/a", f"{MAPS}/none"])
def test_each_answer_is_a_single_line(api: Asked, path: str) -> None:
    api.create("a")
    body = api.ask("GET", path).body
    assert (body[-2:], body.count(b"\n")) == (b"}\n", 1)


def test_it_can_be_discovered(api: Asked) -> None:
    api.define()
    assert "example.com" in [group["name"] for group in api.get("/apis")["groups"]]
    assert "widgets" in [resource["name"] for resource in api.get("/apis/example.com/v1")["resources"]]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nothing",
        "/apis/apps/v1/nothing/x",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/configmaps/x",
        f"{MAPS}/a/status",
        f"{MAPS}/a/nothing",
        f"{PODS}/a/nothing",
        "/api/v2/pods",
        "/apis/apps/v9/deployments",
    ],
)
def test_an_unserved_resource_is_not_found(api: Asked, path: str) -> None:
    status = api.refused("GET", path)
    assert (status["code"], status["reason"], status["message"], status["details"]) == (
        404,
        "NotFound",
        NOT_FOUND,
        {},
    )


@pytest.mark.parametrize("path", ["/nothing", "/livez/nothing", "/apis/example.com/v1/nothing"])
def test_a_path_of_no_known_api_is_plainly_not_found(api: Asked, path: str) -> None:
    answer = api.ask("GET", path)
    assert (answer.code, answer.body, answer.content_type) == (
        404,
        b"404 page not found\n",
        "text/plain; charset=utf-8",
    )


def test_an_object_that_is_not_there_is_not_found_by_its_name(api: Asked) -> None:
    status = api.refused("GET", f"{MAPS}/a")
    assert (status["message"], status["details"]) == (
        'configmaps "a" not found',
        {"name": "a", "kind": "configmaps"},
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", ALL_MAPS),
        ("DELETE", ALL_MAPS),
        ("PUT", MAPS),
        ("PATCH", MAPS),
        ("POST", f"{MAPS}/a"),
        ("HEAD", MAPS),
        ("OPTIONS", MAPS),
        ("DELETE", "/api/v1/namespaces"),
        ("POST", f"{PODS}/a/status"),
        ("POST", "/version"),
    ],
)
def test_methods_without_sense_are_not_allowed(api: Asked, method: str, path: str) -> None:
    status = api.refused(method, path, REFERENCE if method in ("POST", "PUT", "PATCH") else None)
    assert (status["code"], status["reason"], status["message"]) == (405, "MethodNotAllowed", NOT_ALLOWED)


@pytest.mark.parametrize(
    "path",
    [
        f"{PODS}/a/log",
        f"{PODS}/a/exec",
        f"{PODS}/a/eviction",
        "/api/v1/namespaces/default/replicationcontrollers/a/scale",
        "/api/v1/watch/pods",
    ],
)
def test_a_feature_of_real_clusters_is_reported_as_missing(api: Asked, path: str) -> None:
    status = api.refused("GET", path)
    assert (status["code"], status["reason"]) == (501, "NotImplemented")
    assert status["message"].startswith("the embedded API server does not have ")


def test_a_slash_at_the_end_changes_nothing(api: Asked) -> None:
    api.create("a")
    assert names(api.get(f"{MAPS}/")) == ["a"]


def test_the_status_of_a_namespace_is_that_of_the_namespace(api: Asked) -> None:
    assert api.get("/api/v1/namespaces/default/status")["metadata"]["name"] == "default"


# ---- Bodies and codes.


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 422),
        (b"{}", "text/plain", 415),
        (b"{}", "application/json; charset=utf-8", 422),
    ],
)
def test_bodies_that_are_no_object_are_refused(api: Asked, body: bytes, content_type: str, code: int) -> None:
    assert api.refused("POST", MAPS, body, content_type=content_type)["code"] == code


def test_a_status_is_written_beside_its_object(api: Asked) -> None:
    api.create("a", path=PODS, spec={"containers": [{"name": "c", "image": "i"}]})
    patched = read(api.ask("PATCH", f"{PODS}/a/status", {"status": {"phase": "Running"}}))
    assert (patched["status"]["phase"], api.get(f"{PODS}/a/status")["status"]["phase"]) == (
        "Running",
        "Running",
    )


def test_put_tells_whether_it_created(api: Asked) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a"
    first = api.ask("PUT", path, REFERENCE)
    second = api.ask("PUT", path, read(first) | {"spec": {"holderIdentity": "me"}})
    assert (first.code, second.code) == (201, 200)


def test_a_deleted_object_is_a_status_or_is_shown_a_last_time(api: Asked) -> None:
    api.create("a")
    uid = api.get(f"{MAPS}/a")["metadata"]["uid"]
    assert read(api.ask("DELETE", f"{MAPS}/a")) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": uid},
    }
    api.create("a", path="/api/v1/namespaces/default/serviceaccounts")
    assert read(api.ask("DELETE", "/api/v1/namespaces/default/serviceaccounts/a"))["kind"] == "ServiceAccount"


def test_an_object_that_is_held_is_shown_with_the_time_of_its_deletion(api: Asked) -> None:
    api.ask("POST", MAPS, {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})
    held = read(api.ask("DELETE", f"{MAPS}/a"))
    assert (held["kind"], held["metadata"]["deletionTimestamp"]) == ("ConfigMap", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ({"propagationPolicy": "Orphan"}, None),
        ({}, {"propagationPolicy": "Orphan"}),
        ({}, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"}),
    ],
)
def test_options_of_a_deletion_come_in_the_query_or_in_the_body(
    api: Asked, query: dict[str, str], body: object
) -> None:
    api.create("a")
    held = read(api.ask("DELETE", f"{MAPS}/a", body, query=query))
    assert held["metadata"]["finalizers"] == ["orphan"]


def test_a_body_that_says_nothing_about_deletion_is_refused(api: Asked) -> None:
    api.create("a")
    codes = [api.refused("DELETE", f"{MAPS}/a", body)["code"] for body in (b"[", b"[]", {"kind": "Foo"})]
    assert codes == [400, 400, 400]
    assert api.refused("DELETE", f"{MAPS}/a", b"{}", content_type="text/plain")["code"] == 415


def test_many_are_deleted_as_they_are_listed(api: Asked) -> None:
    api.create("a", "b", labels={"i": "1"})
    version = api.create("c")
    deleted = read(api.ask("DELETE", MAPS, query={"labelSelector": "i=1"}))
    assert (deleted["kind"], names(deleted)) == ("ConfigMapList", ["a", "b"])
    assert deleted["metadata"]["resourceVersion"] == str(version)
    assert names(api.get(MAPS)) == ["c"]


def test_a_limit_limits_the_number_of_deletions(api: Asked) -> None:
    api.create("a", "b")
    assert names(read(api.ask("DELETE", MAPS, query={"limit": 1}))) == ["a"]
    assert names(api.get(MAPS)) == ["b"]


@pytest.mark.parametrize(
    ("method", "path", "body", "query"),
    [
        ("POST", MAPS, {"metadata": {"name": "b"}}, {"dryRun": "All"}),
        ("PATCH", f"{MAPS}/a", {"data": {"k": "v"}}, {"dryRun": "All"}),
        ("PUT", f"{MAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}}, {"dryRun": "All"}),
        ("DELETE", f"{MAPS}/a", None, {"dryRun": "All"}),
        ("DELETE", f"{MAPS}/a", {"dryRun": ["All"]}, {}),
        ("DELETE", MAPS, None, {"dryRun": "All"}),
    ],
)
def test_a_dry_run_stores_nothing(
    api: Asked, method: str, path: str, body: object, query: dict[str, str]
) -> None:
    version = api.create("a")
    assert api.ask(method, path, body, query=query).code < 300
    assert (api.api.history.version, names(api.get(MAPS))) == (version, ["a"])


def test_dry_runs_are_of_all_stages(api: Asked) -> None:
    status = api.refused("POST", MAPS, REFERENCE, query={"dryRun": "Foo"})
    assert (status["code"], status["message"]) == (
        422,
        (
            'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Foo"]: supported values:'
            ' "All"'
        ),
    )


def test_unknown_fields_are_judged_in_ways_that_there_are(api: Asked) -> None:
    status = api.refused("POST", MAPS, REFERENCE, query={"fieldValidation": "Foo"})
    assert (status["code"], status["details"]["causes"][0]["field"]) == (422, "fieldValidation")
    for way in ("Ignore", "Warn", "Strict"):
        assert api.ask("PATCH", f"{MAPS}/{way.lower()}", {}, query={"fieldValidation": way}).code == 404


def test_an_object_is_read_as_of_now(api: Asked) -> None:
    api.create("a")
    assert api.get(f"{MAPS}/a", query={"resourceVersion": "1"})["metadata"]["name"] == "a"
    assert api.refused("GET", f"{MAPS}/a", query={"resourceVersion": "99999"})["code"] == 504
    assert api.refused("GET", f"{MAPS}/a", query={"resourceVersion": "x"})["code"] == 500


def test_custom_resources_are_served_the_moment_they_are_defined_and_gone_with_their_definition(
    api: Asked,
) -> None:
    assert api.ask("GET", WIDGETS).code == 404
    api.define()
    api.widget("a")
    assert names(api.get(WIDGETS)) == ["a"]
    api.delete("widgets.example.com", path=DEFINITIONS)
    assert api.ask("GET", WIDGETS).code == 404
    api.define()
    listed: Any = api.get(WIDGETS)
    assert names(listed) == []
