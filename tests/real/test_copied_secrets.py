"""The operator of examples/10-copied-secrets, through all that is played to it: no copy is ever wrong for
long, and a restart changes nothing. tests/clients/test_copied_secrets.py plays the same to plain Kopf.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.server import ApiServer
from tests.ports.script import STAGES, Player
from tests.ports.world import EXAMPLE, PATHS, EmbeddedWorld, RealWorld, World, source_text
from tests.real.proxy import Proxy

STATUSES = {f"{PATHS['ClusterSecret']}/{name}/status" for name in ("ca", "registry", "late", "early")}
"""They have the number of copies."""


@pytest.fixture
def world(server: str, request: pytest.FixtureRequest) -> Iterator[World]:
    if server == "embedded":
        with EmbeddedCluster().in_thread() as cluster:
            world = EmbeddedWorld(cluster)
            yield world
            world.api.close()
    else:
        with ApiServer(assets=request.getfixturevalue("assets")) as real, Proxy(real) as proxy:
            yield RealWorld(real, proxy)


def test_no_copy_stays_wrong_and_a_restart_changes_nothing(world: World, tmp_path: Path) -> None:
    with Player(world, source_text(EXAMPLE / "example.py"), tmp_path) as player:
        for stage in STAGES:
            if isinstance(world, EmbeddedWorld) or not stage.is_embedded:
                stage.play(player)
                assert player.wrong() == [], stage.words
        player.stop()
        before, asked = world.versions(), changes(world)
        player.start()
        world.namespaces("team-last")  # Once it has its copies, the operator has seen all.
        assert player.wrong() == []
        assert {path: version for path, version in world.versions().items() if path in before} == before
        assert {each for each in changes(world)[len(asked) :] if "/team-last/" not in each} <= STATUSES
    assert player.ended == 0


def changes(world: World) -> list[str]:
    return [each.path for each in world.changes()] if isinstance(world, EmbeddedWorld) else []
