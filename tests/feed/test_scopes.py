"""Wherever an operator runs, and whatever it may see, one watch calls the same handlers as two."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kopf_selectcache import Selector

from .comparing import require_same
from .handlers import register_events
from .recording import Wire
from .running import EXACTLY, ONE, PLAIN, TWO, Mode, Operated, Options, World
from .scripts import bursts, lives

ALIEN = "c/alien"
SCOPES = {
    "-n a -n b": Options(clusterwide=False, namespaces=EXACTLY),
    "patterns": Options(
        clusterwide=False,
        namespaces=lambda world: [f"{world.prefix}-[ab]*"],
        selector=lambda world: Selector(namespaces=world.namespaces[:2]),
    ),
    "KopfRunner": Options(runner=True),
    "KopfRunner, -n a -n b": Options(runner=True, clusterwide=False, namespaces=EXACTLY),
}


def play(world: World, mode: Mode, wire: Wire, options: Options) -> Operated:
    run = Operated(world, mode, wire, options)
    world.create(ALIEN, size=1)
    lives(run, "b/new", beside=[ALIEN] if options.clusterwide else [])
    return run


@pytest.mark.parametrize(
    "scope", ["-n a -n b", *(pytest.param(each, marks=pytest.mark.soak) for each in [*SCOPES][1:])]
)
def test_the_same_is_called_in_each_scope(scope: str, new_world: Callable[..., World], wire: Wire) -> None:
    two, one = (play(new_world(namespaces=3), mode, wire, SCOPES[scope]) for mode in (TWO, ONE))
    require_same(two.recorder, one.recorder)
    assert two.kopfs_own_watches
    assert not one.kopfs_own_watches
    assert (ALIEN in one.recorder.tracks) is SCOPES[scope].clusterwide


@pytest.mark.soak
def test_the_same_is_called_as_by_kopf_without_a_cache(new_world: Callable[..., World], wire: Wire) -> None:
    plain, one = (play(new_world(namespaces=3), mode, wire, Options()) for mode in (PLAIN, ONE))
    require_same(plain.recorder, one.recorder)


@pytest.mark.soak
def test_two_operators_in_a_process_are_fed_on_their_own(new_world: Callable[..., World], wire: Wire) -> None:
    def at_once(mode: Mode) -> list[Operated]:
        runs = [Operated(new_world(), mode, wire, Options()) for _ in range(2)]
        threads = [threading.Thread(target=lives, args=[run]) for run in runs]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return runs

    two, one = at_once(TWO), at_once(ONE)
    assert not any(run.kopfs_own_watches for run in one)
    for run in one:
        assert run.recorder.tracks["a/old"].final is not None
        require_same(two[0].recorder, run.recorder)


def test_each_version_is_an_event_in_its_order(new_world: Callable[..., World], wire: Wire) -> None:
    runs = [Operated(new_world(), mode, wire, Options(register=register_events)) for mode in (TWO, ONE)]
    for run in runs:
        bursts(run)
    two, one = runs
    require_same(two.recorder, one.recorder)
    assert not one.kopfs_own_watches
