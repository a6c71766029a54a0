"""Several branches of a server that was restored: readers see the former state until all branches have been
listed, and have reached each other's lists."""

from __future__ import annotations

import pytest

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer, writers

from .test_union_rules import held, listed, pod, told, two


def restored() -> tuple[Union, Writer, Writer]:
    """Return two branches of which the first was listed since the restore. Readers have seen version 900."""
    union, a, b = two(pod("900"), version="1000")
    assert listed(a, "500", pod("450"), restored=True) == []
    return union, a, b


def test_readers_see_the_former_state_until_all_branches_have_been_listed() -> None:
    union, a, b = restored()
    assert told(a.put(pod("510"))) == []
    assert (held(union), union.store.version, union.has_one_epoch) == ("900", "1000", False)
    assert told(listed(b, "500")) == [("900", "510")]
    assert (held(union), union.store.version, union.has_one_epoch) == ("510", "500", True)


def test_readers_see_the_former_state_until_all_branches_have_reached_the_newest_list() -> None:
    union, a, b = restored()
    assert listed(b, "505", restored=True) == [], "an object may have moved from B to A between the lists"
    assert (held(union), union.awaits_streams, union.awaited) == ("900", True, {a.substore: "505"})
    assert told(a.progress("505")) == [("900", "450")]
    assert (union.store.version, union.awaits_streams, union.awaited) == ("505", False, {})


def test_handlers_wait_while_readers_see_the_former_state() -> None:
    union, _, b = restored()
    assert union.has_unconfirmed_up_to("1", besides=("shop", "other"))
    listed(b, "500")
    assert not union.has_unconfirmed_up_to("1", besides=("shop", "other"))


def test_reports_of_a_branch_that_was_not_listed_since_do_not_count() -> None:
    _union, a, b = restored()
    assert b.put(pod("1001")) == b.leave(pod("1002")) == b.progress("1003") == []
    assert told(listed(b, "500", restored=True)) == [("900", "450")]
    assert told(a.put(pod("520"))) == [("450", "520")]
    a.leave(pod("521"))
    assert told(b.progress("521")) == [("520", None)], "1002 is no version of this server"


def test_an_object_that_moves_meanwhile_is_never_absent() -> None:
    union, a, b = restored()
    listed(b, "505", restored=True)
    a.leave(pod("507"))
    assert (held(union), union.store.version) == ("450", "505"), "A held it at 505"
    assert told(b.put(pod("507"))) == [("450", "507")]
    assert b.progress("507") == []


def test_a_departure_that_was_awaited_before_the_restore_is_forgotten() -> None:
    _, a, b = two(pod("900"), version="1000")
    a.leave(pod("1001"))
    listed(a, "500", pod("450"), restored=True)
    assert told(listed(b, "500", restored=True)) == [("900", "450")]
    a.leave(pod("510"))
    assert told(b.progress("510")) == [("450", None)]


def test_an_object_that_both_states_have_is_no_change() -> None:
    union, a, b = two(pod("90"), version="100")
    listed(a, "95", pod("90"), restored=True)
    assert listed(b, "95", restored=True) == []
    assert held(union) == "90"


def test_an_object_that_moves_before_the_others_are_listed_is_never_absent() -> None:
    _, a, b = restored()
    a.leave(pod("510"))
    assert told(listed(b, "505", restored=True)) == [("900", "450")], "B may hold it at 510"
    assert told(b.put(pod("510"))) == [("450", "510")]


def test_nothing_is_unconfirmed_that_only_the_former_state_has() -> None:
    union, a, _ = two(pod("900"), version="1000")
    a.leave(pod("1001"))
    listed(a, "500", restored=True)
    assert union.unconfirmed == {}


def test_a_further_list_of_the_first_branch_is_no_second_restore() -> None:
    union, a, b = restored()
    assert listed(a, "950", pod("450")) == []
    assert (held(union), union.epoch) == ("900", 1)
    assert told(listed(b, "950", restored=True)) == [("900", "450")]


def test_a_further_list_is_not_shown_before_the_others_either_if_nothing_was_shown() -> None:
    union, a, b = two(version="1000")
    listed(a, "5", restored=True)
    assert listed(a, "6", pod("6")) == []
    assert held(union) is None
    assert told(listed(b, "6", restored=True)) == [(None, "6")]


def test_objects_of_other_groups_of_the_namespace_stay_as_they_are() -> None:
    union = Union([Keys("shop", frozenset({"it"})), Keys("shop", frozenset({"other"}))])
    it, other = writers(union)
    listed(it, "1000", pod("900"))
    listed(other, "1000", pod("900", name="other"))
    assert told(listed(it, "500", pod("450"), restored=True)) == [("900", "450")]


def test_a_second_restore_begins_anew() -> None:
    union, a, b = restored()
    assert listed(a, "300", pod("250"), restored=True) == []
    assert listed(b, "400", restored=True) == [], "that list is from before the second restore, or later"
    assert told(a.progress("400")) == [("900", "250")]
    assert union.epoch == 2


def test_a_group_that_goes_back_takes_the_version_of_all_with_it() -> None:
    union = Union([Keys("shop"), Keys("blog")])
    shop, blog = writers(union)
    listed(shop, "1000")
    listed(blog, "2000")
    listed(blog, "500", restored=True)
    assert union.store.version == "500"


# ---- Restores under higher versions, which only the objects show.


def test_another_object_of_that_name_and_version_shows_that_the_server_was_restored() -> None:
    union, a, b = two(pod("9", uid="lost"))
    assert told(listed(a, "40", pod("9", uid="new"))) == []
    assert union.pop_streams_to_relist() == {b.substore: "restored"}
    assert told(listed(b, "40")) == [("9", None), (None, "9")]


def test_a_listed_object_that_is_older_than_the_visible_one_shows_that_the_server_was_restored() -> None:
    _union, a, b = two(pod("7"))
    a.leave(pod("9"))
    b.put(pod("9"))
    b.leave(pod("10"))
    a.put(pod("10"))
    assert told(listed(a, "110", pod("7"))) == []
    assert (a.epoch, b.epoch) == (1, 0)
    assert told(listed(b, "110")) == [("10", "7")]


def looked_at(groups: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Restore a server of some namespaces; return the number of keys that are looked at."""
    union = Union([Keys(f"ns-{number}") for number in range(groups)])
    for number, branch in enumerate(writers(union)):
        listed(branch, "1000", pod("900", namespace=f"ns-{number}"))
    looked: list[ObjectKey] = []
    could_hold = Union._could_hold

    def counted(union: Union, key: ObjectKey) -> tuple[Substore, ...]:
        looked.append(key)
        return could_hold(union, key)

    with monkeypatch.context() as patch:
        patch.setattr(Union, "_could_hold", counted)
        for number, branch in enumerate(writers(union)):
            listed(branch, "500", pod("450", namespace=f"ns-{number}"), restored=True)
    assert {record.version for record in union.store.records()[0]} == {"450"}
    return len(looked)


def test_a_restore_looks_only_at_the_objects_of_the_group_that_was_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert looked_at(40, monkeypatch) == 2 * looked_at(20, monkeypatch)


def test_an_object_that_departs_meanwhile_is_in_neither_state() -> None:
    union = Union([Keys("shop"), Keys("shop", frozenset({"it"})), Keys("shop", frozenset({"other"}))])
    every, named, other = writers(union)
    for branch in (every, named, other):
        listed(branch, "1000")
    listed(every, "500", pod("450"), restored=True)
    listed(named, "500", pod("450"), restored=True)
    every.leave(pod("510"))
    named.leave(pod("510"))
    assert listed(other, "510", restored=True) == []
    assert union.store.records()[0] == []
