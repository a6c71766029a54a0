"""Writers of the substores of a union: a test writes `a.put(record)` to the substore of one stream."""

from __future__ import annotations

from dataclasses import dataclass

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import View
from kopf_selectcache.core.store.union import Union


@dataclass(frozen=True)
class Writer:
    """Writes to one substore of a union."""

    union: Union
    substore: Substore

    @property
    def keys(self) -> Keys:
        return self.substore.keys

    @property
    def view(self) -> View:
        return self.substore.view

    @property
    def epoch(self) -> int:
        return self.substore.epoch

    @property
    def version(self) -> str:
        return self.substore.version

    def begin(self) -> None:
        self.union.begin(self.substore)

    def abandon(self) -> None:
        self.union.abandon(self.substore)

    def put(self, record: Record) -> list[Change]:
        return self.union.put(self.substore, record)

    def leave(self, record: Record) -> list[Change]:
        return self.union.leave(self.substore, record)

    def commit(self, version: str, *, restored: bool = False) -> list[Change]:
        return self.union.commit(self.substore, version, restored=restored)

    def progress(self, version: str) -> list[Change]:
        return self.union.progress(self.substore, version)

    def jump(self, version: str) -> list[Change]:
        return self.union.jump(self.substore, version)


def writers(union: Union) -> tuple[Writer, ...]:
    """Return the writers of all substores, in their order."""
    return tuple(Writer(union, substore) for substore in union.substores)
