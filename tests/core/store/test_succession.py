"""Single rules of a change of the filter. The worlds of tests/world play them in all orders."""

from __future__ import annotations

import pytest

from kopf_selectcache.core.store.changes import ChangeCause
from kopf_selectcache.core.store.record import OutsideRecord, Record
from kopf_selectcache.core.store.substore import Keys
from kopf_selectcache.core.store.succession import Succession
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer, writers


def pod(version: str, *, uid: str = "uid", name: str = "it") -> Record:
    return Record("shop", name, uid, version, {}, (), b"")


def changing(before: int, after: int, *kept: int) -> tuple[Succession, Union, Union]:
    """Return the succession of two unions whose streams are listed at version 10; the kept ones have the same
    number in both.
    """
    present, following = Union([Keys()] * before), Union([Keys()] * after)
    for writer in writers(present):
        writer.begin()
        writer.commit("10")
    kept_ = {present.substores[each]: following.substores[each] for each in kept}
    succession = Succession(present, following, kept_, selects=lambda _: None, selected=lambda _: None)
    return succession, present, following


def exchanged_after_a_departure() -> Writer:
    """Return the stream of the next union, which is listed at version 15; readers have seen version 20 of an
    object depart.
    """
    succession, before, after = changing(1, 1)
    (a,), (b,) = writers(before), writers(after)
    succession.note(a.put(pod("20")))
    succession.note(a.leave(pod("21")))
    a.progress("21")
    b.begin()
    b.commit("15")
    assert succession.has_arrived()
    assert succession.differences() == []
    return b


def test_16_what_a_restored_server_has_is_not_ignored() -> None:
    b = exchanged_after_a_departure()
    assert b.put(pod("19")) == [], "readers have seen version 20 depart"
    b.begin()
    b.commit("5", restored=True)
    assert b.put(pod("7")), "the server was restored"
    assert b.put(pod("22"))


def test_16_a_union_knows_the_version_that_readers_of_earlier_filters_have_seen() -> None:
    succession, before, after = changing(2, 1)
    a, _ = writers(before)
    a.progress("20")
    assert before.seen == ""
    succession.differences()
    assert after.seen == "20"
    third = Union([Keys()])
    Succession(after, third, {}, selects=lambda _: True, selected=lambda _: True).differences()
    assert third.seen == "20", "the second filter is behind the first one"
    (c,) = writers(third)
    c.begin()
    c.commit("5", restored=True)
    assert third.seen == ""


def test_16_a_filter_changes_once_its_streams_have_what_readers_have_seen() -> None:
    succession, before, after = changing(1, 1)
    (a,), (b,) = writers(before), writers(after)
    for name in ("gone", "it", "other"):
        a.put(pod("11", name=name))
    a.progress("11")
    b.begin()
    b.commit("10")
    assert not succession.has_arrived()
    b.put(pod("12"))
    b.put(pod("13", name="other", uid="uid2"))
    assert not succession.has_arrived()
    b.progress("13")
    assert succession.has_arrived()
    causes = [change.cause for change in succession.differences()]
    assert causes == [ChangeCause.LEFT, ChangeCause.DELETED, ChangeCause.UPDATED, ChangeCause.ENTERED]


def test_16_a_deletion_with_the_version_of_its_object_is_waited_for() -> None:
    succession, before, after = changing(2, 1)
    a, b = writers(before)
    (c,) = writers(after)
    a.put(pod("11"))
    a.progress("11")
    succession.note(a.leave(pod("11")))
    c.begin()
    c.commit("11")
    assert not succession.has_arrived(), "nobody knows yet at which version it was deleted"
    for each in (a, b, c):
        succession.note(each.progress("13"))
    assert succession.has_arrived()


def test_16_a_filter_does_not_change_before_all_its_streams_have_seen_a_restore() -> None:
    succession, _, after = changing(2, 2, 0, 1)
    a, b = writers(after)
    a.begin()
    a.commit("5", restored=True)
    assert not succession.has_arrived()
    b.begin()
    b.commit("5", restored=True)
    assert succession.has_arrived()


def test_16_a_filter_changes_although_its_former_streams_have_not_seen_a_restore() -> None:
    succession, before, after = changing(2, 1)
    a, b = writers(before)
    b.put(pod("20"))
    a.begin()
    a.commit("5", restored=True)
    (c,) = writers(after)
    c.begin()
    c.put(pod("4"))
    c.commit("5")
    assert succession.has_arrived()


# ---- Floors: what readers have seen end before the filter changed.


def listed(version: str) -> tuple[Union, Writer, Writer]:
    """Return a union of two streams whose lists had no object, and their writers."""
    union = Union([Keys(), Keys()])
    a, b = writers(union)
    for each in (a, b):
        each.begin()
        each.commit(version)
    return union, a, b


def next_of(
    before: Union, kept: int | None, *, more: int = 0, selected: bool | None = True
) -> tuple[Succession, tuple[Writer, ...]]:
    """Return a change to a filter with one of the streams, or none, and more of its own; and its writers."""
    after = Union([Keys()] * (more + (kept is not None)))
    of = {} if kept is None else {before.substores[kept]: after.substores[0]}
    succession = Succession(before, after, of, selects=lambda _: True, selected=lambda _: selected)
    return succession, writers(after)


@pytest.mark.parametrize("more", [0, 1])
def test_16_the_filter_after_the_next_ignores_what_readers_have_seen_end(more: int) -> None:
    succession, (c, *others) = next_of(exchanged_after_a_departure().union, 0, more=more)
    for each in others:
        each.begin()
        each.commit("15")
    assert succession.has_arrived()
    assert succession.differences() == []
    assert c.put(pod("19")) == []
    assert c.put(pod("22"))
    c.progress("22")
    assert not c.substore.floors


def test_16_a_list_that_is_newer_than_the_end_of_an_object_has_it_again() -> None:
    b = exchanged_after_a_departure()
    b.begin()
    b.put(pod("19"))
    assert b.commit("19") == [], "the list is older"
    b.begin()
    b.put(pod("19"))
    assert b.commit("1000"), "the server was restored, and its versions are higher"
    assert not b.substore.floors


def test_16_what_a_restore_during_a_change_has_undone_is_not_ignored() -> None:
    b = exchanged_after_a_departure()
    succession, (c,) = next_of(b.union, None, more=1)
    c.begin()
    c.commit("15")
    b.begin()
    b.commit("5", restored=True)
    assert succession.has_arrived()
    succession.differences()
    assert c.put(pod("12")), "the restored server has given this version again"


def test_16_a_list_that_tells_of_a_restore_has_its_own_objects() -> None:
    b = exchanged_after_a_departure()
    b.begin()
    b.put(pod("9"))
    assert [change.cause for change in b.commit("10", restored=True)] == [ChangeCause.ENTERED]


@pytest.mark.parametrize("streams", [1, 2])
def test_16_a_change_ends_although_a_restored_server_has_an_old_state_again(streams: int) -> None:
    succession, before, after = changing(streams, 1)
    former, (a,) = writers(before), writers(after)
    former[0].put(pod("11"))
    for each in former:
        each.progress("11")
        # Its versions go on beyond those of before.
        each.begin()
        succession.note(each.commit("1000"))
    a.begin()
    a.put(pod("9"))
    a.commit("1000")
    assert succession.has_arrived()


def test_16_what_a_server_gives_after_a_restore_during_a_change_is_not_ignored() -> None:
    succession, before, after = changing(1, 1)
    (b,), (a,) = writers(before), writers(after)
    succession.note(b.put(pod("20")))
    b.progress("20")
    b.begin()
    succession.note(b.commit("12", restored=True))
    b.progress("25")
    a.begin()
    a.commit("15")
    assert succession.has_arrived()
    succession.differences()
    assert a.put(pod("16")), "readers have seen version 20 of the server that was restored"


def test_16_a_cache_is_split_once_its_outer_stream_is_as_new_as_a_departure() -> None:
    before, a, b = listed("10")
    a.put(pod("12"))
    a.leave(pod("13"))
    for writer, version in ((a, "13"), (b, "14")):
        writer.progress(version)
    after = Union([Keys(), Keys(are_outside=True)])
    kept = {before.substores[0]: after.substores[0]}
    succession = Succession(before, after, kept, selects=lambda _: True, selected=lambda _: False)
    _, outer = writers(after)
    outer.begin()
    outer.put(OutsideRecord("shop", "it", "uid", "13", {}, (), b""))
    outer.commit("13")
    assert not succession.has_arrived(), "it had left as of 14"
    outer.progress("14")
    assert succession.has_arrived()
