"""Store: the records of one kind, with one writer and many readers, in generations. Readers see all of a
relist or nothing of it. `UnionView` is the store of a filter with several streams, `Section` a part of it.

The writer's methods return their changes; the protocol machine (`core.protocol.machine`) decides when they
are called. The store ensures that an object never goes back to an older version, because servers replay,
duplicate and reorder events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock
from typing import TypeAlias

from .changes import Change, ChangeCause, KnownBy, replaced
from .index_spec import Indexed, note
from .indexes import NOTHING, STEP_CHANGES, AnsweredRecords, Indexes, Lookup, Selection, room
from .packing import Tally, weight
from .record import (
    ObjectKey,
    OftenRead,
    OutsideRecord,
    Record,
    UnreadableRecord,
    all_of,
    differing,
    is_newer,
    is_older,
    least,
)

Records = dict[str, dict[str, Record]]
"""Records by namespace and name."""


class Store:
    """The records of one kind. Readers may be in any thread; the writer is one task.

    `request_index` is called when there is an index to `build`, in any thread. `tally` accounts for the
    records. `proof` is how we know that departing objects are gone; None if they may exist.
    """

    def __init__(
        self,
        *,
        request_index: Callable[[], None] = lambda: None,
        tally: Tally | None = None,
        proof: KnownBy | None = None,
    ) -> None:
        self._lock = Lock()
        self._proof = proof
        self._tally = tally
        self._request_index = request_index
        self._indexes = Indexes()
        self._held: Records = {}
        self._staged: Records | None = None
        self._gone: dict[tuple[str, str], Record] = {}
        """Deletions in the staged generation. They prevent a late replay from adding the object again."""
        self._version = ""
        self.often_read = OftenRead() if tally is None else None
        """The objects that are read often; None if there is a limit of bytes, which does not include them."""
        self.unreadable: Mapping[tuple[str, str], UnreadableRecord] = {}
        """The unreadable records by key. The mapping is replaced as a whole, so readers need no lock."""

    # ---- Reading: the lock is held while references are collected, never while records are decoded.

    @property
    def version(self) -> str:
        """The resourceVersion of the contents; empty until the first list is complete."""
        return self._version

    def get(self, namespace: str, name: str) -> tuple[Record | None, str]:
        """Return the record, or None, and the version of the contents."""
        with self._lock:
            return self._held.get(namespace, {}).get(name), self._version

    def peek(self, namespace: str, name: str) -> Record | None:
        """Return the record without taking the lock, or None. Safe because each step is one dict lookup; it
        returns no version, so it must not be combined with another read.
        """
        named = self._held.get(namespace)
        return named.get(name) if named is not None else None

    def frozen(self) -> Store:
        """Return a store of the same records, which no write reaches. It has no indexes."""
        frozen = Store()
        with self._lock:
            frozen._held = _copied(self._held)
            frozen._version, frozen.unreadable = self._version, self.unreadable
        return frozen

    def records(self) -> tuple[list[Record], str]:
        """Return all records of one generation and its version."""
        with self._lock:
            return list(all_of(self._held)), self._version

    def locate(self, namespace: str, name: str) -> tuple[Record | None, str]:
        """Return the record, inside or outside the filter, and the version of the contents."""
        return self.get(namespace, name)

    def all_records(self) -> tuple[list[Record], str]:
        """Return the records inside and outside of the filter, and the version of the contents."""
        return self.records()

    def chosen(self, lookup: Lookup, key: tuple[str, str] | None = None, *, asking: bool = True) -> Selection:
        """Return the candidates of a lookup in one generation, and the record of the key.

        With `asking`, an index that would help this lookup is requested.
        """
        with self._lock:
            chosen = self._chosen(lookup, key, self._version, asking=asking)
        if asking and chosen.missing is not None:
            self._request_index()
        return chosen

    def checked(self, chosen: Selection) -> Selection:
        """Check the residual predicate of many candidates, without the lock, if other reads may repeat the
        result. Other candidates are returned as they are.
        """
        if chosen.answer is None:
            return chosen
        records = AnsweredRecords(chosen.rest.met_by(chosen.records))
        with self._lock:
            self._indexes.answers.complete(chosen.answer, records)
        return chosen._replace(records=records, rest=NOTHING, answer=None)

    def _chosen(
        self, lookup: Lookup, key: tuple[str, str] | None, version: str, *, asking: bool
    ) -> Selection:
        chosen = self._indexes.chosen(self._held, lookup, asking=asking, version=version)
        if self.unreadable:
            chosen = chosen._replace(
                records=[record for record in chosen.records if record.stored],
                unreadable=tuple(self.unreadable.values()),
            )
        return chosen._replace(beside=self._held.get(key[0], {}).get(key[1])) if key is not None else chosen

    def count(self) -> int:
        """Return the number of records."""
        with self._lock:
            return sum(map(len, self._held.values()))

    def weights(self) -> dict[str, int]:
        """Return the approximate size in bytes of each index, and of the tables of records under the empty
        name. The records are not included.
        """
        with self._lock:
            containers = {"": [self._held, *self._held.values()], **self._indexes.containers()}
        return {what: room(each) for what, each in containers.items()}

    # ---- Writing.

    def declare(self, indexed: Indexed) -> None:
        """Request a declared index."""
        with self._lock:
            self._indexes.declare(indexed)
        self._request_index()

    def build(self, most: int) -> bool:
        """Add `most` entries to a requested index; return True if more may be left."""
        with self._lock:
            index = self._indexes.unready()
        # Readers do not use the index before it is ready, so it is built without the lock.
        if index is not None and index.build(lambda: list(all_of(self._held)), self._is_to_index, most):
            with self._lock:
                index.ready = True
        return index is not None

    def _is_to_index(self, record: Record) -> bool:
        if self._indexes.declared:
            self._note(record)
        return self._held.get(record.namespace, {}).get(record.name) is record

    def writing(self) -> list[Record]:
        """Return all records of the generation that is written: the staged one, or else the one that readers
        see.
        """
        return list(all_of(self._held if self._staged is None else self._staged))

    def begin(self) -> None:
        """Stage a new generation. Readers see the current one until `commit`."""
        self.abandon()
        self._staged = {}

    def abandon(self) -> None:
        """Discard the staged generation."""
        if self._tally is not None and self._staged is not None:
            self._tally.drop_all(all_of(self._staged))
        self._staged, self._gone = None, {}

    def release(self) -> None:
        """Remove the records from the tally, after the last write."""
        self.abandon()
        if self._tally is not None:
            self._tally.drop_all(all_of(self._held))
            self._tally = None

    def take_over(self, other: Store) -> None:
        """Hold what another store holds and stages, in this empty one."""
        self._held = _copied(other._held)
        if other._staged is not None:
            self._staged = _copied(other._staged)
            self._gone = other._gone.copy()
        self._version, self.unreadable = other._version, other.unreadable
        for record in (*all_of(self._held), *all_of(self._staged or {})):
            self._count(None, record)

    def put(self, record: Record) -> list[Change]:
        """Add or update a record: in the staged generation, or else where readers see it immediately."""
        if self._indexes.declared:
            self._note(record)
        if self._staged is not None:
            same = self._held.get(record.namespace, {}).get(record.name)
            if same is not None and same.is_same(record):
                # Both generations share the records of unchanged objects.
                record = same
            staged = self._staged.setdefault(record.namespace, {})
            earlier = staged.get(record.name)
            if _supersedes(record, earlier) and _supersedes(record, self._gone.get(record.key)):
                staged[record.name] = record
                self._count(earlier, record)
            return []
        with self._lock:
            held = self._held.setdefault(record.namespace, {})
            before = held.get(record.name)
            if before is not None and not is_newer(record.version, before.version):
                return []
            held[record.name] = record
            if self._indexes.made or self._indexes.answers.by_lookup:
                self._indexes.change(before, record)
            if before is None:
                changes = [Change(None, record, ChangeCause.ENTERED)]
            elif before.uid == record.uid:
                changes = [Change(before, record, ChangeCause.UPDATED)]
            else:
                changes = [
                    replaced(before),
                    Change(None, record, ChangeCause.ENTERED),
                ]
            if self.unreadable or not record.stored:
                self._separate(changes)
        self._replaced(before, record)
        return changes

    def leave(self, record: Record) -> list[Change]:
        """Remove an object, unless the record of its name is newer or has another uid."""
        if self._staged is not None:
            staged = self._staged.get(record.namespace, {})
            if _departs(record, staged.get(record.name)):
                self._count(staged.pop(record.name, None), None)
                self._gone[record.key] = record
            return []
        with self._lock:
            held = self._held.get(record.namespace, {})
            before = held.get(record.name)
            if before is None or not _departs(record, before):
                return []
            del held[record.name]
            if not held:
                self._held.pop(record.namespace, None)
            self._indexes.change(before, None)
            changes = [self._departure_of(before, record)]
            if self.unreadable:
                self._separate(changes)
        self._replaced(before, None)
        return changes

    def commit(self, version: str) -> list[Change]:
        """Replace the current generation by the staged one in one step; return the difference."""
        staged = self._staged
        assert staged is not None, "nothing was begun"
        self._staged, self._gone = None, {}
        before = self._held
        changes = self._changes_to(staged)
        self._note_all(changes)
        with self._lock:
            self._held, self._version = staged, version
            forgotten = self._index(changes)
        if self._tally is not None:
            self._tally.drop_all(all_of(before))
        elif self.often_read is not None and self.often_read.bytes:
            for change in changes:
                self._replaced(change.before, change.after)
        if forgotten:
            self._request_index()
        return changes

    def _changes_to(self, staged: Records) -> list[Change]:
        """Return the changes from the current generation to another."""
        changes: list[Change] = []
        for before, after in differing(self._held, staged):
            if before is None:
                changes.append(Change(None, after, ChangeCause.ENTERED))
            elif after is not None:
                changes.append(Change(before, after, ChangeCause.UPDATED))
            elif before.name in staged.get(before.namespace, {}):
                changes.append(replaced(before))
            else:
                changes.append(self._departure_of(before))
        return changes

    def _departure_of(self, record: Record, last: Record | None = None) -> Change:
        """Return the departure of an object of a stream without others."""
        cause = ChangeCause.LEFT if self._proof is None else ChangeCause.DELETED
        return Change(record, None, cause, known_by=self._proof, last=last)

    def _count(self, before: Record | None, after: Record | None) -> None:
        """Account for the replacement of a record; None stands for absence."""
        if self._tally is not None:
            if after is not None:
                self._tally.take(after)
            self._tally.drop(before)

    def _replaced(self, before: Record | None, after: Record | None) -> None:
        """Forget a record that readers do not see any more, and account for the replacement."""
        if self.often_read is None:
            self._count(before, after)
        elif before is not None:
            self.often_read.forget(before)

    def _note(self, record: Record) -> None:
        """Store the missing values of declared indexes in a record. Indexing holds the lock, under which
        the operator's functions must not be called.
        """
        before = weight(record)
        note(record, self._indexes.declared)
        if self._tally is not None:
            self._tally.reweigh(record, before)

    def _note_all(self, changes: list[Change]) -> None:
        """Call `_note` for up to `STEP_CHANGES` changes. More lead to a rebuild, which does it."""
        for change in changes if self._indexes.declared and len(changes) <= STEP_CHANGES else ():
            if change.after is not None:
                self._note(change.after)

    def _index(self, changes: list[Change]) -> bool:
        """Update the indexes and the unreadable records; return True if indexes must be rebuilt because more
        than `STEP_CHANGES` records changed.
        """
        self._separate(changes)
        if len(changes) > STEP_CHANGES:
            return self._indexes.forget()
        for change in changes if self._indexes.made or self._indexes.answers.by_lookup else ():
            self._indexes.change(change.before, change.after)
        return False

    def _separate(self, changes: list[Change]) -> None:
        """Update the mapping of unreadable records."""
        found: dict[tuple[str, str], UnreadableRecord] | None = None
        for change in changes:
            before, after = change.before, change.after
            if (after is not None and not after.stored) or (before is not None and not before.stored):
                found = {**self.unreadable} if found is None else found
                if before is not None:
                    found.pop(before.key, None)
                if isinstance(after, UnreadableRecord):
                    found[after.key] = after
        if found is not None:
            self.unreadable = found

    def progress(self, version: str) -> None:
        """Advance to a version up to which all events have been applied."""
        if is_newer(version, self._version):
            self._version = version


def _copied(records: Records) -> Records:
    return {space: named.copy() for space, named in records.items()}


def _supersedes(record: Record, held: Record | None) -> bool:
    return held is None or is_newer(record.version, held.version)


def _departs(record: Record, held: Record | None) -> bool:
    return held is None or (held.uid == record.uid and not is_older(record.version, held.version))


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
    ) -> Selection:
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
        frozen = UnionView(0)
        with self._lock:
            frozen._held, frozen._outside = _copied(self._held), _copied(self._outside)
            frozen._version, frozen.unreadable = self._version, self.unreadable
        return frozen

    def _home(self, record: Record) -> Records:
        return self._outside if isinstance(record, OutsideRecord) else self._held


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

    def chosen(self, lookup: Lookup, key: ObjectKey | None = None, *, asking: bool = True) -> Selection:
        return self._union.chosen_of(self._groups, lookup, key, asking=asking)

    def checked(self, chosen: Selection) -> Selection:
        return self._union.checked(chosen)

    def weights(self) -> dict[str, int]:
        return self._union.weights()


Readable: TypeAlias = Store | Section
"""A store, or a part of one, that readers use in any thread."""
