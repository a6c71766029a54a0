"""The table of docs/guarantees.md has each attack, as it is described, with the states that its test expects.
And it is written as it is read."""

from __future__ import annotations

from tests.rows import each_row

from .attack import MOST_REQUESTS
from .attacks import ATTACKS
from .server import most_in_a_minute
from .table import BEGIN, DOCUMENT, END, HEAD, Row, read, states, written


def test_the_table_has_all_attacks() -> None:
    lines = read(DOCUMENT.read_text(encoding="utf-8"))
    assert list(lines) == [attack.name for attack in ATTACKS]


@each_row("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_row_has_the_description_and_the_states_of_its_attack_and_no_flood(attack: object) -> None:
    found = next(each for each in ATTACKS if each is attack)
    line = read(DOCUMENT.read_text(encoding="utf-8"))[found.name]
    name, what, state, requests, peak, _ = line.strip("| ").split(" | ")
    assert (name, what, state) == (found.name, found.what, states(found))
    assert int(requests) <= found.most
    assert int(peak) <= found.memory


def test_names_and_descriptions_fit_into_a_table() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert [
        attack.name
        for attack in ATTACKS
        if "|" in attack.name + attack.what or "\n" in attack.what or not attack.what
    ] == []


def test_new_rows_take_the_place_of_old_ones_and_others_stay() -> None:
    first, second, third = ATTACKS[:3]
    # The text is one line.
    text = f"before\n{BEGIN}\n{HEAD}\n{Row('stale', 1, 2.0, 0.003).shown(first)}\n{Row('synced', 4, 5.0, 0.006).shown(third)}\n{END}\nafter\n"  # noqa: E501
    new = written(
        text, ATTACKS, {second.name: Row("stale", 7, -1.0, 0.0), third.name: Row("stalled", 8, 9.0, 0.01)}
    )
    assert list(read(new)) == [first.name, second.name, third.name]
    assert read(new)[third.name] == f"| {third.name} | {third.what} | stalled | 8 | 9 | 10 |"
    assert new.replace(read(new)[second.name] + "\n", "").count("\n") == text.count("\n")
    assert (new.startswith("before\n"), new.endswith("\nafter\n")) == (True, True)


def test_requests_are_counted_in_each_minute_and_not_in_calendar_minutes() -> None:
    assert most_in_a_minute([]) == 0
    assert most_in_a_minute([0.0, 59.0, 60.0, 61.0, 200.0]) == 3
    assert MOST_REQUESTS == 242
