"""The filter of a cache changes at once: every order in which the streams of two filters can report, and many
orders of larger worlds.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

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
        reads=random.randrange(3),
        knows=random.random() < 0.8,
    )
    letters = sorted({*before, *after})
    states = ["x", "-", *letters, *(one + other for one in letters for other in letters if one < other)]
    objects = random.choice([1, 1, 2])
    histories = [[random.choice(states) for _ in range(random.randrange(2, 6))] for _ in range(objects)]
    order = [number for number, history in enumerate(histories) for _ in history[1:]]
    random.shuffle(order)
    walk(random, rules, histories, order)


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


def test_16_an_object_outside_of_one_filter_may_be_in_the_next() -> None:
    play(6676)


def test_16_an_object_that_a_read_found_outside_of_one_filter_does_not_return_in_the_next() -> None:
    play(16870)


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
