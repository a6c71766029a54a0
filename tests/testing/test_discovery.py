"""Which resources there are: as the real server shows those that it serves as well."""

import json
from typing import Any

import pytest

from kopf_selectcache.testing.api import discovery
from kopf_selectcache.testing.api.request import Answer
from kopf_selectcache.testing.api.status import Problem

from .world import World

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]


@pytest.fixture
def world() -> World:
    return World()


def answer(world: World, path: str, accept: str = "application/json") -> Answer:
    found = discovery.answer(path, accept, world.kinds)
    assert found is not None
    return found


def told(world: World, path: str, accept: str = "application/json") -> dict[str, Any]:
    body: dict[str, Any] = json.loads(answer(world, path, accept).body)
    return body


def resource(world: World, path: str, name: str) -> dict[str, Any]:
    return next(found for found in told(world, path)["resources"] if found["name"] == name)


# ---- Plain.


def test_the_core_group_has_one_version(world: World) -> None:
    assert told(world, "/api") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    }


def test_groups_come_in_the_servers_order_and_custom_ones_last(world: World) -> None:
    world.define("aaa.io", "as", "Aa", "v1")
    assert [group["name"] for group in told(world, "/apis")["groups"]] == [
        "apps",
        "events.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "networking.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "storage.k8s.io",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "scheduling.k8s.io",
        "coordination.k8s.io",
        "aaa.io",
    ]


def test_a_group_names_its_versions_and_prefers_one(world: World) -> None:
    assert told(world, "/apis/batch") == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "batch",
        "versions": [{"groupVersion": "batch/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "batch/v1", "version": "v1"},
    }


def test_versions_are_ordered_by_maturity_and_then_by_number(world: World) -> None:
    world.define("b.io", "xs", "Xx", "v1", "v1beta1", "v2alpha1", "v10", "v2", "other")
    assert [version["version"] for version in told(world, "/apis/b.io")["versions"]] == [
        "v10",
        "v2",
        "v1",
        "v1beta1",
        "v2alpha1",
        "other",
    ]
    assert told(world, "/apis/b.io")["preferredVersion"]["version"] == "v10"


def test_resources_of_the_core_group(world: World) -> None:
    listed = told(world, "/api/v1")
    assert {key: value for key, value in listed.items() if key != "resources"} == {
        "kind": "APIResourceList",
        "groupVersion": "v1",
    }
    assert resource(world, "/api/v1", "pods") == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": VERBS,
        "shortNames": ["po"],
        "categories": ["all"],
    }
    assert resource(world, "/api/v1", "pods/status") == {
        "name": "pods/status",
        "singularName": "",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["get", "patch", "update"],
    }
    assert resource(world, "/api/v1", "serviceaccounts/token") == {
        "name": "serviceaccounts/token",
        "singularName": "",
        "namespaced": True,
        "group": "authentication.k8s.io",
        "version": "v1",
        "kind": "TokenRequest",
        "verbs": ["create"],
    }
    assert "deletecollection" not in resource(world, "/api/v1", "namespaces")["verbs"]
    assert "shortNames" not in resource(world, "/api/v1", "secrets")


def test_questions_are_resources_that_can_be_created_alone(world: World) -> None:
    assert resource(world, "/apis/authorization.k8s.io/v1", "localsubjectaccessreviews") == {
        "name": "localsubjectaccessreviews",
        "singularName": "localsubjectaccessreview",
        "namespaced": True,
        "kind": "LocalSubjectAccessReview",
        "verbs": ["create"],
    }
    assert [found["name"] for found in told(world, "/apis/authentication.k8s.io/v1")["resources"]] == [
        "selfsubjectreviews",
        "tokenreviews",
    ]


def test_custom_resources_are_there_as_long_as_their_definition(world: World) -> None:
    world.define("b.io", "xs", "Xx", "v1", status=True, shortNames=["x", "xy"], categories=["cat"])
    assert told(world, "/apis/b.io/v1") == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "b.io/v1",
        "resources": [
            {
                "name": "xs",
                "singularName": "xx",
                "namespaced": True,
                "kind": "Xx",
                "verbs": CUSTOM_VERBS,
                "shortNames": ["x", "xy"],
                "categories": ["cat"],
            },
            {
                "name": "xs/status",
                "singularName": "",
                "namespaced": True,
                "kind": "Xx",
                "verbs": ["get", "patch", "update"],
            },
        ],
    }
    world.delete("apiextensions.k8s.io", "customresourcedefinitions", "xs.b.io")
    assert answer(world, "/apis/b.io/v1").code == 404
    assert all(group["name"] != "b.io" for group in told(world, "/apis")["groups"])


def test_unknown_groups_are_not_found_and_other_paths_are_none_of_this(world: World) -> None:
    for path in ("/apis/nix", "/apis/nix/v1"):
        assert (answer(world, path).code, answer(world, path).body) == (404, b"404 page not found\n")
    with pytest.raises(Problem) as caught:
        answer(world, "/apis/apps/v9")
    assert (caught.value.code, caught.value.message) == (
        404,
        "the server could not find the requested resource",
    )
    for path in ("/version", "/api/v2", "/api/v1/pods", "/apis/apps/v1/deployments", "/"):
        assert discovery.answer(path, "*/*", world.kinds) is None, path


# ---- All at once.


def test_all_groups_can_be_had_at_once(world: World) -> None:
    world.define("b.io", "xs", "Xx", "v1", "v2", namespaced=False, status=True)
    found = answer(world, "/apis", AGGREGATED)
    assert (found.content_type, found.headers) == (AGGREGATED, {"Vary": "Accept"})
    body = json.loads(found.body)
    assert (body["kind"], body["apiVersion"], body["metadata"]) == (
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
        {},
    )
    assert [item["metadata"]["name"] for item in body["items"]] == [
        group["name"] for group in told(world, "/apis")["groups"]
    ]
    assert body["items"][-1]["versions"][0] == {
        "version": "v2",
        "freshness": "Current",
        "resources": [
            {
                "resource": "xs",
                "responseKind": {"group": "b.io", "version": "v2", "kind": "Xx"},
                "scope": "Cluster",
                "singularResource": "xx",
                "verbs": CUSTOM_VERBS,
                "subresources": [
                    {
                        "subresource": "status",
                        "responseKind": {"group": "b.io", "version": "v2", "kind": "Xx"},
                        "verbs": ["get", "patch", "update"],
                    }
                ],
            }
        ],
    }


def test_the_core_group_can_be_had_at_once(world: World) -> None:
    (item,) = told(world, "/api", AGGREGATED)["items"]
    assert item["metadata"] == {}
    assert next(
        found for found in item["versions"][0]["resources"] if found["resource"] == "serviceaccounts"
    ) == {
        "resource": "serviceaccounts",
        "responseKind": {"group": "", "version": "", "kind": "ServiceAccount"},
        "scope": "Namespaced",
        "singularResource": "serviceaccount",
        "verbs": VERBS,
        "shortNames": ["sa"],
        "subresources": [
            {
                "subresource": "token",
                "responseKind": {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"},
                "verbs": ["create"],
            }
        ],
    }


OLDER = AGGREGATED.replace("v=v2", "v=v2beta1")


@pytest.mark.parametrize(
    ("accept", "aggregated"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        (AGGREGATED, True),
        (f"{AGGREGATED},application/json", True),
        (f"{OLDER},application/json", False),
        (f"{AGGREGATED},{OLDER},application/json", True),
        (f"application/json,{AGGREGATED}", False),
        (f"application/vnd.kubernetes.protobuf, {AGGREGATED};q=0.9", True),
    ],
)
def test_the_client_gets_the_first_form_that_it_accepts(
    world: World, accept: str, *, aggregated: bool
) -> None:
    for path in ("/api", "/apis"):
        assert (told(world, path, accept)["kind"] == "APIGroupDiscoveryList") is aggregated


def test_single_groups_have_no_aggregated_form(world: World) -> None:
    for path in ("/api/v1", "/apis/batch", "/apis/batch/v1"):
        assert told(world, path, f"{AGGREGATED},application/json")["kind"] in {"APIResourceList", "APIGroup"}
        with pytest.raises(Problem) as caught:
            answer(world, path, AGGREGATED)
        assert caught.value.code == 406


def test_what_is_not_had_is_not_acceptable(world: World) -> None:
    for accept in ("text/html", OLDER):
        with pytest.raises(Problem) as caught:
            answer(world, "/apis", accept)
        assert (caught.value.code, caught.value.reason) == (406, "NotAcceptable")
