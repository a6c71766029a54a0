"""Own writes: which of them reads show, and until when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kopf_selectcache.core.store import own_writes
from kopf_selectcache.core.store.own_writes import OwnWrite, OwnWrites
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.substore import Keys, Substore
from tests.interleaving import stepping
from tests.rows import each_row

KEY = "shop", "a"


def record(version: int, uid: str = "u1", name: str = "a") -> Record:
    return Record("shop", name, uid, str(version), {}, (), b"{}")


def written(version: int, uid: str = "u1", name: str = "a") -> OwnWrite:
    return OwnWrite(("shop", name), uid, str(version), record(version, uid, name), at=float(version))


def outside(version: int, uid: str = "u1") -> OwnWrite:
    found = record(version, uid)
    return OwnWrite(KEY, uid, str(version), None, at=float(version), expected=False, outside=found)


def deleted(uid: str = "u1") -> OwnWrite:
    return OwnWrite(KEY, uid, "", None, at=0.0)


def branch(version: int, namespace: str | None = None) -> Substore:
    made = Substore(Keys(namespace))
    made.view.begin()
    made.view.commit(str(version))
    return made


def following(*versions: int) -> tuple[OwnWrites, list[Substore]]:
    branches, found = [branch(each) for each in versions], OwnWrites()
    found.follow(branches)
    return found, branches


def progress(writes: OwnWrites, stream: Substore, version: str, held: Record | None = None) -> None:
    writes.progress(stream, version)
    writes.settle(lambda _: held)


def reported(writes: OwnWrites, version: int, uid: str = "u1") -> None:
    """Report an object by all streams."""
    for substore in list(writes._substores):
        writes.put(record(version, uid), substore)
    writes.settle(lambda _: record(version, uid))


def departs(writes: OwnWrites, record: Record, stream: Substore, held: Record | None = None) -> None:
    writes.leave(record, stream)
    writes.settle(lambda _: held)


def listed(
    writes: OwnWrites, stream: Substore, laid: int, version: str = "", held: Record | None = None
) -> None:
    writes.list(stream, version, laid)
    writes.settle(lambda _: held)


def keys(writes: OwnWrites) -> list[str]:
    return [write.version or "deleted" for write in writes]


@each_row(
    ("write", "held", "version", "shown"),
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
    write: OwnWrite, held: Record | None, version: str, shown: str | None
) -> None:
    found = write.instead_of(held, version)
    assert (found.version if found is not None else None) == shown


def test_a_write_waits_for_each_stream_that_could_hold_its_object() -> None:
    writes, (one, other) = following(10, 10)
    writes.lay(written(12))
    progress(writes, one, "12")
    assert keys(writes) == ["12"]
    progress(writes, other, "11")
    assert keys(writes) == ["12"]
    progress(writes, other, "13")
    assert keys(writes) == []
    assert writes.size == 0


def test_a_write_does_not_wait_for_streams_of_other_namespaces() -> None:
    writes, near = OwnWrites(), branch(10, "shop")
    writes.follow([near, branch(10, "elsewhere")])
    writes.lay(written(12))
    progress(writes, near, "12")
    assert keys(writes) == []


def test_an_answer_that_comes_after_the_event_is_not_laid_over() -> None:
    writes, _ = following(12)
    writes.lay(written(12))
    assert keys(writes) == []


def test_before_the_first_list_a_write_is_shown_and_waits_for_a_list_that_has_it() -> None:
    writes, made = OwnWrites(), Substore(Keys())
    writes.follow([made])
    writes.lay(written(12))
    progress(writes, made, "11")
    assert keys(writes) == ["12"]
    progress(writes, made, "12")
    assert keys(writes) == []


@pytest.mark.parametrize(("uid", "left"), [("u1", ["deleted"]), ("u2", [])])
def test_a_deletion_hides_its_object_until_another_one_of_the_name_comes(uid: str, left: list[str]) -> None:
    writes, _ = following(10)
    writes.lay(deleted("u1"))
    reported(writes, 13, uid)
    assert keys(writes) == left


@pytest.mark.parametrize(("held", "left"), [(None, []), (record(13, "u2"), []), (record(12), ["deleted"])])
def test_a_deletion_rests_once_the_store_shows_none_of_its_objects(
    held: Record | None, left: list[str]
) -> None:
    writes, (stream,) = following(10)
    writes.lay(deleted())
    departs(writes, record(13), stream, held)
    assert keys(writes) == left
    assert (KEY in writes.resting) == (not left)
    assert writes.get(KEY)


@pytest.mark.parametrize(("uid", "left"), [("u1", ["deleted"]), ("u2", [])])
def test_a_deletion_that_rests_hides_its_object_if_that_comes_back(uid: str, left: list[str]) -> None:
    writes, (stream,) = following(10)
    writes.lay(deleted())
    departs(writes, record(11), stream)
    writes.put(record(12, uid), stream)
    assert keys(writes) == left
    departs(writes, record(13, uid), stream)
    assert keys(writes) == []


def test_a_late_answer_does_not_bring_back_an_object_whose_deletion_rests() -> None:
    writes, (stream,) = following(10)
    writes.lay(deleted())
    departs(writes, record(11), stream)
    writes.lay(written(12))
    assert keys(writes) == []
    writes.lay(written(14, "u2"))
    assert keys(writes) == ["14"]
    assert not writes.resting


def test_what_was_shown_before_another_object_of_the_name_was_deleted_is_gone() -> None:
    writes, _ = following(10)
    writes.lay(written(12, "u1"))
    writes.lay(OwnWrite(KEY, "u2", "", None, at=0.0, deleted=frozenset({"u1"})))
    assert keys(writes) == ["deleted"]
    assert writes.writes[KEY].instead_of(record(11, "u1"), "11") is None


def test_the_oldest_deletions_that_rest_are_dropped_beyond_a_number() -> None:
    writes = OwnWrites(most=1)
    for name in "ab":
        writes.lay(OwnWrite(("shop", name), "u1", "", None, at=0.0))
        writes.settle(lambda _: None)
    assert list(writes.resting) == [("shop", "b")]


def test_a_list_says_nothing_before_it_is_complete() -> None:
    writes, (stream,) = following(10)
    writes.lay(written(12))
    writes.lay(OwnWrite(("shop", "b"), "u1", "", None, at=0.0))
    shown = {("shop", "b"): record(9, name="b")}  # Until the list is complete.
    stream.view.begin()
    writes.put(record(12), stream)
    for each in (record(13), record(13, name="b")):
        writes.leave(each, stream)
        writes.settle(shown.get)
    assert keys(writes) == ["12", "deleted"]
    listed(writes, stream, 0, "13")
    assert keys(writes) == []


@pytest.mark.parametrize(("version", "left"), [(11, ["12"]), (12, []), (13, [])])
def test_an_event_of_the_object_at_the_version_of_the_write_or_later_retires_it(
    version: int, left: list[str]
) -> None:
    writes, _ = following(10)
    writes.lay(written(12))
    reported(writes, version)
    assert keys(writes) == left


@pytest.mark.parametrize(("version", "left"), [(11, ["12"]), (12, ["12"]), (13, [])])
def test_a_departure_at_the_version_of_the_write_may_be_its_own_effect(version: int, left: list[str]) -> None:
    writes, (stream, _) = following(10, 10)
    writes.lay(written(12))
    writes.leave(record(version), stream)
    assert keys(writes) == left


@each_row(
    ("laid", "left"),
    [
        ([written(12), written(11)], ["12"]),
        ([written(12), written(13)], ["13"]),
        ([written(12), deleted()], ["deleted"]),
        ([deleted(), written(12)], ["deleted"]),
        ([deleted("u1"), written(12, "u2")], ["12"]),
        ([written(12, "u2"), deleted("u1")], ["12"]),
        ([deleted("u1"), deleted("u2")], ["deleted"]),
        ([outside(12), written(13)], ["13"]),
    ],
)
def test_answers_may_arrive_in_another_order_than_the_server_gave_them(
    laid: list[OwnWrite], left: list[str]
) -> None:
    writes, _ = following(10)
    for write in laid:
        writes.lay(write)
    assert keys(writes) == left
    assert writes.size == sum(write.size for write in writes)


def test_a_newer_write_of_an_object_outlives_the_version_of_the_older_one() -> None:
    writes, (stream,) = following(10)
    writes.lay(written(12))
    writes.lay(written(14))
    progress(writes, stream, "13")
    assert keys(writes) == ["14"]
    progress(writes, stream, "14")
    assert keys(writes) == []


def test_versions_that_are_no_numbers_are_not_laid_over() -> None:
    writes, (stream,) = following(10)
    writes.lay(OwnWrite(KEY, "u1", "abc", record(12), at=0.0))
    assert keys(writes) == []
    writes.lay(written(12))
    progress(writes, stream, "abc")
    assert keys(writes) == ["12"]


def test_a_restart_waits_for_the_new_streams() -> None:
    writes, (before,) = following(10)
    writes.lay(written(12))
    after = branch(11)
    writes.follow([after])
    progress(writes, before, "20")
    assert keys(writes) == ["12"]
    writes.follow([branch(12)])
    assert keys(writes) == []


def test_streams_that_the_next_filter_takes_over_have_passed_what_they_had_passed() -> None:
    writes, (kept, new) = OwnWrites(), (Substore(Keys("shop")), branch(20, "infra"))
    writes.follow([kept, new])
    writes.lay(written(12))
    writes.lay(written(14, name="b"))
    writes.lay(replace(deleted(), key=("shop", "c")))
    writes.settle(lambda _: None)  # The next store has no object of a kept stream yet.
    assert keys(writes) == ["12", "14"]
    kept.take_over(branch(13, "shop"))
    writes.join([kept])
    writes.settle(lambda key: record(11, name="c") if key == ("shop", "c") else None)
    assert keys(writes) == ["14", "deleted"]


def test_the_next_filter_hides_as_well_what_a_kept_stream_may_report_from_before_a_write() -> None:
    present, (first, second) = OwnWrites(), (branch(10), branch(10))
    present.follow([first, second], lambda substore, _: substore is first)
    present.lay(written(12))
    progress(present, first, "12", record(12))
    assert keys(present) == []
    following_writes, (_, kept) = following(12, 10)
    following_writes.inherit(present, lambda _: True)
    following_writes.put(record(11), kept)
    assert keys(following_writes) == ["12"]


def test_a_restored_server_ends_all_writes() -> None:
    writes, (stream,) = following(10)
    writes.lay(written(12))
    writes.clear()
    assert (keys(writes), writes.size) == ([], 0)
    writes.lay(written(14))
    progress(writes, stream, "14")
    assert keys(writes) == []


def test_the_oldest_writes_are_dropped_beyond_a_number_and_beyond_a_size() -> None:
    writes = OwnWrites(most=2)
    assert [writes.lay(written(12, name=name)) for name in "ab"] == [[], []]
    assert [each.key[1] for each in writes.lay(written(12, name="c"))] == ["a"]
    writes = OwnWrites(most_bytes=4)
    writes.lay(written(12, name="a"))
    writes.lay(written(12, name="b"))
    assert [each.key[1] for each in writes.lay(written(12, name="c"))] == ["a"]
    assert (len(writes), writes.size) == (2, 4)


def test_writes_from_before_a_time_expire() -> None:
    writes, _ = following(10)
    writes.lay(written(12, name="a"))
    writes.lay(written(13, name="b"))
    writes.lay(OwnWrite(("shop", "c"), "u1", "", None, at=12.0))
    writes.lay(OwnWrite(("shop", "d"), "u1", "", None, at=13.0))
    writes.settle(lambda _: None)
    assert [each.key[1] for each in writes.expire(13.0)] == ["a"]
    assert list(writes.resting) == [("shop", "d")]
    assert [each.key[1] for each in writes] == ["b"]


def test_a_newest_list_that_began_after_the_write_retires_it_whatever_its_version() -> None:
    writes, (one, other) = following(10, 10)
    writes.lay(written(12))
    listed(writes, one, writes.laid)
    assert keys(writes) == ["12"]
    listed(writes, other, writes.laid - 1)
    assert keys(writes) == ["12"]
    listed(writes, other, writes.laid)
    assert keys(writes) == []


@each_row(("held", "left"), [(None, []), (record(11), ["12"]), (record(12), []), (record(13), [])])
def test_a_write_that_all_streams_have_passed_stays_while_the_store_shows_an_older_object(
    held: Record | None, left: list[str]
) -> None:
    writes, (one, other) = following(10, 10)
    writes.lay(written(12))
    progress(writes, one, "12", held)
    progress(writes, other, "13", held)
    assert keys(writes) == left
    writes.settle(lambda _: None)
    assert keys(writes) == []


@pytest.mark.parametrize("what", ["lay", "follow"])
def test_a_reader_without_the_lock_always_finds_that_there_is_a_write(what: str) -> None:
    writes, substores = following(10)
    writes.lay(written(12))
    call = (lambda: writes.lay(written(13))) if what == "lay" else (lambda: writes.follow(substores))
    found: list[bool] = []
    stepping([own_writes.__file__], call, lambda _: found.append(bool(writes.writes)))
    assert found
    assert all(found)


def test_a_name_that_was_deleted_created_and_deleted_shows_none_of_its_objects() -> None:
    writes, _ = following(4)
    for write in (deleted("u0"), written(12, "u1"), deleted("u1")):
        writes.lay(write)
    (last,) = writes
    assert last.instead_of(record(5, "u0"), "5") is None
    assert last.instead_of(record(12, "u1"), "12") is None
    reported(writes, 6, "u0")
    assert keys(writes) == ["deleted"]
    reported(writes, 11, "an older one")
    assert keys(writes) == ["deleted"]
    reported(writes, 20, "u2")
    assert keys(writes) == []


def test_each_deleted_object_of_a_name_stays_hidden() -> None:
    writes, _ = following(4)
    writes.lay(deleted("u0"))
    writes.lay(deleted("u1"))
    (last,) = writes
    assert last.instead_of(record(5, "u0"), "5") is None


def test_a_stream_that_reports_a_write_says_nothing_of_the_others() -> None:
    writes, (one, other) = following(10, 10)
    writes.lay(written(12))
    writes.put(record(12), one)
    writes.settle(lambda _: record(12))
    assert keys(writes) == ["12"]
    writes.put(record(12), other)
    writes.settle(lambda _: record(12))
    assert keys(writes) == []


@each_row(
    ("write", "is_selected", "shown"),
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
    write: OwnWrite, is_selected: bool | None, shown: list[str | None]
) -> None:
    present, _ = following(10)
    present.lay(write)
    following_writes = OwnWrites()
    following_writes.inherit(present, lambda _: is_selected)
    assert [each.record and each.record.version for each in following_writes] == shown
    again = OwnWrites()
    again.inherit(following_writes, lambda _: True)
    assert [each.record and each.record.version for each in again] == ["12"] * len(shown)


def test_16_a_filter_with_another_form_of_objects_takes_deletions_over_alone() -> None:
    present, _ = following(10)
    present.lay(outside(12))
    present.lay(replace(deleted(), key=("shop", "b")))
    following_writes = OwnWrites()
    following_writes.inherit(present, None)
    assert [each.key for each in following_writes] == [("shop", "b")]


def test_16_a_write_that_readers_of_the_former_filter_have_seen_pass_is_dropped() -> None:
    writes, _ = following(10)
    for write in (written(12), written(14, name="b"), replace(deleted(), key=("shop", "c"))):
        writes.lay(write)
    seen = {KEY: record(13), ("shop", "b"): record(13, name="b"), ("shop", "c"): record(20, name="c")}
    writes.overtake(seen.get)
    assert [each.key for each in writes] == [("shop", "b"), ("shop", "c")]
