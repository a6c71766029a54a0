"""Union: several streams feed one store. An object is visible while any stream holds it, and stays visible
while it moves between streams.

Theory of operation
-------------------
The filter of a kind is the OR of several streams, its *branches*. Each branch has a *view*: the records of
this stream, by the rules of `core.store.store`. Readers see the *union* of the views: the newest record of
each object. Branches are not equally fast, so three rules keep the union correct:

1. A leave at version r proves only that the branch does not hold the object any more. The object is shown
   until every branch that could hold its key has *reached* r: its version is r or newer. A branch that does
   not hold the object then did not hold it at r.
2. A branch that is slow, or always refused, would keep the object visible for ever. So an object that is
   shown although no branch holds it is an *unconfirmed leave*, and one read from the server settles it:
   `confirmed`. Records of branches that are behind this read are older than its answer and are not shown.
3. The visible record of a key never gets older, whichever branch reports it, unless the server was restored,
   which starts a new *epoch*. A branch is in the epoch of its last complete list, and records of the current
   epoch supersede those of older ones. A branch that is past a change and holds the state before it has
   *missed* the change, and must be relisted.

Every event ends in a call of `_settled` for the keys that it concerns. The visible record of a key follows
from the views, its pending leave and its confirming read alone, so it does not depend on the order in which
branches report. With one branch, readers use its view directly, and none of this has a cost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from .accounting import Tally
from .record import Record, is_newer, is_older
from .store import Cause, Change, Readable, Store
from .substore import (
    SPARE,
    Branch,
    Key,
    Keys,
    Left,
    Read,
    Section,
    UnionView,
    View,
    first_behind,
    groups_of,
    is_denied,
    key_of,
    least,
    supersedes,
)
from .unconfirmed import Doubt, Doubts, JoinedLists, lists_of

Outdated: TypeAlias = Literal["restored", "behind", "missed"]
"""The reason to relist a branch: the server was restored, or the branch is too far behind, or it missed a
change."""


class Union:
    """The branches of one filter, and the store that readers see. The writer is one task."""

    def __init__(
        self,
        branches: Sequence[Keys] = (Keys(),),
        *,
        request_index: Callable[[], None] = lambda: None,
        tally: Tally | None = None,
    ) -> None:
        self.tally = tally
        """The memory accounting of all stores, if there is any."""
        self._request_index = request_index
        self._arrange(tuple(Branch(keys, request_index=request_index, tally=tally) for keys in branches))
        self._alone = len(self.branches) == 1
        self._union = UnionView(len(self._groups), request_index=request_index, tally=tally)
        self._shown: View = self.branches[0].view if self._alone else self._union
        self._epoch = 0
        self._listed: set[Branch] = set()
        """Branches whose last list is not reached yet by another branch that could hold the same keys."""
        self._outdated: dict[Branch, Outdated] = {}
        self._left: dict[Key, Left] = {}
        self._reads: dict[Key, Read] = {}
        self._most_reads = SPARE
        self._doubts = Doubts()
        self._unclear: set[Key] = set()
        """Keys of visible objects that left at an unknown version."""

    # ---- Addition and removal of streams.

    def admit(self, keys: Keys) -> Branch:
        """Add a stream; return its substore. The keys that it could hold cannot be read before its first
        list is complete.

        `store` is a new one afterwards. The former one is not changed, for the reads that still use it.
        """
        branch = Branch(keys, request_index=self._request_index, tally=self.tally)
        branch.epoch = self._epoch
        self._rearrange((*self.branches, branch))
        return branch

    def retire(self, branch: Branch) -> list[Change]:
        """Remove a stream and return the changes. Its objects leave at its version: those that other streams
        could hold are shown until these have reached it.

        `store` is a new one afterwards, as with `admit`. The last stream cannot be removed.
        """
        others = tuple(each for each in self.branches if each is not branch)
        assert others, "the last stream of a union cannot be removed"
        left = dict.fromkeys(branch.vague, branch.version)
        for record in branch.view.records()[0]:
            left[record.key] = record.version if is_newer(record.version, branch.version) else branch.version
        waiting = {key for key in {*self._left, *self._reads, *self._doubts} if branch.keys.have(key)}
        self._rearrange(others)
        self._listed.discard(branch)
        self._outdated.pop(branch, None)
        branch.view.release()
        for key, version in left.items():
            self._leaves(key, version)
        return self._settled([*left, *waiting, *self._unclear], groups=range(len(self._groups)))

    def _rearrange(self, branches: tuple[Branch, ...]) -> None:
        """Replace the branches, and copy the visible records into a new store."""
        before, versions = self._shown, dict[Branch, str]()
        for branch in self.branches:
            group = self._group_of[branch]
            versions[branch] = before.version if self._alone else self._union.versions[group]
        self._arrange(branches)
        self._union = UnionView(len(self._groups), request_index=self._request_index, tally=self.tally)
        self._union.copy(before, [least(versions.get(each, "") for each in group) for group in self._groups])
        if not self._alone:
            before.release()
        self._alone, self._shown = False, self._union

    def _arrange(self, branches: tuple[Branch, ...]) -> None:
        """Compute the groups of branches that could hold the same keys."""
        self.branches: tuple[Branch, ...] = branches
        spaces = {branch.keys.namespace for branch in branches}
        self._near = {
            space: tuple(branch for branch in branches if branch.keys.namespace in (None, space))
            for space in spaces
        }
        self._by_name = any(branch.keys.names is not None for branch in branches)
        self._groups = groups_of(branches)
        """Branches of different groups never hold the same keys, so each group has its own version."""
        self._group_of = {branch: index for index, group in enumerate(self._groups) for branch in group}

    @property
    def store(self) -> Store:
        """The store that readers see. Its version is the oldest of all branches, and empty until each has
        had a complete list.
        """
        return self._shown

    def needed(self, branches: Collection[Branch]) -> Readable:
        """Return the part of the store for a read whose answer only these branches could hold.

        For one branch this is its view: an object that leaves the branch does not belong to the answer. For
        several, it has the oldest version of all of their groups.
        """
        if len(branches) == 1:
            (branch,) = branches
            return branch.view
        groups = [index for index, group in enumerate(self._groups) if not group.isdisjoint(branches)]
        return self._shown if len(groups) == len(self._groups) else Section(self._union, groups)

    def near(self, branches: Iterable[Branch]) -> Collection[Branch]:
        """Return all branches of the groups of these branches. Answers from several branches wait for all."""
        return frozenset().union(*(group for group in self._groups if not group.isdisjoint(branches)))

    @property
    def stores(self) -> tuple[Store, ...]:
        """All stores that readers may use: the union and the view of each branch."""
        return (self._shown,) if self._alone else (self._union, *(branch.view for branch in self.branches))

    def build(self, most: int) -> bool:
        """Add `most` entries to a requested index; return True if there may be more to do."""
        return any(store.build(most) for store in self.stores)

    def newest(self) -> list[Record]:
        """Return the records of all branches without duplicates; of each branch the larger one of the current
        and the staged generation.
        """
        return list(
            dict.fromkeys(
                record
                for branch in self.branches
                for record in max(branch.view.records()[0], branch.view.writing(), key=len)
            )
        )

    def writing(self) -> list[Record]:
        """Return the records that all branches write. A record of several branches is repeated."""
        return [record for branch in self.branches for record in branch.view.writing()]

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """The unconfirmed leaves, each of which one read from the server settles. Empty with one branch."""
        return tuple(self._doubts.values())

    @property
    def oldest_doubt(self) -> Doubt | None:
        """The unconfirmed leave with the oldest version. An unknown version comes first."""
        return self._doubts.oldest()

    def has_doubts_before(self, version: str, *, besides: Key) -> bool:
        """Return True if another object than `besides` has an unconfirmed leave that is not newer than the
        version.
        """
        oldest = self._doubts.oldest()
        if oldest is None or is_newer(oldest.version or version, version):
            return False  # All others are newer.
        return any(
            key != besides and (not doubt.version or not is_newer(doubt.version, version))
            for key, doubt in self._doubts.items()
        )

    def is_in_doubt(self, doubt: Doubt) -> bool:
        """Return True if the leave is still unconfirmed."""
        found = self._doubts.get((doubt.namespace, doubt.name))
        # A second leave at an unknown version needs a read of its own.
        return found == doubt and (found is doubt or doubt.version != "")

    def is_unconfirmed(self, key: Key) -> bool:
        """Return True if the object is shown although a stream reported its leave, and nothing newer is
        known.
        """
        left, shown = self._left.get(key), self._shown.held(key)
        return (
            key in self._doubts
            or key in self._unclear
            or (left is not None and shown is not None and is_newer(left.version, shown.version))
        )

    def confirmed(self, doubt: Doubt, *, version: str, uid: str = "", outside: bool = False) -> list[Change]:
        """Apply the server's answer as of a version: the uid of the object of that name, empty if there is
        none.

        `outside` says that its metadata excludes it from every branch. If it does not, and the uid is the
        same, the answer settles nothing: read again later, while the leave is unconfirmed.
        """
        return self._settled(
            [doubt.key] if self._confirm(doubt, version, uid, outside=outside) else [], gone=uid != doubt.uid
        )

    def joined_lists(self) -> list[JoinedLists]:
        """Return the lists of metadata that settle many unconfirmed leaves at once, for each group that has
        unconfirmed leaves.
        """
        branches = {doubt: self._could_hold(doubt.key) for doubt in self._doubts.values()}
        found = [lists_of(group, self.branches, branches, self._epoch) for group in self._groups]
        return [lists for lists in found if lists is not None]

    def confirmed_by_lists(self, lists: JoinedLists, uids: Mapping[Key, str]) -> list[Change]:
        """Apply complete joined lists: the uids of their objects. Later leaves stay unconfirmed."""
        return self._settled(
            [
                doubt.key
                for doubt in lists.doubts
                if self._confirm(doubt, lists.version, uids.get(doubt.key, ""), outside=False)
            ]
        )

    def _confirm(self, doubt: Doubt, version: str, uid: str, *, outside: bool) -> bool:
        """Store the server's answer; return False if it settles nothing."""
        key = doubt.key
        undecided = uid == doubt.uid and not outside
        left = self._left.get(key)
        if uid and not outside and left is not None and left.lost:
            # The server was restored, and there is another object of the name: its absence is not proved.
            undecided = True
        if undecided or not self.is_in_doubt(doubt) or is_older(version, doubt.version):
            return False  # It was settled meanwhile, or a lagging server has answered.
        self._forget(key)
        for branch in self.branches:
            branch.wait_no_more([key])
        self._reads[key] = Read(self._epoch, version, "" if outside else uid)
        if len(self._reads) > self._most_reads and all(
            branch.view.stages_nothing for branch in self.branches
        ):
            self._catch_up()  # Not while a list is in progress, which may be older than the reads.
        return True

    def take_outdated(self) -> dict[Branch, Outdated]:
        """Return and clear the branches to relist, with the reason of each."""
        outdated, self._outdated = self._outdated, {}
        return outdated

    # ---- Reports of branches. Each method returns the changes that readers see.

    def begin(self, branch: Branch) -> None:
        """Start to stage a new generation of a branch."""
        branch.view.begin()

    def abandon(self, branch: Branch) -> None:
        """Discard the staged generation of a branch."""
        branch.view.abandon()

    def put(self, branch: Branch, record: Record) -> list[Change]:
        # The selector of a watch may be wider than the branch.
        if not branch.holds_all and not branch.keys.have(record.key):
            return []
        if self._alone:
            return branch.view.put(record)
        shown = self._shown.held(record.key)
        if shown is not None and shown.is_same(record):
            record = shown  # Branches share the record of an object.
        return self._settled([record.key], said=branch) if branch.view.put(record) else []

    def leave(self, branch: Branch, record: Record) -> list[Change]:
        key = record.key
        if not branch.holds_all and not branch.keys.have(key):
            return []
        changes = branch.view.leave(record)
        if self._alone or not changes:
            return changes
        if is_newer(record.version, branch.version):
            # An event at a version implies that all earlier events have arrived.
            self._leaves(key, record.version)
            return self._settled([key, *self._reach(branch, record.version)], said=branch)
        # Some servers send a deletion with the version of the deleted object. The next event gives an upper
        # bound of the version of the deletion.
        if any(other is not branch for other in self._could_hold(key)):
            branch.vague.add(key)
            self._unclear.add(key)
        return self._settled([key], said=branch)

    def commit(self, branch: Branch, version: str, *, restored: bool = False) -> list[Change]:
        """Show the staged generation; `restored` says that the server's versions have gone back."""
        first = not (
            self._left
            or self._reads
            or any(view.holds_any for view in (self._shown, *(each.view for each in self.branches)))
        )
        changes = branch.view.commit(version)
        branch.listed = version
        if self._alone:
            return changes
        self._listed.add(branch)
        if first and not restored and not branch.epoch < self._epoch:
            return self._show(changes, [self._group_of[branch]])  # There is nothing to compare with.
        keys = dict.fromkeys(map(key_of, changes))
        # A server may be restored with higher versions. Then only its objects prove it.
        anew = self._disproved(branch) if not restored else set()
        if (restored or anew) and branch.epoch == self._epoch:
            reads = tuple(self._reads)
            anew |= self._begin_epoch(branch, higher=not restored)
            # An object that a read of the old epoch excluded exists if a branch of the new epoch holds it.
            keys |= dict.fromkeys(
                key
                for key in reads
                if any(
                    other.epoch == self._epoch and other.view.held(key) is not None
                    for other in self._could_hold(key)
                )
            )
        if restored or branch.epoch < self._epoch:
            branch.epoch = self._epoch
            anew |= keys.keys()
            # Records that a read excluded may be valid again, without a change of the view.
            keys |= dict.fromkeys(record.key for record in branch.view.records()[0])
        left = [key_of(change) for change in changes if change.after is None]
        # A list does not show objects that entered and left before it. An object with a pending leave may
        # have done so.
        passing = set(self._left).union(*(other.vague for other in self.branches))
        left += [key for key in passing if branch.keys.have(key) and branch.view.held(key) is None]
        for key in left:
            self._leaves(key, version, lost=key in anew)
        return self._settled(
            [*keys, *anew, *self._reach(branch, version)],
            said=branch,
            anew=anew,
            groups=range(len(self._groups)),
        )

    def progress(self, branch: Branch, version: str) -> list[Change]:
        if self._alone:
            branch.view.progress(version)
            return []
        return self._settled(self._reach(branch, version), said=branch)

    def _disproved(self, branch: Branch) -> set[Key]:
        """Return the keys whose visible record contradicts the list of the branch: the list is past it, and
        has an older version or another uid.
        """
        listed = ((record, self._shown.held(record.key)) for record in branch.view.records()[0])
        return {
            record.key
            for record, shown in listed
            if shown is not None
            and shown is not record
            and not is_newer(shown.version, branch.version)
            and (
                is_older(record.version, shown.version)
                or (record.version == shown.version and record.uid != shown.uid)
            )
        }

    def _begin_epoch(self, first: Branch, *, higher: bool) -> set[Key]:
        """Start a new epoch, because the list of the first branch shows that the server was restored; return
        the keys of visible objects with a pending leave.
        """
        self._epoch += 1
        self._outdated = {
            branch: "restored" for branch in self.branches if branch is not first and branch.version
        }
        self._reads.clear()
        self._unclear.clear()
        orphans = {*self._left, *self._doubts}
        for branch in self.branches:
            orphans |= branch.vague
            branch.wait_for_nothing()
            if not higher and not is_newer(branch.version, first.version):
                # The restored state includes everything that the branch has applied.
                branch.epoch = self._epoch
        for key in orphans:
            self._left[key] = Left(self._epoch, first.version, lost=True)
        return orphans

    def _leaves(self, key: Key, version: str, *, lost: bool = False) -> None:
        before = self._left.get(key)
        lost = lost or (before is not None and before.lost)
        if before is not None and not is_newer(version, before.version):
            version = before.version
        for branch in self._could_hold(key):
            if branch.epoch == self._epoch and is_older(version, branch.listed):
                version = branch.listed
        self._left[key] = Left(self._epoch, version, lost)

    def _reach(self, branch: Branch, version: str) -> list[Key]:
        """Advance a branch; return the keys that waited for it."""
        vague = list(branch.vague)
        for key in vague:
            self._leaves(key, version)
        branch.vague.clear()
        return [*vague, *branch.reach(version)]

    def _catch_up(self) -> None:
        """Relist the branches that are behind, to bound the number of remembered reads."""
        behind = [
            branch for branch in self.branches if any(branch.lags(read) for read in self._reads.values())
        ]
        self._outdated = {
            branch: self._outdated.get(branch, "behind")
            for branch in self.branches
            if branch in behind or branch in self._outdated
        }
        # A read is still needed if a branch holds a record of its key.
        over = [key for key in self._reads if all(branch.view.held(key) is None for branch in self.branches)]
        for key in over:
            del self._reads[key]
        for branch in behind:
            branch.wait_no_more(key for key in over if key not in self._left)
        self._most_reads = len(self._reads) + SPARE

    def _forget(self, key: Key) -> None:
        self._left.pop(key, None)
        self._unclear.discard(key)
        for branch in self._could_hold(key):
            branch.vague.discard(key)

    # ---- The visible record of a key.

    def _could_hold(self, key: Key) -> tuple[Branch, ...]:
        near = self._near.get(key[0]) or self._near.get(None, ())
        return tuple(branch for branch in near if branch.keys.have(key)) if self._by_name else near

    def _settled(
        self,
        keys: Iterable[Key],
        *,
        said: Branch | None = None,
        anew: Collection[Key] = (),
        groups: Iterable[int] | None = None,
        gone: bool = False,
    ) -> list[Change]:
        """Evaluate keys and show the result in one step; return the changes. `groups` are those whose version
        may advance. With `gone`, the server has confirmed that departing objects do not exist.
        """
        changes: list[Change] = []
        for key in dict.fromkeys(keys):
            before = self._shown.held(key)
            after = self._first(key) if before is None else None
            after = after or self._choice(key, before, said, anew=key in anew)
            if after is before:
                continue
            if after is None:
                gone_now = gone or any(branch.keys.complete for branch in self._could_hold(key))
                changes.append(Change(before, None, Cause.GONE if gone_now else Cause.LEFT))
                continue
            if before is not None and before.uid != after.uid:
                changes.append(Change(before, None, Cause.REPLACED))
                before = None
            changes.append(Change(before, after, Cause.UPDATED if before is not None else Cause.ENTERED))
        return self._show(
            changes,
            (
                groups
                if groups is not None
                else range(len(self._groups))
                if said is None
                else [self._group_of[said]]
            ),
        )

    def _show(self, changes: list[Change], groups: Iterable[int]) -> list[Change]:
        self._listed = {branch for branch in self._listed if self._is_ahead(branch)}
        self._union.show(
            changes,
            {index: self._version(self._groups[index], self._union.versions[index]) for index in groups},
        )
        return changes

    def _version(self, group: frozenset[Branch], before: str) -> str:
        """Return the version of a group: the oldest of its branches, unless it must not advance.

        It does not advance while a branch has not reached the list of another: an object may have moved
        between them unseen. It does not advance while an object is shown that left at an unknown version,
        nor before all branches are in the current epoch, because lost objects may still be shown.
        """
        if (
            not self._listed.isdisjoint(group)
            or any(branch.epoch < self._epoch for branch in group)
            or any(not group.isdisjoint(self._could_hold(key)) for key in self._unclear)
        ):
            return before
        return least(branch.version for branch in group)

    def _first(self, key: Key) -> Record | None:
        """Return the record of a key without a visible record, if exactly one branch has one and no leave or
        read is pending. A shortcut of `_choice`.
        """
        if key in self._left or key in self._reads:
            return None
        records = [
            record for branch in self._could_hold(key) if (record := branch.view.held(key)) is not None
        ]
        return records[0] if len(records) == 1 else None

    def _is_ahead(self, listed: Branch) -> bool:
        return any(
            branch.version == "" or branch.epoch < listed.epoch or is_older(branch.version, listed.listed)
            for branch in self.branches
            if listed.epoch == self._epoch and branch.keys.meet(listed.keys)
        )

    def _choice(self, key: Key, shown: Record | None, said: Branch | None, *, anew: bool) -> Record | None:
        """Return the record to show of a key. `anew` says that the visible one may be of an older epoch."""
        branches = self._could_hold(key)
        self._doubts.pop(key, None)
        left = self._awaited(key, branches)
        vague = any(key in branch.vague for branch in branches)
        if left is None and not vague:
            self._unclear.discard(key)
        read = self._still_true(key, branches)
        best: Record | None = None
        best_epoch = shown_epoch = -1
        for branch in branches:
            record = branch.view.held(key)
            if (
                record is None
                or (left is not None and branch.epoch < left.epoch)
                or (read is not None and is_denied(record, branch, read))
            ):
                continue
            if record is shown:
                shown_epoch = branch.epoch
            if (
                best is None
                or branch.epoch > best_epoch
                or (branch.epoch == best_epoch and supersedes(record, best, said=branch is said))
            ):
                best, best_epoch = record, branch.epoch
        if best is None:
            if shown is None or (left is None and not vague):
                self._forget(key)
                return None
            since = left.version if left is not None and not vague else ""
            self._doubts[key] = Doubt(*key, shown.uid, since, self._epoch)
            return shown
        if shown is not None:
            orphan = shown_epoch < 0
            if orphan and not anew and not (left is not None and left.lost):
                shown_epoch = self._epoch
            newer = best_epoch > shown_epoch or (
                best_epoch == shown_epoch
                and supersedes(best, shown, said=said is not None and said.view.held(key) is best)
            )
            # An object that no branch holds and that all branches are past does not exist, even if versions
            # are equal or cannot be compared.
            if not newer and not (orphan and left is None and not vague):
                return shown
            if (
                not newer
                and not anew
                and best_epoch == shown_epoch
                and is_older(best.version, shown.version)
                and (
                    past := [
                        branch
                        for branch in branches
                        if branch.view.held(key) is best and not is_newer(shown.version, branch.version)
                    ]
                )
            ):
                # The branch is past the visible version and holds an older one, so it missed the change.
                # Objects never go back, so the branch is relisted, or the object is read if it cannot be. If
                # no branch is past it, the visible record is from before a restore.
                self._miss(past)
                self._unclear.add(key)
                self._doubts[key] = Doubt(*key, shown.uid, shown.version, self._epoch)
                return shown
        if left is not None:
            self._left[key] = left._replace(lost=False)
        return best

    def _awaited(self, key: Key, branches: Iterable[Branch]) -> Left | None:
        """Return the pending leave of a key: some branch has not reached it yet."""
        left = self._left.get(key)
        behind = first_behind(left, branches) if left is not None else None
        if left is None or behind is None:
            self._left.pop(key, None)
            return None
        behind.wait_for(left.version, key)
        return left

    def _still_true(self, key: Key, branches: Iterable[Branch]) -> Read | None:
        """Return the confirming read of a key while some branch may still report an older state."""
        read = self._reads.get(key)
        if read is None:
            return None
        behind = next((branch for branch in branches if branch.lags(read)), None)
        missed = [
            branch
            for branch in branches
            if not branch.lags(read)
            and (record := branch.view.held(key)) is not None
            and is_denied(record, branch, read)
        ]
        if behind is None and not missed:
            del self._reads[key]
            return None
        for branch in (behind, *missed):
            if branch is not None:
                branch.wait_for(read.version, key)
        self._miss(missed)
        return read

    def _miss(self, branches: Iterable[Branch]) -> None:
        """Mark branches to be relisted: they are past a change that the server did not send to them."""
        self._outdated |= {branch: "missed" for branch in branches if branch not in self._outdated}
