"""The judge of what readers saw, where the server is restored again before all branches have reached the
lists of the first restore."""

from __future__ import annotations

import pytest

from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union

from .cluster import Cluster, Filter, Thing
from .guarantees import Judge, Observer, Seen, Violation
from .writers import writers

KEY = "shop", "b"
THING = Thing(*KEY, uid="uid-0", app="web")
FILTERS = Filter(app="web"), Filter(gold=True)


class Readers:
    """The union of two branches, and the judge of what it shows. The server is at 15, with a backup of 10."""

    def __init__(self) -> None:
        self.cluster = Cluster(FILTERS, version=10)
        self.union, self.observer = Union([each.keys for each in FILTERS]), Observer()
        self.judge = Judge(self.cluster)
        self.epochs = [0, 0]
        for _ in range(5):
            self.cluster.pass_()
        for number in range(2):
            self.relist(number)

    def restore(self, backup: int) -> None:
        self.cluster.restore(backup, bump=False)

    def relist(self, number: int, *records: Record) -> Seen:
        """Have a branch listed anew at the server's version."""
        branch, version = writers(self.union)[number], self.cluster.version
        if self.epochs[number] < self.cluster.epoch:
            self.epochs[number] = self.cluster.epoch
            self.observer.notices(self.cluster.epoch, version)
        self.observer.hears(self.cluster.epoch, version)
        branch.begin()
        for record in records:
            branch.put(record)
        return self.see(branch.commit(str(version), restored=int(branch.version or 0) > version))

    def keep(self, backup: int) -> Seen:
        """Restore the server to a version. It has all that the branches up to there hold."""
        self.restore(backup)
        for number, branch in enumerate(writers(self.union)):
            if int(branch.version) <= backup:
                self.epochs[number] = self.cluster.epoch
                self.observer.keeps(self.cluster.epoch, int(branch.version), restored_to=backup)
        return self.see([])

    def see(self, changes: list[Change]) -> Seen:
        seen = self.observer.sees(
            self.union.store,
            changes,
            self.cluster,
            epoch=min(self.epochs),
            version=int(self.union.store.version or 0),
            beyond=False,
        )
        self.judge.judge(seen)
        return seen


def restored_with_an_object_since() -> Readers:
    """Return readers of a restored server. An object is written after one branch is listed, and before the
    other is."""
    readers = Readers()
    readers.restore(10)
    readers.relist(0)
    readers.cluster.write(KEY, THING)
    seen = readers.relist(1)
    assert (seen.version, seen.epoch, seen.now) == (15, 0, 1), (
        "it stays until both have reached the list at 11"
    )
    return readers


def test_a_second_restore_does_not_bring_readers_to_an_epoch_that_not_all_branches_have_reached() -> None:
    readers = restored_with_an_object_since()
    for epoch in (2, 3):
        seen = readers.keep(11)
        assert (seen.version, seen.epoch, seen.now) == (15, 0, epoch)
    seen = readers.relist(0, Record(*KEY, "uid-0", "11", {"serial": "1"}, (), b"{}"))
    assert (seen.version, seen.epoch, set(seen.held)) == (11, 3, {KEY})


def test_an_absent_object_is_found_when_all_branches_have_reached_the_lists_after_two_restores() -> None:
    readers = restored_with_an_object_since()
    readers.keep(11)
    with pytest.raises(Violation) as raised:
        readers.relist(0)
    assert raised.value.invariant == "I8b"


def test_readers_that_have_reached_an_epoch_follow_the_next_restore_at_once() -> None:
    readers = Readers()
    readers.restore(10)
    for number in range(2):
        readers.relist(number)
    for version in range(11, 16):  # The last is the version that they had before the restore.
        readers.cluster.pass_()
        readers.observer.hears(1, version)
        for branch in writers(readers.union):
            readers.see(branch.progress(str(version)))
    seen = readers.keep(15)
    assert (seen.version, seen.epoch, seen.now) == (15, 2, 2)


def test_readers_need_not_reach_a_list_that_a_second_restore_has_lost() -> None:
    readers = restored_with_an_object_since()
    assert readers.keep(10).epoch == 0
    assert readers.relist(1).version == 15, "the first one is listed again as well"
    seen = readers.relist(0)
    assert (seen.version, seen.epoch, seen.now) == (10, 2, 2)
