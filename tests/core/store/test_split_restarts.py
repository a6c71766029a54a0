"""A split cache starts again: every order in which its two streams can be listed and report. A subscriber
receives each departure once, and what it is known from is true."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from itertools import combinations, pairwise, product

import pytest

from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.record import OutsideRecord, Record
from kopf_selectcache.core.store.substore import Keys
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.informer.subscribers import Subscribers
from tests.core.writers import Writer, writers

FIRST = 10
"""The version at which the cache is dropped. Its lists are as new, or newer."""

History = tuple[str, ...]
"""The states of one name since then: A is inside, B the same object outside, C another object inside, x is
absent."""
NEXT = {"A": "ABCx", "B": "ABCx", "C": "Cx", "x": "x"}
"""The states that can follow a state."""


def histories(length: int) -> Iterator[History]:
    for history in product("ABCx", repeat=length):
        if history[0] == "A" and all(after in NEXT[before] for before, after in pairwise(history)):
            yield history


def uid_of(state: str) -> str:
    return "u-2" if state == "C" else "u-1"


def record_of(history: History, version: int, *, is_outer: bool) -> Record | None:
    """Return the object of a stream as of a version."""
    state = history[version - FIRST]
    if state == "x" or (state == "B") is not is_outer:
        return None
    since = version
    while since > FIRST and history[since - 1 - FIRST] == state:
        since -= 1
    kind = OutsideRecord if is_outer else Record
    return kind("", "it", uid_of(state), str(since), {}, (), b"{}")


def report(writer: Writer, history: History, version: int, *, is_outer: bool, is_list: bool) -> list[Change]:
    """Let a stream be listed at a version, or report what has happened at it."""
    record = record_of(history, version, is_outer=is_outer)
    if is_list:
        writer.begin()
        if record is not None:
            writer.put(record)
        return writer.commit(str(version))
    changes: list[Change] = []
    former = record_of(history, version - 1, is_outer=is_outer)
    if record is not None:
        changes += writer.put(record)
    elif former is not None:
        changes += writer.leave(Record("", "it", former.uid, str(version), {}, (), b""))
    return [*changes, *writer.progress(str(version))]


def note(received: list[Change], change: Change | None) -> None:
    if change is not None:
        received.append(change)


def restarts(history: History) -> Iterator[list[Change]]:
    """Yield what a subscriber receives that has seen the object at the first version."""
    newest = FIRST + len(history) - 1
    for listed in product(range(FIRST, newest + 1), repeat=2):
        total = sum(newest + 1 - each for each in listed)
        for turns in combinations(range(total), newest + 1 - listed[0]):
            union, received = Union([Keys(), Keys(are_outside=True)]), list[Change]()
            subscribers = Subscribers("pods", logging.getLogger(__name__), lambda listener: listener)
            subscribers.add(partial(note, received))
            dropped = record_of(history, FIRST, is_outer=False)
            assert dropped is not None
            subscribers.drop([dropped], is_evicted=False)
            at = [*listed]
            for turn in range(total + 2):
                side = (0 if turn in turns else 1) if turn < total else turn - total
                writer = writers(union)[side]
                if turn < total:
                    is_list = at[side] == listed[side]
                    changes = report(writer, history, at[side], is_outer=side == 1, is_list=is_list)
                    at[side] += 1
                else:
                    changes = writer.progress(str(newest + 1))  # A bookmark.
                for change in changes:
                    subscribers.notify(change)
                if union.store.version and subscribers.await_completion:
                    subscribers.complete(union.departure_of)
            yield received


@pytest.mark.parametrize("length", [3, pytest.param(4, marks=pytest.mark.soak)])
def test_6_after_a_restart_each_departure_is_told_once_and_from_what_it_is_known(length: int) -> None:
    walked = 0
    for history in histories(length):
        for received in restarts(history):
            walked += 1
            held: str | None = "u-1"
            for change in received:
                record, what = change.before or change.after, (history, received)
                assert record is not None, what
                assert held == (None if change.before is None else record.uid), what
                held = None if change.after is None else change.after.uid
                since = history[int(record.version) - FIRST :]
                if change.cause is ChangeCause.DELETED:
                    assert change.known_by in ("metadata", "confirmed"), what
                    assert any(each == "x" or uid_of(each) != record.uid for each in since), what
                elif change.cause is ChangeCause.LEFT:
                    assert (change.known_by, record.uid) == ("metadata", "u-1"), what
                    assert "B" in since, what
            assert held == (None if history[-1] in "Bx" else uid_of(history[-1])), history
    print(f"{walked:,} orders")
    assert walked > 500
