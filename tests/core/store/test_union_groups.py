"""Branches that never hold the same objects, such as those of several namespaces: none costs another one
anything."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from typing import Any

import pytest

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.record import Record, least
from kopf_selectcache.core.store.union import Union
from tests.core.writers import writers
from tests.world.explore import Explorer
from tests.world.world import Run


def pod(namespace: str, version: str) -> Record:
    return Record(namespace, "it", "uid", version, {}, (), b"")


def over(namespaces: int) -> Union:
    """Return a union of one branch per namespace. Each branch was listed and holds one object."""
    union = Union([Keys(f"ns-{number}") for number in range(namespaces)])
    for number, branch in enumerate(writers(union)):
        branch.begin()
        branch.put(pod(f"ns-{number}", "100"))
        branch.commit("100")
    return union


def calls_for_some_events(union: Union) -> int:
    """Count the calls of Python functions that an object takes that comes, changes and leaves."""
    calls, branch = 0, writers(union)[0]

    def count(_: object, what: str, __: object) -> None:
        nonlocal calls
        calls += what == "call"

    branch.progress("101")  # From here on the oldest of all is another one.
    before = sys.getprofile()
    gc.disable()  # Hypothesis has a function that is called for each collection.
    sys.setprofile(count)
    try:
        for version in ("102", "103"):
            branch.put(pod("ns-0", version))
            branch.progress(version)
        branch.leave(pod("ns-0", "104"))
        branch.progress("104")
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


def test_an_event_costs_the_same_however_many_other_namespaces_there_are() -> None:
    assert calls_for_some_events(over(100)) == calls_for_some_events(over(2))


def test_a_report_of_a_branch_moves_the_version_of_no_other_group(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Counter[int]()

    def show(union: Union, changes: list[Change], said: Substore) -> Any:
        told = _show(union, changes, said)
        versions = union._union.versions
        assert versions == tuple(map(union._version, union.groups, versions)), (
            f"only {said.keys} was looked at"
        )
        assert union.store.version == least(versions)
        groups[union._group_of[said]] += 1
        return told

    _show = Union._show
    monkeypatch.setattr(Union, "_show", show)
    run = Run("web@a|gold@a|db@b|web@b").play(Explorer(0).lines)
    assert run.lie is None, run.lie
    assert len(groups) > 1


def test_1_a_union_of_no_streams_knows_that_an_object_is_absent() -> None:
    """No namespace has the label of the filter: there is nothing to watch."""
    assert Union((), version="7").store.locate("shop", "web-1") == (None, "7")


def test_8_a_departure_waits_for_no_stream_of_its_group_that_could_not_hold_the_object() -> None:
    names = [frozenset(each) for each in ("a", "ab", "b")]
    union = Union([Keys("shop", names=each) for each in names])
    first, both, other = writers(union)
    for branch in (first, both, other):
        branch.begin()
        branch.put(Record("shop", "a" if branch is not other else "b", "uid", "10", {}, (), b""))
        branch.commit("10")
    first.leave(Record("shop", "a", "uid", "20", {}, (), b""))
    first.progress("20")
    both.leave(Record("shop", "a", "uid", "15", {}, (), b""))
    assert union.awaited == {both.substore: "20"}
    assert other.substore in union.groups[0]
