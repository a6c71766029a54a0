"""The union of the next filter takes the place of the present one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.packing import Tally
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.informer.swap import Swap
from tests.core.writers import Writer, writers

SHOP, INFRA, ELSEWHERE = Keys("shop"), Keys("infra"), Keys("elsewhere")


def pod(version: str, namespace: str = "shop", name: str = "a", uid: str = "u") -> Record:
    return Record(namespace, name, uid, version, {}, (), b"{}")


def listed(union: Union, version: str, *records: Record) -> tuple[Writer, ...]:
    """Complete the first list of each stream, which has those of the records that it could hold."""
    streams = writers(union)
    for stream in streams:
        stream.begin()
        for record in records:
            if stream.keys.have(record.key):
                stream.put(record)
        stream.commit(version)
    return streams


def swap(before: Union, after: Union, *kept: Keys) -> Swap:
    """Return the swap of two unions that keeps the streams of some keys."""

    def substore(union: Union, keys: Keys) -> Substore:
        return next(each for each in union.substores if each.keys == keys)

    return Swap(
        before,
        after,
        {substore(before, keys): substore(after, keys) for keys in kept},
        selects=lambda record: any(each.keys.have(record.key) for each in after.substores),
        selected=lambda record: any(each.keys.have(record.key) for each in before.substores),
    )


def told(changes: Sequence[Change]) -> list[tuple[str, str, bool]]:
    return [
        ((each.after or each.before or pod("0")).name, str(each.cause), each.filter_changed)
        for each in changes
    ]


def new(after: Union, swapped: Swap) -> Writer:
    """Return the writer of the only stream that is not kept."""
    (writer,) = (each for each in writers(after) if each.substore not in swapped._kept.values())
    return writer


# ---- When it may happen.


@pytest.mark.parametrize(
    ("seen", "listed_at", "may"), [("10", "10", True), ("10", "9", False), ("9", "10", True)]
)
def test_16_the_next_groups_must_be_as_new_as_all_that_readers_have_seen(
    seen: str, listed_at: str, may: bool
) -> None:
    before, after = Union([Keys(), Keys()]), Union([Keys()])
    first, _ = listed(before, "5", pod("3"))
    change = swap(before, after)
    assert not change.is_complete
    assert not change.has_reached(change.seen)
    first.progress(seen)
    listed(after, listed_at, pod("3"))
    assert change.seen == seen, "one stream is enough"
    assert change.has_reached(change.seen) is may


def test_16_all_streams_of_a_next_group_must_be_as_new() -> None:
    before, after = Union([Keys()]), Union([Keys(), Keys()])
    listed(before, "10")
    change = swap(before, after)
    first, second = listed(after, "9")
    first.progress("10")
    assert not change.has_reached(change.seen)
    second.progress("10")
    assert change.has_reached(change.seen)


def test_16_reused_groups_are_not_waited_for() -> None:
    before, after = Union([SHOP, INFRA]), Union([SHOP, ELSEWHERE])
    shop, _ = listed(before, "5")
    change = swap(before, after, SHOP)
    shop.progress("90")
    assert change.seen == "5"
    for stream in (new(after, change),):
        stream.begin()
        stream.commit("5")
    assert change.has_reached(change.seen)


def test_16_a_filter_that_only_ends_groups_is_in_force_at_once() -> None:
    before, after = Union([SHOP, INFRA]), Union([SHOP])
    listed(before, "5", pod("3"), pod("4", "infra"))
    change = swap(before, after, SHOP)
    assert change.is_complete
    assert change.has_reached(change.seen)
    assert told(change.take()) == [("a", "left", True)]
    assert [record.namespace for record in after.store.records()[0]] == ["shop"]
    assert after.store.version == "5"


@pytest.mark.parametrize("of", ["the present filter", "the next filter"])
def test_16_a_restore_meanwhile_makes_a_swap_outdated(of: str) -> None:
    before, after = Union([Keys()]), Union([Keys()])
    (present,), (following,) = listed(before, "50"), listed(after, "50")
    change = swap(before, after)
    assert not change.is_outdated
    restored = present if of == "the present filter" else following
    restored.begin()
    restored.commit("7", restored=True)
    assert change.is_outdated


def test_16_a_swap_after_a_restore_compares_versions_of_the_restored_server() -> None:
    before = Union([Keys(), Keys()])
    first, _ = listed(before, "50")
    first.begin()
    first.commit("7", restored=True)
    after = Union([Keys()], epoch=before.epoch)
    change = swap(before, after)
    listed(after, "8")
    assert not change.is_outdated
    assert change.seen == "7", "the other stream has not noticed the restore"
    assert change.has_reached(change.seen)


# ---- What is kept.


def test_16_a_reused_group_goes_on_with_its_records_and_its_version() -> None:
    before, after = Union([SHOP, INFRA]), Union([SHOP, ELSEWHERE])
    shop, _ = listed(before, "5", pod("3"), pod("4", "infra"))
    change = swap(before, after, SHOP)
    stream = new(after, change)
    stream.begin()
    stream.put(pod("6", "elsewhere", "new"))
    stream.commit("8")
    assert [record.key for record in change.records()] == [("elsewhere", "new"), ("shop", "a")]
    shop.put(pod("9"))
    shop.progress("9")
    assert told(change.take()) == [("a", "left", True), ("new", "entered", True)]
    assert after.store.version == "8"
    kept = next(each for each in writers(after) if each.keys == SHOP)
    assert (kept.version, kept.view.held(("shop", "a"))) == ("9", before.store.held(("shop", "a")))
    assert told(kept.leave(pod("10"))) == [("a", "left", False)]


def test_16_a_list_of_a_reused_stream_that_is_in_progress_goes_on() -> None:
    before, after = Union([SHOP, INFRA]), Union([SHOP])
    shop, _ = listed(before, "5", pod("3"), pod("3", name="b"))
    shop.begin()
    shop.put(pod("6"))
    swap(before, after, SHOP).take()
    (kept,) = writers(after)
    kept.put(pod("7", name="c"))
    changes = sorted(told(kept.commit("8")))
    assert changes == [("a", "updated", False), ("b", "left", False), ("c", "entered", False)]
    assert kept.version == "8"


def test_12_a_departure_that_a_reused_group_waits_for_is_still_waited_for() -> None:
    """Two streams of one group: the object has left the first, and may be in the second."""
    here, there = Keys("shop"), Keys("shop", names=frozenset("a"))
    before, after = Union([here, there, INFRA]), Union([here, there])
    first, _, _ = listed(before, "5")
    first.put(pod("6"))
    first.leave(pod("7"))
    first.progress("7")
    assert before.is_unconfirmed(("shop", "a"))
    swap(before, after, here, there).take()
    assert after.is_unconfirmed(("shop", "a"))
    first, second = writers(after)
    second.begin()
    assert told(second.commit("10")) == [], "it may have moved on to the first, before this list"
    assert told(first.progress("10")) == [("a", "left", False)]


def test_12_a_reused_stream_that_is_alone_now_waits_for_no_other() -> None:
    before, after = Union([SHOP, INFRA]), Union([SHOP])
    listed(before, "5", pod("3"))
    swap(before, after, SHOP).take()
    (kept,) = writers(after)
    assert told(kept.leave(pod("6"))) == [("a", "left", False)]
    assert after.store.records()[0] == []


def test_the_records_of_reused_groups_are_counted_once() -> None:
    tally = Tally()
    before, after = Union([SHOP, INFRA], tally=tally), Union([SHOP, ELSEWHERE], tally=tally)
    listed(before, "5", pod("3"), pod("4", "infra"))
    change = swap(before, after, SHOP)
    stream = new(after, change)
    stream.begin()
    stream.commit("5")
    change.take()
    for store in before.stores:
        store.release()
    assert tally.objects == 1
    for store in after.stores:
        store.release()
    assert (tally.objects, tally.bytes) == (0, 0)


# ---- What subscribers are told.


def test_16_departures_come_before_updates_and_these_before_entries() -> None:
    before, after = Union([Keys("shop"), Keys("infra")]), Union([Keys("shop"), Keys("elsewhere")])
    listed(before, "5", pod("1", name="b"), pod("2", name="c"), pod("3", "infra", "a"))
    change = swap(before, after)
    listed(after, "9", pod("1", name="b"), pod("7", name="c", uid="v"), pod("8", "elsewhere", "d"))
    changes = change.take()
    assert told(changes) == [
        ("a", "left", True),
        ("c", "deleted", False),
        ("d", "entered", True),
        ("c", "entered", False),
    ]


def test_16_an_object_in_a_newer_version_is_updated() -> None:
    before, after = Union([Keys()]), Union([Keys()])
    listed(before, "5", pod("3"))
    change = swap(before, after)
    listed(after, "9", pod("8"))
    assert told(change.take()) == [("a", "updated", False)]


def test_16_a_record_that_both_filters_have_is_in_memory_once() -> None:
    before, after = Union([Keys()]), Union([Keys()])
    listed(before, "5", pod("3"))
    held = before.store.held(("shop", "a"))
    change = swap(before, after)
    assert change.share(pod("3")) is held
    newer, other = pod("4"), pod("4", name="b")
    assert change.share(newer) is newer
    assert change.share(other) is other


def test_16_a_reused_group_that_begins_anew_after_a_restore_goes_on_to_do_so() -> None:
    before, after = Union([SHOP, SHOP, INFRA]), Union([SHOP, SHOP])
    a, b, _ = listed(before, "100", pod("90"))
    a.begin()
    a.put(pod("40"))
    a.commit("50", restored=True)
    after.epoch = before.epoch
    after.take_over(before, dict(zip((a.substore, b.substore), after.substores, strict=True)))
    assert (version_of(after), after.has_one_epoch) == ("90", False)
    second = writers(after)[1]
    second.begin()
    second.commit("50")
    assert (version_of(after), after.has_one_epoch) == ("40", True)


def version_of(union: Union) -> str | None:
    found, _ = union.store.get("shop", "a")
    return None if found is None else found.version
