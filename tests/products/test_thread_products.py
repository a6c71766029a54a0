"""Readers in threads x a writer's calls: every answer is of one generation (I4, contract 3), wherever either
is stopped. Enumerated.

The writer is stopped at each of its lines, and in each instruction, and a reader let in; and the other way
round. What a reader may answer is what it would have answered between two calls of the writer's: nothing else
was ever so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, cast

import pytest

import kopf_selectcache
from kopf_selectcache.core.store import claims as claims_module
from kopf_selectcache.core.store import store as store_module
from kopf_selectcache.core.store import union as merging_module
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.core.store.union import Union
from tests.branched import SHARED
from tests.core.writers import writers
from tests.interleaving import Plan, Turns, plans, stepping
from tests.scenes import GOLD, Call, Scene, alone, listed, node, record, two


def moving(union: Union) -> list[Call]:
    """`a` moves from the first branch to the second, and the first hears of it first."""
    one, other = writers(union)
    return [
        lambda: one.leave(record("a", 11)),
        lambda: one.progress("11"),
        lambda: other.put(record("a", 11, GOLD)),
        lambda: other.progress("11"),
    ]


def vanishing(union: Union) -> list[Call]:
    """`b` changes, `a` is deleted at 12, before the second branch has heard of anything; and `b` changes
    again."""
    one, other = writers(union)
    return [
        lambda: one.put(record("b", 11)),
        lambda: one.progress("11"),
        lambda: one.leave(record("a", 12)),
        lambda: one.progress("12"),
        lambda: other.jump("13"),
        lambda: one.progress("13"),
        lambda: one.put(record("b", 14)),
    ]


SCENES: dict[str, Callable[[], Scene]] = {
    "put": lambda: alone(lambda branch: [lambda: branch.put(record("c", 11)), lambda: branch.progress("11")]),
    "change": lambda: alone(
        lambda branch: [lambda: branch.put(record("a", 11)), lambda: branch.progress("11")]
    ),
    "leave": lambda: alone(
        lambda branch: [lambda: branch.leave(record("a", 11)), lambda: branch.progress("11")]
    ),
    "progress": lambda: alone(lambda branch: [lambda: branch.progress("11")]),
    "relist": lambda: alone(lambda branch: listed(branch, 12, record("a", 11), record("c", 12))),
    "abandoned relist": lambda: alone(
        lambda branch: [*listed(branch, 12, record("a", 11))[:2], branch.abandon]
    ),
    "own, and its event": lambda: alone(
        lambda branch: [lambda: branch.put(record("a", 11)), lambda: branch.progress("11")], own=node("a", 11)
    ),
    "own, and a relist without it": lambda: alone(
        lambda branch: listed(branch, 12, record("b", 12)), own=node("a", 11)
    ),
    "move": lambda: two(moving),
    "move, overlapping filters": lambda: two(moving, layout=SHARED),
    "own, and its move": lambda: two(moving, own=node("a", 11, GOLD)),
    "relist of a branch": lambda: two(
        lambda union: [
            *listed(writers(union)[0], 12, record("a", 11), record("c", 12)),
            lambda: writers(union)[1].progress("12"),
        ]
    ),
    "doubt": lambda: two(vanishing),
    "own, and a doubt": lambda: two(vanishing, own=node("a", 11)),
}
SOAKED = {
    "change",
    "abandoned relist",
    "own, and its event",
    "move, overlapping filters",
    "relist of a branch",
    "doubt",
}
"""The scenes of the soak alone: the writer does the same in other scenes."""
LONG = {"own, and a doubt", "own, and its move"}
"""These as well: they take seconds, and each half of them is a scene of its own."""
STORE = ("store.get", "store.records", "store.chosen")
ALTERNATING = ("put", "leave", "progress", "relist")
WINDOW = 4
"""A reader continues at the latest this many lines after it was interrupted, or when the writer is done."""
CORE = (store_module.__file__, claims_module.__file__, merging_module.__file__)
WITH_READS = (
    *CORE,
    *(f"{kopf_selectcache.__path__[0]}/cache/_{name}.py" for name in ("overlay", "snapshot")),
)


def answers(scene: Callable[[], Scene], read: str) -> list[object]:
    """Return what may be read between the writer's calls: while a list is staged, what was read before it was
    begun."""
    one = scene()
    found = [one.read(read)]
    for step in one.steps:
        step()
        staged = any(branch.view._staged is not None for branch in writers(one.union))
        found.append(found[-1] if staged else one.read(read))
    return found


def stores(scene: Scene) -> list[Store]:
    return [scene.union.store, *(branch.view for branch in writers(scene.union))]


@pytest.mark.parametrize(
    "scene",
    [pytest.param(scene, marks=[pytest.mark.soak] if scene in SOAKED else []) for scene in SCENES],
)
def test_i4_a_reader_is_let_in_before_each_instruction_of_the_writer(scene: str) -> None:
    one, reads = SCENES[scene](), 0
    reading = (*STORE, "get", "held")
    allowed = {read: answers(SCENES[scene], read) for read in reading}
    places = dict.fromkeys(reading, 0)

    def read(_: int) -> None:
        nonlocal reads
        if one.union.store._lock.locked():
            return  # It would wait for that, and read what is there before a later instruction.
        for how, states in allowed.items():
            answer = one.read(how)
            reads += 1
            assert answer in states, f"I4: {how} answers what was never so: {answer}, and not one of {states}"
            assert answer in states[places[how] :], (
                f"I1: {how} answers {answer}, and a newer one was read before"
            )
            places[how] += states[places[how] :].index(answer)

    # Of branches, the union is made of many lines, and shown by the instructions of one method.
    stepping(
        CORE, lambda: [step() for step in one.steps], read, finely=not one.informer.state.has_several_streams
    )
    print(f"{reads:,} reads")
    assert reads > 100


@pytest.mark.parametrize("read", ["get", "held", *STORE])
@pytest.mark.parametrize(
    ("scene", "number"),
    [
        *((scene, "one call") for scene in SCENES if scene not in SOAKED | LONG),
        *(pytest.param(scene, "one call", marks=pytest.mark.soak) for scene in sorted(SOAKED | LONG)),
        *(pytest.param(scene, "all calls that are left", marks=pytest.mark.soak) for scene in SCENES),
    ],
)
def test_i4_the_writer_is_let_in_before_each_step_of_a_reader_for_any_number_of_calls(
    scene: str, number: str, read: str
) -> None:
    """Of a store's reads, which pick what is held and its version, a step is an instruction; of those above
    them, a line."""
    allowed, finely = answers(SCENES[scene], read), read in STORE
    orders, seen, calls = 0, 1, len(SCENES[scene]().steps)
    at = 0
    while at < seen:
        for before in range(calls):
            until = before + 1 if number == "one call" else calls
            one = SCENES[scene]()
            steps = one.steps
            for call in steps[:before]:
                call()

            def write(
                step: int, *, one: Scene = one, steps: list[Call] = steps[before:until], at: int = at
            ) -> None:
                nonlocal seen
                seen = max(seen, step + 1)
                if step >= at and steps and not any(each._lock.locked() for each in stores(one)):
                    while steps:
                        steps.pop(0)()

            answer = stepping(CORE if finely else WITH_READS, partial(one.read, read), write, finely=finely)
            orders += 1
            span = allowed[before : until + 1]
            assert answer in span, (
                f"I4: {read} answers {answer}, and not one of {span}; the calls {before} to {until} came"
                f" before step {at}"
            )
        at += 1
    print(f"{orders:,} orders")


@pytest.mark.parametrize(
    ("scene", "read"),
    [
        *((scene, "store.get") for scene in ALTERNATING if scene != "relist"),
        ("relist", "store.records"),
        pytest.param("relist", "store.get", marks=pytest.mark.soak),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in product(ALTERNATING, STORE[1:])),
    ],
)
def test_i4_a_reader_and_the_writer_alternate_line_by_line(scene: str, read: str) -> None:
    allowed, orders = answers(SCENES[scene], read), 0
    for call in range(len(SCENES[scene]().steps)):
        *_, (writer, reader) = alternating(SCENES[scene], read, call, [])
        for plan in plans(writer, reader, window=WINDOW):
            wrote, answer, _ = alternating(SCENES[scene], read, call, plan)
            orders += 1
            assert wrote is None, f"the writer raised {wrote!r}; {plan}"
            span = allowed[call : call + 2]
            assert answer in span, (
                f"I4: {read} answers {answer!r} during the call {call}, and not one of {span}; {plan}"
            )
    print(f"{orders:,} orders")


def alternating(
    scene: Callable[[], Scene], read: str, call: int, plan: Plan
) -> tuple[object, object, list[int]]:
    """Let a reader and one call of the writer's run as planned, line by line of the store; return what they
    raised or returned, and how many lines it took them."""
    one, turns = scene(), Turns((store_module.__file__,), plan)
    for step in one.steps[:call]:
        step()
    for store in stores(one):
        store._lock = cast("Any", turns.lock())

    def write() -> None:
        one.steps[call]()

    wrote, answer = turns.run(write, lambda: one.read(read))
    return wrote, answer, turns.steps
