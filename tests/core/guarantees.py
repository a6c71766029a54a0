"""What readers were promised, as invariants of the recorded history: what they saw, held against what the
server had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.record import ObjectKey, Record
from kopf_selectcache.core.store.store import Store

from .cluster import ORIGIN, Cluster, Contents, Filter, Thing
from .transits import Violation

__all__ = [
    "Facts",
    "Held",
    "Judge",
    "Observer",
    "Seen",
    "Taken",
    "Violation",
    "facts",
    "facts_of_all",
    "told",
]

Facts: TypeAlias = tuple[str, int]
"""The uid of an object, and which write of all it shows."""
Held: TypeAlias = Mapping[ObjectKey, Record]


class Seen(NamedTuple):
    """What readers could see after something had happened, and the changes that led to it."""

    changes: tuple[Change, ...]
    held: Held
    version: int
    """The version that answers have; 0 before there are any."""
    known: int
    """The newest version of which the cache can have heard."""
    epoch: int
    """That of the branch which is the last to hear of a restoration."""
    now: int
    """The server's epoch, ..."""
    latest: int
    """... and its version."""


class Taken(NamedTuple):
    """What one branch held when it said that it was at a version."""

    filter: Filter
    epoch: int
    version: int
    held: Held
    beyond: bool
    """Whether deletions came that did not say when they had happened."""


class Observer:
    """Writes down what readers can see, and up to when the cache can have heard of anything."""

    def __init__(self) -> None:
        self.known: Counter[int] = Counter()
        """Of each epoch, the newest version that anything came of."""
        self.begun: Counter[int] = Counter()
        """Of each epoch, the version that all branches must have reached, for readers to be in it, ..."""
        self.before: dict[int, int] = {}
        """... and the version that answers had before: they keep it until all have heard."""
        self.epoch = 0
        self._version = 0

    def copy(self) -> Observer:
        made = Observer()
        made.known, made.begun, made.before = self.known.copy(), self.begun.copy(), dict(self.before)
        made.epoch, made._version = self.epoch, self._version
        return made

    def hears(self, epoch: int, version: int) -> None:
        self.known[epoch] = max(self.known[epoch], version)

    def notices(self, epoch: int, version: int) -> None:
        """Take note that a branch has been listed for the first time in an epoch."""
        self.begun[epoch] = max(self.begun[epoch], version)
        self.before.setdefault(epoch, self._version)
        self.hears(epoch, version)

    def keeps(self, epoch: int, version: int, *, restored_to: int) -> None:
        """Take note that a branch at a version is in a new epoch without a list: the restored server has all
        that the branch holds."""
        # A second restore may come before readers are in the epoch of the first: the branches have been
        # listed, but not all have reached the newest of these lists. The union keeps the version of the lost
        # epoch until then, and the second restore does not shorten that.
        if self.epoch < epoch - 1 and epoch - 1 in self.before:
            self.begun[epoch] = max(self.begun[epoch], min(self.begun[epoch - 1], restored_to))
            self.before.setdefault(epoch, self.before[epoch - 1])
        self.hears(epoch, version)

    def sees(
        self,
        store: Store,
        changes: Sequence[Change],
        cluster: Cluster,
        *,
        epoch: int,
        version: int,
        beyond: bool,
    ) -> Seen:
        self._version = version
        if version >= self.begun[epoch] and version != self.before.get(epoch):
            self.epoch = epoch
        held = {record.key: record for record in store.records()[0]}
        known = cluster.version if beyond and self.epoch == cluster.epoch else self.known[self.epoch]
        return Seen(tuple(changes), held, version, known, self.epoch, cluster.epoch, cluster.version)


class Judge:
    """A reader with a memory. Raises Violation, which names the invariant."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.shown: dict[ObjectKey, Record] = {}
        """What the changes told so far amount to."""
        self.places: dict[ObjectKey, int] = {}
        """How far in the server's history of a key readers have come."""
        self.newest: dict[ObjectKey, tuple[int, int]] = {}
        """The epoch and version of what was seen last."""
        self.version = (0, -1)
        """The epoch and version of the last read while all branches knew of the last restoration."""

    def copy(self, cluster: Cluster) -> Judge:
        """Return a judge with this memory, of a copy of the cluster."""
        made = Judge(cluster)
        made.shown, made.places, made.newest, made.version = (
            dict(self.shown),
            dict(self.places),
            dict(self.newest),
            self.version,
        )
        return made

    def judge(self, what: Seen | Taken) -> None:
        if isinstance(what, Taken):
            self._view(what)
            return
        for change in what.changes:
            self._change(change, what)
        self._read(what)

    # ---- What is told.

    def _change(self, change: Change, seen: Seen) -> None:
        before, after = change.before, change.after
        record = after or before
        if record is None or before is after or self.shown.get(record.key) is not before:
            raise Violation("I9", f"{change} is told after {record and self.shown.get(record.key)}")
        if before is not None and after is not None and before.uid != after.uid:
            raise Violation("I9", f"{change} tells one departure less than there were")
        if after is None:
            del self.shown[record.key]
        else:
            self.shown[record.key] = after
        self._place(record.key, after, seen)

    def _place(self, key: ObjectKey, after: Record | None, seen: Seen) -> None:
        """Find what is seen in what is left of the server's history."""
        history, place, wanted = self._cluster.history[key], self.places.get(key, 0), told(after)
        epoch, newest = self.newest.get(key, (0, 0))
        there = next(
            (
                at
                for at in range(place, len(history))
                if history[at].epoch <= seen.now and facts(history[at].thing) == wanted
            ),
            None,
        )
        if there is None:
            back = after is not None and any(
                entry.epoch == epoch and facts(entry.thing) == wanted for entry in history[:place]
            )
            raise Violation("I1" if back else "I2", f"{key} was never {wanted} since {history[place]}")
        self.places[key] = there
        thing = history[there].thing
        if thing is None:
            return
        if history[there].epoch == epoch and thing.version < newest:
            raise Violation("I1", f"{key} went from version {newest} back to {thing.version}")
        self.newest[key] = history[there].epoch, thing.version

    # ---- What is read.

    def _read(self, seen: Seen) -> None:
        if dict(seen.held) != self.shown:  # Records are equal if they are the same.
            raise Violation("I9", f"{seen.held} is held, and what was told amounts to {self.shown}")
        if not seen.version:
            return
        if seen.epoch == seen.now:
            if (seen.epoch, seen.version) < self.version:
                raise Violation("I4", f"the version is {seen.version}, after {self.version}")
            self.version = seen.epoch, seen.version
        for key in self._cluster.history:
            self._key(key, seen)

    def _key(self, key: ObjectKey, seen: Seen) -> None:
        record = seen.held.get(key)
        states = self._states(key, seen)
        if record is None and None not in map(facts, states):
            raise Violation(
                "I8b", f"{key} is absent at {seen.version}, and was there all the time until {seen.known}"
            )
        # With another object of that name between, the first is gone for good.
        if record is not None and record.uid not in {thing.uid for thing in states if thing is not None}:
            raise Violation("I5", f"{record} is held at {seen.version}, and gone since, at {seen.known}")

    def _states(self, key: ObjectKey, seen: Seen) -> list[Thing | None]:
        if seen.epoch == seen.now:
            return list(self._cluster.states(key, seen.epoch, seen.version, seen.known))
        # Not every branch knows of the restoration yet: anything since the last read before it may be seen.
        epoch, version = self.version
        states = list(self._cluster.states(key, epoch, version, 1 << 60))
        for later in range(epoch + 1, seen.now):
            states += self._cluster.states(key, later, -1, 1 << 60)
        return states + list(self._cluster.states(key, seen.now, -1, seen.latest))

    def _view(self, taken: Taken) -> None:
        held = {key: told(record) for key, record in taken.held.items()}
        then = facts_of_all(self._cluster.selected(taken.filter, version=taken.version, epoch=taken.epoch))
        if taken.beyond:
            # Deletions that did not say when they happened may be ahead of the version.
            then = {key: value for key, value in then.items() if key in held or not self._goes(key, taken)}
        if held != then:
            raise Violation(
                "I4",
                f"{taken.filter} holds {held}, and at {taken.version} of epoch {taken.epoch} there was"
                f" {then}",
            )

    def _goes(self, key: ObjectKey, taken: Taken) -> bool:
        return any(
            entry.epoch == taken.epoch and entry.version > taken.version
            for entry in self._cluster.history.get(key, (ORIGIN,))
        )


def facts(thing: Thing | None) -> Facts | None:
    return None if thing is None else (thing.uid, thing.serial)


def told(record: Record | None) -> Facts | None:
    return None if record is None else (record.uid, int(record.labels["serial"]))


def facts_of_all(contents: Contents) -> dict[ObjectKey, Facts | None]:
    return {key: facts(thing) for key, thing in contents.items()}


def equal(held: Sequence[Record], contents: Contents) -> bool:
    """Whether what is held is, to the last byte that matters, what there is."""
    return {record.key: (record.uid, record.decode()["spec"]["serial"]) for record in held} == facts_of_all(
        contents
    )
