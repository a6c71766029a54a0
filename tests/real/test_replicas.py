"""Three operators as processes share the keys of a real API server: none is handled by two at a time, and
none is left."""

from __future__ import annotations

from pathlib import Path

from tests.apiserver.server import ApiServer
from tests.sharding.processes import Objects, handled_by, overlaps, play, processes

NAMESPACES = 24


def test_no_key_is_handled_twice_at_a_time_and_none_is_left(real_api: ApiServer, tmp_path: Path) -> None:
    namespaces = [real_api.namespace(prefix="team") for _ in range(NAMESPACES)]
    objects = Objects(real_api, namespaces, names="x")
    with processes(real_api, tmp_path, namespace=real_api.namespace(prefix="operators")) as fleet:
        log = play(fleet, objects)
    assert overlaps(log) == []
    assert handled_by(log) == {*"abc"}, "each has handled something"
