"""Subscribers of an informer that starts again: they receive what has changed, and each departure once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache.core.store.changes import Change, Narrowing, PendingChanges
from kopf_selectcache.core.store.record import EvictedRecord, Record
from kopf_selectcache.informer.subscribers import Subscribers
from tests.core.store.test_pending_changes import (
    DB,
    GONE,
    ODD,
    ODD_DB,
    ODD_OTHER,
    OTHER,
    WEB,
    WEB5,
    drained,
    entered,
    left,
    record,
    updated,
)
from tests.rows import each_row

A1, A2, B4 = record("a", 1), record("a", 2), record("a", 4, uid="two")


def subscribers() -> Subscribers:
    return Subscribers("pods", logging.getLogger(__name__))


def gone(before: Record) -> Change:
    return left(before, GONE)


class Following:
    """A subscriber that notes all changes, and what it was asked to keep."""

    def __init__(self, of: Subscribers, keep: Callable[[Record], Any] = lambda _: True) -> None:
        self.changes: list[Change | None] = []
        self.asked: list[str] = []
        self._keep = keep
        self.end = of.add(self.changes.append, keep=self._note)

    def _note(self, record: Record) -> Any:
        assert record.stored, "it is still there"
        self.asked.append(record.name)
        return self._keep(record)

    def seen(self) -> list[tuple[str, str, str | None, str | None]]:
        """Return the name, the cause and both versions of each change since the last call."""
        changes, self.changes[:] = self.changes[:], []
        return [
            (
                (change.after or change.before or A1).name,
                str(change.cause),
                None if change.before is None else change.before.version,
                None if change.after is None else change.after.version,
            )
            for change in changes
            if change is not None
        ]


@each_row("is_evicted", [False, True])
@each_row(
    ("returns", "received"),
    [
        ([A1], []),
        ([A2], [("a", "updated", "1", "2")]),
        ([B4], [("a", "deleted", "1", None), ("a", "entered", None, "4")]),
        ([], [("a", "left", "1", None)]),
    ],
)
def test_15_after_a_restart_only_real_differences_are_reported(
    is_evicted: bool, returns: list[Record], received: list[Any]
) -> None:
    of = subscribers()
    following = Following(of)
    of.drop([A1], is_evicted=is_evicted)
    assert following.changes == []
    for each in returns:
        of.notify(entered(each))
    of.complete(left)
    assert following.seen() == received
    of.notify(entered(A1))
    assert following.seen() == [("a", "entered", None, "1")], "nothing is remembered"


def test_15_an_eviction_keeps_no_contents() -> None:
    of = subscribers()
    following = Following(of)
    of.drop([record("a", 1, app="web")], is_evicted=True)
    of.complete(gone)
    change = following.changes[-1]
    assert change is not None
    before = change.before
    assert before is not None
    assert (before.stored, before.labels, before.version) == (b"", {"app": "web"}, "1")


def test_15_an_eviction_frees_the_contents_that_an_earlier_restart_retained() -> None:
    of = subscribers()
    following = Following(of)
    of.drop([record("a", 1)], is_evicted=False)
    of.drop([record("b", 1)], is_evicted=True)
    of.drop([record("c", 1)], is_evicted=False)
    of.complete(gone)
    befores = [change.before for change in following.changes if change is not None]
    assert {each.name: each.stored for each in befores if each} == {
        "a": b"",
        "b": b"",
        "c": b'{"metadata":{}}',
    }


def test_15_a_subscriber_saves_its_needs_of_an_object_before_eviction_and_gets_them() -> None:
    of = subscribers()
    first = Following(of, lambda each: f"{each.name} of the first" if each.name != "c" else None)
    second = Following(of)
    of.drop([record("a", 1), record("b", 1), record("c", 1)], is_evicted=True)
    of.notify(entered(record("b", 2)))
    of.drop([record("b", 2)], is_evicted=False)
    of.drop([], is_evicted=True)
    of.drop([], is_evicted=False)
    assert first.asked == second.asked == ["a", "b", "c", "b"], "once each time that it is there"
    of.complete(left)
    kept = {}
    for who, each in (("first", first), ("second", second)):
        for change in each.changes:
            if change is not None:
                assert isinstance(change.before, EvictedRecord)
                kept[who, change.before.key[1], str(change.cause)] = change.before.kept
    assert kept == {
        ("first", "b", "updated"): "b of the first",
        ("first", "a", "left"): "a of the first",
        ("first", "b", "left"): "b of the first",
        ("second", "b", "updated"): True,
        ("second", "a", "left"): True,
        ("second", "b", "left"): True,
        ("second", "c", "left"): True,
    }


def test_15_an_object_is_evicted_although_a_subscriber_fails_to_name_its_needs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: Record) -> object:
        raise ValueError("a bug")

    of = subscribers()
    following, other = Following(of, fail), Following(of)
    of.drop([A1], is_evicted=True)
    of.complete(left)
    assert following.seen() == other.seen() == [("a", "left", "1", None)]
    assert "A subscriber to the changes of pods failed." in caplog.text


@each_row("is_evicted", [False, True])
def test_15_a_subscriber_of_a_restart_under_way_gets_all_objects_and_no_departures(is_evicted: bool) -> None:
    of = subscribers()
    early = Following(of)
    of.drop([record(name, 1) for name in "abcd"], is_evicted=False)
    late = Following(of)
    of.notify(entered(record("a", 1)))
    of.notify(entered(record("b", 1)))
    of.drop([record("a", 1), record("b", 1)], is_evicted=is_evicted)
    assert late.seen() == [("a", "entered", None, "1"), ("b", "entered", None, "1")]
    of.notify(entered(record("a", 2)))
    of.notify(entered(record("c", 1)))
    of.complete(left)
    assert late.seen() == [("a", "updated", "1", "2"), ("c", "entered", None, "1"), ("b", "left", "1", None)]
    assert early.seen() == [("a", "updated", "1", "2"), ("d", "left", "1", None), ("b", "left", "1", None)]


def test_15_a_subscriber_added_while_departures_are_reported_receives_none_of_them() -> None:
    of, begun = subscribers(), list[Following]()
    of.add(lambda _: begun.append(Following(of)))
    of.drop([record("a", 1), record("b", 1)], is_evicted=False)
    of.complete(left)
    assert [each.seen() for each in begun] == [[], []]


# ---- Subscribers of matching objects.


def seen_of(steps: list[Any], *, is_evicted: bool = False) -> list[tuple[str, str | None, str | None]]:
    """Return what a subscriber of app=web takes after each step: a change, or the records of a store that is
    dropped.
    """
    of, queue, found = subscribers(), PendingChanges(), []
    narrowing = Narrowing(queue.add, lambda each: each.labels["app"] == "web")
    of.add(lambda change: narrowing.add(change) if change is not None else None, keep=narrowing.keep)
    for step in steps:
        if isinstance(step, Change):
            of.notify(step)
        else:
            of.drop(step, is_evicted=is_evicted)
        found += drained(queue)
    of.complete(gone)
    return found + drained(queue)


@each_row("is_evicted", [False, True])
@each_row(
    ("steps", "seen"),
    [
        ([[WEB], entered(DB)], [("left", "1", None)]),
        ([[WEB], entered(OTHER)], [("deleted", "1", None)]),
        ([[WEB], entered(ODD)], []),
        ([[WEB], entered(ODD), updated(ODD, WEB5)], [("updated", "1", "5")]),
        ([[WEB], entered(ODD), left(ODD)], [("left", "1", None)]),
        ([[WEB], entered(ODD_OTHER)], [("deleted", "1", None)]),
        ([[WEB], entered(ODD_DB), left(ODD_DB)], [("left", "1", None)]),
        ([updated(WEB, ODD), [ODD], entered(ODD), left(ODD)], [("left", "1", None)]),
        ([updated(WEB, ODD), [ODD], entered(WEB5)], [("updated", "1", "5")]),
        ([updated(WEB, ODD), [ODD], [], entered(ODD), [ODD]], [("deleted", "1", None)]),
        ([[WEB], [], entered(ODD), [ODD], entered(WEB5)], [("updated", "1", "5")]),
        ([[ODD], entered(ODD), updated(ODD, WEB5)], [("entered", None, "5")]),
        ([[ODD], entered(WEB5)], [("entered", None, "5")]),
        ([[ODD]], [("deleted", "3", None)]),
        ([[ODD_DB]], []),
        ([[DB], entered(WEB)], [("entered", None, "1")]),
        ([[DB]], []),
    ],
)
def test_15_after_a_restart_an_object_departs_only_for_subscribers_it_does_not_match(
    is_evicted: bool, steps: list[Any], seen: Any
) -> None:
    assert seen_of(steps, is_evicted=is_evicted) == seen


def test_15_an_eviction_frees_the_last_known_record_of_an_object_that_cannot_be_read() -> None:
    of, found = subscribers(), list[Change]()
    kept: Callable[[Record], Any] = lambda each: [each.name, bool(each.stored)]  # noqa: E731  # It is typed.

    class Noting:
        def add(self, change: Change) -> None:
            found.append(change)

    narrowing = Narrowing(Noting().add, lambda _: True, kept)
    of.add(lambda change: narrowing.add(change) if change is not None else None, keep=narrowing.keep)
    of.notify(updated(WEB, ODD))
    of.drop([ODD], is_evicted=True)
    of.drop([ODD], is_evicted=True)
    of.complete(gone)
    (departure,) = found
    assert isinstance(departure.before, EvictedRecord)
    assert (departure.before.version, departure.before.stored) == ("1", b"")
    assert departure.before.kept == ["a", True]
