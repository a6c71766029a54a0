"""The changes of one subscriber in their order: nothing is joined, and a slow subscriber is told."""

from __future__ import annotations

from kopf_selectcache.core.store.changes import Change, ChangeCause, Fifo
from kopf_selectcache.core.store.record import Record


def record(version: int, uid: str = "one") -> Record:
    return Record("shop", "a", uid, str(version), {}, (), b"{}")


def taken(fifo: Fifo) -> list[Change]:
    changes = []
    while (change := fifo.take()) is not None:
        changes.append(change)
    return changes


A1, A2, A3, B4 = record(1), record(2), record(3), record(4, "two")
CHANGES = [
    Change(None, A1, ChangeCause.ENTERED),
    Change(A1, A2, ChangeCause.UPDATED),
    Change(A2, A3, ChangeCause.UPDATED),
    Change(A3, A3, ChangeCause.RESYNC),
    Change(A3, None, ChangeCause.DELETED),
    Change(None, B4, ChangeCause.ENTERED),
    Change(B4, None, ChangeCause.LEFT),
]


def test_15_no_change_is_joined_with_another_and_their_order_stays() -> None:
    fifo = Fifo(most=len(CHANGES))
    for change in CHANGES:
        fifo.add(change)
    assert len(fifo) == len(CHANGES)
    assert taken(fifo) == CHANGES
    assert not fifo.is_full


def test_15_a_slow_subscriber_is_warned_and_receives_nothing_until_it_has_looked() -> None:
    added = list[bool]()
    fifo = Fifo(most=2, added=lambda: added.append(fifo.is_full))
    for change in CHANGES[:4]:
        fifo.add(change)
    assert added == [False, False, True, True]
    assert taken(fifo) == []
    fifo.add(CHANGES[4])
    assert taken(fifo) == [], "it would continue a change that was dropped"
    fifo.clear()
    assert not fifo.is_full
    for change in CHANGES[5:]:
        fifo.add(change)
    assert taken(fifo) == CHANGES[5:]


def test_15_dropped_departures_are_reported_unless_of_an_unknown_or_returned_object() -> None:
    fifo = Fifo(most=9, knows=lambda uid: uid == "one")
    for change in CHANGES:
        fifo.add(change)
    fifo.drop()
    assert taken(fifo) == []
    assert fifo.clear() == {"one": CHANGES[4]}
    fifo.drop()
    fifo.add(CHANGES[4])
    fifo.add(CHANGES[0])
    assert fifo.clear() == {}
