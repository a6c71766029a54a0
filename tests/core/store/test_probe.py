"""A list of metadata counts as the progress of a stream once the stream holds exactly what was listed."""

from __future__ import annotations

import pytest

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.claims import Listed, Probe, listed_of
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer, writers


def named(name: str, version: int) -> Record:
    return Record("shop", name, f"uid-{name}", str(version), {}, (), b"{}")


def two(*records: Record, version: str = "10") -> tuple[Union, Writer, Writer]:
    """Return a union of two streams, of which the first has these objects."""
    union = Union([Keys(), Keys()])
    for branch in writers(union):
        branch.begin()
        for record in records if branch.substore is union.substores[0] else ():
            branch.put(record)
        branch.commit(version)
    a, b = writers(union)
    return union, a, b


def shown(union: Union) -> list[str]:
    return sorted(record.name for record in union.store.records()[0])


def of(*records: Record) -> Listed:
    return listed_of(records)


def test_12_a_probe_counts_once_all_objects_are_equal_at_one_moment() -> None:
    """X enters at 11, Y at 12, X leaves at 13, and the list is as of 13. If Y were ticked off while X is
    there, the departure of X would be a replay, and X shown forever."""
    _, a, _ = two()
    probe = Probe(a.substore, "13", of(named("y", 12)))
    assert not probe.counts()
    a.put(named("x", 11))
    a.progress("11")
    assert not probe.counts()
    a.put(named("y", 12))
    a.progress("12")
    assert not probe.counts(), "X is there as well"
    a.leave(named("x", 13))
    assert probe.counts()


@pytest.mark.parametrize(
    ("held", "listed"),
    [((), (named("x", 9),)), ((named("x", 9),), ()), ((named("x", 9),), (named("x", 11),))],
    ids=["missing", "extra", "outdated"],
)
def test_12_a_stream_that_differs_does_not_count(
    held: tuple[Record, ...], listed: tuple[Record, ...]
) -> None:
    _, a, _ = two(*held)
    probe = Probe(a.substore, "13", of(*listed))
    assert not probe.counts()
    assert not probe.is_over


def test_4_a_stream_that_is_past_the_list_has_missed_nothing_by_later_events() -> None:
    _, a, _ = two(named("x", 9), named("y", 9))
    probe = Probe(a.substore, "13", of(named("x", 9), named("y", 9)))
    a.put(named("x", 14))
    a.put(named("z", 14))
    a.leave(named("y", 14))
    assert probe.is_over
    assert not probe.has_missed()


def test_12_after_a_jump_to_a_newer_version_an_object_may_be_where_it_has_left() -> None:
    """It moves to the second stream at 11, and back at 12: neither has reported that."""
    union, a, b = two(named("x", 9))
    a.leave(named("x", 11))
    assert union.jump(b.substore, "12") == []
    assert (shown(union), union.store.version) == (["x"], "10")
    assert union.awaited == {a.substore: "12"}
    (change,) = a.put(named("x", 12))
    assert change.before is not None
    a.progress("12")
    assert (shown(union), union.store.version) == (["x"], "12")


def test_12_a_stream_that_is_alone_only_advances() -> None:
    union = Union([Keys()])
    (a,) = writers(union)
    a.begin()
    a.commit("10")
    assert union.jump(a.substore, "12") == []
    assert (union.store.version, union.awaited) == ("12", {})
