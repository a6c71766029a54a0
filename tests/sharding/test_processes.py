"""Three operators as processes share the keys: none is handled by two at a time, and none is left."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from kopf_selectcache.testing import EmbeddedCluster
from tests.conftest import client_of

from .processes import Objects, handled_by, overlaps, play, processes

NAMESPACES = [f"team-{number:03}" for number in range(12)]


def test_no_key_is_handled_twice_at_a_time_and_none_is_left(tmp_path: Path) -> None:
    with (
        EmbeddedCluster(garbage_collection=False).in_thread() as cluster,
        closing(client_of(cluster)) as api,
    ):
        for namespace in ("operators", *NAMESPACES):
            cluster.namespace(namespace)
        objects = Objects(api, NAMESPACES)
        with processes(api, tmp_path, namespace="operators") as fleet:
            log = play(fleet, objects)
    assert overlaps(log) == []
    assert handled_by(log) == {*"abc"}, "each has handled something"
