"""Declared indexes: which values they have of which objects, and when these are read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from kopf_selectcache.core.errors import BadIndex, Undecodable
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store import indexes
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.indexes import Lookup
from kopf_selectcache.core.store.packing import Tally, weight
from kopf_selectcache.core.store.union import Union
from tests.core.writers import writers
from tests.rows import each_row

from .test_postings import NODE, build, filled, found, record

# ---- Declared.


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


def test_an_index_shows_no_argument_that_is_bound_to_its_function() -> None:
    index = Indexed("by", function=partial(max, "hunter2"))
    assert repr(index) == "Indexed('by': partial)"
