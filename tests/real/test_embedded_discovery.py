"""The embedded server shows the resources that it has as the real one does, plain and aggregated."""

from collections.abc import Iterator
from typing import Any

import pytest

from kopf_selectcache.testing.cluster import EmbeddedCluster
from tests.apiserver.cluster import Cluster
from tests.apiserver.server import ApiServer

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
DEFINED = {
    "group": "parity.example.com",
    "scope": "Cluster",
    "names": {
        "kind": "Thing",
        "plural": "things",
        "singular": "thing",
        "listKind": "ThingList",
        "shortNames": ["th"],
        "categories": ["all"],
    },
    "versions": [
        {
            "name": name,
            "served": name != "v1alpha1",
            "storage": name == "v1",
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object"}},
        }
        for name in ("v1", "v1beta1", "v1alpha1", "v2")
    ],
}


@pytest.fixture(scope="module")
def both(real_api: ApiServer) -> Iterator[tuple[Cluster, Cluster]]:
    with EmbeddedCluster().in_thread() as embedded:
        client = Cluster(embedded.url, ca_file=embedded.ca_file, token=embedded.token)
        for cluster in (client, real_api):
            cluster.request(
                "POST",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                body={"metadata": {"name": "things.parity.example.com"}, "spec": DEFINED},
            )
        real_api.create_crd(
            "later.example.com", "v1", "Last", "lasts"
        )  # When this is served, the first one is.
        yield client, real_api
        client.close()


def test_groups_have_the_same_order_and_versions(both: tuple[Cluster, Cluster]) -> None:
    ours, theirs = ({group["name"]: group for group in one.request("GET", "/apis")["groups"]} for one in both)
    assert [name for name in theirs if name in ours] == list(ours)
    for name, group in ours.items():
        # Of built-in groups we serve one version.
        shown = {version["version"] for version in group["versions"]}
        assert [version for version in theirs[name]["versions"] if version["version"] in shown] == group[
            "versions"
        ]
        assert theirs[name]["preferredVersion"] == group["preferredVersion"]


def test_resources_are_the_same(both: tuple[Cluster, Cluster]) -> None:
    ours, theirs = both
    groups = [
        version["groupVersion"]
        for group in ours.request("GET", "/apis")["groups"]
        for version in group["versions"]
    ]
    for path in ["/api/v1", *(f"/apis/{group}" for group in groups)]:
        real = {found["name"]: found for found in theirs.request("GET", path)["resources"]}
        for found in ours.request("GET", path)["resources"]:
            assert {
                key: value for key, value in real[found["name"]].items() if key != "storageVersionHash"
            } == found


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_resources_are_the_same(both: tuple[Cluster, Cluster], path: str) -> None:
    ours, theirs = (_by_place(one.request("GET", path, accept=AGGREGATED)) for one in both)
    assert ours
    for place, found in ours.items():
        shown = [sub["subresource"] for sub in found.get("subresources", ())]
        real = dict(theirs[place])
        subresources = [sub for sub in real.pop("subresources", ()) if sub["subresource"] in shown]
        assert real | ({"subresources": subresources} if subresources else {}) == found


def _by_place(body: dict[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {
        (item["metadata"].get("name", ""), version["version"], resource["resource"]): resource
        for item in body["items"]
        for version in item["versions"]
        for resource in version["resources"]
    }
