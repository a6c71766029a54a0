"""A split union: objects inside of a filter, and the identity of those outside. In every order of the two
streams, an object that changes its label is in one of them."""

from __future__ import annotations

import logging
from itertools import pairwise, product
from typing import Any

import pytest

from kopf_selectcache.core.selection.grammar import LabelRequirement
from kopf_selectcache.core.selection.regions import Keys, Selected
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.claims import Listed, listed_of
from kopf_selectcache.core.store.record import OutsideRecord, Record
from kopf_selectcache.core.store.store import UnionView
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.informer.subscribers import Subscribers
from kopf_selectcache.informer.swap import Swap
from tests.core.transits import FIRST, History, Rules, System, Violation, walks
from tests.core.writers import writers
from tests.rows import each_row

WEB, DB = {"app": "web"}, {"app": "db"}
INSIDE = Selected(requirements=(LabelRequirement("app", "=", ("web",)),))


def complement(_: Any) -> Union:
    """Return a union whose outer stream has a selector of its own."""
    return Union([Keys(), Keys(are_outside=True)])


def everything(_: Any) -> Union:
    """Return a union whose outer stream is of all objects."""
    return Union([Keys(), Keys(are_outside=True, others=(INSIDE,))])


def by_fields(_: Any) -> Union:
    """Return a union with two outer streams: of objects that fail a label, and a field."""
    return Union([Keys(), Keys(are_outside=True), Keys(are_outside=True)])


class SplitSystem(System):
    """A server with one object, which is inside of the filter (A), outside (B, or C in another outer stream),
    or absent (x).
    """

    def __init__(self, history: History, branches: int, rules: Rules, union: Any) -> None:
        self.has_all = union is everything
        self.located: Record | None = None
        self.passed = 0
        super().__init__(history, branches, rules, union)

    def holds(self, branch: int, version: int) -> bool:
        state = self.history[version - FIRST]
        return state == "ABC"[branch] or (branch == 1 and self.has_all and state == "A")

    def present(self, version: int) -> bool:
        return self.history[version - FIRST] == "A"

    def _copy(self, version: int) -> Record:
        record = self.records[version - FIRST]
        labels = WEB if self.present(version) else DB
        return Record("", "it", record.uid, record.version, labels, (), b"{}")

    def _put(self, branch: int, version: int) -> None:
        if self.staging[branch] is None:
            self.known = max(self.known, version)
            if branch == 1 and self.present(version):
                self.at[branch] = version  # It is a leave, and so says that all before it has come.
        self.note(writers(self.union)[branch].put(self._of(branch, version)))

    def _list(self, branch: int, version: int) -> None:
        writers(self.union)[branch].begin()
        if self.holds(branch, version):
            writers(self.union)[branch].put(self._of(branch, version))

    def _of(self, branch: int, version: int) -> Record:
        copy = self._copy(version)
        parts = copy.namespace, copy.name, copy.uid, copy.version, copy.labels, (), b"{}"
        return OutsideRecord(*parts) if branch >= 1 else copy

    def _listed(self, branch: int, version: int) -> Listed:
        return listed_of([self._copy(version)] if self.history[version - FIRST] == "ABC"[branch] else [])

    def finish(self) -> None:
        super().finish()
        state, found = self.history[-1], self._locate()
        if (found is None) is not (state == "x") or (
            found is not None and self._side(found) != side_of(state)
        ):
            raise Violation("I3", f"{found} is located, and the object is {state}")

    def check(self) -> None:
        super().check()
        found = self._locate()
        if not all(self.at):
            return
        version = int(self.union.store.version or 0)
        span = range(min(version or FIRST, self.last), min(self.known, self.last) + 1)
        if version and found is None and all(self.history[at - FIRST] != "x" for at in span):
            raise Violation("I8b", f"it is in neither at {version}, and was there all the time")
        if found is not None and self._side(found) != side_of(self.history[int(found.version) - FIRST]):
            raise Violation("I2", f"{type(found).__name__} {found} in {self.history}")
        if found is not None and int(found.version) < self.passed:
            raise Violation("I1", f"{found} after {self.passed}")
        self.passed = int(found.version) if found is not None else self.passed

    def _locate(self) -> Record | None:
        view = self.union.store
        assert isinstance(view, UnionView)
        return view.locate("", "it")[0]

    @staticmethod
    def _side(record: Record) -> str:
        return "B" if isinstance(record, OutsideRecord) else "A"


def side_of(state: str) -> str:
    return "B" if state == "C" else state


def stories(length: int, states: tuple[str, ...] = ("A", "B", "x")) -> list[History]:
    found = product(states, repeat=length)
    return [each for each in found if ("x", "x") not in pairwise(each) and {*each} != {"x"}]


@pytest.mark.parametrize("union", [complement, everything])
@pytest.mark.parametrize(
    ("length", "states", "rules", "least"),
    [
        (3, ("A", "B", "x"), Rules(), 100),
        (2, ("A", "B", "x"), Rules(relists=1), 400),
        (3, ("A", "B", "x"), Rules(probes=2), 300),
        (3, ("A", "B", "x"), Rules(vague=True, probes=1), 50),
        (2, ("A", "B", "x"), Rules(late=True, probes=1), 50),
        pytest.param(4, ("A", "B", "x"), Rules(), 1_500, marks=pytest.mark.soak),
        pytest.param(3, ("A", "B", "x"), Rules(late=True, probes=1), 1_000, marks=pytest.mark.soak),
        pytest.param(3, ("A", "B", "x"), Rules(relists=1), 10_000, marks=pytest.mark.soak),
        pytest.param(6, ("A", "B"), Rules(), 20_000, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_12_in_every_order_of_two_streams_an_object_is_inside_outside_or_absent(
    union: Any, length: int, states: tuple[str, ...], rules: Rules, least: int
) -> None:
    walked, paths = 0, list[str]()
    try:
        for history in stories(length, states):
            count = len(union(()).substores)
            walked += sum(
                1 for _ in walks(history, count, rules, union=union, story=paths.append, of=SplitSystem)
            )
    except Violation as violation:
        raise AssertionError(f"{violation}\n{paths[0]}") from violation
    print(f"{walked:,} orders of {length} states; {rules}")
    assert walked >= least


@pytest.mark.parametrize(
    ("length", "rules", "least"),
    [
        pytest.param(2, Rules(probes=2), 200, marks=pytest.mark.soak),
        pytest.param(2, Rules(relists=1), 1_000, marks=pytest.mark.soak),
        pytest.param(3, Rules(), 3_000, marks=pytest.mark.soak),
        pytest.param(4, Rules(), 100_000, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_12_in_every_order_of_three_streams_an_object_is_inside_outside_or_absent(
    length: int, rules: Rules, least: int
) -> None:
    test_12_in_every_order_of_two_streams_an_object_is_inside_outside_or_absent(
        by_fields, length, ("A", "B", "C", "x"), rules, least
    )


def record(version: str, labels: dict[str, str], kind: type[Record] = Record, uid: str = "u-1") -> Record:
    return kind("shop", "web-1", uid, version, labels, (), b"{}")


@each_row("union", [complement(()), everything(())])
def test_readers_and_subscribers_see_the_objects_inside(union: Union) -> None:
    inner, outer = union.substores
    view = union.store
    assert isinstance(view, UnionView)
    for substore in (inner, outer):
        union.begin(substore)
    union.put(inner, record("5", WEB))
    entered = [*union.commit(inner, "9"), *union.commit(outer, "9")]
    assert [(each.cause, each.before) for each in entered] == [(ChangeCause.ENTERED, None)]
    # The object leaves the filter: first one stream reports it, then the other.
    assert union.leave(inner, record("10", DB)) == []
    (left,) = union.put(outer, record("10", DB, OutsideRecord))
    assert (left.cause, left.after) == (ChangeCause.LEFT, None)
    found, _ = view.locate("shop", "web-1")
    assert isinstance(found, OutsideRecord)
    assert (view.get("shop", "web-1")[0], view.records()[0], view.all_records()[0]) == (None, [], [found])
    assert union.store.peek("shop", "web-1") is None
    # A change outside concerns nobody.
    assert union.put(outer, record("11", {}, OutsideRecord)) == []
    # It comes back, and is deleted.
    if outer.keys.others:
        assert union.put(outer, record("12", WEB, OutsideRecord)) == []
    else:
        assert union.leave(outer, record("12", WEB)) == []
    (back,) = union.put(inner, record("12", WEB))
    assert (back.cause, back.before) == (ChangeCause.ENTERED, None)
    assert view.all_records() == view.records() == ([back.after], view.version)
    changes: list[Change] = [*union.leave(inner, record("13", WEB)), *union.progress(outer, "13")]
    assert [each.cause for each in changes] == [ChangeCause.DELETED]
    assert view.locate("shop", "web-1") == (None, view.version)


# ---- Departures that are found later.


def test_6_an_object_that_a_restart_finds_outside_has_left_and_is_not_gone() -> None:
    union, changes = complement(None), list[Change | None]()
    subscribers = Subscribers("pods", logging.getLogger(__name__))
    subscribers.add(changes.append)
    subscribers.drop(
        [Record("", name, "u-1", "10", WEB, (), b"{}") for name in ("same", "other", "absent")],
        is_evicted=False,
    )
    inner, outer = writers(union)
    inner.begin()
    inner.commit("20")
    outer.begin()
    outer.put(OutsideRecord("", "same", "u-1", "15", DB, (), b"{}"))
    outer.put(OutsideRecord("", "other", "u-2", "16", DB, (), b"{}"))
    for change in outer.commit("20"):
        subscribers.notify(change)
    subscribers.complete(union.departure_of)
    causes = {change.key[1]: change.cause for change in changes if change is not None}
    assert causes == {"same": ChangeCause.LEFT, "other": ChangeCause.DELETED, "absent": ChangeCause.DELETED}


def test_6_an_object_that_the_next_filter_finds_outside_has_left_and_is_not_gone() -> None:
    before, after = Union([Keys()]), complement(None)
    (stream,), (inner, outer) = writers(before), writers(after)
    stream.begin()
    stream.put(record("5", WEB))
    stream.commit("8")
    swap = Swap(before, after, {}, selects=INSIDE.has, selected=INSIDE.has)
    inner.begin()
    inner.commit("12")
    outer.begin()
    outer.put(record("11", DB, OutsideRecord))
    outer.commit("12")
    assert swap.has_reached(swap.seen)
    assert [change.cause for change in swap.take()] == [ChangeCause.LEFT]


def test_16_an_object_that_the_next_filter_has_outside_is_waited_for() -> None:
    """The filter changes from `app=web` to a split `app=db`. Readers have seen version 10 of an object."""
    before, after = Union([Keys()]), complement(None)
    (stream,), (inner, outer) = writers(before), writers(after)
    for writer in (stream, inner, outer):
        writer.begin()
        writer.commit("8")
    swap = Swap(
        before, after, {}, selects=lambda each: each.labels == DB, selected=lambda each: each.labels == WEB
    )
    stream.put(record("10", WEB))
    stream.progress("10")
    inner.progress("10")
    assert not swap.has_reached(swap.seen), "it would be absent"
    outer.put(record("10", WEB, OutsideRecord))
    outer.progress("10")
    assert swap.has_reached(swap.seen)
    assert [change.filter_changed for change in swap.take()] == [True]
    found, version = after.store.locate("shop", "web-1")
    assert (isinstance(found, OutsideRecord), version) == (True, "10")
