"""Substore: the state of one stream (the keys that it could hold, its records, its version), and the views
that readers use. `core.store.union` decides what the union of several streams shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, Protocol, TypeVar

from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement

from .changes import Change, ChangeCause, KnownBy
from .indexes import Chosen, Lookup
from .packing import Tally
from .record import (
    ObjectKey,
    OutsideRecord,
    Record,
    UnreadableRecord,
    all_of,
    are_numbers,
    is_newer,
    is_number,
    is_older,
    rank_of,
)
from .store import Records, Store


class HasKeys(Protocol):
    """A stream, or a substore."""

    @property
    def keys(self) -> Keys:
        """The keys that it could hold."""


_HasKeys = TypeVar("_HasKeys", bound=HasKeys)


@dataclass(frozen=True, slots=True)
class Selected:
    """The objects that one branch of a filter selects, as far as their metadata shows."""

    namespaces: frozenset[str] | None = None
    names: frozenset[str] | None = None
    requirements: tuple[LabelRequirement, ...] = ()
    terms: tuple[FieldTerm, ...] = ()
    """Terms of the name and the namespace."""

    def has(self, record: Record) -> bool:
        known = {"metadata.name": record.name, "metadata.namespace": record.namespace}
        return (
            (self.namespaces is None or record.namespace in self.namespaces)
            and (self.names is None or record.name in self.names)
            and all(each.matches(record.labels) for each in self.requirements)
            and all(each.matches(known) for each in self.terms)
        )


@dataclass(frozen=True, slots=True)
class Keys:
    """The namespace and names that a substore selects; None means any."""

    namespace: str | None = None
    names: frozenset[str] | None = None
    complete: bool = False
    """True if the stream has no other selector. An object that departs from such a substore is gone."""
    namespaces: frozenset[str] | None = None
    """The namespaces of a stream of all objects, of which those in other namespaces are not stored."""
    excluded: frozenset[str] = frozenset()
    """The namespaces that a stream of all objects excludes."""
    are_outside: bool = False
    """True if the stream has the objects outside of the filter, as `OutsideRecord`s."""
    others: tuple[Selected, ...] = ()
    """The objects of a stream that are not stored, because others have them."""

    @property
    def are_of_path(self) -> bool:
        """True if there is no restriction besides the namespace of the path."""
        return self.names is None and self.namespaces is None and not self.excluded

    def have(self, key: ObjectKey) -> bool:
        return self.have_namespace(key[0]) and (self.names is None or key[1] in self.names)

    @property
    def proof(self) -> KnownBy | None:
        """How we know that an object that departs from all streams does not exist, None if it may
        exist. In a split cache, some stream has each object.
        """
        if self.complete:
            return "filter by name"
        return "metadata" if self.are_outside else None

    def is_other(self, record: Record) -> bool:
        """Return True if another stream has the object."""
        return any(each.has(record) for each in self.others)

    def meet(self, other: Keys) -> bool:
        """Return True if both could hold the same key."""
        if self.names is not None and other.names is not None and self.names.isdisjoint(other.names):
            return False
        for each, of in ((self, other), (other, self)):
            if each.namespace is not None:
                return of.have_namespace(each.namespace)
            if each.namespaces is not None:
                return any(map(of.have_namespace, each.namespaces))
        return True

    def have_namespace(self, namespace: str) -> bool:
        """Return True if there could be objects of this namespace."""
        return (
            self.namespace in (None, namespace)
            and (self.namespaces is None or namespace in self.namespaces)
            and namespace not in self.excluded
        )


class Row(NamedTuple):
    """An object whose departure is awaited, besides what the streams hold of it."""

    left: str
    """The version at which it has left a stream, and which all streams must reach; empty if it is unknown."""
    since: str = ""
    """The first version without the object in that stream; empty if only a list shows that it has left."""
    last: Record | None = None
    """The object as the event of its leave has it."""


SPARE = 1000
"""The slack of the heap before it is compacted."""


class Unclaimed(dict[ObjectKey, Row]):
    """Rows by key, with a heap for the oldest. Those since an unknown version come first."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[tuple[int, str], int, ObjectKey, Row]] = []
        self._numbers = count()

    def __setitem__(self, key: ObjectKey, row: Row) -> None:
        super().__setitem__(key, row)
        self._push(key, row)
        if len(self._heap) > 2 * len(self) + SPARE:
            self._heap.clear()
            for each in self.items():
                self._push(*each)

    def oldest(self) -> Row | None:
        while self._heap and self.get(self._heap[0][2]) is not self._heap[0][3]:
            heappop(self._heap)
        return self._heap[0][3] if self._heap else None

    def _push(self, key: ObjectKey, row: Row) -> None:
        rank = rank_of(row.since) if is_number(row.since) else (0, "")
        heappush(self._heap, (rank, next(self._numbers), key, row))


class View(Store):
    """A store with unlocked reads for its writer."""

    @property
    def holds_any(self) -> bool:
        return bool(self._held)

    @property
    def stages_nothing(self) -> bool:
        return self._staged is None

    def held(self, key: ObjectKey) -> Record | None:
        """Return the record of a key."""
        return self._held.get(key[0], {}).get(key[1])

    def has_outside(self, record: Record) -> bool:
        """Return True if the same object is known to be outside of the filter."""
        found = self.held(record.key)
        return isinstance(found, OutsideRecord) and found.uid == record.uid


class UnionView(View):
    """The visible union of several substores. Groups of substores have no key in common, so each group has
    its own version.
    """

    def __init__(
        self,
        groups: int,
        *,
        request_index: Callable[[], None] = lambda: None,
        tally: Tally | None = None,
        version: str = "",
    ) -> None:
        super().__init__(request_index=request_index, tally=tally)
        self.versions = ("",) * groups
        self._version = version if not groups else ""
        self._outside: Records = {}
        """The visible records of objects outside of the filter. No read of several objects sees them."""

    @property
    def holds_any(self) -> bool:
        return bool(self._held or self._outside)

    def held(self, key: ObjectKey) -> Record | None:
        """Return the visible record, inside or outside the filter."""
        return self._held.get(key[0], {}).get(key[1]) or self._outside.get(key[0], {}).get(key[1])

    def locate(self, namespace: str, name: str) -> tuple[Record | None, str]:
        with self._lock:  # There may be no groups, as in a filter whose label no namespace has.
            return self.held((namespace, name)), self._version

    def locate_of(self, groups: Iterable[int], namespace: str, name: str) -> tuple[Record | None, str]:
        with self._lock:
            return self.held((namespace, name)), self.version_of(groups)

    def all_records(self) -> tuple[list[Record], str]:
        with self._lock:
            return [*all_of(self._held), *all_of(self._outside)], self._version

    def all_in(self, namespaces: Collection[str | None]) -> list[Record]:
        """Return all records of some namespaces, also outside of the filter; None stands for all of them."""
        if None in namespaces:
            return self.all_records()[0]
        both = [each.get(space or "", {}) for each in (self._held, self._outside) for space in namespaces]
        return [record for named in both for record in named.values()]

    def version_of(self, groups: Iterable[int]) -> str:
        """Return the oldest version of these groups; empty until all of them are listed."""
        versions = self.versions
        return least(versions[each] for each in groups)

    def get_of(self, groups: Iterable[int], namespace: str, name: str) -> tuple[Record | None, str]:
        with self._lock:
            return self._held.get(namespace, {}).get(name), self.version_of(groups)

    def records_of(self, groups: Iterable[int]) -> tuple[list[Record], str]:
        with self._lock:
            return list(all_of(self._held)), self.version_of(groups)

    def chosen_of(
        self, groups: Iterable[int], lookup: Lookup, key: ObjectKey | None, *, asking: bool
    ) -> Chosen:
        with self._lock:
            chosen = self._chosen(lookup, key, self.version_of(groups), asking=asking)
        if asking and chosen.missing is not None:
            self._request_index()
        return chosen

    def show(self, changes: list[Change], moved: Mapping[int, str]) -> None:
        """Apply changes and the new versions of some groups in one step. Other groups retain their
        versions.
        """
        seen = seen_of(changes)
        self._note_all(seen)
        versions, of_all = list(self.versions), self._version
        moved = {group: version for group, version in moved.items() if version != versions[group]}
        for group, version in moved.items():
            versions[group] = version
        # There may be a hundred groups, so the minimum is computed only if the oldest one has advanced.
        if any(
            self.versions[group] == of_all or is_older(version, of_all) for group, version in moved.items()
        ):
            of_all = least(versions)
        with self._lock:
            self.versions, self._version = tuple(versions), of_all
            forgotten = self._index(seen)
            for change in changes:
                before, after = change.before, change.after
                self._replaced(before, after)
                if after is not None:
                    self._home(after).setdefault(after.namespace, {})[after.name] = after
                    if before is None or self._home(before) is self._home(after):
                        continue
                assert before is not None, "a change of nothing"
                named = self._home(before)[before.namespace]
                del named[before.name]
                if not named:
                    del self._home(before)[before.namespace]
        if forgotten:
            self._request_index()

    def frozen(self) -> Store:
        frozen = FrozenUnion()
        with self._lock:
            frozen.take(self._held, self._outside, self._version, self.unreadable)
        return frozen

    def _home(self, record: Record) -> Records:
        return self._outside if isinstance(record, OutsideRecord) else self._held


class FrozenUnion(Store):
    """A copy of a union that nobody writes to."""

    def take(
        self, held: Records, outside: Records, version: str, unreadable: Mapping[ObjectKey, UnreadableRecord]
    ) -> None:
        """Copy the contents of a union."""
        self._held = {space: named.copy() for space, named in held.items()}
        self._outside = {space: named.copy() for space, named in outside.items()}
        self._version, self.unreadable = version, unreadable

    def locate(self, namespace: str, name: str) -> tuple[Record | None, str]:
        found, version = self.get(namespace, name)
        return found or self._outside.get(namespace, {}).get(name), version

    def all_records(self) -> tuple[list[Record], str]:
        records, version = self.records()
        return [*records, *all_of(self._outside)], version


def seen_of(changes: list[Change]) -> list[Change]:
    """Return changes as readers see them: objects enter and leave the filter, and there are no others."""
    if not any(
        isinstance(each.before or each.after, OutsideRecord) or isinstance(each.after, OutsideRecord)
        for each in changes
    ):
        return changes
    seen = []
    for change in changes:
        before = None if isinstance(change.before, OutsideRecord) else change.before
        after = None if isinstance(change.after, OutsideRecord) else change.after
        if before is change.before and after is change.after:
            seen.append(change)
        elif after is not None:
            seen.append(Change(None, after, ChangeCause.ENTERED))
        elif before is not None:
            seen.append(Change(before, None, ChangeCause.LEFT, known_by="metadata"))
    return seen


class Section:
    """A view of the union with the version of some groups. Records of other groups are included."""

    def __init__(self, union: UnionView, groups: Iterable[int]) -> None:
        self._union = union
        self._groups = tuple(groups)

    @property
    def version(self) -> str:
        return self._union.version_of(self._groups)

    def get(self, namespace: str, name: str) -> tuple[Record | None, str]:
        return self._union.get_of(self._groups, namespace, name)

    def locate(self, namespace: str, name: str) -> tuple[Record | None, str]:
        return self._union.locate_of(self._groups, namespace, name)

    def all_records(self) -> tuple[list[Record], str]:
        return self._union.all_records()

    def records(self) -> tuple[list[Record], str]:
        return self._union.records_of(self._groups)

    def chosen(self, lookup: Lookup, key: ObjectKey | None = None, *, asking: bool = True) -> Chosen:
        return self._union.chosen_of(self._groups, lookup, key, asking=asking)

    def checked(self, chosen: Chosen) -> Chosen:
        return self._union.checked(chosen)

    def weights(self) -> dict[str, int]:
        return self._union.weights()


class Substore:
    """The records and the version of one stream. Only the union (`core.store.union`) writes to it."""

    def __init__(
        self,
        keys: Keys,
        *,
        request_index: Callable[[], None] = lambda: None,
        tally: Tally | None = None,
        epoch: int = 0,
    ) -> None:
        self.keys = keys
        self.holds_all = keys.namespace is None and keys.are_of_path
        """True if the stream could hold an object of any namespace and name."""
        self.view = View(
            request_index=request_index,
            tally=tally,
            proof=keys.proof,
        )
        self.epoch = epoch
        self.listed = ""
        """The version of the last list, or of a probe or an event that is as good as one: what happened
        before is unknown to the stream."""
        self.vague: set[ObjectKey] = set()
        """Keys of objects that left at an unknown version, between the last known version and the next."""
        self.laid = 0
        """The number of own writes that had been laid when the last consistent list began."""
        self.has_missed = False
        """True if the server has not sent an event to the stream, until it is listed."""
        self._waits: list[tuple[tuple[int, str], ObjectKey]] = []
        """A heap of the versions to reach, with the keys to evaluate again then."""
        self._waiting: set[ObjectKey] = set()
        """The keys that wait. Each has one wait, so that an object that comes and goes does not fill the
        heap."""

    def take_over(self, other: Substore) -> None:
        """Be in the place of another one, in this empty one."""
        self.view.take_over(other.view)
        self.epoch, self.listed, self.vague = other.epoch, other.listed, other.vague
        self.has_missed, self._waits, self._waiting = other.has_missed, other._waits, other._waiting

    @property
    def version(self) -> str:
        """The version up to which all events were applied; empty until the first list is complete."""
        return self.view.version

    def wait_for(self, version: str, key: ObjectKey) -> None:
        """Have a key evaluated again once a version is reached."""
        if key not in self._waiting:
            self._waiting.add(key)
            heappush(self._waits, (rank_of(version), key))

    def reach(self, version: str) -> list[ObjectKey]:
        """Advance to a version; return the keys that waited for it."""
        self.view.progress(version)
        keys: list[ObjectKey] = []
        if not self._waits:
            return keys
        if is_number(self.version):
            reached = rank_of(self.version)
            while self._waits and self._waits[0][0] <= reached:
                keys.append(heappop(self._waits)[1])
        else:  # Nobody knows which versions are reached.
            keys = [key for _, key in self._waits]
            self._waits.clear()
        self._waiting.difference_update(keys)
        return keys

    def wait_for_nothing(self) -> None:
        self._waits.clear()
        self._waiting.clear()
        self.vague.clear()


def least(versions: Iterable[str]) -> str:
    """Return the oldest version. An empty one is older than all others."""
    found, *others = all_ = tuple(versions)
    if not all(all_):
        return ""
    if len(set(map(len, all_))) == 1 and are_numbers(all_):
        # Much faster than comparisons in pairs: there may be a hundred versions at each event.
        return min(all_)
    for version in others:
        if is_older(version, found):
            found = version
    return found


def newest_of(versions: Iterable[str]) -> str:
    """Return the newest version; empty if there is none. The first one, if they cannot be compared."""
    found = ""
    for version in versions:
        if not found or is_older(found, version):
            found = version
    return found


def older_of(one: str, other: str) -> str:
    """Return the older of two versions; empty if one of them is unknown."""
    return "" if not one or not other else other if is_older(other, one) else one


def groups_of(streams: Iterable[_HasKeys]) -> tuple[frozenset[_HasKeys], ...]:
    """Return groups of streams, or of their substores. Those of different groups have no key in common."""
    groups: list[frozenset[_HasKeys]] = []
    for stream in streams:
        near = [group for group in groups if any(stream.keys.meet(other.keys) for other in group)]
        groups = [*(group for group in groups if group not in near), frozenset({stream}).union(*near)]
    return tuple(groups)


def disproved_by(substore: Substore, shown: View) -> bool:
    """Return True if the list of the substore contradicts a visible record: the list is past it, and has an
    older version or another uid. So the server was restored under higher versions.
    """
    return any(
        other is not None
        and other is not record
        and not is_newer(other.version, substore.version)
        and (
            is_older(record.version, other.version)
            or (record.version == other.version and record.uid != other.uid)
        )
        for record in substore.view.records()[0]
        for other in [shown.held(record.key)]
    )


def supersedes(record: Record, other: Record, *, said: bool) -> bool:
    """Return True if a record is known to be newer, or may be newer and was reported last (`said`)."""
    return is_newer(record.version, other.version) if said else is_older(other.version, record.version)
