"""The scenes of examples/10-copied-secrets, played to the same operator with plain Kopf."""

from __future__ import annotations

from pathlib import Path

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.waiting import wait_until
from tests.ports import plain
from tests.ports.script import FORGOTTEN, STAGES, Player
from tests.ports.world import EmbeddedWorld, path_of, secret

MISSED = {
    f"missing: {path_of(secret(name, namespace))}"
    for name, namespace in (("ca", "team-a"), ("late", "team-b"))
}


def test_plain_kopf_never_learns_of_deletions_in_a_gap_that_the_server_forgets(tmp_path: Path) -> None:
    with EmbeddedCluster().in_thread() as cluster:
        world = EmbeddedWorld(cluster)
        with Player(world, Path(plain.__file__).read_text(), tmp_path) as player:
            for stage in STAGES[: STAGES.index(FORGOTTEN)]:
                stage.play(player)
                assert player.wrong() == [], stage.words
            FORGOTTEN.play(player)
            # It has seen the other changes, so Kopf has listed the Secrets again. What is missing stays so.
            wait_until(lambda: set(world.wrong()) == MISSED, "the operator has seen the other changes")
            player.stop()
            player.start()
            assert player.wrong() == []
        world.api.close()
