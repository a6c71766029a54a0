"""Readers in real threads never see what was never so (I4, contract 3). All orders of steps are in
test_thread_products.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import partial
from itertools import count
from typing import cast

import pytest

from tests.core.writers import writers
from tests.scenes import GOLD, WEB, Scene, alone, listed, node, record, two
from tests.tearing import Detector, Torn, generation_of

ENOUGH = 500
"""So many answers are judged at least, however busy the machine is."""


def reading(one: Scene, *reads: str) -> Detector:
    return Detector({read: cast("Callable[[], Hashable]", partial(one.read, read)) for read in reads})


def test_i4_readers_in_real_threads_see_each_relist_as_a_whole() -> None:
    one = alone(lambda _: [])
    (branch,) = writers(one.union)
    with reading(one, "get", "list", "count", "held") as detector:
        for generation in count(11):
            if generation >= 40 and detector.answers >= ENOUGH:
                break
            for call in listed(
                branch, generation, *(record(name, generation) for name in "abcdefg"[: 2 + generation % 5])
            ):
                call()
            detector.stepped()
    print(f"{detector.answers:,} answers")


def test_i8b_readers_in_real_threads_always_find_objects_moving_between_branches() -> None:
    one = two(lambda _: [])
    branches = writers(one.union)
    with reading(one, "get", "held") as detector:
        for generation in count(11):
            if generation >= 60 and detector.answers >= ENOUGH:
                break
            here, there = branches[:: 1 if generation % 2 else -1]
            moved = record("a", generation, GOLD if generation % 2 else WEB)
            for call in (
                partial(here.leave, moved),
                partial(here.progress, moved.version),
                partial(there.put, moved),
                partial(there.progress, moved.version),
            ):
                call()
                detector.stepped()
                assert len(cast("frozenset[object]", one.read("held"))) == 2
    print(f"{detector.answers:,} answers")


def test_the_detector_finds_an_object_of_two_generations() -> None:
    torn = node("a", 1) | {"spec": node("a", 2)["spec"]}
    with pytest.raises(Torn, match=r"I4: one object is of the generations \['1', '2'\]"):
        generation_of(torn)


@pytest.mark.parametrize(
    ("second", "third", "why"),
    [
        (frozenset({1}), frozenset({1, 2}), r"was never so \(I4\)"),
        (frozenset({2, 3}), frozenset({1, 2}), r"a newer one was read since \(I1\)"),
    ],
)
def test_the_detector_finds_an_answer_that_is_torn_or_goes_back(
    second: frozenset[int], third: frozenset[int], why: str
) -> None:
    whole = [frozenset({1, 2}), frozenset({2, 3})]
    mine = threading.current_thread()
    for_writer, for_reader = iter([whole[0], whole[1], whole[1]]), iter(enumerate([whole[0], second, third]))
    turn = threading.Event()

    def read() -> frozenset[int]:
        if threading.current_thread() is mine:
            return next(for_writer)
        number, answer = next(for_reader, (3, whole[1]))
        if number == 3:  # The third answer is the last one that the detector needs.
            turn.set()
        return answer

    def detect() -> None:
        with Detector({"read": read}, threads=1) as detector:
            detector.stepped()
            assert turn.wait(60)

    with pytest.raises(Torn, match=why):
        detect()
