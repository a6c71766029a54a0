"""Faults of whole servers: they go, come back elsewhere, forget, and cut off who watches."""

from __future__ import annotations

import contextlib

import pytest

from kopf_selectcache.testing import EmbeddedCluster, End

from .serving import FOLLOWED, PODS, RawRequest, Served, pod


class TestServers:
    def test_a_server_that_does_not_listen_refuses_connections_and_has_broken_all(
        self, cluster: EmbeddedCluster
    ) -> None:
        with RawRequest(cluster, watch=True) as request:
            request.until(b"\r\n\r\n")
            cluster.stop_listening()
            with contextlib.suppress(ConnectionResetError):
                request.to_the_end()
            assert b"\r\n0\r\n\r\n" not in request.data
        with pytest.raises(ConnectionRefusedError):
            RawRequest(cluster)
        cluster.listen_again()
        with RawRequest(cluster) as request:
            request.until(b"PodList")

    def test_a_server_moves_to_another_port(self, cluster: EmbeddedCluster) -> None:
        before = cluster.url
        cluster.stop_listening()
        cluster.listen_again(port=0)
        assert cluster.url != before
        with RawRequest(cluster) as request:
            request.until(b"PodList")

    def test_a_restored_server_goes_back_in_versions(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"))
        backup = cluster.backup()
        version = cluster.version
        cluster.create(pod("b"))
        cluster.restore(backup)
        client.close()
        assert client.names() == ["a"]
        assert cluster.version == version

    def test_all_watches_are_cut_or_only_those_selected(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        with (
            client.watch(PODS, query=FOLLOWED) as pods,
            client.watch("/api/v1/nodes", query=FOLLOWED) as nodes,
        ):
            cluster.requests.wait("watch", times=2)
            assert cluster.cut(resource="pods") == 1
            assert list(pods) == []
            assert cluster.cut(how=End.RESET) == 1
            with pytest.raises(ConnectionError):
                next(nodes)
