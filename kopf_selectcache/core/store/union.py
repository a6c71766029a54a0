"""Union: several streams feed one store. An object is visible while any stream holds it, and stays visible
while it moves between streams.

Theory of operation
-------------------
The filter of a kind is the OR of several streams, its *substores*. Each substore has a *view*: the records
that this stream claims, by the rules of `core.store.store`. Streams that could hold the same key are a
*group*. Streams of a group are not equally fast, so one rule says what readers see of a key
(docs/dev/decisions.md, 0037):

1. Readers see the newest claim. It never gets older, so a claim that is older than the visible record is not
   shown.
2. A record that nobody claims stays visible until every stream that could hold its key has reached the
   version at which it left, and the newest *list* of each other: what happened before a list is unknown to
   its stream. A substore that does not hold the object then did not hold it at that version. A quiet stream
   is compared with a list of the server, and jumps to the version of that (`core.store.claims`).
3. The version of a group is the least of its streams, as long as each has reached the lists of the others.
   Otherwise it stays.
4. A substore that is past a change and claims the state before it has *missed* the change, and is relisted.
5. Once the server is known to be restored, a new *epoch* begins: all streams are listed again. Readers see
   the former state of a group until its streams have been listed and have reached each other's lists.

A key has a *row* only while a departure of it is awaited. What is visible follows from the claims and the
row alone, so it does not depend on the order in which streams report. With one substore, readers use its view
directly, and none of this has a cost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.core.selection.regions import Keys, groups_of

from .changes import Change, ChangeCause, replaced
from .claims import OwnWrite, OwnWrites, Row, Substore, Unclaimed, disproved_by, supersedes
from .packing import Tally
from .record import ObjectKey, Record, is_newer, is_older, least, newest_of, older_of
from .store import Readable, Section, Store, UnionView, View, seen_of


class Union:
    """The substores of one filter, and the store that readers see. The writer is one task."""

    def __init__(
        self,
        substores: Sequence[Keys] = (Keys(),),
        *,
        request_index: Callable[[], None] = lambda: None,
        tally: Tally | None = None,
        version: str = "",
        epoch: int = 0,
        own_writes: OwnWrites | None = None,
    ) -> None:
        """A union without substores holds nothing, as of `version`. `own_writes` are those of the union that
        this one replaces.
        """
        self.tally = tally
        """The memory accounting of all stores, if there is any."""
        self.own_writes = OwnWrites() if own_writes is None else own_writes
        """The own writes that the substores have not reported yet. Reads show them. Whoever writes to the
        union holds their lock."""
        self._request_index = request_index
        self._arrange(
            tuple(Substore(keys, request_index=request_index, tally=tally, epoch=epoch) for keys in substores)
        )
        self.is_alone = len(self.substores) == 1
        """True if there has been one substore only: no leave is unconfirmed, and no substore is outdated."""
        self.store: View
        """The store that readers see. Its version is the oldest of all substores, and empty until each has
        had a complete list."""
        if self.is_alone:
            self.store = self.substores[0].view
        else:
            self.store = self._union = UnionView(
                len(self.groups), request_index=request_index, tally=tally, version=version
            )
        self.epoch = epoch
        """The number of times that the server was seen to be restored."""
        self._next: dict[int, dict[ObjectKey, Record]] = {}
        """The groups that begin anew after a restore of the server: what readers will see of each."""
        self._outdated: dict[Substore, MetricReason] = {}
        self._rows: dict[ObjectKey, Row] = {}
        """The keys whose departure is awaited."""
        self.unconfirmed = Unclaimed()
        """The rows of records that readers see, and that no substore claims, or only in an older version.
        Empty with one substore."""
        self._met: set[frozenset[Substore]] = set()
        """The groups that are known to have met. They are looked at again after each list: there may be a
        hundred streams at each event."""

    # ---- Another filter (`informer.swap`).

    def take_over(self, before: Union, kept: Mapping[Substore, Substore]) -> None:
        """Take over whole groups of another union. `kept` maps their substores to those of this one, which
        are empty.
        """
        for old, new in kept.items():
            new.take_over(old)
        if self.is_alone:
            return
        mine = frozenset(kept.values())

        def is_taken(key: ObjectKey) -> bool:
            return not mine.isdisjoint(self._could_hold(key))

        self._rows |= {key: row for key, row in before._rows.items() if is_taken(key)}
        for key, row in before.unconfirmed.items():
            if is_taken(key):
                self.unconfirmed[key] = row
        for old, new in kept.items():
            if (records := before._next.get(before._group_of[old])) is not None:
                self._next[self._group_of[new]] = records
        self._union.show(
            [
                Change(None, record, ChangeCause.ENTERED)
                for record in before.store.all_records()[0]
                if is_taken(record.key)
            ],
            {self._group_of[new]: before.version_of([old]) for old, new in kept.items()},
        )

    @property
    def has_one_epoch(self) -> bool:
        """True unless readers still see something from before the server was restored."""
        return not self._next

    def version_of(self, substores: Iterable[Substore]) -> str:
        """Return the version of the groups of these substores; empty until all of them are listed."""
        if self.is_alone:
            return self.store.version
        return self._union.version_of({self._group_of[each] for each in substores})

    def unreached_list(self, substore: Substore) -> str:
        """Return the version of the newest list of another substore that this one has not reached; empty if
        there is none. An object may have moved between them unseen.
        """
        if self.is_alone:
            return ""
        listed = self._newest_list(self.groups[self._group_of[substore]])
        is_reached = substore.epoch == self.epoch and not is_older(substore.version or "0", listed)
        return "" if is_reached else listed

    def _newest_list(self, group: Iterable[Substore]) -> str:
        return newest_of(each.listed for each in group if each.epoch == self.epoch)

    def _arrange(self, substores: tuple[Substore, ...]) -> None:
        """Compute the groups of substores that could hold the same keys."""
        self.substores: tuple[Substore, ...] = substores
        spaces = {substore.keys.namespace for substore in substores}
        self._near = {
            space: tuple(substore for substore in substores if substore.keys.namespace in (None, space))
            for space in spaces
        }
        self._by_key = not all(substore.keys.are_of_path for substore in substores)
        self.groups = groups_of(substores)
        """Substores of different groups never hold the same keys, so each group has its own version."""
        self._group_of = {substore: index for index, group in enumerate(self.groups) for substore in group}

    def needed(self, substores: Collection[Substore]) -> Readable:
        """Return the part of the store for a read whose answer only these substores could hold.

        For one substore this is its view: an object that leaves the substore does not belong to the answer.
        For several, it has the oldest version of all of their groups.
        """
        if len(substores) == 1:
            (substore,) = substores
            return substore.view
        groups = [index for index, group in enumerate(self.groups) if not group.isdisjoint(substores)]
        return self.store if len(groups) == len(self.groups) else Section(self._union, groups)

    def near(self, substores: Iterable[Substore]) -> Collection[Substore]:
        """Return all substores of the groups of these. Answers from several substores wait for all."""
        return frozenset().union(*(group for group in self.groups if not group.isdisjoint(substores)))

    @property
    def stores(self) -> tuple[Store, ...]:
        """All stores that readers may use: the union and the view of each substore."""
        return (
            (self.store,) if self.is_alone else (self._union, *(substore.view for substore in self.substores))
        )

    def build(self, most: int) -> bool:
        """Add `most` entries to a requested index; return True if there may be more to do."""
        return any(store.build(most) for store in self.stores)

    def newest(self) -> list[Record]:
        """Return the distinct records of all substores; of each, the larger of its two generations."""
        generations = ((each.view.records()[0], each.view.writing()) for each in self.substores)
        return list(dict.fromkeys(record for both in generations for record in max(both, key=len)))

    def writing(self) -> list[Record]:
        """Return the records that all substores write. A record of several substores is repeated."""
        return [record for substore in self.substores for record in substore.view.writing()]

    @property
    def awaits_streams(self) -> bool:
        """True if a departure, the first answer, or the first one after a restore waits until streams are at
        one version.
        """
        return not self.is_alone and (
            bool(self.unconfirmed or self.own_writes.doubtful)
            or ((not self._union.version or bool(self._next)) and any(map(self._is_meeting, self.groups)))
        )

    def _is_meeting(self, group: frozenset[Substore]) -> bool:
        """Return True if each stream of a group was listed, and they have yet to reach each other."""
        number = self._group_of[next(iter(group))]
        return (number in self._next or not self._union.versions[number]) and all(
            each.version and each.epoch == self.epoch for each in group
        )

    @property
    def awaited(self) -> dict[Substore, str]:
        """The substores that departures and first answers wait for, and the version that each must
        reach: the newest one that a substore near it has. It is empty if only a list of the present state can
        show that.
        """
        found: dict[Substore, str] = {}
        if self.is_alone:
            return found
        holding = {
            each for key in (*self.unconfirmed, *self.own_writes.doubtful) for each in self._could_hold(key)
        }
        for group in self.groups:
            if self._is_meeting(group):
                holding |= group
            if holding.isdisjoint(group):
                continue
            following = [
                each for each in self.substores if each in group and each.version and each.epoch == self.epoch
            ]
            newest = newest_of(version for each in following for version in (each.version, each.listed))
            for each in following:
                if each.vague or (is_older(each.version, newest) and each in holding):
                    found[each] = "" if each.vague else newest
        return found

    def has_unconfirmed_up_to(self, version: str, *, besides: ObjectKey) -> bool:
        """Return True if another object than `besides` may have left up to this version, unconfirmed."""
        if self._next or any(
            key != besides and (write := self.own_writes.get(key)) and not is_newer(write.version, version)
            for key in tuple(self.own_writes.doubtful)
        ):
            return True
        oldest = self.unconfirmed.oldest()
        if oldest is None or is_newer(oldest.since or version, version):  # All others are newer.
            return False
        return any(
            key != besides and not is_newer(row.since or version, version)
            for key, row in self.unconfirmed.items()
        )

    def is_unconfirmed(self, key: ObjectKey) -> bool:
        """Return True if the object is shown although a stream reported its leave, and nothing newer is
        known.
        """
        row, shown = self._rows.get(key), self.store.held(key)
        return (
            row is not None
            and shown is not None
            and (key in self.unconfirmed or is_newer(row.left, shown.version))
        )

    def pop_streams_to_relist(self) -> dict[Substore, MetricReason]:
        """Return and clear the substores to relist, with the reason of each."""
        outdated, self._outdated = self._outdated, {}
        return outdated

    # ---- Reports of substores. Each method returns the changes that readers see.

    def begin(self, substore: Substore) -> None:
        """Start to stage a new generation of a substore."""
        substore.view.begin()

    def abandon(self, substore: Substore) -> None:
        """Discard the staged generation of a substore."""
        substore.view.abandon()

    def put(self, substore: Substore, record: Record) -> list[Change]:
        # The selector of a watch may be wider than the substore.
        if not substore.holds_all and not substore.keys.have(record.key):
            return []
        if self.own_writes.resting and substore.view.stages_nothing:
            self.own_writes.wake(record)
        if self.is_alone:
            changes = substore.view.put(record)
            if self.own_writes.writes or self.own_writes.resting:
                self._settle_own([record.key], put=substore)
            return changes
        if substore.keys.others and substore.keys.is_other(record):
            return self.leave(substore, record)  # It has left for another stream, if it was in this one.
        shown = self.store.held(record.key)
        if shown is not None and shown.is_same(record):
            record = shown  # Substores share the record of an object.
        return self._settled([record.key], substore, is_put=True) if substore.view.put(record) else []

    def leave(self, substore: Substore, record: Record) -> list[Change]:
        key = record.key
        if not substore.holds_all and not substore.keys.have(key):
            return []
        changes = substore.view.leave(record)
        if self.is_alone:
            self._settle_own([key])
        if self.is_alone or not changes:
            return changes
        if substore.epoch < self.epoch:
            return []
        if is_newer(record.version, substore.version):
            # An event at a version implies that all earlier events have arrived.
            self._leaves(key, record.version, since=record.version, last=record)
            return self._settled([key, *self._reach(substore, record.version)], substore)
        # Some servers send a deletion with the version of the deleted object. The next event gives an upper
        # bound of the version of the deletion.
        if len(self._could_hold(key)) > 1:
            substore.vague.add(key)
            self._leaves(key, "", last=record)
        return self._settled([key], substore)

    def commit(
        self, substore: Substore, version: str, *, restored: bool = False, writes_added: int = 0
    ) -> list[Change]:
        """Show the staged generation; `restored` says that the server's versions have gone back.
        `writes_added` own writes had been added when the list began: it has them, whatever its version is.
        """
        substore.writes_added = max(substore.writes_added, writes_added)
        keys = self._own_keys((substore,))
        self.own_writes.wake_keys(keys)
        changes = self._commit(substore, version, restored=restored)
        self._settle_own(keys)
        return changes

    def _commit(self, substore: Substore, version: str, *, restored: bool) -> list[Change]:
        is_first = not (
            self._rows
            or any(view.holds_any for view in (self.store, *(each.view for each in self.substores)))
        )
        changes = substore.view.commit(version)
        substore.listed, substore.has_missed = version, False
        self._met.clear()
        if self.is_alone:
            if restored:
                self.own_writes.clear()
                self.epoch = substore.epoch = self.epoch + 1
            return changes
        if substore.epoch < self.epoch:
            substore.epoch = self.epoch
        elif restored or self._disproves(substore):
            self._restart(substore)
        elif is_first and not self._next:
            return self._show(changes, substore)  # Nothing to compare with.
        for change in changes:
            if change.after is None:
                self._leaves(change.key, version)
        keys = [change.key for change in changes]
        if self._group_of[substore] in self._next:
            keys += [record.key for record in substore.view.records()[0]]
        return self._settled([*keys, *self._reach(substore, version)], substore)

    def progress(self, substore: Substore, version: str) -> list[Change]:
        if self.is_alone:
            if self.own_writes.writes or self.own_writes.resting:
                self._settle_own(substore.reach(version))
            else:
                substore.view.progress(version)
            return []
        return self._settled(self._reach(substore, version), substore)

    def jump(self, substore: Substore, version: str) -> list[Change]:
        """Note that a substore holds what a list as of a newer version has. What happened before is unknown
        to it, as after that list.
        """
        self._met.clear()
        substore.listed = version
        return self.progress(substore, version)

    def _disproves(self, substore: Substore) -> bool:
        """Return True if a list shows that the server was restored under higher versions."""
        return self._group_of[substore] not in self._next and disproved_by(substore, self.store)

    def _restart(self, first: Substore) -> None:
        """Begin a new epoch, because the list of the first substore shows that the server was restored."""
        self.epoch += 1
        self._met.clear()
        first.epoch = self.epoch
        self._outdated = {
            substore: MetricReason.RESTORED
            for substore in self.substores
            if substore is not first and substore.version
        }
        for substore in self.substores:
            substore.wait_for_nothing()
        self.own_writes.clear()
        self._rows.clear()
        self.unconfirmed.clear()
        self._next = {number: {} for number in range(len(self.groups))}

    def _leaves(self, key: ObjectKey, version: str, *, since: str = "", last: Record | None = None) -> None:
        """Note that an object has left a stream; the version is empty if it is unknown."""
        row = self._rows.get(key)
        if row is None:
            self._rows[key] = Row(version, since, last)
        else:
            left = version if version and is_newer(version, row.left) else row.left
            self._rows[key] = Row(left, older_of(row.since, since), last or row.last)

    def _reach(self, substore: Substore, version: str) -> list[ObjectKey]:
        """Advance a substore; return the keys that waited for it."""
        vague = list(substore.vague)
        for key in vague:
            self._leaves(key, version)
        if vague:
            substore.listed = version  # When they left is unknown, as after a list.
            self._met.clear()
            substore.vague.clear()
        return [*vague, *substore.reach(version)]

    def departure_of(self, record: Record) -> Change:
        """Return the departure of an object that no stream holds inside of the filter."""
        if self.store.has_outside(record):
            return Change(record, None, ChangeCause.LEFT, known_by="metadata")
        proofs = [substore.proof for substore in self._could_hold(record.key)]
        proof = next((each for each in proofs if each is not None), None)
        return Change(record, None, ChangeCause.DELETED if proof else ChangeCause.LEFT, known_by=proof)

    # ---- Own writes.

    def add_own(self, write: OwnWrite) -> Sequence[OwnWrite]:
        """Show an own write. Return the writes that were dropped because there are too many."""
        dropped = self.own_writes.add(write)
        self._settle_own([write.key])
        return dropped

    def settle_own(self) -> None:
        """Evaluate all own writes."""
        self._settle_own(self._own_keys(self.substores))

    def _own_keys(self, substores: Collection[Substore]) -> list[ObjectKey]:
        """Return the keys of the own writes that substores could hold."""
        keys = [*self.own_writes.writes, *self.own_writes.resting]
        if any(each.holds_all for each in substores):
            return keys
        return [key for key in keys if any(each.keys.have(key) for each in substores)]

    def _settle_own(self, keys: Iterable[ObjectKey], *, put: Substore | None = None) -> None:
        """Evaluate the own writes of keys. `put` has reported a record, and will report its version next:
        then it evaluates the writes that it passes.
        """
        own_writes = self.own_writes
        if not (own_writes.writes or own_writes.resting):
            return
        for key in keys:
            if (write := own_writes.get(key)) is None:
                continue
            if put is not None and not write.is_deletion and not self._has_passed(put, write):
                continue
            shown, near = self.store.held(key), self._could_hold(key)
            is_deletion = write.is_deletion
            behind = near if is_deletion else [each for each in near if not self._has_passed(each, write)]
            # Most hold what readers see.
            claims: list[Record | None] = (
                [None] * len(behind)
                if self.is_alone
                else [held if (held := each.view.held(key)) is not shown else None for each in behind]
            )
            own_writes.settle(write, shown, claims, passed=len(near) - len(behind))
            for each in () if is_deletion else behind:
                each.wait_for(write.version, key)

    def _has_passed(self, substore: Substore, write: OwnWrite) -> bool:
        version = substore.version
        return (
            version != ""
            and substore.epoch == self.epoch
            and (not is_newer(write.version, version) or write.number <= substore.writes_added)
        )

    # ---- The visible record of a key.

    def _could_hold(self, key: ObjectKey) -> tuple[Substore, ...]:
        near = self._near.get(key[0]) or self._near.get(None, ())
        return tuple(substore for substore in near if substore.keys.have(key)) if self._by_key else near

    def _settled(self, keys: Iterable[ObjectKey], said: Substore, *, is_put: bool = False) -> list[Change]:
        """Evaluate keys after a report of a substore, and show the result in one step; return the changes."""
        number = self._group_of[said]
        upcoming = self._next.get(number)
        held = self.store.held if upcoming is None else upcoming.get
        changes: list[Change] = []
        keys = dict.fromkeys(keys)
        for key in keys:
            before, row = held(key), self._rows.get(key) if self._rows else None
            after = self._visible(key, before, said, row)
            if before is None and after is not None:  # The most frequent one of a list.
                changes.append(Change(None, after, ChangeCause.ENTERED))
            elif after is not before:
                changes += self._changes(before, after, row.last if row is not None else None)
        if upcoming is not None:
            for change in changes:
                if change.after is not None:
                    upcoming[change.key] = change.after
                else:
                    del upcoming[change.key]
            if said.epoch < self.epoch or not self._has_met(self.groups[number]):
                return []
            # Streams meet by what they say of versions, never by a put, so all own writes are evaluated.
            changes = self._restarted(number)
            written = self._own_keys(self.groups[number])
            self.own_writes.wake_keys(written)
            keys |= dict.fromkeys(written)
        changes = self._show(changes, said)
        self._settle_own(keys, put=said if is_put else None)
        return changes

    def _restarted(self, number: int) -> list[Change]:
        """Return the changes that lead readers of a group to the state after the server was restored."""
        group, after = self.groups[number], self._next.pop(number)
        before = {
            record.key: record
            for record in self._union.all_in({each.keys.namespace for each in group})
            if not group.isdisjoint(self._could_hold(record.key))
        }
        return [
            change
            for key in before.keys() | after.keys()
            for change in self._changes(before.get(key), after.get(key), None)
        ]

    def _changes(self, before: Record | None, after: Record | None, last: Record | None) -> list[Change]:
        """Return the changes of one key; `last` is the object as the event of a leave has it."""
        if before is after:
            return []
        if after is None:
            assert before is not None, "it was not shown before either"
            return [self._departed(before, last)]
        if before is None:
            return [Change(None, after, ChangeCause.ENTERED)]
        if before.uid != after.uid:
            return [replaced(before), Change(None, after, ChangeCause.ENTERED)]
        return [Change(before, after, ChangeCause.UPDATED)]

    def _departed(self, record: Record, last: Record | None) -> Change:
        """Return the departure of a record."""
        change = self.departure_of(record)
        if last is None or last.uid != record.uid or is_older(last.version, record.version):
            return change
        return replace(change, last=last)

    def _show(self, changes: list[Change], said: Substore) -> list[Change]:
        number = self._group_of[said]
        self._union.show(changes, {number: self._version(self.groups[number], self._union.versions[number])})
        return seen_of(changes)

    def _version(self, group: frozenset[Substore], before: str) -> str:
        """Return the version of a group, which was `before`: the oldest of its substores, unless it must not
        advance.
        """
        return least(each.version for each in group) if self._has_met(group) else before

    def _has_met(self, group: frozenset[Substore]) -> bool:
        """Return True if all streams of a group have reached the lists of each other. An object may have
        moved unseen before a list.
        """
        if group in self._met:
            return True
        listed = self._newest_list(group)
        has_met = all(
            each.epoch == self.epoch
            and not each.has_missed
            and each.version
            and not is_older(each.version, listed)
            for each in group
        )
        if has_met:
            self._met.add(group)
        return has_met

    def _visible(
        self, key: ObjectKey, shown: Record | None, said: Substore, row: Row | None
    ) -> Record | None:
        """Return the record to show of a key, of which `shown` was shown before. `said` has reported
        something.
        """
        substores = self._could_hold(key)
        best: Record | None = None
        is_claimed = is_said = False
        for substore in substores:
            record = substore.view.held(key)
            if record is None or substore.epoch < self.epoch:
                continue
            is_claimed = is_claimed or record is shown
            if best is None or supersedes(record, best, said=substore is said):
                best, is_said = record, substore is said
        is_over = row is None or self._has_departed(key, row, substores)
        if row is not None and is_over:
            del self._rows[key]
        if best is None:
            found = None if is_over else shown
        elif shown is None or supersedes(best, shown, said=is_said):
            found = best
        elif is_claimed:
            found = shown
        elif best.version == shown.version or (is_over and not is_older(best.version, shown.version)):
            found = best
        else:
            found = shown  # All claims are from before it.
        if found is None or found is best or is_claimed:
            if self.unconfirmed:
                self.unconfirmed.pop(key, None)
            return found
        if best is not None:
            self._miss(
                substore
                for substore in substores
                if (record := substore.view.held(key)) is not None
                and is_older(record.version, found.version)
                and not is_newer(found.version, substore.version)
            )
        row = self._rows.setdefault(key, Row(found.version))
        if self.unconfirmed.get(key) is not row:
            self.unconfirmed[key] = row
        return found

    def _has_departed(self, key: ObjectKey, row: Row, substores: Sequence[Substore]) -> bool:
        """Return True if no substore can still report an object that none holds: all have reached its
        departure, and the lists of each other.
        """
        awaited = newest_of([row.left, self._newest_list(substores)])
        for substore in substores:
            if key in substore.vague:
                return False
            if substore.epoch < self.epoch or is_newer(awaited, substore.version):
                substore.wait_for(awaited, key)
                return False
        return True

    def _miss(self, substores: Iterable[Substore]) -> None:
        """Mark substores to be relisted: they are past a change that the server did not send to them."""
        for substore in substores:
            self._met.clear()
            substore.has_missed = True
            self._outdated.setdefault(substore, MetricReason.MISSED)
