"""Several streams, one store: what each rule of it is for. A is the first branch, B the second."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.record import OutsideRecord, Record
from kopf_selectcache.core.store.store import seen_of
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer, writers
from tests.rows import each_row


def pod(
    version: str, *, uid: str = "uid", name: str = "it", namespace: str = "shop", data: bytes = b""
) -> Record:
    return Record(namespace, name, uid, version, {}, (), data)


def listed(branch: Writer, version: str, *records: Record, restored: bool = False) -> list[Change]:
    branch.begin()
    for record in records:
        assert branch.put(record) == []
    return branch.commit(version, restored=restored)


def two(*records: Record, version: str = "10") -> tuple[Union, Writer, Writer]:
    """Return two branches, of which the first holds these."""
    union = Union([Keys(), Keys()])
    a, b = writers(union)
    listed(a, version, *records)
    listed(b, version)
    return union, a, b


def told(changes: list[Change]) -> list[tuple[str | None, ...]]:
    return [
        tuple(record.version if record else None for record in (change.before, change.after))
        for change in changes
    ]


def held(union: Union) -> str | None:
    record, _ = union.store.get("shop", "it")
    return record.version if record is not None else None


# ---- Leaves that are unconfirmed.


def doubtful() -> tuple[Union, Writer, Writer]:
    union, a, b = two(pod("1"))
    a.leave(pod("12"))
    assert [(key, row.left) for key, row in union.unconfirmed.items()] == [(("shop", "it"), "12")]
    return union, a, b


@pytest.mark.parametrize(
    ("keys", "cause", "known_by"),
    [
        ((Keys(), Keys()), ChangeCause.LEFT, None),
        ((Keys(complete=True), Keys()), ChangeCause.DELETED, "filter by name"),
        ((Keys(), Keys(are_outside=True)), ChangeCause.DELETED, "metadata"),
    ],
)
def test_a_departure_is_known_to_be_a_deletion_only_if_the_streams_prove_absence(
    keys: tuple[Keys, Keys], cause: ChangeCause, known_by: str | None
) -> None:
    union = Union(keys)
    a, b = writers(union)
    for each in (a, b):
        each.begin()
    a.put(pod("1"))
    a.commit("9")
    b.commit("9")
    a.leave(pod("12"))
    (change,) = b.jump("12")
    assert (change.cause, change.known_by) == (cause, known_by)


# ---- Versions.


def test_versions_that_cannot_be_compared_are_settled_by_equality() -> None:
    union, a, b = two(pod("v1"), version="la")
    a.leave(pod("v2"))
    assert b.progress("v3") == []
    assert told(b.progress("v2")) == [("v1", None)]
    a.put(pod("v4"))
    b.put(pod("v5"))
    assert held(union) == "v5", "the last one that spoke"
    a.put(pod("v6"))
    assert held(union) == "v6"
    a.leave(pod("v7"))
    b.leave(pod("v8"))
    assert union.awaited == {}, "no list shows how far a stream is"
    b.progress("v8")
    assert told(a.progress("v8")) == [("v6", None)]


def test_a_list_counts_when_the_others_have_reached_it() -> None:
    union, a, b = two()
    a.progress("12")
    listed(b, "15")
    assert union.store.version == "10", "what has come to B and moved to A meanwhile is in neither"
    a.progress("15")
    assert union.store.version == "15"


def test_an_object_in_two_branches_is_held_once() -> None:
    union, a, b = two(pod("1"))
    b.put(pod("1"))
    records = [branch.view.get("shop", "it")[0] for branch in (a, b)]
    assert records[0] is records[1] is union.store.get("shop", "it")[0]


@pytest.mark.parametrize("branches", [1, 2])
def test_a_namespace_of_which_nothing_is_left_is_forgotten(branches: int) -> None:
    union = Union([Keys()] * branches)
    a, *_ = every = writers(union)
    for branch in every:
        listed(branch, "10")
    a.put(pod("11"))
    a.leave(pod("12"))
    for branch in every:
        branch.progress("12")
    assert not union.store.holds_any


# ---- Groups of branches that have no key in common.


def test_objects_of_a_wider_watch_are_not_taken_in() -> None:
    union = Union([Keys("shop", frozenset({"it", "too"})), Keys("blog")])
    shop, _ = writers(union)
    listed(shop, "10", pod("1"))
    assert shop.put(pod("11", name="other")) == []
    shop.leave(pod("12", name="other"))
    assert shop.version == "10"
    assert [record.name for record in shop.view.records()[0]] == ["it"]


def test_a_deletion_of_an_unknown_version_is_shown_at_once_where_no_other_branch_could_hold_it() -> None:
    union = Union([Keys("shop"), Keys("blog")])
    shop, blog = writers(union)
    listed(shop, "10", pod("1"))
    listed(blog, "10")
    assert told(shop.leave(pod("1"))) == [("1", None)]
    assert union.awaited == {}


def grouped() -> Union:
    """Two branches of the namespace `shop`, two of `infra`, and one of a name in `infra`; nothing is listed
    yet."""
    return Union(
        [
            Keys("shop"),
            Keys("infra"),
            Keys("shop"),
            Keys("infra", frozenset({"ca"})),
            Keys("infra", frozenset({"tls"})),
        ]
    )


def test_objects_in_several_branches_are_known_when_all_possible_holders_reported() -> None:
    union = grouped()
    one, other, two, ca, tls = writers(union)
    shop, infra = union.needed([one.substore, two.substore]), union.needed([ca.substore, tls.substore])
    it = pod("9")
    listed(one, "10", it)
    assert (shop.version, infra.version) == ("", "")
    listed(two, "12")
    one.progress("12")
    assert (shop.version, infra.version, union.store.version) == ("12", "", "")
    assert shop.get("shop", "it") == shop.locate("shop", "it") == (it, "12")
    assert shop.records() == ([it], "12")
    for branch in (ca, tls):
        listed(branch, "13")
    assert infra.version == "", "the third could hold what they have not heard of"
    listed(other, "13")
    assert (shop.version, infra.version, union.store.version) == ("12", "13", "12")
    assert {*union.near([ca.substore])} == {other.substore, ca.substore, tls.substore}


@each_row("uid", ["uid", "another"], ids=["changed", "recreated"])
@each_row("there", [True, False])
def test_an_object_never_goes_back_to_the_state_of_a_branch_that_missed_the_change(
    there: bool, uid: str
) -> None:
    union, a, b = two(pod("1"))
    assert told(b.put(pod("12", uid=uid))) == ([("1", "12")] if uid == "uid" else [("1", None), (None, "12")])
    b.leave(pod("14", uid=uid))
    b.progress("14")
    assert (held(union), union.pop_streams_to_relist()) == ("12", {})
    a.progress("20")  # Past the change, of which the server has told it nothing.
    assert (held(union), union.pop_streams_to_relist()) == ("12", {a.substore: "missed"})
    changes = listed(a, "21", *([pod("14", uid=uid)] if there else [])) + b.progress("21")
    assert told(changes) == [("12", "14" if there else None)]
    assert union.pop_streams_to_relist() == {}


def test_a_change_that_a_branch_missed_is_unconfirmed_until_it_is_listed_anew() -> None:
    union, a, b = two(pod("1"))
    b.put(pod("12"))
    b.leave(pod("14"))
    b.progress("14")
    a.progress("20")
    assert (held(union), union.pop_streams_to_relist(), union.store.version) == (
        "12",
        {a.substore: "missed"},
        "10",
    ), "it has left, and is shown"
    assert list(union.unconfirmed) == [("shop", "it")]
    assert union.is_unconfirmed(("shop", "it"))
    assert a.progress("21") == []
    assert held(union) == "12", "the list is refused"
    assert listed(a, "22") == []
    assert told(b.progress("22")) == [("12", None)]
    assert (union.unconfirmed, union.pop_streams_to_relist(), union.store.version) == ({}, {}, "22")


def test_a_record_of_another_branch_in_the_same_version_is_shown_once_the_first_has_left() -> None:
    union, a, b = two()
    b.put(pod("11"))
    assert a.put(replace(pod("11"), fields=b'{"status.phase":"Running"}')) == []
    assert told(b.leave(pod("12"))) == [("11", "11")]
    assert union.unconfirmed == {}


def test_an_object_that_one_branch_has_reported_to_leave_is_unconfirmed_until_something_newer_is_known() -> (
    None
):
    union, a, b = two(pod("1"))
    b.put(pod("1"))
    a.leave(pod("12"))
    assert union.is_unconfirmed(("shop", "it"))
    b.put(pod("13"))
    assert not union.is_unconfirmed(("shop", "it"))


def test_versions_that_cannot_be_compared_leave_nothing_behind_that_no_branch_holds() -> None:
    union, a, b = two(pod("va"), version="la")
    b.put(pod("vb"))
    a.put(pod("vc"))
    a.leave(pod("vd"))
    assert held(union) == "vc"
    assert told(b.progress("vd")) == [("vc", "vb")]
    a.put(pod("ve"))
    b.progress("vf")
    assert told(a.leave(pod("vf"))) == [("ve", "vb")]


# ---- The changes that readers of a split union see.


def test_one_branch_alone_is_read_without_the_union() -> None:
    union = Union()
    (branch,) = writers(union)
    branch.put(pod("11"))
    branch.progress("12")
    assert union.store is branch.view
    assert union.store.version == "12"


def test_9_an_object_that_a_list_lacks_may_have_left_at_any_earlier_version() -> None:
    """A handler that was called with an event from before the list waits until the leave is confirmed."""
    union, a, _ = two(pod("1"))
    listed(a, "20")
    (row,) = union.unconfirmed.values()
    assert row.left == "20"
    assert union.has_unconfirmed_up_to("15", besides=("shop", "other"))


def test_9_an_object_that_left_by_an_event_has_not_left_before() -> None:
    union, *_ = doubtful()
    assert not union.has_unconfirmed_up_to("11", besides=("shop", "other"))
    assert union.has_unconfirmed_up_to("12", besides=("shop", "other"))


def test_9_an_object_that_left_several_streams_may_have_left_at_the_oldest_of_these_versions() -> None:
    union, a, b = two(pod("1"))
    b.put(pod("1"))
    a.leave(pod("15"))
    b.leave(pod("12"))
    assert not union.has_unconfirmed_up_to("11", besides=("shop", "other"))
    assert union.has_unconfirmed_up_to("12", besides=("shop", "other"))
    assert not union.has_unconfirmed_up_to("12", besides=("shop", "it"))


def test_9_of_two_objects_that_left_only_the_first_may_have_left_before() -> None:
    union, a, _ = two(pod("1"), pod("1", name="other"))
    a.leave(pod("11", name="other"))
    a.leave(pod("15"))
    assert not union.has_unconfirmed_up_to("12", besides=("shop", "other"))
    assert union.has_unconfirmed_up_to("15", besides=("shop", "other"))


def test_a_stream_that_gave_no_version_of_a_deletion_is_awaited_at_no_version() -> None:
    union, a, _ = two(pod("1"))
    a.leave(pod("1"))
    assert union.awaited == {a.substore: ""}


def test_the_newest_records_are_those_of_a_list_under_way_once_it_has_more() -> None:
    union, a, b = two(pod("1"))
    b.put(pod("1"))
    assert [record.name for record in union.newest()] == ["it"]
    a.begin()
    a.put(pod("1"))
    assert a.put(pod("11", name="new")) == []
    assert [record.name for record in union.newest()] == ["it", "new"]


def test_objects_enter_and_leave_the_filter_and_those_outside_of_it_are_not_seen() -> None:
    inside, outside = pod("5"), OutsideRecord("shop", "it", "uid", "6", {}, (), b"")
    moves = [
        Change(outside, inside, ChangeCause.UPDATED),
        Change(inside, outside, ChangeCause.UPDATED),
        Change(None, outside, ChangeCause.ENTERED),
        Change(inside, inside, ChangeCause.UPDATED),
    ]
    assert seen_of(moves) == [
        Change(None, inside, ChangeCause.ENTERED),
        Change(inside, None, ChangeCause.LEFT, known_by="metadata"),
        Change(inside, inside, ChangeCause.UPDATED),
    ]
