"""A cluster in a model: its objects at each version, what filters show of them, and its restorations. It
fails nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.record import ObjectKey


@dataclass(frozen=True, slots=True)
class Thing:
    """An object, as it was written once."""

    namespace: str
    name: str
    uid: str
    app: str
    gold: bool = False
    """Whether it has a second label."""
    version: int = 0
    serial: int = 0
    """Which write of all it was: after a restoration, versions are given out again."""

    @property
    def key(self) -> ObjectKey:
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Filter:
    """What one branch selects; None means any."""

    app: str | None = None
    gold: bool | None = None

    def selects(self, thing: Thing | None) -> bool:
        return thing is not None and self.app in (None, thing.app) and self.gold in (None, thing.gold)

    @property
    def keys(self) -> Keys:
        return Keys()


Contents: TypeAlias = dict[ObjectKey, Thing]


class Entry(NamedTuple):
    """What the filters showed of one key since a version of an epoch."""

    epoch: int
    version: int
    thing: Thing | None


class Logged(NamedTuple):
    version: int
    before: Thing | None
    after: Thing | None


ORIGIN = Entry(0, -1, None)


class Cluster:
    """Objects, one version for all, and everything that happened to them. An epoch ends when a backup is
    restored."""

    def __init__(self, filters: Sequence[Filter], version: int = 1) -> None:
        self.filters = tuple(filters)
        self.version = version
        self.epoch = self.compacted = self.serial = 0
        self.contents_by_version: dict[int, Contents] = {version: {}}
        """All objects at each version of this epoch."""
        self.past: list[dict[int, Contents]] = []
        self.log: list[Logged] = []
        self.history: dict[ObjectKey, list[Entry]] = {}

    def copy(self) -> Cluster:
        made = Cluster(self.filters, self.version)
        made.epoch, made.compacted, made.serial = self.epoch, self.compacted, self.serial
        made.contents_by_version, made.past, made.log = (
            dict(self.contents_by_version),
            list(self.past),
            list(self.log),
        )
        made.history = {key: list(entries) for key, entries in self.history.items()}
        return made

    @property
    def contents(self) -> Contents:
        return self.contents_by_version[self.version]

    def selects(self, thing: Thing | None) -> bool:
        return any(each.selects(thing) for each in self.filters)

    def selected(
        self, filter_: Filter | None = None, *, version: int | None = None, epoch: int | None = None
    ) -> Contents:
        """Return what one filter showed, or all of them together, at a version; now, if none is said."""
        contents_by_version = self.contents_by_version if epoch in (None, self.epoch) else self.past[epoch]
        selects = filter_.selects if filter_ is not None else self.selects
        contents = contents_by_version[self.version if version is None else version]
        return {key: thing for key, thing in contents.items() if selects(thing)}

    def write(self, key: ObjectKey, thing: Thing | None, *, after: int = 1) -> None:
        """Write or delete an object, `after` versions later: objects of other kinds use up versions, too."""
        before, contents = self.contents.get(key), self.contents
        for _ in range(after):
            self.pass_()
        self.serial += 1
        written = replace(thing, version=self.version, serial=self.serial) if thing is not None else None
        rest = {each: value for each, value in contents.items() if each != key}
        self.contents_by_version[self.version] = {**rest, key: written} if written is not None else rest
        self.log.append(Logged(self.version, before, written))
        shown = written if self.selects(written) else None
        self.history.setdefault(key, [ORIGIN]).append(Entry(self.epoch, self.version, shown))

    def pass_(self) -> None:
        """Let a version be used up by an object of another kind."""
        contents = self.contents
        self.version += 1
        self.contents_by_version[self.version] = contents

    def restore(self, backup: int, *, bump: bool) -> None:
        """Go back to what was at a version: to the version, too, or to a higher one than was ever given
        out."""
        contents, highest = self.contents_by_version[backup], self.version
        self.past.append(self.contents_by_version)
        self.epoch += 1
        self.contents_by_version = {
            version: known for version, known in self.contents_by_version.items() if version <= backup
        }
        self.log = [entry for entry in self.log if entry.version <= backup]
        self.version = self.compacted = highest + 100 if bump else backup
        self.contents_by_version[self.version] = contents
        for entries in self.history.values():
            before = [
                entry for entry in entries if entry.epoch == self.epoch - 1 and 0 <= entry.version <= backup
            ]
            # What was written before the backup has happened in the new epoch, too.
            entries += [
                ORIGIN._replace(epoch=self.epoch),
                *(entry._replace(epoch=self.epoch) for entry in before),
            ]

    def states(self, key: ObjectKey, epoch: int, first: int, last: int) -> Iterator[Thing | None]:
        """Yield what the filters showed of a key from one version through another."""
        shown: Thing | None = None
        for entry in self.history.get(key, ()):
            if entry.epoch != epoch or entry.version > last:
                continue
            if entry.version > first:
                yield shown
            shown = entry.thing
        yield shown
