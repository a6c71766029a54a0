"""The rule of the visible record holds in every order of all that can happen, and each of its sentences is
needed.

A scope that fails prints the shortest story that leads to something wrong. See `python -m tests.model`."""

from __future__ import annotations

import pytest

from . import rule
from .explore import explore
from .mistakes import MISTAKES, Mistake, with_mistake
from .rule import Claim, Table
from .scopes import LARGE, SMALL, rule_of, scope_of
from .world import Scope

A, B = 0, 1
BOTH = ((A, B),)
FEW_STATES = 2000
"""How far a scope is explored by default, the shortest stories first; `make model` explores all of it."""

MOST_STATES = 3_000_000
"""The scope that fits into memory. Larger ones are explored up to here, the shortest stories first."""


@pytest.mark.parametrize("scope", SMALL, ids=[scope.name for scope in SMALL])
def test_readers_see_nothing_wrong_in_any_order(scope: Scope) -> None:
    explored = explore(rule_of(scope), scope, FEW_STATES)
    assert not explored.broken, str(explored)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scope", [*SMALL, *LARGE], ids=[scope.name for scope in (*SMALL, *LARGE)])
def test_readers_see_nothing_wrong_in_larger_scopes(scope: Scope) -> None:
    explored = explore(rule_of(scope), scope, MOST_STATES)
    assert not explored.broken, str(explored)


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_each_mistake_is_found(mistake: Mistake) -> None:
    explored = explore(with_mistake(mistake), scope_of(mistake.scope), says=mistake.says)
    assert explored.broken, f"nobody notices it in {explored.states} states of {mistake.scope!r}"
    assert mistake.says in explored.broken


# ---- Stories that today's mechanisms get wrong, or that an enumeration of one object cannot tell.


def listed(*, at: int, names: tuple[tuple[int, ...], ...] = BOTH) -> Table:
    """Return the table of two streams whose lists were empty."""
    table = rule.empty(2, names)
    for stream in (A, B):
        table = rule.listed(table, stream, at, [None] * len(names))
    return table


def shown(table: Table) -> Claim | None:
    return table.rows[0].shown


def test_12_an_object_that_only_an_own_write_shows_stays_while_it_moves() -> None:
    written, moved = Claim(11, 11), Claim(12, 11)
    table = rule.answered(listed(at=10), 0, 11, written)
    table = rule.listed(table, B, 12, [None])
    assert shown(table) == written, "it may be in the other stream"
    assert shown(rule.put(table, A, 0, moved)) == moved


def test_9_an_own_deletion_is_forgotten_once_all_streams_have_passed_it() -> None:
    table = rule.answered(listed(at=10), 0, 11, Claim(11, 11))
    table = rule.deleted(table, 0, 11)
    table = rule.put(table, A, 0, Claim(11, 11))
    assert shown(table) is None
    table = rule.leave(table, A, 0, Claim(12, 11))
    table = rule.dated(rule.progress(table, B, 12), 12, {11})
    assert (shown(table), table.rows[0].deletions) == (None, ())


def test_12_quiet_streams_reach_the_newest_version_by_one_list_each() -> None:
    """Whatever is written meanwhile: all of them are listed as of one version."""
    table = listed(at=10)
    table = rule.put(table, A, 0, Claim(11, 11))
    table = rule.leave(table, A, 0, Claim(15, 11))
    target = rule.target(table)
    assert (target, shown(table)) == (15, Claim(11, 11))
    table, is_over = rule.probed(table, B, target, [None])
    assert (is_over, table.version, shown(table)) == (True, 15, None)
    assert rule.target(table) == target, "the probe is no reason for another one"


def test_12_a_probe_is_not_counted_name_by_name() -> None:
    """B holds nothing of two names. The second one is listed; the first one enters and leaves before it."""
    table = listed(at=10, names=((A, B), (A, B)))
    objects = [None, Claim(12, 12)]
    assert not rule.probed(table, B, 13, objects)[1]
    table = rule.put(table, B, 0, Claim(11, 11))
    table = rule.put(table, B, 1, Claim(12, 12))
    assert not rule.probed(table, B, 13, objects)[1], (
        "the first name would stay, and its departure be a replay"
    )
    table, is_over = rule.probed(rule.leave(table, B, 0, Claim(13, 11)), B, 13, objects)
    assert (is_over, table.rows[0].claims) == (True, (None, None))


def test_3_a_snapshot_is_a_table_that_stays_unchanged() -> None:
    before = rule.put(listed(at=10), A, 0, Claim(11, 11))
    after = rule.progress(rule.leave(before, A, 0, Claim(12, 11)), B, 12)
    assert (shown(before), before.version) == (Claim(11, 11), 10)
    assert (shown(after), after.version) == (None, 12)
