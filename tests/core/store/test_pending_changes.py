"""Pending changes: joined per object, and no departure lost."""

from __future__ import annotations

import itertools
import logging
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kopf_selectcache.core.store.changes import Change, ChangeCause, Narrowing, PendingChanges
from kopf_selectcache.core.store.record import Record, UnreadableRecord
from kopf_selectcache.informer.subscribers import Subscribers
from tests.rows import each_row

ENTERED, UPDATED, LEFT, GONE = ChangeCause.ENTERED, ChangeCause.UPDATED, ChangeCause.LEFT, ChangeCause.DELETED
RESYNC = ChangeCause.RESYNC


def record(name: str, version: int, uid: str = "one", **labels: str) -> Record:
    return Record("shop", name, uid, str(version), labels, (), b'{"metadata":{}}')


def entered(after: Record) -> Change:
    return Change(None, after, ENTERED)


def updated(before: Record, after: Record) -> Change:
    return Change(before, after, UPDATED)


def resync(record: Record) -> Change:
    return Change(record, record, RESYNC)


def left(before: Record, cause: ChangeCause = LEFT) -> Change:
    return Change(before, None, cause)


def drained(queue: PendingChanges) -> list[tuple[str, str | None, str | None]]:
    """Return the cause and both versions of each change."""
    return [
        (
            str(change.cause),
            None if change.before is None else change.before.version,
            None if change.after is None else change.after.version,
        )
        for change in queue.drain()
    ]


A1, A2, A3 = (record("a", version) for version in (1, 2, 3))
B4 = record("a", 4, uid="two")


def test_an_object_that_has_departed_is_not_tried_again_though_nobody_wants_its_departure() -> None:
    queue = PendingChanges(causes={ENTERED, UPDATED})
    queue.add(entered(A1))
    failed = queue.take(A1.key)
    queue.add(left(A1, GONE))
    queue.add(entered(B4))
    assert failed is not None
    assert queue.take(A1.key) is None
    assert queue.finish(A1.key), "another object has the name"
    assert drained(queue) == [("entered", None, "4")]


def test_a_resync_that_waits_has_the_present_object_though_nobody_wants_updates() -> None:
    queue = PendingChanges(causes={RESYNC, GONE})
    queue.add(resync(A1))
    queue.add(updated(A1, A2))
    assert drained(queue) == [("resync", "2", "2")]
    queue.add(resync(A2))
    queue.take(A1.key)
    queue.add(resync(A2))
    queue.add(updated(A2, A3))
    renewed = queue.take(A1.key)
    assert renewed is not None
    assert (renewed.before, renewed.after, renewed.cause) == (A3, A3, RESYNC)


@each_row(
    ("changes", "received"),
    [
        ([entered(A1)], [("entered", None, "1")]),
        ([entered(A1), updated(A1, A2)], [("entered", None, "2")]),
        ([updated(A1, A2), updated(A2, A3)], [("updated", "1", "3")]),
        ([updated(A1, A2), left(A2)], [("left", "2", None)]),
        ([entered(A1), left(A1, GONE)], [("deleted", "1", None)]),
        ([left(A1), entered(A2)], [("left", "1", None), ("entered", None, "2")]),
        ([left(A1), entered(A2), left(A2)], [("left", "2", None)]),
        ([left(A1, GONE), entered(B4)], [("deleted", "1", None), ("entered", None, "4")]),
        ([left(A1, GONE), entered(B4), left(B4, GONE)], [("deleted", "1", None), ("deleted", "4", None)]),
        ([resync(A1), resync(A1)], [("resync", "1", "1")]),
        ([resync(A1), updated(A1, A2), resync(A2)], [("updated", "1", "2")]),
        ([entered(A1), resync(A1)], [("entered", None, "1")]),
        ([resync(A1), left(A1)], [("left", "1", None)]),
    ],
)
def test_15_changes_of_one_object_are_joined_while_they_wait(
    changes: list[Change], received: list[tuple[str, Any, Any]]
) -> None:
    queue = PendingChanges()
    for change in changes:
        queue.add(change)
    assert drained(queue) == received


def test_15_an_object_is_not_handed_out_again_before_it_is_finished() -> None:
    queue, ready = PendingChanges(), list[bool]()
    queue.added = lambda *given: ready.append(given[2])
    queue.add(entered(A1))
    queue.take(A1.key)
    queue.add(updated(A1, A2))
    queue.add(entered(record("b", 5)))
    assert ready == [True, False, True]
    assert queue.finish(A1.key), "another change waits"
    assert drained(queue) == [("updated", "1", "2"), ("entered", None, "5")]


def test_15_departures_that_are_being_handled_count_for_the_limit() -> None:
    queue = PendingChanges(most=1)
    queue.add(left(A1))
    queue.take(A1.key)
    queue.add(left(record("b", 1)))
    assert queue.lost == 1
    queue.finish(A1.key)
    queue.add(entered(A1))
    queue.take(A1.key)
    queue.add(left(A1))
    assert queue.take(A1.key) is not None
    queue.add(left(record("b", 1)))
    assert queue.lost == 2
    queue.finish(A1.key)
    queue.add(left(record("b", 1)))
    assert drained(queue) == [("left", "1", None)]


def test_15_a_retried_change_is_joined_with_the_changes_since() -> None:
    queue = PendingChanges()
    queue.add(updated(A1, A2))
    failed = queue.take(A1.key)
    assert queue.take(A1.key) is failed
    queue.add(updated(A2, A3))
    renewed = queue.take(A1.key)
    assert renewed is not None
    assert (renewed.before, renewed.after, renewed.cause) == (A1, A3, UPDATED)
    queue.add(left(A3))
    queue.add(entered(B4))
    departure = queue.take(A1.key)
    assert departure is not None
    assert (departure.before, departure.after) == (A3, None)
    queue.add(updated(B4, record("a", 5, uid="two")))
    assert queue.take(A1.key) is departure, "a departure is tried until it succeeds"
    queue.finish(A1.key)
    assert drained(queue) == [("entered", None, "5")]


WEB, WEB5, DB, OTHER = (
    record("a", 1, app="web"),
    record("a", 5, app="web"),
    record("a", 2, app="db"),
    record("a", 4, uid="two", app="db"),
)
ODD, ODD_DB, ODD_OTHER = (
    UnreadableRecord("shop", "a", uid, "3", {"app": app}, (), b"")
    for uid, app in (("one", "web"), ("one", "db"), ("two", "web"))
)


def seen_of(changes: list[Change]) -> list[tuple[str, Record | None, Record | None]]:
    """Return what a subscriber of app=web takes after each change."""
    queue = PendingChanges()
    narrowing = Narrowing(queue.add, lambda each: each.labels["app"] == "web")
    found = []
    for change in changes:
        narrowing.add(change)
        found += [(str(each.cause), each.before, each.after) for each in queue.drain()]
    return found


@each_row(
    ("changes", "seen"),
    [
        ([entered(WEB)], [("entered", None, WEB)]),
        ([entered(DB)], []),
        ([updated(WEB, WEB5)], [("updated", WEB, WEB5)]),
        ([updated(WEB, DB)], [("left", WEB, None)]),
        ([updated(DB, WEB5)], [("entered", None, WEB5)]),
        ([updated(DB, DB)], []),
        ([left(WEB, GONE)], [("deleted", WEB, None)]),
        ([left(DB)], []),
        ([resync(WEB), resync(DB), resync(ODD)], [("resync", WEB, WEB)]),
        ([updated(WEB, ODD), resync(ODD), updated(ODD, WEB5)], [("updated", WEB, WEB5)]),
    ],
)
def test_15_a_narrowed_change_is_the_one_of_the_matching_objects(changes: list[Change], seen: Any) -> None:
    assert seen_of(changes) == seen


@each_row(
    ("changes", "seen"),
    [
        ([entered(ODD), updated(ODD, WEB5)], [("entered", None, WEB5)]),
        ([entered(ODD), updated(ODD, DB)], []),
        ([entered(ODD), left(ODD)], [("left", ODD, None)]),
        ([entered(ODD_DB), left(ODD_DB)], []),
        ([updated(DB, ODD), updated(ODD, DB)], []),
        ([updated(WEB, ODD), updated(ODD, WEB5)], [("updated", WEB, WEB5)]),
        ([updated(WEB, ODD), updated(ODD, ODD), updated(ODD, DB)], [("left", WEB, None)]),
        ([updated(WEB, ODD), left(ODD, GONE)], [("deleted", WEB, None)]),
        ([updated(WEB, ODD_DB)], [("left", WEB, None)]),
        ([updated(WEB, ODD), updated(ODD, ODD_DB), left(ODD_DB)], [("left", WEB, None)]),
    ],
)
def test_15_an_object_that_cannot_be_read_stands_for_its_last_known_record(
    changes: list[Change], seen: Any
) -> None:
    assert seen_of(changes) == seen


# ---- Against a model.

OPERATIONS = ("write", "delete", "leave", "drop", "evict", "complete", "take", "finish", "fail")


class Model:
    """An informer with two names, a reader, and its view of the objects."""

    def __init__(self) -> None:
        self.queue, self.ready = PendingChanges(), list[tuple[str, str]]()
        self.queue.added = self.note
        self.subscribers = Subscribers("pods", logging.getLogger(__name__))
        self.subscribers.add(lambda change: self.queue.add(change) if change is not None else None)
        self.present: dict[str, Record] = {}
        self.restarting: dict[str, Record] | None = None
        self.versions = itertools.count(1)
        self.uids = {"a": 0, "b": 0}
        self.entries: dict[tuple[str, str], list[int]] = {}
        """The versions at which each uid has entered."""
        self.view: dict[str, Record] = {}
        self.running: list[Change] = []
        self.ever: set[tuple[str, str]] = set()
        self.departed: set[tuple[str, str]] = set()
        self.last: dict[tuple[str, str], int] = {}
        """The version of the last departure of each uid that was received."""

    def step(self, operation: str, name: str) -> None:
        getattr(self, operation)(name)

    def write(self, name: str) -> None:
        before = self.present.get(name)
        after = record(name, next(self.versions), uid=str(self.uids[name]))
        self.present[name] = after
        if before is None:
            identity = name, after.uid
            self.ever.add(identity)
            self.entries.setdefault(identity, []).append(int(after.version))
        self.subscribers.notify(Change(before, after, ENTERED if before is None else UPDATED))

    def delete(self, name: str) -> None:
        self._depart(name, GONE)
        self.uids[name] += 1

    def leave(self, name: str) -> None:
        self._depart(name, LEFT)

    def _depart(self, name: str, cause: ChangeCause) -> None:
        before = self.present.pop(name, None)
        if before is not None:
            self.subscribers.notify(Change(before, None, cause))
        elif self.restarting is not None and cause is GONE:
            self.restarting.pop(name, None)

    def drop(self, _: str, *, is_evicted: bool = False) -> None:
        self.restarting = {**(self.restarting or {}), **self.present}
        self.subscribers.drop([*self.present.values()], is_evicted=is_evicted)
        self.present.clear()

    def evict(self, name: str) -> None:
        self.drop(name, is_evicted=True)

    def complete(self, _: str) -> None:
        """List the objects that are still there: in the same version."""
        for name, each in (self.restarting or {}).items():
            if name not in self.present and each.uid == str(self.uids[name]):
                self.present[name] = each
                self.subscribers.notify(entered(each))
        self.restarting = None
        self.subscribers.complete(left)

    def note(self, key: tuple[str, str], _: Change, is_ready: object) -> None:
        if is_ready and key not in self.ready:
            self.ready.append(key)

    def take(self, _: str) -> None:
        if self.ready:
            key = self.ready.pop(0)
            assert key not in [each.key for each in self.running]
            if (change := self.queue.take(key)) is not None:
                self.running.append(change)

    def fail(self, _: str) -> None:
        if self.running:
            renewed = self.queue.take(self.running[0].key)
            assert renewed is not None, "all departures are wanted"
            self.running[0] = renewed

    def finish(self, _: str) -> None:
        if not self.running:
            return
        change = self.running.pop(0)
        _, name = change.key
        known = self.view.get(name)
        if change.after is None:
            assert change.before is not None
            identity = name, change.before.uid
            version, last = int(change.before.version), self.last.get(identity, 0)
            assert any(last < each <= version for each in self.entries[identity]), (
                "no departure without an entry since the last one"
            )
            if known is not None:
                assert known.uid == change.before.uid
                assert version >= int(known.version)
            self.last[identity] = version
            self.departed.add(identity)
            self.view.pop(name, None)
        else:
            assert (known is None) == (change.cause is ENTERED)
            if known is not None:
                assert change.before is not None
                assert (known.uid, known.version) == (change.before.uid, change.before.version)
            self.view[name] = change.after
            self.departed.discard((name, change.after.uid))
        if self.queue.finish(change.key):
            self.ready.append(change.key)

    def settle(self) -> None:
        self.complete("")
        while self.running or self.ready:
            self.take("")
            self.finish("")
        assert {name: each.version for name, each in self.view.items()} == {
            name: each.version for name, each in self.present.items()
        }
        alive = {(name, each.uid) for name, each in self.present.items()}
        assert self.departed == self.ever - alive, "each object that is not there any more has departed"
        assert len(self.queue) == 0


@settings(max_examples=400, derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.sampled_from("ab")), max_size=60))
@example([("write", "a"), ("take", "a"), ("drop", "a"), ("fail", "a"), ("delete", "a"), ("write", "a")])
@example([("write", "a"), ("take", "a"), ("leave", "a"), ("write", "a"), ("fail", "a"), ("finish", "a")])
@example([("write", "a"), ("leave", "a"), ("write", "a"), ("take", "a"), ("delete", "a")])
def test_15_a_slow_reader_ends_with_the_present_objects_and_has_seen_each_departure(
    operations: list[tuple[str, str]],
) -> None:
    model = Model()
    for operation, name in operations:
        model.step(operation, name)
    model.settle()


def test_15_departures_outlive_the_other_changes_of_an_object_that_are_dropped() -> None:
    queue = PendingChanges(most=2)
    queue.add(left(A1, GONE))
    taken = queue.take(A1.key)
    queue.add(entered(B4))
    queue.add(left(B4))
    queue.add(entered(record("a", 5, uid="three")))
    queue.drop(A1.key, keeps_departures=True)
    assert queue.take(A1.key) is taken, "it was not handled"
    assert queue.finish(A1.key)
    assert drained(queue) == [("left", "4", None)]
    for _ in range(2):
        queue.add(entered(A1))
        queue.drop(A1.key, keeps_departures=True)
        assert queue.keys() == []
        queue.add(left(A1))
        queue.drop(A1.key, keeps_departures=False)
        assert len(queue) == 0
        assert not queue.lost
    queue.drop(A1.key, keeps_departures=False)
    assert len(queue) == 0
