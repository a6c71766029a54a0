"""Union: several streams feed one store. An object is visible while any stream holds it, and stays visible
while it moves between streams.

Theory of operation
-------------------
The filter of a kind is the OR of several streams, its *substores*. Each substore has a *view*: the records of
this stream, by the rules of `core.store.store`. Readers see the *union* of the views: the newest record of
each object. Substores are not equally fast, so three rules keep the union correct:

1. A leave at version r proves only that the substore does not hold the object any more. The object is shown
   until every substore that could hold its key has *reached* r: its version is r or newer. A substore that
   does not hold the object then did not hold it at r.
2. An object that is shown although no substore holds it is an *unconfirmed leave*. A quiet substore would
   keep it visible until its next bookmark. So it is compared with a list of the server, and *jumps* to the
   version of the list once it holds the same (`core.store.probe`).
3. The visible record of a key never gets older, whichever substore reports it, unless the server was
   restored, which starts a new *epoch*. A substore is in the epoch of its last complete list, and records of
   the current epoch supersede those of older ones. A substore that is past a change and holds the state
   before it has *missed* the change, and must be relisted.

Every event ends in a call of `_settled` for the keys that it concerns. The visible record of a key follows
from the views and its pending leave alone, so it does not depend on the order in which substores report. With
one substore, readers use its view directly, and none of this has a cost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from kopf_selectcache.core.reasons import MetricReason

from .changes import Change, ChangeCause, replaced
from .record import ObjectKey, Record, is_newer, is_older, rank_of
from .siblings import Tally
from .store import Readable, Store
from .substore import (
    Keys,
    Left,
    Section,
    Substore,
    UnionView,
    View,
    disproved_by,
    first_behind,
    first_of,
    groups_of,
    least,
    seen_of,
    supersedes,
)
from .unconfirmed import UnconfirmedLeave, UnconfirmedLeaves

_T = TypeVar("_T")


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
    ) -> None:
        """`version` is the one as of which a union without substores holds nothing."""
        self.tally = tally
        """The memory accounting of all stores, if there is any."""
        self._request_index = request_index
        self._arrange(
            tuple(Substore(keys, request_index=request_index, tally=tally, epoch=epoch) for keys in substores)
        )
        self._alone = len(self.substores) == 1
        self._union = UnionView(len(self._groups), request_index=request_index, tally=tally, version=version)
        self._shown: View = self.substores[0].view if self._alone else self._union
        self.epoch = epoch
        """The number of times that the server was seen to be restored."""
        self._listed: set[Substore] = set()
        """Substores whose last list is not reached yet by another substore that could hold the same keys."""
        self._outdated: dict[Substore, MetricReason] = {}
        self._left: dict[ObjectKey, Left] = {}
        self._unconfirmed = UnconfirmedLeaves()
        self._unclear: set[ObjectKey] = set()
        """Keys of visible objects that left at an unknown version."""
        self._leaving: dict[ObjectKey, Record] = {}
        """Visible objects as the events of their leaves have them."""

    # ---- Another filter (`core.store.swap`).

    def take_over(self, before: Union, kept: Mapping[Substore, Substore]) -> None:
        """Take over whole groups of another union. `kept` maps their substores to those of this one, which
        are empty.
        """
        for old, new in kept.items():
            new.take_over(old)
        if self._alone:
            return
        mine = frozenset(kept.values())

        def taken(each: Mapping[ObjectKey, _T]) -> dict[ObjectKey, _T]:
            return {key: value for key, value in each.items() if not mine.isdisjoint(self._could_hold(key))}

        self._left |= taken(before._left)
        self._leaving |= taken(before._leaving)
        self._unclear.update(taken(dict.fromkeys(before._unclear)))
        for key, leave in taken(before._unconfirmed).items():
            self._unconfirmed[key] = leave
        self._listed |= {new for old, new in kept.items() if old in before._listed}
        shown = taken({record.key: record for record in before.store.all_records()[0]})
        self._union.show(
            [Change(None, record, ChangeCause.ENTERED) for record in shown.values()],
            {self._group_of[new]: before.version_of([old]) for old, new in kept.items()},
        )

    @property
    def has_one_epoch(self) -> bool:
        """True unless some streams have not been listed since the server was restored."""
        return all(substore.epoch == self.epoch for substore in self.substores)

    def version_of(self, substores: Iterable[Substore]) -> str:
        """Return the version of the groups of these substores; empty until all of them are listed."""
        if self._alone:
            return self._shown.version
        return self._union.version_of({self._group_of[each] for each in substores})

    def unreached_list(self, substore: Substore) -> str:
        """Return the version of the newest list of another substore that this one has not reached; empty if
        there is none. An object may have moved between them unseen.
        """
        return max((each.listed for each in self._listed if substore.lacks(each)), key=rank_of, default="")

    def _arrange(self, substores: tuple[Substore, ...]) -> None:
        """Compute the groups of substores that could hold the same keys."""
        self.substores: tuple[Substore, ...] = substores
        spaces = {substore.keys.namespace for substore in substores}
        self._near = {
            space: tuple(substore for substore in substores if substore.keys.namespace in (None, space))
            for space in spaces
        }
        self._by_key = not all(substore.keys.are_of_path for substore in substores)
        self._groups = groups_of(substores)
        """Substores of different groups never hold the same keys, so each group has its own version."""
        self._group_of = {substore: index for index, group in enumerate(self._groups) for substore in group}

    @property
    def groups(self) -> tuple[frozenset[Substore], ...]:
        """The groups of substores that could hold the same keys."""
        return self._groups

    @property
    def store(self) -> View:
        """The store that readers see. Its version is the oldest of all substores, and empty until each has
        had a complete list.
        """
        return self._shown

    def shown(self, key: ObjectKey) -> Record | None:
        """Return the visible record of a key, inside of the filter."""
        return self._shown.inside(key)

    def needed(self, substores: Collection[Substore]) -> Readable:
        """Return the part of the store for a read whose answer only these substores could hold.

        For one substore this is its view: an object that leaves the substore does not belong to the answer.
        For several, it has the oldest version of all of their groups.
        """
        if len(substores) == 1:
            (substore,) = substores
            return substore.view
        groups = [index for index, group in enumerate(self._groups) if not group.isdisjoint(substores)]
        return self._shown if len(groups) == len(self._groups) else Section(self._union, groups)

    def near(self, substores: Iterable[Substore]) -> Collection[Substore]:
        """Return all substores of the groups of these. Answers from several substores wait for all."""
        return frozenset().union(*(group for group in self._groups if not group.isdisjoint(substores)))

    @property
    def stores(self) -> tuple[Store, ...]:
        """All stores that readers may use: the union and the view of each substore."""
        return (
            (self._shown,) if self._alone else (self._union, *(substore.view for substore in self.substores))
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
    def is_alone(self) -> bool:
        """True if there has been one substore only: no leave is unconfirmed, and no substore is outdated."""
        return self._alone

    @property
    def unconfirmed(self) -> tuple[UnconfirmedLeave, ...]:
        """The unconfirmed leaves. Empty with one substore."""
        return tuple(self._unconfirmed.values())

    @property
    def awaits_streams(self) -> bool:
        """True if an unconfirmed leave, or the first answer, waits until streams are at one version."""
        is_unanswered = not self._union.version and any(map(self._is_listed, self._groups))
        return is_unanswered or bool(self._unconfirmed)

    def _is_listed(self, group: frozenset[Substore]) -> bool:
        """Return True if each stream of a group was listed, and they have yet to reach each other."""
        return not self.version_of(group) and all(each.version for each in group)

    @property
    def awaited(self) -> dict[Substore, str]:
        """The substores that unconfirmed leaves and first answers wait for, and the version that each must
        reach: the newest one that a substore near it has. It is empty if only a list of the present state can
        show that.
        """
        found: dict[Substore, str] = {}
        holding = {each for key in self._unconfirmed for each in self._could_hold(key)}
        for group in self._groups:
            if self._is_listed(group):
                holding |= group
            following = [
                each for each in self.substores if each in group and each.version and each.epoch == self.epoch
            ]
            versions = [version for each in following for version in (each.version, each.listed)]
            newest = max(versions, key=rank_of, default="")
            for each in following:
                if each.vague or (is_older(each.version, newest) and each in holding):
                    found[each] = "" if each.vague else newest
        return found

    @property
    def oldest_unconfirmed(self) -> UnconfirmedLeave | None:
        """The unconfirmed leave that was the first. One since an unknown version comes before all others."""
        return self._unconfirmed.oldest()

    def has_unconfirmed_up_to(self, version: str, *, besides: ObjectKey) -> bool:
        """Return True if another object than `besides` may have left up to this version, unconfirmed."""
        oldest = self._unconfirmed.oldest()
        if oldest is None or is_newer(oldest.since or version, version):  # All others are newer.
            return False
        return any(
            key != besides and not is_newer(leave.since or version, version)
            for key, leave in self._unconfirmed.items()
        )

    def is_unconfirmed(self, key: ObjectKey) -> bool:
        """Return True if the object is shown although a stream reported its leave, and nothing newer is
        known.
        """
        left, shown = self._left.get(key), self._shown.held(key)
        return (
            key in self._unconfirmed
            or key in self._unclear
            or (left is not None and shown is not None and is_newer(left.version, shown.version))
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
        if self._alone:
            return substore.view.put(record)
        if substore.keys.others and substore.keys.is_other(record):
            return self.leave(substore, record)  # It has left for another stream, if it was in this one.
        shown = self._shown.held(record.key)
        if shown is not None and shown.is_same(record):
            record = shown  # Substores share the record of an object.
        return self._settled([record.key], said=substore) if substore.view.put(record) else []

    def leave(self, substore: Substore, record: Record) -> list[Change]:
        key = record.key
        if not substore.holds_all and not substore.keys.have(key):
            return []
        changes = substore.view.leave(record)
        if self._alone or not changes:
            return changes
        self._leaving[key] = record
        if is_newer(record.version, substore.version):
            # An event at a version implies that all earlier events have arrived.
            self._leaves(key, record.version, since=record.version)
            return self._settled([key, *self._reach(substore, record.version)], said=substore)
        # Some servers send a deletion with the version of the deleted object. The next event gives an upper
        # bound of the version of the deletion.
        if any(other is not substore for other in self._could_hold(key)):
            substore.vague.add(key)
            self._unclear.add(key)
        return self._settled([key], said=substore)

    def commit(self, substore: Substore, version: str, *, restored: bool = False) -> list[Change]:
        """Show the staged generation; `restored` says that the server's versions have gone back."""
        first = not (
            self._left
            or any(view.holds_any for view in (self._shown, *(each.view for each in self.substores)))
        )
        changes = substore.view.commit(version)
        substore.listed = version
        if self._alone:
            self.epoch = substore.epoch = self.epoch + restored
            return changes
        self._listed.add(substore)
        if first and not restored and not substore.epoch < self.epoch:
            return self._show(changes, [self._group_of[substore]])  # Nothing to compare with.
        keys = dict.fromkeys(change.key for change in changes)
        # A server may be restored with higher versions. Then only its objects prove it.
        anew = disproved_by(substore, self._shown) if not restored else set()
        if (restored or anew) and substore.epoch == self.epoch:
            anew |= self._begin_epoch(substore, higher=not restored)
        if restored or substore.epoch < self.epoch:
            substore.epoch = self.epoch
            anew |= keys.keys()
            # Records of the former epoch may be valid again, without a change of the view.
            keys |= dict.fromkeys(record.key for record in substore.view.records()[0])
        left = [change.key for change in changes if change.after is None]
        # A list does not show objects that entered and left before it. An object with a pending leave may
        # have done so.
        passing = set(self._left).union(*(other.vague for other in self.substores))
        left += [key for key in passing if substore.keys.have(key) and substore.view.held(key) is None]
        for key in left:
            self._leaves(key, version, lost=key in anew)
        return self._settled(
            [*keys, *anew, *self._reach(substore, version)],
            said=substore,
            anew=anew,
            groups=range(len(self._groups)),
        )

    def progress(self, substore: Substore, version: str) -> list[Change]:
        if self._alone:
            substore.view.progress(version)
            return []
        return self._settled(self._reach(substore, version), said=substore)

    def jump(self, substore: Substore, version: str) -> list[Change]:
        """Note that a substore holds what a list as of a newer version has. What happened before is unknown
        to it, as after that list.
        """
        substore.listed = version
        if self._alone:
            return self.progress(substore, version)
        self._listed.add(substore)
        for key, left in list(self._left.items()):
            if substore.keys.have(key) and substore.view.held(key) is None:
                self._leaves(key, version, lost=left.lost, since=left.since)
        return self._settled(self._reach(substore, version), said=substore)

    def _begin_epoch(self, first: Substore, *, higher: bool) -> set[ObjectKey]:
        """Start a new epoch, because the list of the first substore shows that the server was restored;
        return the keys of visible objects with a pending leave.
        """
        self.epoch += 1
        self._outdated = {
            substore: MetricReason.RESTORED
            for substore in self.substores
            if substore is not first and substore.version
        }
        self._unclear.clear()
        orphans = {*self._left, *self._unconfirmed}
        for substore in self.substores:
            orphans |= substore.vague
            substore.wait_for_nothing()
            if not higher and not is_newer(substore.version, first.version):
                # The restored state includes everything that the substore has applied.
                substore.epoch = self.epoch
        for key in orphans:
            self._left[key] = Left(self.epoch, first.version, lost=True)
        return orphans

    def _leaves(self, key: ObjectKey, version: str, *, lost: bool = False, since: str = "") -> None:
        before = self._left.get(key) or Left(self.epoch, version, lost, since)
        lost, since = lost or before.lost, first_of(before.since, since)
        if not is_newer(version, before.version):
            version = before.version
        for substore in self._could_hold(key):
            if substore.epoch == self.epoch and is_older(version, substore.listed):
                version = substore.listed
        self._left[key] = Left(self.epoch, version, lost, since)

    def _reach(self, substore: Substore, version: str) -> list[ObjectKey]:
        """Advance a substore; return the keys that waited for it."""
        vague = list(substore.vague)
        for key in vague:
            self._leaves(key, version)
        substore.vague.clear()
        return [*vague, *substore.reach(version)]

    def _forget(self, key: ObjectKey) -> None:
        self._left.pop(key, None)
        self._unclear.discard(key)
        for substore in self._could_hold(key):
            substore.vague.discard(key)

    def departure_of(self, record: Record) -> Change:
        """Return the departure of an object that no stream holds inside of the filter."""
        if self._shown.has_outside(record):
            return Change(record, None, ChangeCause.LEFT, known_by="metadata")
        proofs = [substore.keys.proof for substore in self._could_hold(record.key)]
        proof = next((each for each in proofs if each is not None), None)
        return Change(record, None, ChangeCause.DELETED if proof else ChangeCause.LEFT, known_by=proof)

    # ---- The visible record of a key.

    def _could_hold(self, key: ObjectKey) -> tuple[Substore, ...]:
        near = self._near.get(key[0]) or self._near.get(None, ())
        return tuple(substore for substore in near if substore.keys.have(key)) if self._by_key else near

    def _settled(
        self,
        keys: Iterable[ObjectKey],
        *,
        said: Substore | None = None,
        anew: Collection[ObjectKey] = (),
        groups: Iterable[int] | None = None,
    ) -> list[Change]:
        """Evaluate keys and show the result in one step; return the changes. `groups` are those whose version
        may advance.
        """
        changes: list[Change] = []
        for key in dict.fromkeys(keys):
            before = self._shown.held(key)
            after = self._first(key) if before is None else None
            after = after or self._choice(key, before, said, anew=key in anew)
            last = self._leaving.pop(key, None) if self._leaving else None
            if after is before:
                if last is not None and self.is_unconfirmed(key):
                    self._leaving[key] = last
                continue
            if after is None:
                assert before is not None, "it was not shown before either"
                left = self.departure_of(before)
                changes.append(left if last is None or last.uid != before.uid else replace(left, last=last))
                continue
            if before is not None and before.uid != after.uid:
                changes.append(replaced(before))
                before = None
            changes.append(
                Change(before, after, ChangeCause.UPDATED if before is not None else ChangeCause.ENTERED)
            )
        if groups is None:
            groups = range(len(self._groups)) if said is None else [self._group_of[said]]
        return self._show(changes, groups)

    def _show(self, changes: list[Change], groups: Iterable[int]) -> list[Change]:
        self._listed = {substore for substore in self._listed if self._is_ahead(substore)}
        self._union.show(
            changes,
            {index: self._version(self._groups[index], self._union.versions[index]) for index in groups},
        )
        return seen_of(changes)

    def _version(self, group: frozenset[Substore], before: str) -> str:
        """Return the version of a group: the oldest of its substores, unless it must not advance.

        It does not advance while a substore has not reached the list of another: an object may have moved
        between them unseen. It does not advance while an object is shown that left at an unknown version,
        nor before all substores are in the current epoch, because lost objects may still be shown.
        """
        if (
            not self._listed.isdisjoint(group)
            or any(substore.epoch < self.epoch for substore in group)
            or any(not group.isdisjoint(self._could_hold(key)) for key in self._unclear)
        ):
            return before
        return least(substore.version for substore in group)

    def _first(self, key: ObjectKey) -> Record | None:
        """Return the record of a key without a visible record, if exactly one substore has one and no leave
        is pending. A shortcut of `_choice`.
        """
        records = [
            record for substore in self._could_hold(key) if (record := substore.view.held(key)) is not None
        ]
        return records[0] if len(records) == 1 and key not in self._left else None

    def _is_ahead(self, listed: Substore) -> bool:
        return listed.epoch == self.epoch and any(substore.lacks(listed) for substore in self.substores)

    def _choice(
        self, key: ObjectKey, shown: Record | None, said: Substore | None, *, anew: bool
    ) -> Record | None:
        """Return the record to show of a key. `anew` says that the visible one may be of an older epoch."""
        substores = self._could_hold(key)
        self._unconfirmed.pop(key, None)
        left = self._awaited(key, substores)
        vague = any(key in substore.vague for substore in substores)
        if left is None and not vague:
            self._unclear.discard(key)
        best: Record | None = None
        best_epoch = shown_epoch = -1
        for substore in substores:
            record = substore.view.held(key)
            if record is None or (left is not None and substore.epoch < left.epoch):
                continue
            if record is shown:
                shown_epoch = substore.epoch
            if (
                best is None
                or substore.epoch > best_epoch
                or (substore.epoch == best_epoch and supersedes(record, best, said=substore is said))
            ):
                best, best_epoch = record, substore.epoch
        if best is None:
            if shown is None or (left is None and not vague):
                self._forget(key)
                return None
            at, since = (left.version, left.since) if left is not None and not vague else ("", "")
            self._unconfirmed[key] = UnconfirmedLeave(*key, shown.uid, at, self.epoch, since)
            return shown
        if shown is not None:
            orphan = shown_epoch < 0
            if orphan and not anew and not (left is not None and left.lost):
                shown_epoch = self.epoch
            newer = best_epoch > shown_epoch or (
                best_epoch == shown_epoch
                and supersedes(best, shown, said=said is not None and said.view.held(key) is best)
            )
            # An object that no substore holds and that all substores are past does not exist, even if
            # versions are equal or cannot be compared.
            if not newer and not (orphan and left is None and not vague):
                return shown
            if (
                not newer
                and not anew
                and best_epoch == shown_epoch
                and is_older(best.version, shown.version)
                and (
                    past := [
                        substore
                        for substore in substores
                        if substore.view.held(key) is best and not is_newer(shown.version, substore.version)
                    ]
                )
            ):
                # The substore is past the visible version and holds an older one, so it missed the change.
                # Objects never go back, so the substore is relisted.
                # If no substore is past it, the visible record is from before a restore.
                self._miss(past)
                self._unclear.add(key)
                self._unconfirmed[key] = UnconfirmedLeave(*key, shown.uid, shown.version, self.epoch)
                return shown
        if left is not None:
            self._left[key] = left._replace(lost=False)
        return best

    def _awaited(self, key: ObjectKey, substores: Iterable[Substore]) -> Left | None:
        """Return the pending leave of a key: some substore has not reached it yet."""
        left = self._left.get(key)
        behind = first_behind(left, substores) if left is not None else None
        if left is None or behind is None:
            self._left.pop(key, None)
            return None
        behind.wait_for(left.version, key)
        return left

    def _miss(self, substores: Iterable[Substore]) -> None:
        """Mark substores to be relisted: they are past a change that the server did not send to them."""
        self._outdated |= {
            substore: MetricReason.MISSED for substore in substores if substore not in self._outdated
        }
