"""The table of bench/FAULTS.md describes each attack, and has the states that its test expects."""

from __future__ import annotations

from tests.rows import each_row

from .attacks import ATTACKS
from .table import DOCUMENT, read, states


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
