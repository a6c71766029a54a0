"""Another filter takes over whole groups of a union: what its streams await goes on where it was."""

from __future__ import annotations

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer, writers

from .test_union_restores import restored
from .test_union_rules import doubtful, held, listed, pod, told, two


def taken_over(union: Union) -> tuple[Union, Writer, Writer]:
    following = Union([Keys(), Keys()], epoch=union.epoch)
    following.take_over(union, dict(zip(union.substores, following.substores, strict=True)))
    a, b = writers(following)
    return following, a, b


def test_16_a_departure_is_awaited_as_before() -> None:
    before, *_ = doubtful()
    union, a, b = taken_over(before)
    assert (held(union), union.awaited) == ("1", {b.substore: "12"})
    (change,) = b.progress("12")
    assert change.last is not None
    assert (change.after, change.last.version, a.version) == (None, "12", "12")


def test_16_a_departure_at_an_unknown_version_is_awaited_as_before() -> None:
    before, old, _ = two(pod("1"))
    old.leave(pod("1"))
    _, a, b = taken_over(before)
    assert a.progress("12") == []
    (change,) = b.progress("12")
    assert change.last is not None
    assert (told([change]), change.last.version) == ([("1", None)], "1")


def test_16_a_list_that_the_others_have_not_reached_holds_the_version_back_as_before() -> None:
    before, old, other = two()
    old.progress("12")
    listed(other, "15")
    union, a, _ = taken_over(before)
    assert union.store.version == "10"
    a.progress("13")
    assert union.store.version == "10"
    a.progress("15")
    assert union.store.version == "15"


def test_16_a_stream_that_has_missed_a_change_holds_the_version_back_as_before() -> None:
    before, old, other = two(pod("1"))
    other.put(pod("12"))
    other.leave(pod("14"))
    old.progress("20")
    union, a, b = taken_over(before)
    a.progress("21")
    b.progress("21")
    assert (held(union), union.store.version) == ("12", "10")


def test_16_the_state_from_before_a_restore_is_shown_as_before() -> None:
    before, *_ = restored()
    union, _, b = taken_over(before)
    assert (held(union), union.has_one_epoch) == ("900", False)
    assert told(listed(b, "500", restored=True)) == [("900", "450")]


def test_16_objects_of_other_groups_are_not_taken_over() -> None:
    before = Union([Keys("shop"), Keys("blog")])
    for branch in writers(before):
        listed(branch, "10", pod("9", namespace=branch.keys.namespace or ""))
    union = Union([Keys("shop"), Keys("infra")])
    union.take_over(before, {before.substores[0]: union.substores[0]})
    assert [record.namespace for record in union.store.records()[0]] == ["shop"]
