"""Several streams, one store: every order in which two or three branches can tell of one object."""

from __future__ import annotations

import pytest

from tests.core.transits import Rules, Violation, histories, walks

TWO = ("A", "B", "AB", "-", "x")
FEW = ("A", "B", "-", "x")


@pytest.mark.parametrize(
    ("branches", "states", "length", "rules", "least"),
    [
        (2, FEW, 3, Rules(), 200),
        (2, ("A", "B", "x"), 4, Rules(probes=1), 2_000),
        (2, FEW, 3, Rules(probes=2), 500),
        (2, TWO, 3, Rules(probes=1), 800),
        (2, TWO, 2, Rules(relists=1, probes=1), 1_000),
        (2, FEW, 3, Rules(late=True, probes=1), 1_000),
        (2, TWO, 3, Rules(refused=True, probes=1), 100),
        (2, FEW, 3, Rules(vague=True, probes=1), 100),
        (3, ("A", "B", "C"), 2, Rules(probes=1), 20),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in [
                (2, TWO, 4, Rules(), 12_000),
                (2, TWO, 3, Rules(vague=True, probes=2), 500),
                (3, ("A", "B", "C"), 3, Rules(probes=1), 1_000),
                (2, ("A", "B", "x"), 4, Rules(probes=2), 2_000),
                (2, ("A", "B", "x"), 3, Rules(relists=1, probes=2), 3_000),
                (3, ("A", "B", "C", "x"), 3, Rules(probes=2), 1_000),
            ]
        ),
    ],
    ids=str,
)
def test_in_whatever_order_branches_tell_of_an_object_it_is_shown_as_it_is(
    branches: int,
    states: tuple[str, ...],
    length: int,
    rules: Rules,
    least: int,
) -> None:
    stories, walked, departures = 0, 0, 0
    paths: list[str] = []
    try:
        for history in histories(states, length):
            stories += 1
            for system in walks(history, branches, rules, story=paths.append):
                walked += 1
                departures += system.lefts
    except Violation as violation:
        raise AssertionError(f"{violation}\n{paths[0]}") from violation
    print(
        f"{stories:,} histories of {length} states in {branches} branches, {walked:,} orders, {departures:,}"
        f" departures; {rules}"
    )
    assert walked >= least
