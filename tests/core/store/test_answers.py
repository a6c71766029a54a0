"""Answers that are repeated: each is that of a scan, and none outlives a change of its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store import indexes
from kopf_selectcache.core.store.indexes import (
    MOST_ANSWERS,
    NOTHING,
    SCANNED_CANDIDATES,
    AnsweredRecords,
    Lookup,
)
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.core.store.union import Union
from tests.core.store.test_postings import (
    LOOKUPS,
    STEPS,
    build,
    by_label,
    filled,
    found,
    meets,
    record,
    small,
    taken,
)
from tests.core.writers import writers


def indexed(count: int = SCANNED_CANDIDATES + 1) -> tuple[Store, Lookup]:
    """Return a store with an index of a label, and a lookup by it."""
    store, lookup = filled(count, lambda i: record(f"pod-{i}", app="a" if i % 2 else "b")), by_label("app=a")
    store.chosen(lookup)
    build(store, 1000)
    return store, lookup


def scanned() -> tuple[Store, Lookup]:
    """Return a store of a few objects without an index, and a lookup in a namespace."""
    store = filled(10, lambda i: record(f"pod-{i}", app="a" if i % 2 else "b"))
    return store, by_label("app=a", namespaces=frozenset(["shop"]))


STORES = pytest.mark.parametrize("make", [indexed, scanned])


@settings(max_examples=60)
@given(
    STEPS,
    st.lists(LOOKUPS, min_size=1, max_size=5),
    st.sampled_from([0, SCANNED_CANDIDATES]),
    st.sampled_from([0, 3, 99]),
)
def test_3_an_answer_that_is_repeated_is_that_of_a_scan(
    steps: list[tuple[str, Any]], asked: list[Lookup], worth: int, at_most: int
) -> None:
    store = Store()
    with small(), patch.multiple(indexes, SCANNED_CANDIDATES=worth, CHECKED_OBJECTS=at_most):
        for step in steps:
            if step[0] == "declare":
                store.declare(step[1])
            taken(store, step, store.build)
            held, _ = store.records()
            for each in asked:
                assert found(store, each, asking=True) == {one for one in held if meets(one, each)}
            for answer in store._indexes.answers.by_lookup.values():
                assert {*(answer.records or ())} <= {*held}, "it keeps no record alive"


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 2), STEPS), max_size=12),
    st.lists(LOOKUPS, min_size=1, max_size=4),
    st.sampled_from([0, SCANNED_CANDIDATES]),
)
def test_3_so_it_is_of_several_streams(
    rounds: list[tuple[int, list[tuple[str, Any]]]], asked: list[Lookup], worth: int
) -> None:
    union = Union([Keys("shop"), Keys("shop", frozenset("pqr")), Keys("bank")])
    with small(), patch.object(indexes, "SCANNED_CANDIDATES", worth):
        for which, steps in rounds:
            for step in steps[:8]:
                taken(writers(union)[which], step, union.build)
                for readable in (union.store, union.needed(union.substores[:2])):
                    held, _ = readable.records()
                    for each in asked:
                        expected = {one for one in held if meets(one, each)}
                        assert found(readable, each, asking=True) == expected


@STORES
def test_an_answer_is_repeated_until_its_records_change(make: Any) -> None:
    store, lookup = make()
    first = store.chosen(lookup)
    assert (first.rest, type(first.records)) == (NOTHING, AnsweredRecords)
    assert store.chosen(lookup).records is first.records
    store.put(record("pod-1", "101", app="a"))
    second = store.chosen(lookup)
    assert [each.version for each in second.records if each.name == "pod-1"] == ["101"]
    assert len(second.records) == len(first.records)
    store.leave(record("pod-1", "102"))
    assert "pod-1" not in {each.name for each in store.chosen(lookup).records}


def everywhere() -> tuple[Store, Lookup]:
    """Return the same store, and a lookup in all namespaces."""
    return scanned()[0], by_label("app=a")


@pytest.mark.parametrize("make", [indexed, scanned, everywhere])
def test_3_an_answer_changes_with_an_object_that_comes_and_with_one_that_leaves(make: Any) -> None:
    store, lookup = make()
    names = [each.name for each in store.chosen(lookup).records]
    assert [each.name for each in store.chosen(lookup).records] == names
    store.put(record("new", "101", app="a"))
    assert sorted(each.name for each in store.chosen(lookup).records) == sorted([*names, "new"])
    assert "new" in {each.name for each in store.chosen(lookup).records}
    store.leave(record("new", "102"))
    assert sorted(each.name for each in store.chosen(lookup).records) == sorted(names)


@STORES
def test_a_generation_that_is_another_has_other_answers(make: Any) -> None:
    store, lookup = make()
    store.chosen(lookup)
    store.begin()
    store.put(record("other", "201", app="a"))
    store.commit("201")
    assert [each.name for each in store.chosen(lookup).records] == ["other"]


@STORES
def test_so_has_one_that_has_the_indexes_built_anew(make: Any) -> None:
    store, lookup = make()
    store.chosen(lookup)
    store.begin()
    store.put(record("other", "201", app="a"))
    with patch.object(indexes, "STEP_CHANGES", 1), patch("kopf_selectcache.core.store.store.STEP_CHANGES", 1):
        store.commit("201")
    assert [each.name for each in store.chosen(lookup).records] == ["other"]


def test_8_many_candidates_are_checked_without_the_lock_and_the_result_is_repeated() -> None:
    store, _ = indexed()
    lookup = by_label("app=a,odd!=yes")
    holding = []

    def met_by(self: Lookup, records: Iterable[Record]) -> Iterator[Record]:
        holding.append(store._lock.locked())
        return original(self, records)

    original = Lookup.met_by
    with patch.object(indexes, "CHECKED_OBJECTS", 10), patch.object(Lookup, "met_by", met_by):
        chosen = store.chosen(lookup)
        assert chosen.rest == by_label("odd!=yes")
        checked = store.checked(chosen)
        assert (len(checked.records), checked.rest) == (SCANNED_CANDIDATES // 2, NOTHING)
        assert holding == [False]
        assert store.chosen(lookup).records is checked.records
        assert store.checked(checked) is checked


@pytest.mark.parametrize("between", ["a change", "another generation", "another reader"])
def test_3_an_answer_whose_candidates_change_while_they_are_checked_is_not_repeated(between: str) -> None:
    store, _ = indexed()
    lookup = by_label("app=a,odd!=yes")
    with patch.object(indexes, "CHECKED_OBJECTS", 10):
        chosen, later = store.chosen(lookup), None
        match between:
            case "a change":
                store.leave(record("pod-1", "102", app="a"))
            case "another generation":
                store.begin()
                store.put(record("other", "201", app="a"))
                store.commit("201")
            case _:
                later = store.checked(store.chosen(lookup))
                store.leave(record("pod-1", "102", app="a"))
        assert len(store.checked(chosen).records) == SCANNED_CANDIDATES // 2
        names = {each.name for each in found(store, lookup, asking=True)}
        assert names == {each.name for each in store.records()[0] if each.labels["app"] == "a"}
        assert later is None or len(later.records) == SCANNED_CANDIDATES // 2


def test_there_is_an_end_of_answers_and_of_their_records() -> None:
    store, _ = indexed()
    known = store._indexes.answers
    many = [by_label("app=a", names=frozenset([f"pod-{number}"])) for number in range(MOST_ANSWERS + 5)]
    for each in many:
        store.chosen(each)
    assert len(known.by_lookup) == MOST_ANSWERS
    assert id(many[0]) not in known.by_lookup, "the oldest one made room"
    with patch.object(indexes, "MOST_RECORDS", 150):
        for text in ("app=a", "app in (a)", "app=b"):
            assert len(store.chosen(by_label(text)).records) >= SCANNED_CANDIDATES // 2
        assert sum(len(each.records or ()) for each in known.by_lookup.values()) <= 150
        with patch.object(indexes, "MOST_RECORDS", 50):
            assert len(store.chosen(by_label("app==a")).records) >= SCANNED_CANDIDATES // 2
