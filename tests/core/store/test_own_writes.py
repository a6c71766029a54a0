"""Own writes: which of them reads show, and until when. A and B are two branches of a filter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store import claims
from kopf_selectcache.core.store import store as store_module
from kopf_selectcache.core.store import union as union_module
from kopf_selectcache.core.store.claims import OwnWrite, OwnWrites
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer, writers
from tests.interleaving import stepping
from tests.rows import each_row

KEY = "shop", "a"


def record(version: int, uid: str = "u1", name: str = "a", namespace: str = "shop") -> Record:
    return Record(namespace, name, uid, str(version), {}, (), b"{}")


def written(version: int, uid: str = "u1", name: str = "a", namespace: str = "shop") -> OwnWrite:
    found = record(version, uid, name, namespace)
    return OwnWrite(found.key, uid, str(version), found, at=float(version))


def outside(version: int, uid: str = "u1") -> OwnWrite:
    found = record(version, uid)
    return OwnWrite(KEY, uid, str(version), None, at=float(version), expected=False, outside=found)


def deleted(uid: str = "u1", name: str = "a") -> OwnWrite:
    return OwnWrite(("shop", name), uid, "", None, at=0.0)


def listed(branch: Writer, version: int, *records: Record, writes_added: int = 0) -> None:
    branch.begin()
    for each in records:
        branch.put(each)
    branch.union.commit(branch.substore, str(version), writes_added=writes_added)


def one(*records: Record, version: int = 10) -> tuple[Union, Writer]:
    """Return the only branch of a union, which holds these."""
    union = Union()
    (branch,) = writers(union)
    listed(branch, version, *records)
    return union, branch


def two(*records: Record, version: int = 10) -> tuple[Union, Writer, Writer]:
    """Return two branches, of which the first holds these."""
    union = Union([Keys(), Keys()])
    a, b = writers(union)
    listed(a, version, *records)
    listed(b, version)
    return union, a, b


def shown(union: Union, key: tuple[str, str] = KEY) -> str | None:
    """Return the version of what readers see."""
    held, version = union.store.get(*key)
    write = union.own_writes.get(key)
    found = held if write is None else write.instead_of(held, version)
    return None if found is None else found.version


def active(union: Union) -> list[str]:
    return [write.version or "deleted" for write in union.own_writes]


def resting(union: Union) -> list[str]:
    return [write.version or "deleted" for write in union.own_writes.resting.values()]


@each_row(
    ("write", "held", "version", "expected"),
    [
        (written(12), record(11), "11", "12"),
        (written(12), None, "11", "12"),
        (written(12), None, "12", None),
        (written(12), record(13), "11", "13"),
        (written(12), record(12), "11", "12"),
        (written(12), record(11), "12", "12"),
        (outside(12), record(11), "11", None),
        (outside(12), record(13), "11", "13"),
        (deleted("u1"), record(11, "u1"), "99", None),
        (deleted("u1"), record(11, "u2"), "9", "11"),
        (deleted("u1"), None, "9", None),
    ],
)
def test_of_a_stored_object_and_a_write_the_newer_one_is_shown(
    write: OwnWrite, held: Record | None, version: str, expected: str | None
) -> None:
    found = write.instead_of(held, version)
    assert (found.version if found is not None else None) == expected


# ---- Until when.


def test_a_write_is_over_once_each_branch_that_could_hold_its_object_has_passed_it() -> None:
    union, a, b = two()
    union.add_own(written(12))
    b.progress("13")
    assert (shown(union), active(union)) == ("12", ["12"])
    a.progress("11")
    assert active(union) == ["12"]
    a.progress("12")
    assert (shown(union), active(union)) == (None, [])


def test_a_write_that_rests_hides_older_reports_of_a_branch() -> None:
    union, a, b = two()
    union.add_own(written(12))
    a.put(record(12))
    a.progress("12")
    b.put(record(11))
    assert (active(union), shown(union)) == (["12"], "12")


def test_a_write_stays_while_a_branch_that_is_behind_shows_an_older_object() -> None:
    union, a, b = two()
    b.put(record(11))
    union.add_own(written(12))
    a.put(record(12))
    a.progress("12")
    assert active(union) == ["12"], "a read of B alone has the older one"
    b.leave(record(12))
    assert (active(union), resting(union)) == ([], [])


def test_a_write_that_no_branch_shows_is_in_doubt_once_one_has_passed_it() -> None:
    union, a, b = two()
    union.add_own(written(12))
    assert not union.awaits_streams, "its event may be under way"
    a.progress("13")
    assert (union.awaits_streams, union.awaited) == (True, {b.substore: "13"})
    assert union.has_unconfirmed_up_to("12", besides=("shop", "other"))
    assert not union.has_unconfirmed_up_to("11", besides=("shop", "other"))
    assert not union.has_unconfirmed_up_to("12", besides=KEY)
    b.jump("13")
    assert (shown(union), union.awaits_streams) == (None, False)


def test_a_write_that_all_branches_have_passed_stays_while_the_store_shows_an_older_object() -> None:
    union, branch = one(record(11), version=11)
    union.add_own(written(12))
    branch.progress("13")
    assert (shown(union), active(union)) == ("12", ["12"]), "the branch has missed an event"
    branch.put(record(14))
    assert active(union) == []


def test_an_answer_that_comes_after_the_event_is_not_shown() -> None:
    union, branch = one(record(12), version=12)
    branch.leave(record(13))
    union.add_own(written(12))
    assert (shown(union), active(union), resting(union)) == (None, [], [])


def test_a_list_says_nothing_before_it_is_complete() -> None:
    union, branch = one()
    union.add_own(written(12))
    branch.begin()
    branch.put(record(13))
    branch.leave(record(14))
    assert (shown(union), active(union)) == ("12", ["12"])
    branch.commit("14")
    assert (shown(union), active(union)) == (None, [])


def test_a_newest_list_that_began_after_the_write_ends_it_whatever_its_version() -> None:
    union, branch = one()
    union.add_own(written(12))
    listed(branch, 11, writes_added=0)
    assert shown(union) == "12"
    listed(branch, 11, writes_added=union.own_writes.added)
    assert (shown(union), active(union)) == (None, [])


def test_a_list_of_one_namespace_looks_at_no_writes_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    union = Union([Keys("shop"), Keys("blog")])
    shop, blog = writers(union)
    listed(shop, 10)
    listed(blog, 10)
    for namespace in ("shop", "blog"):
        union.add_own(written(12, namespace=namespace))
    looked, settle = list[str](), OwnWrites.settle

    def counted(writes: OwnWrites, write: OwnWrite, *parts: Any, **more: Any) -> None:
        looked.append(write.key[0])
        settle(writes, write, *parts, **more)

    monkeypatch.setattr(OwnWrites, "settle", counted)
    listed(shop, 11)
    assert set(looked) == {"shop"}


def test_versions_that_are_no_numbers_are_not_shown() -> None:
    union, branch = one()
    union.add_own(OwnWrite(KEY, "u1", "abc", record(12), at=0.0))
    assert active(union) == []
    union.add_own(written(12))
    branch.progress("abc")
    assert active(union) == ["12"]


def test_a_restored_server_ends_all_writes() -> None:
    union, branch = one()
    union.add_own(written(12))
    branch.begin()
    branch.commit("5", restored=True)
    assert (shown(union), active(union), union.own_writes.size) == (None, [], 0)
    union.add_own(written(7))
    assert shown(union) == "7"


def test_a_write_in_doubt_is_so_no_longer_once_it_is_dropped() -> None:
    for how in ("expired", "restored"):
        union, a, _ = two()
        union.add_own(written(12))
        a.progress("13")
        assert union.awaits_streams
        if how == "expired":
            union.own_writes.expire(99.0)
        else:
            a.begin()
            a.commit("5", restored=True)
        assert not union.awaits_streams, how


def restored(branch: Writer, version: int) -> None:
    branch.begin()
    branch.commit(str(version), restored=True)


def test_a_write_that_all_branches_pass_before_they_meet_after_a_restore_is_over() -> None:
    union, a, b = two(version=1000)
    restored(a, 5)
    restored(b, 20)
    union.add_own(written(15))
    a.progress("16")
    a.progress("20")
    assert (active(union), union.awaits_streams) == ([], False)


def test_a_branch_that_was_not_listed_since_a_restore_has_passed_no_write() -> None:
    union, a, b = two(version=1000)
    restored(a, 5)
    union.add_own(written(8))
    a.progress("7")
    assert (active(union), union.awaits_streams) == (["8"], False), "it is not in doubt"
    a.progress("9")
    restored(b, 9)
    assert active(union) == []


def test_a_write_that_rests_is_shown_in_place_of_the_state_from_before_a_restore() -> None:
    union, a, b = two(record(1000), version=1000)
    a.leave(record(1001))  # It may be in B.
    restored(a, 5)
    restored(b, 4)
    union.add_own(written(8))
    found: list[bool] = []

    def read(_: int) -> None:  # A reader without the lock: a write, or the state from before.
        found.append(bool(union.own_writes.writes) or union.store.peek(*KEY) is not None)

    stepping([claims.__file__, union_module.__file__, store_module.__file__], lambda: b.progress("5"), read)
    assert all(found)
    assert (shown(union), active(union)) == ("8", ["8"])


# ---- Deletions.


def test_a_deletion_hides_its_object_until_it_departs_and_rests_then() -> None:
    union, branch = one(record(9))
    union.add_own(deleted())
    assert shown(union) is None
    branch.put(record(11))
    assert (shown(union), active(union)) == (None, ["deleted"])
    branch.leave(record(13))
    assert (active(union), resting(union)) == ([], ["deleted"])


@pytest.mark.parametrize(("uid", "expected"), [("u1", None), ("u2", "12")])
def test_a_deletion_that_rests_hides_its_object_if_that_comes_back(uid: str, expected: str | None) -> None:
    union, branch = one(record(9))
    union.add_own(deleted())
    branch.leave(record(11))
    branch.put(record(12, uid))
    assert shown(union) == expected
    branch.leave(record(13, uid))
    assert active(union) == []


def test_a_late_answer_does_not_bring_back_an_object_whose_deletion_rests() -> None:
    union, branch = one(record(9))
    union.add_own(deleted())
    branch.leave(record(11))
    union.add_own(written(12))
    assert active(union) == []
    union.add_own(written(14, "u2"))
    assert (active(union), resting(union)) == (["14"], [])


def test_each_deleted_object_of_a_name_stays_hidden() -> None:
    union, branch = one()
    union.add_own(deleted("u0"))
    union.add_own(deleted("u1"))
    branch.put(record(11, "u0"))
    assert shown(union) is None
    branch.put(record(12, "u1"))
    assert shown(union) is None


def test_a_name_that_was_deleted_created_and_deleted_shows_none_of_its_objects() -> None:
    union, branch = one(record(5, "u0"))
    for write in (deleted("u0"), written(12, "u1"), deleted("u1"), replace(deleted("u2"), floor="7")):
        union.add_own(write)
    for version, uid in ((6, "u0"), (11, "an older one"), (12, "u1")):
        branch.put(record(version, uid))
        assert shown(union) is None
    branch.put(record(20, "u3"))
    assert (shown(union), active(union)) == ("20", [])


def test_a_list_that_is_abandoned_wakes_no_write() -> None:
    union, a, b = two(record(9))
    union.add_own(deleted())
    a.leave(record(11))
    b.progress("11")
    a.begin()
    a.put(record(9))
    a.abandon()
    assert (active(union), resting(union)) == ([], ["deleted"])


# ---- Order and number.


@each_row(
    ("added", "left"),
    [
        ([written(12), written(11)], ["12"]),
        ([written(12), written(13)], ["13"]),
        ([written(12), deleted()], ["deleted"]),
        ([deleted(), written(12)], ["deleted"]),
        ([deleted("u1"), written(12, "u2")], ["12"]),
        ([written(12, "u2"), deleted("u1")], ["12"]),
        ([written(12, "u2"), replace(deleted("u1"), floor="13")], ["deleted"]),
        ([deleted("u1"), deleted("u2")], ["deleted"]),
        ([outside(12), written(13)], ["13"]),
    ],
)
def test_answers_may_arrive_in_another_order_than_the_server_gave_them(
    added: list[OwnWrite], left: list[str]
) -> None:
    union, _ = one()
    for write in added:
        union.add_own(replace(write))
    assert [*active(union), *resting(union)] == left
    assert union.own_writes.size == sum(write.size for write in union.own_writes)


def test_the_oldest_writes_are_dropped_beyond_a_number_and_beyond_a_size() -> None:
    writes = OwnWrites(most=2)
    assert [writes.add(written(12, name=name)) for name in "ab"] == [[], []]
    assert [each.key[1] for each in writes.add(written(12, name="c"))] == ["a"]
    writes = OwnWrites(most_bytes=4)
    writes.add(written(12, name="a"))
    writes.add(written(12, name="b"))
    assert [each.key[1] for each in writes.add(written(12, name="c"))] == ["a"]
    assert (len(writes), writes.size) == (2, 4)


def test_writes_that_rest_are_dropped_first() -> None:
    union, a, _ = two()
    union.own_writes._most_bytes = 3
    union.add_own(written(12, name="c"))
    a.put(record(12, name="c"))
    a.progress("12")
    assert resting(union) == ["12"]
    assert union.add_own(written(13, name="d")) == []
    assert (active(union), resting(union), union.own_writes.size) == (["13"], [], 2)


def test_the_oldest_deletions_that_rest_are_dropped_beyond_a_number() -> None:
    union, _ = one()
    union.own_writes._most = 1
    for name in "abc":
        union.add_own(deleted(name=name))
    assert [*union.own_writes.resting] == [("shop", "b"), ("shop", "c")]


def test_writes_from_before_a_time_expire() -> None:
    union, _ = one()
    for write in (written(12, name="a"), written(13, name="b")):
        union.add_own(write)
    union.add_own(replace(deleted(name="c"), at=12.0))
    union.add_own(replace(deleted(name="d"), at=13.0))
    assert [each.key[1] for each in union.own_writes.expire(13.0)] == ["a"]
    assert ([*union.own_writes.writes], [*union.own_writes.resting]) == ([("shop", "b")], [("shop", "d")])


def test_a_reader_without_the_lock_always_finds_that_there_is_a_write() -> None:
    union, _ = one()
    union.add_own(written(12))
    found: list[bool] = []
    stepping(
        [claims.__file__],
        lambda: union.add_own(written(13)),
        lambda _: found.append(bool(union.own_writes.writes)),
    )
    assert found
    assert all(found)


# ---- Another filter, and a restart.


@each_row(
    ("write", "is_selected", "expected"),
    [
        (written(12), True, ["12"]),
        (written(12), None, ["12"]),
        (written(12), False, [None]),
        (outside(12), True, ["12"]),
        (outside(12), None, []),
        (outside(12), False, [None]),
    ],
)
def test_16_the_next_filter_shows_the_writes_that_it_selects(
    write: OwnWrite, is_selected: bool | None, expected: list[str | None]
) -> None:
    present = OwnWrites()
    present.add(replace(write))
    following_writes = OwnWrites()
    following_writes.inherit(present, lambda _: is_selected)
    assert [each.record and each.record.version for each in following_writes] == expected
    again = OwnWrites()
    again.inherit(following_writes, lambda _: True)
    assert [each.record and each.record.version for each in again] == ["12"] * len(expected)


def test_16_a_filter_with_another_form_of_objects_takes_deletions_over_alone() -> None:
    present = OwnWrites()
    present.add(outside(12))
    present.add(deleted(name="b"))
    following_writes = OwnWrites()
    following_writes.inherit(present, None)
    assert [each.key for each in following_writes] == [("shop", "b")]
    assert following_writes.get(("shop", "b")) is not present.get(("shop", "b"))


def test_16_the_next_filter_inherits_writes_that_rest() -> None:
    union, a, _ = two()
    union.add_own(written(12))
    a.put(record(12))
    a.progress("12")
    assert resting(union) == ["12"]
    following_union = Union([Keys(), Keys()])
    listed(writers(following_union)[0], 12, record(12))
    listed(writers(following_union)[1], 10)
    following_union.own_writes.inherit(union.own_writes, lambda _: True)
    following_union.settle_own()
    writers(following_union)[1].put(record(11))
    assert active(following_union) == ["12"], "a read of the second alternative alone has the older one"


def test_16_streams_that_the_next_filter_takes_over_keep_their_progress() -> None:
    present = Union([Keys("shop"), Keys("blog")])
    kept, _ = writers(present)
    listed(kept, 13, record(11, name="c"))
    following_union = Union([Keys("shop"), Keys("infra")])
    new_kept, infra = writers(following_union)
    listed(infra, 20)
    for write in (written(12), written(14, name="b"), deleted(name="c")):
        following_union.add_own(write)
    assert (active(following_union), resting(following_union)) == (["12", "14"], ["deleted"])
    following_union.take_over(present, {kept.substore: new_kept.substore})
    following_union.settle_own()
    assert sorted(active(following_union)) == ["14", "deleted"]


@pytest.mark.parametrize("by", ["event", "list"])
def test_a_reader_without_the_lock_never_sees_an_object_hidden_by_a_resting_deletion(by: str) -> None:
    union, branch = one(record(9))
    union.add_own(deleted())
    branch.leave(record(11))
    found: list[Record | None] = []

    def report() -> None:
        if by == "event":
            branch.put(record(12))
        else:
            listed(branch, 12, record(12))

    def read(_: int) -> None:
        found.append(None if union.own_writes.writes else union.store.peek(*KEY))

    stepping([claims.__file__, union_module.__file__, store_module.__file__], report, read)
    assert found
    assert not any(found)
