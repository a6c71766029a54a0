"""The Events that wait: their order, and which are given up."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kopf_selectcache.recorder._queue import WaitingWrite, WriteQueue
from kopf_selectcache.recorder.events import Event, EventType, Occurrence, Reference, Reporter


def item(key: str, *, count: int = 1, is_new: bool = False) -> WaitingWrite:
    """Return an Event by a key such as `web-1W`: of the object `web`, and a Warning."""
    name, _, rest = key.partition("-")
    type_ = EventType.WARNING if rest.endswith("W") else EventType.NORMAL
    about = Reference("v1", "Pod", "shop", name, "u")
    occurrence = Occurrence(Reporter("webapps"), about, type_, "Deployed", key)
    return WaitingWrite(key, Event(occurrence, "shop", key, count, 0.0, 0.0), is_new)


def queue(*keys: str, bound: int = 100) -> tuple[WriteQueue, list[str]]:
    """Return a queue of these, and the keys that were given up."""
    made = WriteQueue(bound)
    dropped: list[str] = []
    for key in keys:
        lost = made.add(item(key)).dropped
        dropped += [] if lost is None else [lost.key]
    return made, dropped


def take_all(given: WriteQueue) -> list[str]:
    taken = []
    while given:
        taken.append(given.take().key)
    return taken


def test_objects_take_turns() -> None:
    made, _ = queue("a-1", "a-2", "a-3", "b-1", "c-1", "c-2")
    assert take_all(made) == ["a-1", "b-1", "c-1", "a-2", "c-2", "a-3"]


def test_warnings_go_first_and_normals_have_a_share() -> None:
    made, _ = queue(*(f"a-{n}" for n in range(3)), *(f"b-{n}W" for n in range(9)))
    assert take_all(made) == [
        *("b-0W", "b-1W", "b-2W", "b-3W", "a-0"),
        *("b-4W", "b-5W", "b-6W", "b-7W", "a-1"),
        *("b-8W", "a-2"),
    ]


def test_a_newer_state_keeps_the_place_and_is_still_created() -> None:
    made = WriteQueue(10)
    made.add(item("a-1", is_new=True))
    made.add(item("a-2"))
    assert made.add(item("a-1", count=2)) == (True, None)
    first = made.take()
    assert (first.key, first.event.count, first.is_new) == ("a-1", 2, True)
    assert len(made) == 1


def test_the_object_with_the_most_gives_up_its_oldest_normal() -> None:
    assert queue("a-1W", "a-2", "a-3", "b-1", "c-1", bound=4)[1] == ["a-2"]
    assert queue("a-1W", "a-2W", "a-3W", "b-1", "b-2", bound=4)[1] == ["a-1W"]


def test_of_objects_with_equally_many_one_with_a_normal_gives_it_up() -> None:
    assert queue("a-1W", "b-1", "c-1W", bound=2)[1] == ["b-1"]
    assert queue("a-1W", "b-1W", "c-1W", bound=2)[1] == ["a-1W"]


def test_an_event_can_be_taken_by_its_key() -> None:
    made, _ = queue("a-1", "b-1")
    assert made.take_key("z-1") is None
    assert made.find("z-1") is None
    assert made.find("a-1") is not None
    taken = made.take_key("a-1")
    assert taken is not None
    assert take_all(made) == ["b-1"]


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.just("take"),
            st.builds(
                "{}-{}{}".format, st.sampled_from("abc"), st.integers(0, 3), st.sampled_from(["", "W"])
            ),
        ),
        max_size=60,
    ),
    bound=st.integers(1, 6),
)
def test_the_queue_is_bounded_and_loses_nothing_in_silence(steps: Any, bound: int) -> None:
    made = WriteQueue(bound)
    model: dict[str, int] = {}
    for step in steps:
        if step == "take":
            assert bool(made) == bool(model)
            if made:
                taken = made.take()
                assert taken.event.count == model.pop(taken.key)
            continue
        count = model.get(step, 0) + 1
        is_known = step in model
        model[step] = count
        given = item(step)
        given.event = replace(given.event, count=count)
        sizes = Counter(key[0] for key in model)
        replacement, dropped = made.add(given)
        assert replacement == is_known
        if dropped is not None:
            assert sizes[dropped.key[0]] == max(sizes.values())
            del model[dropped.key]
        assert len(made) == len(model) <= bound
    assert sorted(take_all(made)) == sorted(model)


def test_an_event_that_is_given_up_costs_no_search_of_the_objects() -> None:
    made, _ = queue(*(f"p{number}-1" for number in range(1000)), bound=1000)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    further = item("further-1")
    sys.setprofile(count)
    try:
        assert made.add(further).dropped is not None
    finally:
        sys.setprofile(None)
    assert calls < 500
