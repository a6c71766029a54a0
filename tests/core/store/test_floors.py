"""The states of objects that readers have seen end."""

from __future__ import annotations

from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.substore import Floors


def record(uid: str, version: int) -> Record:
    return Record("shop", "it", uid, str(version), {}, (), b"")


def test_16_two_floors_are_over_what_one_of_them_is_over() -> None:
    for versions in (("9", "14"), ("14", "9")):
        floors = Floors()
        for version in versions:
            floors.lay(("shop", "it"), version)
        assert floors.are_over(record("a", 14), listed=False)
        assert not floors.are_over(record("a", 15), listed=False)


def test_16_a_list_has_what_is_valid_as_of_its_version() -> None:
    floors, old = Floors(), record("a", 12)
    floors.lay(old.key, "14")
    for version, valid in (("13", []), ("14", [old])):
        floors.begin()
        assert floors.are_over(old, listed=True)
        assert floors.commit(version) == valid
    assert not floors, "it has passed them"


def test_16_a_list_that_is_abandoned_is_forgotten() -> None:
    floors = Floors()
    floors.lay(("shop", "it"), "14")
    floors.begin()
    floors.are_over(record("a", 12), listed=True)
    floors.begin()
    assert floors.commit("20") == []


def test_16_a_restore_during_a_list_ends_all_floors() -> None:
    floors, old = Floors(), record("a", 12)
    floors.lay(old.key, "14")
    floors.begin()
    floors.are_over(old, listed=True)
    floors.clear()
    assert floors.commit("5") == [old]
