"""Where one watch differs from two, it is expected: each difference is a rule, and all else is the same."""

from __future__ import annotations

from collections.abc import Callable

import kopf
import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.conftest import client_of

from .comparing import (
    ADDED_ON_RETURN,
    DELETIONS_IN_GAPS,
    NO_REPEATED_NONE,
    TIMEOUTS_WITHOUT_EFFECT,
    require_same,
)
from .handlers import register_events, register_labelled
from .recording import Recorder, Wire
from .running import ONE, TWO, Operated, Options, World
from .scripts import leaves, lives, pauses

LABELLED = ("a/first", "a/other", "a/second")


def types_of(recorder: Recorder, key: str) -> list[str]:
    return [call.what for call in recorder.tracks[key].calls if call.handler == "event"]


def deleted(recorder: Recorder) -> list[str]:
    """Return the objects whose handlers were told of a deletion: the rule leaves these events out."""
    return [key for key in sorted(recorder.tracks) if "DELETED" in types_of(recorder, key)]


@pytest.mark.since_kopf("1.45", "a pause ends the operator when an object has several daemons")
def test_after_a_pause_all_is_the_same_but_a_deletion_is_reported(
    new_world: Callable[..., World], wire: Wire
) -> None:
    runs = []
    for mode in (TWO, ONE):
        world = new_world()
        options = Options(operator={"peering_name": world.peering(), "priority": 1})
        runs.append(Operated(world, mode, wire, options))
        pauses(runs[-1])
    two, one = runs
    assert not one.kopfs_own_watches
    require_same(two.recorder, one.recorder, DELETIONS_IN_GAPS)
    assert types_of(one.recorder, "a/forced")[-1] == "DELETED"
    assert [deleted(run.recorder) for run in runs] == [[], ["a/forced"]]


def test_an_object_that_regains_its_label_is_added_and_one_that_lost_it_is_not_deleted(
    new_world: Callable[..., World], wire: Wire
) -> None:
    runs = []
    for mode in (TWO, ONE):
        runs.append(
            Operated(new_world(), mode, wire, Options(register=register_labelled, selector={"team": "a"}))
        )
        leaves(runs[-1])
    two, one = runs
    assert not one.kopfs_own_watches
    require_same(two.recorder, one.recorder, ADDED_ON_RETURN)
    types = {key: (types_of(two.recorder, key), types_of(one.recorder, key)) for key in LABELLED}
    assert types == {
        "a/first": (
            ["None", *["MODIFIED"] * 3, "DELETED"],
            ["None", "MODIFIED", "ADDED", "MODIFIED", "DELETED"],
        ),
        "a/other": (["MODIFIED"] * 2, ["ADDED", "MODIFIED"]),
        "a/second": (["ADDED", "MODIFIED"] * 2, ["ADDED", "MODIFIED"] * 2),
    }


def test_timeouts_of_kopfs_watch_have_no_effect(new_world: Callable[..., World], wire: Wire) -> None:
    def settle(settings: kopf.OperatorSettings) -> None:
        settings.watching.server_timeout = 1
        settings.watching.reconnect_backoff = 0.3
        if hasattr(settings.watching, "initial_streaming"):
            settings.watching.initial_streaming = True

    runs = [Operated(new_world(), ONE, wire, options) for options in (Options(), Options(settle=settle))]
    for run in runs:
        lives(run)
    require_same(runs[0].recorder, runs[1].recorder, TIMEOUTS_WITHOUT_EFFECT)
    assert not runs[1].kopfs_own_watches


def test_after_a_410_nothing_is_repeated_and_deletions_are_reported(wire: Wire) -> None:
    runs = []
    for mode in (TWO, ONE):
        with EmbeddedCluster(garbage_collection=False).in_thread() as cluster:
            world = World(client_of(cluster))
            run = Operated(world, mode, wire, Options(register=register_events))
            runs.append(run)
            for name in ("a/kept", "a/gone"):
                world.create(name, size=1)
            with run.started():
                run.called("a/kept", "event")
                run.called("a/gone", "event")
                cluster.cut("watch")
                world.patch("a/kept", {"spec": {"size": 2}})
                run.called("a/kept", "event", 2)
                cluster.stop_listening()
                cluster.delete(world.described("a/gone"))  # In process: nobody is connected.
                cluster.compact()
                cluster.listen_again()
                if mode is TWO:
                    run.called("a/kept", "event", 3)  # It is listed anew.
                world.patch("a/kept", {"spec": {"size": 3}})
                run.sees("a/kept")
                if mode is ONE:
                    run.sees("a/gone")  # Kopf is told of its deletion.
    two, one = runs
    assert not one.kopfs_own_watches
    assert types_of(two.recorder, "a/kept").count("None") == 2
    assert types_of(one.recorder, "a/kept").count("None") == 1
    assert types_of(one.recorder, "a/gone") == ["None", "DELETED"]
    assert [deleted(run.recorder) for run in runs] == [[], ["a/gone"]]
    require_same(two.recorder, one.recorder, NO_REPEATED_NONE, DELETIONS_IN_GAPS)
