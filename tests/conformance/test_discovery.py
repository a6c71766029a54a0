"""Discovery: which groups, versions and resources there are, asked in all ways in which clients ask."""

from typing import Any

import pytest

from kopf_selectcache.testing.api import builtin
from tests.apiserver.cluster import Cluster

from .places import raw

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
SERVED = builtin.BUILT_IN
GROUPS = sorted({(served.group, served.version) for served in SERVED if served.group})
# Verbs that all kinds with objects have.
VERBS = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
ids = [f"{served.plural}.{served.group}" for served in SERVED]


def listed(api: Cluster, group: str, version: str) -> dict[str, Any]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return {resource["name"]: resource for resource in api.request("GET", path)["resources"]}


def test_all_groups_are_listed_with_their_versions(api: Cluster) -> None:
    answer = api.request("GET", "/apis")
    assert (answer["kind"], answer["apiVersion"]) == ("APIGroupList", "v1")
    groups = {group["name"]: group for group in answer["groups"]}
    for group, version in GROUPS:
        assert {"groupVersion": f"{group}/{version}", "version": version} in groups[group]["versions"]
        assert groups[group]["preferredVersion"] == groups[group]["versions"][0]


@pytest.mark.parametrize(("group", "version"), GROUPS)
def test_a_group_tells_its_versions(api: Cluster, group: str, version: str) -> None:
    answer = api.request("GET", f"/apis/{group}")
    assert (answer["kind"], answer["apiVersion"], answer["name"]) == ("APIGroup", "v1", group)
    assert version in [item["version"] for item in answer["versions"]]


@pytest.mark.parametrize("served", SERVED, ids=ids)
def test_discovery_lists_a_resource_with_its_names_scope_and_verbs(api: Cluster, served: Any) -> None:
    resource = listed(api, served.group, served.version)[served.plural]
    assert (resource["kind"], resource["singularName"], resource["namespaced"]) == (
        served.kind,
        served.singular,
        served.namespaced,
    )
    assert set(resource.get("shortNames", ())) == set(served.short_names)
    assert set(resource.get("categories", ())) == set(served.categories)
    expected = VERBS - {"deletecollection"} if served.plural == "namespaces" else VERBS
    assert set(resource["verbs"]) == expected


@pytest.mark.parametrize("served", SERVED, ids=ids)
def test_discovery_lists_a_status_where_there_is_one(api: Cluster, served: Any) -> None:
    status = listed(api, served.group, served.version).get(f"{served.plural}/status")
    assert (status is not None) == served.has_status
    if status is not None:
        assert (status["kind"], status["namespaced"], set(status["verbs"])) == (
            served.kind,
            served.namespaced,
            {"get", "patch", "update"},
        )


@pytest.mark.parametrize(("group", "version"), [("", "v1"), *GROUPS])
def test_resource_lists_name_kind_and_version(api: Cluster, group: str, version: str) -> None:
    answer = api.request("GET", f"/apis/{group}/{version}" if group else "/api/v1")
    assert (answer["kind"], answer["groupVersion"]) == (
        "APIResourceList",
        f"{group}/{version}" if group else "v1",
    )
    assert [resource["name"] for resource in answer["resources"]] == sorted(
        resource["name"] for resource in answer["resources"]
    )


@pytest.mark.parametrize(
    ("path", "groups"), [("/api", [""]), ("/apis", sorted({group for group, _ in GROUPS}))]
)
def test_one_question_tells_it_all(api: Cluster, path: str, groups: list[str]) -> None:
    answer = api.request("GET", path, accept=f"{AGGREGATED},application/json")
    assert (answer["kind"], answer["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    found = {item["metadata"].get("name", ""): item for item in answer["items"]}
    assert found.keys() >= set(groups)
    for served in SERVED:
        if served.group in groups:
            [version] = [
                version for version in found[served.group]["versions"] if version["version"] == served.version
            ]
            [resource] = [
                resource for resource in version["resources"] if resource["resource"] == served.plural
            ]
            assert resource["responseKind"] == {"group": "", "version": "", "kind": served.kind}
            assert resource["scope"] == ("Namespaced" if served.namespaced else "Cluster")
            assert resource["singularResource"] == served.singular
            assert set(resource.get("shortNames", ())) == set(served.short_names)
            assert (
                "status" in [sub["subresource"] for sub in resource.get("subresources", ())]
            ) == served.has_status
            assert set(resource["verbs"]) == (
                VERBS - {"deletecollection"} if served.plural == "namespaces" else VERBS
            )


def test_the_version_says_which_kubernetes_it_is(api: Cluster) -> None:
    version = api.request("GET", "/version")
    assert (version["major"], version["gitVersion"][:3]) == ("1", "v1.")
    assert version["minor"].rstrip("+").isdecimal()


@pytest.mark.parametrize("path", ["/version", "/healthz", "/livez", "/readyz"])
def test_version_and_health_need_no_token(api: Cluster, path: str) -> None:
    assert raw(api, path, headers={"Authorization": ""}).status == 200


@pytest.mark.parametrize(
    "path", ["/api", "/apis", "/api/v1", "/api/v1/namespaces", "/apis/apps/v1", "/openapi/v3"]
)
def test_all_other_paths_require_a_token(api: Cluster, path: str) -> None:
    assert raw(api, path, headers={"Authorization": ""}).status in (401, 403)
