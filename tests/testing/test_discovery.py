"""Which resources there are: as the real server shows those that it serves as well."""

import json
from typing import Any

import pytest

from kopf_selectcache.testing.api import discovery
from kopf_selectcache.testing.api.request import Answer
from kopf_selectcache.testing.api.status import Problem

from .environment import Environment

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]


@pytest.fixture
def environment() -> Environment:
    return Environment()


def answer(environment: Environment, path: str, accept: str = "application/json") -> Answer:
    found = discovery.answer(path, accept, environment.kinds)
    assert found is not None
    return found


def told(environment: Environment, path: str, accept: str = "application/json") -> dict[str, Any]:
    body: dict[str, Any] = json.loads(answer(environment, path, accept).body)
    return body


def resource(environment: Environment, path: str, name: str) -> dict[str, Any]:
    return next(found for found in told(environment, path)["resources"] if found["name"] == name)


# ---- Plain.


def test_the_core_group_has_one_version(environment: Environment) -> None:
    assert told(environment, "/api") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    }


def test_groups_come_in_the_servers_order_and_custom_ones_last(environment: Environment) -> None:
    environment.define("aaa.io", "as", "Aa", "v1")
    assert [group["name"] for group in told(environment, "/apis")["groups"]] == [
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


def test_a_group_names_its_versions_and_prefers_one(environment: Environment) -> None:
    assert told(environment, "/apis/batch") == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "batch",
        "versions": [{"groupVersion": "batch/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "batch/v1", "version": "v1"},
    }


def test_versions_are_ordered_by_maturity_and_then_by_number(environment: Environment) -> None:
    environment.define("b.io", "xs", "Xx", "v1", "v1beta1", "v2alpha1", "v10", "v2", "other")
    assert [version["version"] for version in told(environment, "/apis/b.io")["versions"]] == [
        "v10",
        "v2",
        "v1",
        "v1beta1",
        "v2alpha1",
        "other",
    ]
    assert told(environment, "/apis/b.io")["preferredVersion"]["version"] == "v10"


def test_resources_of_the_core_group(environment: Environment) -> None:
    listed = told(environment, "/api/v1")
    assert {key: value for key, value in listed.items() if key != "resources"} == {
        "kind": "APIResourceList",
        "groupVersion": "v1",
    }
    assert resource(environment, "/api/v1", "pods") == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": VERBS,
        "shortNames": ["po"],
        "categories": ["all"],
    }
    assert resource(environment, "/api/v1", "pods/status") == {
        "name": "pods/status",
        "singularName": "",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["get", "patch", "update"],
    }
    assert resource(environment, "/api/v1", "serviceaccounts/token") == {
        "name": "serviceaccounts/token",
        "singularName": "",
        "namespaced": True,
        "group": "authentication.k8s.io",
        "version": "v1",
        "kind": "TokenRequest",
        "verbs": ["create"],
    }
    assert "deletecollection" not in resource(environment, "/api/v1", "namespaces")["verbs"]
    assert "shortNames" not in resource(environment, "/api/v1", "secrets")


def test_questions_are_resources_that_can_be_created_alone(environment: Environment) -> None:
    assert resource(environment, "/apis/authorization.k8s.io/v1", "localsubjectaccessreviews") == {
        "name": "localsubjectaccessreviews",
        "singularName": "localsubjectaccessreview",
        "namespaced": True,
        "kind": "LocalSubjectAccessReview",
        "verbs": ["create"],
    }
    assert [found["name"] for found in told(environment, "/apis/authentication.k8s.io/v1")["resources"]] == [
        "selfsubjectreviews",
        "tokenreviews",
    ]


def test_custom_resources_are_there_as_long_as_their_definition(environment: Environment) -> None:
    environment.define("b.io", "xs", "Xx", "v1", status=True, shortNames=["x", "xy"], categories=["cat"])
    assert told(environment, "/apis/b.io/v1") == {
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
    environment.delete("apiextensions.k8s.io", "customresourcedefinitions", "xs.b.io")
    assert answer(environment, "/apis/b.io/v1").code == 404
    assert all(group["name"] != "b.io" for group in told(environment, "/apis")["groups"])


def test_unknown_groups_are_not_found_and_other_paths_are_none_of_this(environment: Environment) -> None:
    for path in ("/apis/nix", "/apis/nix/v1"):
        assert (answer(environment, path).code, answer(environment, path).body) == (
            404,
            b"404 page not found\n",
        )
    with pytest.raises(Problem) as caught:
        answer(environment, "/apis/apps/v9")
    assert (caught.value.code, caught.value.message) == (
        404,
        "the server could not find the requested resource",
    )
    for path in ("/version", "/api/v2", "/api/v1/pods", "/apis/apps/v1/deployments", "/"):
        assert discovery.answer(path, "*/*", environment.kinds) is None, path


# ---- All at once.


def test_all_groups_can_be_had_at_once(environment: Environment) -> None:
    environment.define("b.io", "xs", "Xx", "v1", "v2", namespaced=False, status=True)
    found = answer(environment, "/apis", AGGREGATED)
    assert (found.content_type, found.headers) == (AGGREGATED, {"Vary": "Accept"})
    body = json.loads(found.body)
    assert (body["kind"], body["apiVersion"], body["metadata"]) == (
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
        {},
    )
    assert [item["metadata"]["name"] for item in body["items"]] == [
        group["name"] for group in told(environment, "/apis")["groups"]
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


def test_the_core_group_can_be_had_at_once(environment: Environment) -> None:
    (item,) = told(environment, "/api", AGGREGATED)["items"]
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
    environment: Environment, accept: str, *, aggregated: bool
) -> None:
    for path in ("/api", "/apis"):
        assert (told(environment, path, accept)["kind"] == "APIGroupDiscoveryList") is aggregated


def test_single_groups_have_no_aggregated_form(environment: Environment) -> None:
    for path in ("/api/v1", "/apis/batch", "/apis/batch/v1"):
        assert told(environment, path, f"{AGGREGATED},application/json")["kind"] in {
            "APIResourceList",
            "APIGroup",
        }
        with pytest.raises(Problem) as caught:
            answer(environment, path, AGGREGATED)
        assert caught.value.code == 406


def test_an_unsupported_form_is_not_acceptable(environment: Environment) -> None:
    for accept in ("text/html", OLDER):
        with pytest.raises(Problem) as caught:
            answer(environment, "/apis", accept)
        assert (caught.value.code, caught.value.reason) == (406, "NotAcceptable")
