"""docs/dev/protocol.md agrees with the code, and the tests that it names exist."""

from __future__ import annotations

import re
from typing import get_args

from kopf_selectcache.core.protocol.machine import Input, State
from tests.core.diagram import DOCUMENT, drawn, shown
from tests.rows import each_row

PAGE = DOCUMENT.read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ")
]
FAULTS = [row for row in ROWS if row[0].isdigit()]
FILES = {
    name: DOCUMENT.parent / path for name, path in re.findall(r"^\[(\w+)\]: (\S+)$", PAGE, flags=re.MULTILINE)
}
NUMBERED = {"core", "pages", "lists", "streams", "initial", "rights", "endless"}


def test_the_diagram_is_drawn_from_the_table_of_transitions() -> None:
    assert shown(PAGE) == drawn(), "python -m tests.core.diagram draws it anew"


def test_each_state_and_each_input_is_explained() -> None:
    explained = {word for row in ROWS for word in row[0].split(", ")}
    assert {kind.__name__ for kind in (*get_args(State), *get_args(Input))} <= explained


def test_all_faults_are_there() -> None:
    assert [int(row[0]) for row in FAULTS] == list(range(1, 36))


@each_row("row", FAULTS, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_fault_strikes_in_states_that_there_are_and_is_tested_where_the_page_says(row: list[str]) -> None:
    number, _, states, _, tests = row
    if states not in ("", "any", "any request"):
        assert set(states.split(", ")) <= {kind.__name__ for kind in get_args(State)}
    places = re.findall(r"\[(\w+)\]", tests)
    assert set(re.split(r", ", tests)) <= {"", "model", *(f"[{place}]" for place in FILES)}
    for place in places:
        assert FILES[place].exists()
        if place in NUMBERED:
            assert re.search(rf"def test_(?:\d+_)*{number}_", FILES[place].read_text()), (
                f"no test of fault {number} in {FILES[place]}"
            )


def test_each_numbered_test_of_these_files_is_of_a_fault_that_names_the_file() -> None:
    named = {(number, place) for number, *_, tests in FAULTS for place in re.findall(r"\[(\w+)\]", tests)}
    there = {
        (number, place)
        for place in NUMBERED
        for numbers in re.findall(r"def test_((?:\d+_)+)", FILES[place].read_text())
        for number in numbers.strip("_").split("_")
    }
    assert there - named == set()
