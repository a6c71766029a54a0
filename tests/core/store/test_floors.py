"""The states of objects that readers have seen end."""

from __future__ import annotations

from itertools import product

from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.substore import Floor, Floors

FLOORS = [
    Floor(str(version), but, until)
    for version in (1, 2, 3)
    for but in ("", "a", "b")
    for until in ("", "1", "2")
    if (but or not until) and int(until or 0) <= version
]


def record(uid: str, version: int) -> Record:
    return Record("shop", "it", uid, str(version), {}, (), b"")


def test_16_two_floors_are_over_what_one_of_them_is_over() -> None:
    for one, other in product(FLOORS, repeat=2):
        floors = Floors()
        floors.lay(("shop", "it"), one)
        floors.lay(("shop", "it"), other)
        for uid, version in product("abc", range(1, 5)):
            state = record(uid, version)
            is_over = one.is_over(state) or other.is_over(state)
            assert floors.are_over(state, listed=False) == is_over, (one, other, state)


def test_16_a_list_has_what_is_valid_as_of_its_version() -> None:
    floors, old = Floors(), record("a", 12)
    floors.lay(old.key, Floor("14"))
    for version, valid in (("13", []), ("14", [old])):
        floors.begin()
        assert floors.are_over(old, listed=True)
        assert floors.commit(version) == valid
    assert not floors, "it has passed them"


def test_16_a_list_that_is_abandoned_is_forgotten() -> None:
    floors = Floors()
    floors.lay(("shop", "it"), Floor("14"))
    floors.begin()
    floors.are_over(record("a", 12), listed=True)
    floors.begin()
    assert floors.commit("20") == []


def test_16_a_restore_during_a_list_ends_all_floors() -> None:
    floors, old = Floors(), record("a", 12)
    floors.lay(old.key, Floor("14"))
    floors.begin()
    floors.are_over(old, listed=True)
    floors.clear()
    assert floors.commit("5") == [old]
