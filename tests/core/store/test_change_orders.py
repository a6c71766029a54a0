"""A subscriber of a union: in every order of two streams, departures are those of the history."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.changes import Change, ChangeCause, Narrowing, PendingChanges
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union


def record(version: int, labels: str, uid: str = "one") -> Record:
    return Record("shop", "a", uid, str(version), dict.fromkeys(labels, "1"), (), b"{}")


# Each state of the object is the labels that it has, and its uid; no labels are its deletion.
HISTORIES: dict[str, list[tuple[str, str]]] = {
    "moves": [("x", "one"), ("y", "one")],
    "moves and returns": [("x", "one"), ("y", "one"), ("x", "one")],
    "joins and moves": [("x", "one"), ("xy", "one"), ("y", "one")],
    "moves and is deleted": [("x", "one"), ("y", "one"), ("", "one")],
    "is deleted in both": [("xy", "one"), ("", "one")],
    "is created again in the other": [("x", "one"), ("", "one"), ("y", "two")],
    "is created again in both": [("xy", "one"), ("", "one"), ("xy", "two")],
}
Event = tuple[str, str, Record]


def events(history: list[tuple[str, str]], stream: str) -> list[Event]:
    """Return what one stream reports, with its label."""
    found: list[Event] = []
    held: Record | None = None
    for version, (labels, uid) in enumerate(history, start=11):
        now = record(version, labels, uid)
        if stream in labels:
            found.append(("put", stream, now))
            held = now
        elif held is not None:
            found.append(("leave", stream, record(version, "".join(held.labels), held.uid)))
            held = None
        found.append(("progress", stream, now))
    return found


def orders(first: list[Event], second: list[Event]) -> Iterator[list[Event]]:
    """Yield every order of the events of two streams."""
    places = range(len(first) + len(second))
    for taken in itertools.combinations(places, len(first)):
        one, two = iter(first), iter(second)
        yield [next(one) if place in taken else next(two) for place in places]


def two_streams() -> Union:
    union = Union([Keys(), Keys()])
    for substore in union.substores:
        union.begin(substore)
        union.commit(substore, "10")
    return union


def apply(union: Union, what: str, substore: Substore, each: Record) -> list[Change]:
    if what == "put":
        return union.put(substore, each)
    return union.leave(substore, each) if what == "leave" else union.progress(substore, each.version)


def check(
    received: list[Change], shown: set[str], union: Union, states: list[tuple[str, str]], wanted: str
) -> None:
    """Compare what a subscriber has received with the history and with the present objects. `shown` are the
    uids that the union has shown: of two streams, the later one may be the first to report.
    """
    view: dict[str, Record] = {}
    departed: Counter[str] = Counter()
    for change in received:
        if change.after is not None:
            assert (change.cause is ChangeCause.ENTERED) == (change.after.uid not in view)
            view[change.after.uid] = change.after
        else:
            assert change.before is not None
            view.pop(change.before.uid, None)
            departed[change.before.uid] += 1
    present = {
        each.uid: each.version for each in union.store.records()[0] if not wanted or wanted in each.labels
    }
    assert {uid: each.version for uid, each in view.items()} == present
    for uid in {uid for _, uid in states}:
        states_of = [bool(labels) and wanted in labels for labels, other in states if other == uid]
        ends = sum(before and not after for before, after in pairwise([*states_of, uid in present]))
        assert departed[uid] <= ends
        assert uid in present or departed[uid] or uid not in shown


@pytest.mark.parametrize(("wanted", "is_slow"), [("", False), ("x", True)])
@pytest.mark.parametrize("history", HISTORIES)
def test_15_in_every_order_of_two_streams_each_departure_is_delivered_once(
    history: str, wanted: str, is_slow: bool
) -> None:
    states = HISTORIES[history]
    for order in orders(events(states, "x"), events(states, "y")):
        union = two_streams()
        queue = PendingChanges()
        narrowing = Narrowing(queue.add, lambda each: not wanted or wanted in each.labels)
        received: list[Change] = []
        shown = set[str]()
        for what, stream, each in order:
            for change in apply(union, what, union.substores["xy".index(stream)], each):
                narrowing.add(change)
                if change.after is not None and (not wanted or wanted in change.after.labels):
                    shown.add(change.after.uid)
            if not is_slow:
                received += queue.drain()
        received += queue.drain()
        check(received, shown, union, states, wanted)
