"""Writers of the substores of a union: a test writes `a.put(record)` to the substore of one stream."""

from __future__ import annotations

from dataclasses import dataclass

from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Change
from kopf_selectcache.core.store.substore import Branch, Keys, View
from kopf_selectcache.core.store.union import Union


@dataclass(frozen=True)
class Writer:
    """Writes to one substore of a union."""

    union: Union
    branch: Branch

    @property
    def keys(self) -> Keys:
        return self.branch.keys

    @property
    def view(self) -> View:
        return self.branch.view

    @property
    def epoch(self) -> int:
        return self.branch.epoch

    @property
    def version(self) -> str:
        return self.branch.version

    def begin(self) -> None:
        self.union.begin(self.branch)

    def abandon(self) -> None:
        self.union.abandon(self.branch)

    def put(self, record: Record) -> list[Change]:
        return self.union.put(self.branch, record)

    def leave(self, record: Record) -> list[Change]:
        return self.union.leave(self.branch, record)

    def commit(self, version: str, *, restored: bool = False) -> list[Change]:
        return self.union.commit(self.branch, version, restored=restored)

    def progress(self, version: str) -> list[Change]:
        return self.union.progress(self.branch, version)


def writers(union: Union) -> tuple[Writer, ...]:
    """Return the writers of all substores, in their order."""
    return tuple(Writer(union, branch) for branch in union.branches)
