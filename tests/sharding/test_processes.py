"""Three operators as processes share the keys: none is handled by two at a time, and none is left."""

from __future__ import annotations

from pathlib import Path

from kopf_selectcache.testing import EmbeddedCluster

from .processes import configmap, lease, overlaps, processes

NAMESPACES = [f"team-{number:03}" for number in range(12)]


def test_no_key_is_handled_twice_at_a_time_and_none_is_left(tmp_path: Path) -> None:
    with EmbeddedCluster(garbage_collection=False).in_thread() as cluster:
        for namespace in ("operators", *NAMESPACES):
            cluster.namespace(namespace)
        cluster.create(*(configmap(each, name, 0) for each in NAMESPACES for name in ("x", "y")))

        def are_seen(number: int) -> None:
            for each in NAMESPACES:
                for name in ("x", "y"):
                    cluster.wait_for(
                        configmap(each, name, 0),
                        lambda now: now["data"].get("seen") == str(number),
                        timeout=120,
                    )

        def write(number: int) -> None:
            for each in NAMESPACES:
                for name in ("x", "y"):
                    cluster.patch(configmap(each, name, 0), {"data": {"number": str(number)}})

        def restart(name: str) -> None:
            """Start a replica again, and wait until it has joined the others."""
            before = cluster.get(lease(name))["spec"].get("holderIdentity", "")
            fleet.start(name)
            cluster.wait_for(
                lease(name), lambda now: now["spec"].get("holderIdentity", "") not in ("", before)
            )

        with processes(cluster, tmp_path) as fleet:
            for replica in "abc":
                fleet.start(replica)
            are_seen(0)
            for number, killed in enumerate("abc", 1):
                write(number)
                fleet.kill(killed)
                write(10 + number)
                are_seen(10 + number)
                restart(killed)
            write(20)
            are_seen(20)
            assert fleet.end("b") == 0
            write(21)
            are_seen(21)
            log = fleet.log.read_text()
        assert overlaps(log) == []
        assert {line.split(" ")[0] for line in log.splitlines()} == {*"abc"}, "each has handled something"
