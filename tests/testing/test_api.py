"""The API as a whole: who is asked what first, paths, methods, bodies, codes; as the real server."""

import pytest

from kopf_selectcache.testing.api.request import User

from .asking import ALL_MAPS, MAPS, Asked, names, read

PODS = "/api/v1/namespaces/default/pods"
NOT_ALLOWED = "the server does not allow this method on the requested resource"
REFERENCE = {"metadata": {"name": "a"}}


# ---- Who asks, and whether they may.


def test_rights_are_checked_before_errors_in_the_request(api: Asked) -> None:
    api.api.users.add("joe", User("joe"))
    assert api.refused("GET", MAPS, token="joe", query={"limit": "x"})["code"] == 403
    assert api.refused("POST", MAPS, b"{", token="joe")["code"] == 403


# ---- Paths and methods.


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


def test_a_limit_limits_the_number_of_deletions(api: Asked) -> None:
    api.create("a", "b")
    assert names(read(api.ask("DELETE", MAPS, query={"limit": 1}))) == ["a"]
    assert names(api.get(MAPS)) == ["b"]
