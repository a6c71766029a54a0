"""The filter of a cache changes at once: every order in which the streams of two filters can report, and many
orders of larger worlds.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from kopf_selectcache.core.store.changes import ChangeCause
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.substore import Keys
from kopf_selectcache.core.store.succession import Succession
from kopf_selectcache.core.store.union import Union
from tests.core.store.succession_worlds import Rules, walk, walks
from tests.core.writers import Writer, writers

FILTERS = [("A", "B"), ("A", "AB"), ("AB", "A"), ("AB", "AC"), ("AB", "CD"), ("ABC", "BCD")]
PARTS = 4
WORLDS = 500
"""The number of worlds of each part."""


def play(seed: int, *, is_split: bool = False) -> None:
    """Play one world after one order of all that can happen."""
    random = Random(seed)
    before, after = random.choice([*FILTERS, ("A", "A"), ("AB", "AB")] if is_split else FILTERS)
    rules = Rules(
        before,
        after,
        splits=(random.random() < 0.5, random.random() < 0.5) if is_split else (False, False),
        vague=random.random() < 0.2,
        relists=random.randrange(3),
        probes=random.randrange(3),
        knows=random.random() < 0.8,
    )
    letters = sorted({*before, *after})
    states = ["x", "-", *letters, *(one + other for one in letters for other in letters if one < other)]
    objects = random.choice([1, 1, 2])
    histories = [[random.choice(states) for _ in range(random.randrange(2, 6))] for _ in range(objects)]
    order = [number for number, history in enumerate(histories) for _ in history[1:]]
    random.shuffle(order)
    walk(random, rules, histories, order)


def play_requests(seed: int) -> None:
    """Play one world with more requests, between filters that have more streams in common."""
    random = Random(seed)
    before, after = random.choice([*FILTERS, ("AB", "B"), ("AB", "BC"), ("ABC", "A"), ("ABC", "AB")])
    rules = Rules(
        before,
        after,
        splits=random.choice([(False, False), (False, True), (True, False), (True, True)]),
        vague=random.random() < 0.2,
        relists=random.randrange(2),
        probes=random.randrange(1, 4),
        knows=random.random() < 0.7,
    )
    letters = sorted({*before, *after})
    both = [one + other for one in letters for other in letters if one < other]
    states = ["x", "-", *letters, *letters, *both]
    objects = random.choice([1, 1, 1, 2])
    histories = [[random.choice(states) for _ in range(random.randrange(3, 6))] for _ in range(objects)]
    order = [number for number, history in enumerate(histories) for _ in history[1:]]
    random.shuffle(order)
    walk(random, rules, histories, order, asks=0.5)


def play_changes(seed: int) -> None:
    """Play one world in which the filter changes several times."""
    random = Random(seed)
    filters = ["A", "B", "AB", "AC", "BC", "ABC"]
    before, after, *later = (random.choice(filters) for _ in range(random.choice([3, 3, 4])))
    is_split = random.random() < 0.5
    rules = Rules(
        before,
        after,
        tuple(later),
        splits=tuple(is_split and random.random() < 0.35 for _ in range(2 + len(later))),
        relists=random.randrange(2),
        probes=random.randrange(4),
        knows=random.random() < 0.7,
    )
    states = ["x", "-", *"ABC", *"ABC", "AB", "AC", "BC"]
    histories = [
        [random.choice(states) for _ in range(random.randrange(3, 7))]
        for _ in range(random.choice([1, 1, 2]))
    ]
    order = [number for number, history in enumerate(histories) for _ in history[1:]]
    random.shuffle(order)
    walk(random, rules, histories, order, asks=0.3)


@pytest.mark.parametrize("states", [("A", "B", "AB", "x")], ids=str)
@pytest.mark.parametrize(("before", "after"), [("A", "B")])
def test_16_in_whatever_order_streams_report_no_object_goes_back_or_is_absent(
    before: str, after: str, states: tuple[str, ...]
) -> None:
    rules, walked = Rules(before, after), 0
    for history in product(states, repeat=2):
        for vague in (False, True):
            walked += sum(1 for _ in walks(replace(rules, vague=vague), [history], [0]))
    print(f"{walked:,} orders of {rules}")
    assert walked > 300


@pytest.mark.parametrize("splits", [(False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize(("before", "after", "least"), [("A", "B", 300), ("A", "A", 100)])
def test_16_in_whatever_order_the_streams_of_split_caches_report_an_object_is_on_one_side(
    before: str, after: str, least: int, splits: tuple[bool, bool]
) -> None:
    rules, walked = Rules(before, after, splits=splits), 0
    for history in product(("A", "B", "x"), repeat=2):
        walked += sum(1 for _ in walks(rules, [history], [0]))
    print(f"{walked:,} orders of {rules}")
    assert walked > least


@pytest.mark.parametrize("part", range(PARTS))
def test_16_in_larger_worlds_no_object_goes_back_or_is_absent(part: int) -> None:
    for seed in range(part * WORLDS, (part + 1) * WORLDS):
        play(seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_16_in_larger_worlds_an_object_of_split_caches_is_on_one_side(part: int) -> None:
    for seed in range(part * WORLDS, (part + 1) * WORLDS):
        play(seed, is_split=True)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS, PARTS + 40))
def test_16_in_many_larger_worlds_no_object_goes_back_or_is_absent(part: int) -> None:
    for seed in range(part * WORLDS, (part + 1) * WORLDS):
        play(seed)
        play(seed, is_split=True)


def test_16_in_worlds_with_several_changes_no_object_goes_back_or_returns() -> None:
    for seed in range(WORLDS):
        play_changes(seed)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(1, 41))
def test_16_in_many_worlds_with_several_changes_no_object_goes_back_or_returns(part: int) -> None:
    for seed in range(part * WORLDS, (part + 1) * WORLDS):
        play_changes(seed)


def test_16_in_worlds_with_many_probes_no_object_goes_back_or_returns() -> None:
    for seed in range(WORLDS):
        play_requests(seed)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(1, 41))
def test_16_in_many_worlds_with_many_probes_no_object_goes_back_or_returns(part: int) -> None:
    for seed in range(part * WORLDS, (part + 1) * WORLDS):
        play_requests(seed)


# ---- Single rules.


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


def test_16_a_newer_state_of_a_departed_object_is_shown() -> None:
    b = exchanged_after_a_departure()
    assert b.put(pod("22"))
    assert b.put(pod("23"))


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


def test_16_a_list_from_before_a_deletion_that_readers_have_seen_is_not_shown() -> None:
    before, after = Union([Keys()]), Union([Keys()])
    (a,), (b,) = writers(before), writers(after)
    a.begin()
    a.commit("10")
    a.put(pod("11"))
    a.leave(pod("12"))
    a.progress("12")
    succession = Succession(before, after, {}, selects=lambda _: True, selected=lambda _: True)
    b.begin()
    b.put(pod("11"))
    b.commit("11")
    assert not succession.has_arrived()
    b.leave(pod("12"))
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


def exchanged(before: Union, kept: int) -> tuple[Union, Writer]:
    succession, (writer,) = next_of(before, kept)
    assert succession.has_arrived()
    assert succession.differences() == []
    return succession.after, writer


def test_16_the_filter_after_the_next_ignores_what_readers_have_seen_end() -> None:
    b = exchanged_after_a_departure()
    _, c = exchanged(b.union, 0)
    assert c.put(pod("19")) == []
    assert c.put(pod("22"))


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


@pytest.mark.parametrize(
    ("before", "after", "states"),
    [("AB", "A", ("-", "B", "-")), ("ABC", "AB", ("B", "-", "-")), ("ABC", "AB", ("B", "A", "-"))],
    ids=str,
)
def test_16_an_object_that_has_departed_is_on_a_side_of_the_next_cache(
    before: str, after: str, states: tuple[str, ...]
) -> None:
    rules = Rules(before, after, splits=(False, True), probes=2)
    for seed in range(700):
        walk(Random(seed), rules, [states], [0] * (len(states) - 1))
