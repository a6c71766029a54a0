"""The table of docs/comparison.md: how it is made of what is held, and that it has every fault and every contender."""
from __future__ import annotations

import pytest

from bench.comparison import BEGIN, DOCUMENT, END, shown, table, written
from bench.contenders.asking import Held
from bench.faults import ROWS, Row
from bench.staging import CONTENDERS, EQUAL, compared

RIGHT: Held = {"web-1": ["u1", "5"], "web-2": ["u2", "6"]}
THERE: Held = {**RIGHT, "db-1": ["u3", "3"]}


@pytest.mark.parametrize(("held", "words"), [
    (RIGHT, "equal"),
    ({}, "holds nothing"),
    ({**RIGHT, "web-3": ["u4", "4"]}, "stale: keeps 1 deleted"),
    ({**RIGHT, "db-1": ["u3", "3"]}, "stale: keeps 1 that left the filter"),
    ({"web-1": ["u1", "5"]}, "stale: lacks 1"),
    ({**RIGHT, "web-2": ["u2", "4"]}, "stale: has an old version of 1"),
    ({**RIGHT, "web-2": ["u0", "6"]}, "stale: has an old version of 1"),
    ({"web-1": ["u1", "2"], "web-3": ["u4", "4"]}, "stale: keeps 1 deleted, lacks 1, has an old version of 1"),
])
def test_what_is_held_is_compared_with_the_list_of_the_server(held: Held, words: str) -> None:
    assert compared(held, right=RIGHT, there=THERE) == words


def test_where_nothing_is_right_to_hold_it_is_held_rightly() -> None:
    assert compared({}, right={}, there=THERE) == EQUAL


def test_a_new_table_takes_the_place_of_the_old_and_is_read_back() -> None:
    row = Row("6", "a fault", lambda _: None)
    old = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    seen = {("a fault", contender.name): f"of {contender.name}" for contender in CONTENDERS}
    new = written(old, table([row], seen))
    assert shown(new) == seen
    assert (new.startswith(f"before\n{BEGIN}\n\n"), new.endswith(f"\n{END}\nafter\n"), "old" in new) == (True, True, False)


def test_the_page_has_a_result_for_every_fault_and_every_contender_and_for_no_others() -> None:
    seen = shown(DOCUMENT.read_text())
    assert list(seen) == [(row.words, contender.name) for row in ROWS for contender in CONTENDERS]
    assert all(seen.values())
