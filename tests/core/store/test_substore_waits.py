"""A branch forgets the versions that no object waits for any more, and no others."""

from __future__ import annotations

from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.substore import SPARE, Keys
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer, writers


def pod(name: str, version: int) -> Record:
    return Record("shop", name, f"uid-{name}", str(version), {}, (), b"{}")


def listed(branch: Writer, *records: Record) -> None:
    branch.begin()
    for record in records:
        branch.put(record)
    branch.commit("10")


def test_a_leave_that_waits_alone_for_its_version_is_settled_after_a_thousand_that_wait_no_more() -> None:
    union = Union([Keys(), Keys()])
    quick, slow = writers(union)
    gone = [f"gone-{number}" for number in range(SPARE + 10)]
    listed(quick, pod("it", 1), *(pod(name, 1) for name in gone))
    listed(slow)
    quick.leave(pod("it", 20))
    for number, name in enumerate(gone):
        quick.leave(pod(name, 21 + number))
    for doubt in union.unconfirmed:
        if doubt.name != "it":
            union.confirmed(
                doubt, version="3000"
            )  # The server says that it is gone, before the slow branch does.
    assert [record.name for record in union.store.records()[0]] == ["it"]
    slow.progress("2500")
    assert list(union.store.records()[0]) == []
