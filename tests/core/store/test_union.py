"""Several streams, one store: every order in which two or three branches can tell of one object."""

from __future__ import annotations

import inspect
import sys
from collections import deque
from types import ModuleType

import pytest

from kopf_selectcache.core.store import claims as claims_module
from kopf_selectcache.core.store import union as merging_module
from kopf_selectcache.core.store.union import Union
from tests.core.transits import Rules, Violation, histories, walks

TWO = ("A", "B", "AB", "-", "x")
FEW = ("A", "B", "-", "x")
THREE = ("A", "B", "C", "ABC", "-", "x")


# ---- Every order.


@pytest.mark.parametrize(
    ("branches", "states", "length", "rules", "least"),
    [
        (2, FEW, 4, Rules(), 4_000),
        (2, ("A", "B", "x"), 4, Rules(probes=1), 2_000),
        (2, FEW, 3, Rules(probes=2), 500),
        (2, TWO, 3, Rules(probes=1), 800),
        (2, TWO, 2, Rules(relists=1, probes=1), 1_000),
        (2, FEW, 3, Rules(late=True, probes=1), 1_000),
        (2, TWO, 3, Rules(refused=True, probes=1), 100),
        (2, TWO, 3, Rules(vague=True, probes=2), 500),
        (3, ("A", "B", "C"), 3, Rules(probes=1), 1_000),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in [
                (2, TWO, 4, Rules(), 12_000),
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


def test_an_object_that_comes_moves_goes_back_is_deleted_and_created_elsewhere_is_shown_as_it_is() -> None:
    walked = sum(1 for _ in walks(("x", "A", "B", "A", "x", "B"), 2, Rules()))
    print(f"{walked:,} orders")
    assert walked > 100


# ---- What would be wrong, and is seen to be.

MUTANTS: list[tuple[str, str, str, Rules, tuple[str, ...]]] = [
    (
        "show a leave at once",
        "found = None if is_over else shown",
        "found = None",
        Rules(),
        ("I8b",),
    ),
    (
        "wait for one branch only",
        "        for substore in substores:\n            if key in substore.vague",
        "        for substore in tuple(substores)[:1]:\n            if key in substore.vague",
        Rules(),
        ("I8b",),
    ),
    (
        "take a version before the leave for enough",
        "or is_newer(awaited, substore.version):",
        "or int(awaited) > int(substore.version) + 1:",
        Rules(),
        ("I8b",),
    ),
    (
        "compare versions as text",
        "or is_newer(awaited, substore.version):",
        "or awaited > substore.version:",
        Rules(),
        ("I8b", "I5"),
    ),
    (
        "never look again",
        "                substore.wait_for(awaited, key)\n",
        "",
        Rules(),
        ("I5", "I3"),
    ),
    (
        "believe the branch that spoke last",
        (
            "    return is_newer(record.version, other.version) if said else is_older(other.version,"
            " record.version)"
        ),
        "    return said or is_older(other.version, record.version)",
        Rules(),
        ("I1", "I2"),
    ),
    (
        "let the older record of another branch win",
        "        else:\n            found = shown  # All claims",
        "        else:\n            found = best  # All claims",
        Rules(),
        ("I1", "I2"),
    ),
    (
        "forget that a list is silent on what came before",
        "newest_of([row.left, self._newest_list(substores)])",
        "row.left",
        Rules(relists=1),
        ("I8b",),
    ),
    (
        "do not hold the version back after a list",
        "            and not is_older(each.version, listed)\n",
        "",
        Rules(relists=1),
        ("I5", "I8b"),
    ),
    (
        "do not hold the version back for what left at a version not told",
        "            substore.listed = version  # When",
        "            pass  # When",
        Rules(vague=True),
        ("I5",),
    ),
    (
        "take the newest version for the answer's",
        "return least(each.version for each in group) if",
        "return newest_of(each.version for each in group) if",
        Rules(),
        ("I4",),
    ),
    (
        "forget what happened before the list that a branch equals",
        "        substore.listed = version\n        return self.progress",
        "        return self.progress",
        Rules(probes=1),
        ("I8b",),
    ),
    (
        "tell one departure for two objects",
        "        if before.uid != after.uid:\n",
        "        if False:\n",
        Rules(),
        ("I9",),
    ),
    (
        "show what has left at a version not told",
        "            substore.vague.add(key)\n",
        "",
        Rules(vague=True),
        ("I8b",),
    ),
    (
        "take the version of what was deleted for that of the deletion",
        "        if is_newer(record.version, substore.version):\n            # An event",
        "        if True:\n            # An event",
        Rules(vague=True),
        ("I8b",),
    ),
]


def mutated(old: str, new: str) -> type[Union]:
    modules = (claims_module, merging_module)
    sources = [inspect.getsource(module) for module in modules]
    found = sum(source.count(old) for source in sources)
    assert found == 1, f"this is {found} times in the files: {old}"
    made = ModuleType("kopf_selectcache.core.store.mutant")
    made.__package__ = merging_module.__package__
    sys.modules[made.__name__] = made  # Dataclasses look their own module up.
    for each in sources:
        source = each.replace(old, new).replace("from .claims import", "from .mutant import")
        # The files under test, with one thing wrong.
        exec(compile(source, "mutant", "exec"), made.__dict__)  # noqa: S102
    cls: type[Union] = made.Union
    return cls


@pytest.mark.parametrize(
    ("what", "old", "new", "rules", "invariants"), MUTANTS, ids=[row[0] for row in MUTANTS]
)
def test_a_seeded_bug_breaks_an_invariant(
    what: str, old: str, new: str, rules: Rules, invariants: tuple[str, ...]
) -> None:
    wrong = mutated(old, new)
    every = (system for history in histories(TWO, 3) for system in walks(history, 2, rules, union=wrong))
    with pytest.raises(Violation) as raised:
        deque(every, maxlen=0)
    assert raised.value.invariant in invariants, what
