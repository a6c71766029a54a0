"""The keys that a substore could hold, compared with all keys of a small world."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import pytest

from kopf_selectcache.core.selection.regions import Keys, groups_of

SPACES, NAMES = ("a", "b", "c"), ("x", "y")
ALL = [*product(SPACES, NAMES)]
OF_NAMESPACES = [
    Keys(),
    Keys("a"),
    Keys("b"),
    Keys(namespaces=frozenset("ab")),
    Keys(namespaces=frozenset("bc")),
    Keys(excluded=frozenset("a")),
    Keys(excluded=frozenset("ab")),
]
KEYS = [
    Keys(of.namespace, names, namespaces=of.namespaces, excluded=of.excluded)
    for of in OF_NAMESPACES
    for names in (None, frozenset("x"), frozenset("y"), frozenset("xy"))
]


def held(keys: Keys) -> set[tuple[str, str]]:
    """Return the keys of the world, by the definition of each restriction."""
    return {
        (space, name)
        for space, name in ALL
        if keys.namespace in (None, space)
        and (keys.namespaces is None or space in keys.namespaces)
        and space not in keys.excluded
        and (keys.names is None or name in keys.names)
    }


def test_keys_meet_if_both_could_hold_one() -> None:
    for one, other in product(KEYS, repeat=2):
        if one.excluded and other.excluded:
            assert one.meet(other) or not held(one) & held(other)  # There are always more namespaces.
        else:
            assert one.meet(other) is bool(held(one) & held(other)), (one, other)


class Stream(NamedTuple):
    number: int
    keys: Keys


def test_streams_of_a_thousand_namespaces_are_not_compared_with_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared, meet = list[Keys](), Keys.meet

    def counted(self: Keys, other: Keys) -> bool:
        compared.append(other)
        return meet(self, other)

    monkeypatch.setattr(Keys, "meet", counted)
    names = (frozenset("x"), frozenset("y"))
    several = [Keys(f"ns-{number}", name) for number in range(1000) for name in names]
    assert len(groups_of([Stream(number, keys) for number, keys in enumerate(several)])) == 2000
    assert len(compared) == 1000
