"""The history of an embedded cluster in the hands of tests: compaction, bookmarks, a restore."""

from __future__ import annotations

from pathlib import Path

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster

from .serving import FOLLOWED, PODS, Served, pod


def test_a_compacted_version_is_gone(cluster: EmbeddedCluster, client: Served) -> None:
    before = cluster.version
    cluster.create(pod("a"))
    assert cluster.compact() == cluster.version
    with client.watch(PODS, query={"resourceVersion": before, **FOLLOWED}) as watch:
        assert next(watch)["object"]["code"] == 410


def test_bookmarks_come_when_they_are_asked_for(cluster: EmbeddedCluster, client: Served) -> None:
    with client.watch(
        PODS, query={"resourceVersion": cluster.version, "allowWatchBookmarks": True, **FOLLOWED}
    ) as watch:
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}})
        cluster.requests.wait("watch", "pods")
        cluster.bookmark()
        event = next(watch)
    assert (event["type"], event["object"]["metadata"]["resourceVersion"]) == (
        "BOOKMARK",
        str(cluster.version),
    )


def test_bookmarks_come_by_themselves() -> None:
    with EmbeddedCluster(tls=False, bookmarks_every=0.01).in_thread() as cluster:
        client = Served(cluster)
        with client.watch(
            PODS, query={"resourceVersion": cluster.version, "allowWatchBookmarks": True, **FOLLOWED}
        ) as watch:
            assert [next(watch)["type"] for _ in range(2)] == ["BOOKMARK", "BOOKMARK"]
        client.close()


def test_a_restored_cluster_serves_the_resources_that_were_defined_at_the_backup(
    cluster: EmbeddedCluster,
) -> None:
    client = Cluster(cluster.url, ca_file=Path("no-tls"), token=cluster.token)
    backup = cluster.backup()
    client.create_crd("example.com", "v1", "Widget", "widgets")
    cluster.restore(backup)
    client.close()
    with pytest.raises(ApiError) as caught:
        client.request("GET", "/apis/example.com/v1/widgets")
    assert caught.value.status == 404
    client.close()
