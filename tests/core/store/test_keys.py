"""The keys that a substore could hold, compared with all keys of a small world."""

from __future__ import annotations

from itertools import product

from kopf_selectcache.core.selection.keys import Keys

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


def test_keys_have_what_fits_each_restriction() -> None:
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
