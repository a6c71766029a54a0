"""Several branches of a server that was restored: what of an older epoch is shown, and for how long."""

from __future__ import annotations

from kopf_selectcache.core.store.unconfirmed import UnconfirmedLeave
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer, writers

from .test_union_rules import held, listed, pod, told, two


def test_a_restored_branch_shows_the_older_state_at_once() -> None:
    union, a, b = two(pod("900"), version="1000")
    assert told(listed(a, "500", pod("450"), restored=True)) == [("900", "450")]
    assert (held(union), b.epoch) == ("450", 0)


def test_a_restore_of_one_branch_does_not_touch_what_others_hold_until_they_say() -> None:
    union, a, b = two(version="1000")
    listed(b, "1000", pod("900"))
    assert listed(a, "500", restored=True) == []
    assert held(union) == "900"
    assert told(listed(b, "510", pod("450"), restored=True)) == [("900", "450")]
    assert writers(union)[0].epoch == writers(union)[1].epoch == 1
    assert told(a.put(pod("520"))) == [("450", "520")]


def test_a_newer_epoch_wins_over_a_higher_version() -> None:
    union, a, b = two(version="1000")
    listed(b, "1000", pod("900"))
    listed(a, "500", restored=True)
    assert told(a.put(pod("510"))) == [("900", "510")]
    assert b.put(pod("1001")) == []
    assert a.leave(pod("520")) == []
    assert held(union) == "510", "what an older epoch says does not count after that"


def test_a_branch_of_an_older_epoch_has_reached_nothing_of_the_new_one() -> None:
    _, a, b = two(pod("900"), version="1000")
    listed(a, "500", pod("450"), restored=True)
    a.leave(pod("510"))
    assert b.progress("1001") == []
    assert told(listed(b, "505", restored=True)) == []
    assert told(b.progress("510")) == [("450", None)]


def test_a_branch_that_was_behind_the_restored_state_is_in_the_new_epoch_at_once() -> None:
    _, a, b = two(pod("290"), version="300")
    a.progress("1000")
    listed(a, "500", pod("290"), restored=True)
    assert b.epoch == 1
    a.leave(pod("510"))
    assert told(b.progress("510")) == [("290", None)]


def test_a_leave_that_was_waited_for_when_the_server_was_restored_waits_for_the_new_state() -> None:
    union, a, b = two(pod("290"), version="300")
    a.put(pod("900"))
    a.progress("900")
    a.leave(pod("910"))
    assert listed(a, "500", restored=True) == []
    assert held(union) == "900"
    assert told(b.put(pod("400"))) == [("900", "400")], "whatever is said now is newer than what was lost"
    b.leave(pod("420"))
    assert told(b.progress("500")) == [("400", None)]


def test_what_was_lost_gives_way_to_a_list_past_the_restored_state() -> None:
    union, a, b = two(pod("290"), version="300")
    a.put(pod("900"))
    a.progress("900")
    a.leave(pod("910"))
    listed(a, "500", restored=True)
    assert (held(union), b.epoch, union.pop_streams_to_relist()) == ("900", 1, {b.substore: "restored"})
    assert told(listed(b, "510", pod("450"))) == [("900", "450")]
    assert union.pop_streams_to_relist() == {}, "it has missed nothing"


def test_the_version_stays_until_all_branches_have_heard_that_the_server_was_restored() -> None:
    union, a, b = two(pod("9"))
    listed(b, "11", pod("9", name="lost"))
    a.progress("11")
    assert union.store.version == "11"
    listed(a, "110", pod("7"))
    b.progress("120")
    assert (len(union.store.records()[0]), union.store.version) == (2, "11"), "what is lost is shown"
    listed(b, "121")
    a.progress("121")
    b.progress("121")
    assert (held(union), len(union.store.records()[0]), union.store.version) == ("7", 1, "121")


def test_another_object_of_that_name_and_version_shows_that_the_server_was_restored() -> None:
    union, a, b = two(pod("9", uid="lost"))
    assert told(listed(a, "40", pod("9", uid="new"))) == [("9", None), (None, "9")]
    assert union.pop_streams_to_relist() == {b.substore: "restored"}


def test_what_is_listed_otherwise_in_the_same_version_is_shown_as_it_was_listed() -> None:
    union, a, _ = two(pod("9", data=b"old"))
    assert told(listed(a, "40", pod("9", data=b"new"))) == [("9", "9")]
    assert [record.data for record in union.store.records()[0]] == [b"new"]


def test_a_server_that_was_restored_under_higher_versions_is_known_by_its_objects() -> None:
    union, a, b = two(pod("7"))
    a.leave(pod("9"))
    b.put(pod("9"))
    b.leave(pod("10"))
    a.put(pod("10"))
    assert told(listed(a, "110", pod("7"))) == [("10", "7")]
    assert (a.epoch, b.epoch) == (1, 0), "what the other one has taken in may be lost"
    assert told(listed(b, "111")) == []
    assert (held(union), b.epoch) == ("7", 1)


# The name is a sentence.
def test_when_one_branch_finds_that_the_server_was_restored_the_others_are_to_be_listed_anew_and_that_is_said_once() -> (  # noqa: E501
    None
):
    union, a, b = two(pod("10"))
    assert union.pop_streams_to_relist() == {}
    listed(a, "8", restored=True)
    assert union.pop_streams_to_relist() == {b.substore: "restored"}
    listed(b, "8", restored=True)
    assert union.pop_streams_to_relist() == {}


def test_a_branch_that_is_behind_what_is_shown_proves_nothing() -> None:
    union, a, b = two(pod("7"))
    b.put(pod("20"))
    listed(a, "15", pod("7"))
    assert (held(union), union.pop_streams_to_relist()) == ("20", {})


def test_what_was_lost_is_shown_until_the_object_comes_that_has_its_name_in_the_restored_world() -> None:
    union, a, b = two(pod("90"), version="100")
    b.put(pod("90"))
    listed(a, "50", restored=True)
    assert held(union) == "90"
    assert told(listed(b, "50", pod("40", uid="another"), restored=True)) == [("90", None), (None, "40")]


def missed() -> tuple[Union, Writer, Writer]:
    """The first was not told of a change, nor of the departure after it, and cannot be listed."""
    union, a, b = two(pod("1"))
    b.put(pod("12"))
    b.leave(pod("14"))
    b.progress("14")
    a.progress("20")
    return union, a, b


def test_what_was_asked_about_a_missed_change_before_the_server_was_restored_is_asked_anew() -> None:
    union, _, b = missed()
    listed(b, "11", restored=True)
    assert union.unconfirmed == (UnconfirmedLeave("shop", "it", "uid", "11", 1),)


def test_a_branch_that_is_outdated_by_a_restore_is_not_called_one_that_missed_something() -> None:
    union, a, b = two(pod("1"))
    b.progress("15")
    listed(b, "11", restored=True)
    b.put(pod("12"))
    b.leave(pod("14"))
    b.progress("14")
    a.progress("20")
    assert (held(union), union.unconfirmed[0].version) == ("12", "12"), "it has missed the change besides"
    assert union.pop_streams_to_relist() == {a.substore: "restored"}
