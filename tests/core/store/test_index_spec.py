"""Declared indexes: which values they have of which objects, and when these are read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from kopf_selectcache.core.errors import BadIndex, Undecodable
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store import indexes
from kopf_selectcache.core.store.index_spec import Indexed, note
from kopf_selectcache.core.store.indexes import IndexedProperty, Lookup
from kopf_selectcache.core.store.packing import Tally, weight
from kopf_selectcache.core.store.union import Union
from tests.core.writers import writers
from tests.rows import each_row

from .test_postings import IMAGES, NODE, build, by_label, filled, found, record

# ---- Declared.


def test_a_declared_index_is_there_without_being_asked_for() -> None:
    told: list[None] = []
    store = filled(
        5,
        lambda i: record(f"pod-{i}", spec={"node": f"n{i % 2}"}, images=["i", f"i-{i}"]),
        request_index=lambda: told.append(None),
    )
    for each in (NODE, IMAGES):
        store.declare(each)
    assert len(told) == 2
    build(store)
    assert store.chosen(Lookup(values=((IMAGES, "i-3"), (NODE, "n1")))).by == ("index image",)
    assert {each.name for each in found(store, Lookup(values=((NODE, "n1"),)))} == {"pod-1", "pod-3"}
    store.declare(NODE)  # As whoever adds it does, if a read was before.
    served = store.chosen(Lookup(where=((NODE, "n1"),)))
    assert (served.by, served.rest, len(served.records)) == (("index node",), Lookup(), 2)


@pytest.mark.parametrize("branches", [1, 2])
def test_functions_are_called_under_no_lock_and_the_values_they_add_are_counted(branches: int) -> None:
    tally, called = Tally(), []
    union = Union([Keys()] * branches, tally=tally)

    def named(obj: dict[str, Any]) -> str:
        assert not any(store._lock.locked() for store in union.stores)
        called.append(obj)
        return str(obj["spec"])

    by, branch = Indexed("it", function=named), writers(union)[0]
    union.store.declare(by)
    for each in writers(union):
        each.begin()
        each.put(record("listed", spec="a"))
        each.commit("10")
    build(union)
    branch.put(record("came", "20", spec="a"))
    branch.begin()
    branch.put(record("listed", spec="a"))
    branch.put(record("more", "30", spec="b"))
    branch.commit("40")
    branch.leave(record("came", "50"))
    for each in writers(union):
        each.progress("60")
    asked = Lookup(values=((by, "b"),))
    assert union.store.chosen(asked).by == ("index it",)
    assert {each.name for each in found(union.store, asked)} == {"more"}
    assert len(called) >= 3
    everything = {id(each): each for store in union.stores for each in store.records()[0]}
    assert tally.bytes == sum(map(weight, everything.values()))


def test_an_object_staged_without_values_as_an_index_is_declared_is_found_once_shown() -> None:
    store = filled(3, lambda i: record(f"pod-{i}", spec={"node": "n0"}))
    store.begin()
    store.put(record("pod-1", "101", spec={"node": "n1"}))
    store.declare(NODE)
    build(store)
    store.commit("102")
    asked = Lookup(values=((NODE, "n1"),))
    assert store.chosen(asked).by == ("index node",)
    assert {each.name for each in found(store, asked)} == {"pod-1"}


def test_containers_are_weighed_when_the_lock_is_held_no_more() -> None:
    store = filled(200, lambda i: record(f"pod-{i}", spec={"node": f"n{i % 2}"}))
    store.declare(NODE)
    build(store)

    def weighed(each: object) -> int:
        assert not store._lock.locked()
        return sys.getsizeof(each)

    with patch.object(indexes, "getsizeof", weighed):
        weights = store.weights()
    assert weights.keys() == {"", "index node"}
    assert weights["index node"] > 2 * sys.getsizeof(set(range(100)).copy())


def test_a_slice_is_so_many_entries_whatever_a_step_takes() -> None:
    store = filled(400, lambda i: record(f"pod-{i}", app=f"a-{i % 4}"))
    with patch.object(indexes, "SCANNED_CANDIDATES", 0):
        store.chosen(by_label("app=a-1"))
    assert build(store, 200) == 2 + 2 + 1, (
        "the records, then sets of 100 each that are made small; the last finds no more"
    )


@pytest.mark.parametrize("late", [False, True])
def test_an_added_index_has_no_values_of_objects_that_its_function_fails_for(late: bool) -> None:
    told: list[tuple[tuple[str, str], str]] = []
    by = Indexed(
        "it",
        function=lambda obj: obj["canary"],
        late=late,
        failing=(lambda *of: told.append(of)) if late else None,
    )
    if late:
        assert by.come(("shop", "a"), {}) == ()
        ((key, why),) = told
        assert key == ("shop", "a")
        assert why.startswith("the function of the index 'it' raised KeyError")
        assert Indexed("it", function=by.function, late=True).come(("shop", "a"), {}) == ()
        assert replace(by, late=False).come(("shop", "a"), {}) == ()
    else:
        with pytest.raises(BadIndex):
            by.come(("shop", "a"), {})
        assert told == []


def test_an_object_with_a_list_at_the_path_leaves_where_to_be_looked_at() -> None:
    store = filled(3, lambda i: record(f"pod-{i}", spec={"node": ["n1", "n2"] if i == 1 else "n1"}))
    store.declare(NODE)
    build(store)
    asked = Lookup(where=((NODE, "n1"),))
    assert store.chosen(asked).rest == asked
    assert store.chosen(Lookup(values=((NODE, "n1"),))).size == 3
    store.leave(record("pod-1", "101"))
    assert store.chosen(asked).rest == Lookup()


def test_a_store_of_a_branch_has_a_declared_index_once_it_is_asked_by_it() -> None:
    store = filled(3, lambda i: record(f"pod-{i}", spec={"node": f"n{i}"}))
    asked = Lookup(values=((NODE, "n1"),))
    assert store.chosen(asked).missing == IndexedProperty("index", "node")
    build(store)
    assert store.chosen(asked).by == ("index node",)
    other = Lookup(where=((Indexed("other", ("spec",)), "n1"),))
    assert store.chosen(other).missing == IndexedProperty("index", "other")


@each_row(
    ("obj", "values"),
    [
        ({}, ()),
        ({"a": None}, ()),
        ({"a": {}}, ()),
        ({"a": "x"}, ()),
        ({"a": {"b": "x"}}, ("x",)),
        ({"a": {"b": ""}}, ("",)),
        ({"a": {"b": 5}}, (5,)),
        ({"a": {"b": False}}, (False,)),
        ({"a": {"b": {}}}, (None,)),
        ({"a": {"b": ["x", "y", "x", {}]}}, ("x", "y", None)),
        ({"a": [{"b": "x"}, {"b": "y"}, {}, 5]}, ("x", "y", None)),
        ({"a": []}, (None,)),
    ],
)
def test_a_path_leads_through_lists_to_each_item(obj: dict[str, Any], values: tuple[Any, ...]) -> None:
    """None says that there is more or else than one value."""
    assert Indexed("ab", ("a", "b")).values(obj) == values


class Text(str):
    __slots__ = ()


@each_row(
    ("made", "values"),
    [
        (None, ()),
        ("x", ("x",)),
        (Text("x"), ("x",)),
        (["x", "y", "x"], ("x", "y")),
        ({"x"}, ("x",)),
        ((), ()),
        (("x", Text("y")), ("x", "y")),
        ({"x": 1}.keys(), ("x",)),
    ],
)
def test_a_function_returns_a_text_or_texts_or_none(made: object, values: tuple[str, ...]) -> None:
    # It is anybody's.
    found = Indexed("it", function=lambda _: made).values({})  # type: ignore[arg-type, return-value]
    assert found == values
    assert all(type(each) is str for each in found)


@each_row(
    ("function", "why"),
    [
        (lambda obj: obj["canary"], r"raised KeyError at test_index_spec.py:\d+"),
        (lambda _: 5, "returned a value of the type int"),
        (lambda _: ["x", 5], "returned a list with values that aren't texts"),
        (lambda _: [[]], "returned a list with values that aren't texts"),
        (lambda _: b"x", "returned a value of the type bytes"),
        (lambda _: {"x": "y"}, "returned a value of the type dict"),
    ],
)
def test_other_faults_of_a_function_are_reported_without_its_words(
    function: Callable[[Any], Any], why: str
) -> None:
    with pytest.raises(BadIndex, match=f"^the function of the index 'it' {why}") as info:
        Indexed("it", function=function).values({})
    assert "canary" not in str(info.value)
    assert info.value.__context__ is None
    held = record("a")
    assert Indexed("it", function=function).of(held) == ()


def endless(obj: Any) -> str:
    return endless(obj)


def test_an_index_function_that_recurses_too_deeply_has_no_value_of_the_object_and_says_so() -> None:
    try:
        why = str(Indexed("it", function=endless).come(("shop", "a"), {}))
    except (BadIndex, Undecodable) as error:
        why = str(error)
    assert why == "its index function 'it' recurses too deeply"
    told: list[tuple[tuple[str, str], str]] = []
    assert (
        Indexed("it", function=endless, late=True, failing=lambda *of: told.append(of)).come(
            ("shop", "a"), {}
        )
        == ()
    )
    assert told == [(("shop", "a"), "its index function 'it' recurses too deeply")]
    assert Indexed("it", function=endless).of(record("a")) == ()


def test_an_index_function_is_called_once_more_on_an_empty_stack() -> None:
    levels = sys.getrecursionlimit() - 100

    def down(depth: int) -> str:
        return down(depth - 1) if depth else "x"

    by = Indexed("it", function=lambda obj: down(obj["depth"]))
    assert by.values({"depth": levels}) == ("x",)


def test_values_are_noted_once_and_stay_beside_those_of_fields() -> None:
    held = record("a", spec={"node": "n1"}, images=["i"])
    held.fields = b'{"status.phase":"Running"}'
    assert (NODE.of(held), NODE.known(held), held.indexed()) == (("n1",), None, {})
    note(held, [NODE])
    note(held, [NODE, IMAGES])
    assert (NODE.known(held), IMAGES.known(held)) == (("n1",), ("i",))
    assert (held.indexed(), held.lost()) == ({"node": ["n1"], "image": ["i"]}, {"status.phase": "Running"})
    held.stored = b"{}"
    assert NODE.of(held) == ("n1",), "it is not read anew"


def test_an_index_is_written_as_it_is_declared() -> None:
    def images(_: object) -> None: ...

    class Named:
        def __call__(self, _: object) -> None: ...

    assert [
        str(each)
        for each in (
            Indexed("node", ("spec", "node")),
            Indexed("a", ("b.c", "d")),
            Indexed("i", function=images),
            Indexed("n", function=Named()),
        )
    ] == ["'node': 'spec.node'", "'a': ('b.c', 'd')", "'i': images", "'n': Named"]


def test_an_index_shows_no_argument_that_is_bound_to_its_function() -> None:
    index = Indexed("by", function=partial(max, "hunter2"))
    assert repr(index) == "Indexed('by': partial)"
