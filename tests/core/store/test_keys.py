"""The keys that a substore could hold, compared with all keys of a small world."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
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


def test_keys_have_all_that_fits_each_restriction() -> None:
    for keys in KEYS:
        assert {key for key in ALL if keys.have(key)} == held(keys)


def test_keys_meet_if_both_could_hold_one() -> None:
    for one, other in product(KEYS, repeat=2):
        if one.excluded and other.excluded:
            assert one.meet(other) or not held(one) & held(other)  # There are always more namespaces.
        else:
            assert one.meet(other) is bool(held(one) & held(other)), (one, other)


def test_keys_without_restrictions_are_all_of_their_path() -> None:
    assert [keys for keys in OF_NAMESPACES if keys.are_of_path] == [Keys(), Keys("a"), Keys("b")]


class Stream(NamedTuple):
    number: int
    keys: Keys


def test_streams_with_a_key_in_common_are_a_group() -> None:
    for several in combinations_with_replacement(KEYS, 3):
        streams = [Stream(number, keys) for number, keys in enumerate(several)]
        group_of = {each: group for group in groups_of(streams) for each in group}
        assert group_of.keys() == set(streams)
        for one, other in product(streams, repeat=2):
            if held(one.keys) & held(other.keys):
                assert group_of[one] is group_of[other]
        for group in set(group_of.values()):  # Each is connected: it is no larger than it must be.
            first = next(iter(group))
            near, reached = {first}, set[Stream]()
            while near:
                reached |= near
                near = {
                    each for each in group - reached if any(held(each.keys) & held(of.keys) for of in reached)
                }
            assert reached == group


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
