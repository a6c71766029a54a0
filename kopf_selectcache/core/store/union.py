"""Several streams feed one store: an object is held while any stream holds it, and never absent while it
moves between them.

Theory of operation ------------------- An OR is kept by several lists and watches, its *branches*. Each has a
*view*: what it alone would hold, by the rules of `core.store.store`. Readers see the *union* of the views: of
each object the newest record. Branches are not equally fast, so three rules keep the union true:

1. A leave at version r says only that the branch does not hold the object any more. It is shown until no
   branch can still have it: until every branch that could hold its key has *reached* r, which is when its
   version is r or newer. What a branch does not hold then, it did not hold at r.
2. A branch that is slow, or refused for ever, would keep the object for ever. So an object that nobody holds
   and that is still shown is in *doubt*, and one read of the server's ends the doubt: `confirmed`. What the
   branches that are behind that read still say of the object is older than the answer, and is not shown.
3. What is shown of a key never gets older, whichever branch speaks of it; except when the server was
   restored, which starts a new *epoch*. A branch is in the epoch of its last complete list, and what an older
   epoch says gives way. A branch that is past a change, and holds what was before, has *missed* it: it has to
   be listed anew.

Everything that happens ends in the same question, asked for each key that it concerns: what is to be shown
now? It is answered from the views alone, the leave that is waited for, and the read that was made. So the
order in which branches speak cannot matter. With one branch the view is what readers see, and nothing of this
costs anything.
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
"""Why a branch must be listed anew: the server was restored, or the branch is too far behind others, or was
not told of a change."""


class Union:
    """The branches of one filter, and the store that readers see. The writer is one task."""

    def __init__(
        self,
        branches: Sequence[Keys] = (Keys(),),
        *,
        wanted: Callable[[], None] = lambda: None,
        tally: Tally | None = None,
    ) -> None:
        self.tally = tally
        """Told of what all stores hold, if there is one."""
        self._wanted = wanted
        self._arrange(tuple(Branch(keys, wanted=wanted, tally=tally) for keys in branches))
        self._alone = len(self.branches) == 1
        self._union = UnionView(len(self._groups), wanted=wanted, tally=tally)
        self._shown: View = self.branches[0].view if self._alone else self._union
        self._epoch = 0
        self._listed: set[Branch] = set()
        """Those whose last list another branch that could hold the same keys has not reached."""
        self._outdated: dict[Branch, Outdated] = {}
        self._left: dict[Key, Left] = {}
        self._reads: dict[Key, Read] = {}
        self._most_reads = SPARE
        self._doubts = Doubts()
        self._unclear: set[Key] = set()
        """What is shown, and has left at a version not told."""

    # ---- Streams that come and go.

    def admit(self, keys: Keys) -> Branch:
        """Add a stream; return its substore. What it could hold cannot be read before its first list is
        complete.

        The store is another one afterwards. The former one stays as it is for those who still read it.
        """
        branch = Branch(keys, wanted=self._wanted, tally=self.tally)
        branch.epoch = self._epoch
        self._rearrange((*self.branches, branch))
        return branch

    def retire(self, branch: Branch) -> list[Change]:
        """Remove a stream, and return what that changes. Its objects have left at its version: those that
        others could hold are shown until the others have reached it.

        The store is another one afterwards, as with `admit`. The last stream cannot be removed.
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
        """Keep other branches from now on, and show the same objects in a new store."""
        before, versions = self._shown, dict[Branch, str]()
        for branch in self.branches:
            group = self._group_of[branch]
            versions[branch] = before.version if self._alone else self._union.versions[group]
        self._arrange(branches)
        self._union = UnionView(len(self._groups), wanted=self._wanted, tally=self.tally)
        self._union.copy(before, [least(versions.get(each, "") for each in group) for group in self._groups])
        if not self._alone:
            before.release()
        self._alone, self._shown = False, self._union

    def _arrange(self, branches: tuple[Branch, ...]) -> None:
        """Find which of the branches could hold the same keys."""
        self.branches: tuple[Branch, ...] = branches
        spaces = {branch.keys.namespace for branch in branches}
        self._near = {
            space: tuple(branch for branch in branches if branch.keys.namespace in (None, space))
            for space in spaces
        }
        self._by_name = any(branch.keys.names is not None for branch in branches)
        self._groups = groups_of(branches)
        """Branches of several groups never hold the same keys: each group has a version of its own."""
        self._group_of = {branch: index for index, group in enumerate(self._groups) for branch in group}

    @property
    def store(self) -> Store:
        """What readers read. Its version is the least of all branches', and empty until each has had a
        complete list.
        """
        return self._shown

    def needed(self, branches: Collection[Branch]) -> Readable:
        """Return what to read where none but these branches could hold something of the answer.

        What one branch alone can hold is read as that one knows it: whatever moves away from it is no answer
        any more. What several can hold is known only when all of their groups have told.
        """
        if len(branches) == 1:
            (branch,) = branches
            return branch.view
        groups = [index for index, group in enumerate(self._groups) if not group.isdisjoint(branches)]
        return self._shown if len(groups) == len(self._groups) else Section(self._union, groups)

    def near(self, branches: Iterable[Branch]) -> Collection[Branch]:
        """Return all branches of the groups of these: the answers of several wait for all of them."""
        return frozenset().union(*(group for group in self._groups if not group.isdisjoint(branches)))

    @property
    def stores(self) -> tuple[Store, ...]:
        """All that readers may read: the whole, and what each branch alone can hold."""
        return (self._shown,) if self._alone else (self._union, *(branch.view for branch in self.branches))

    def build(self, most: int) -> bool:
        """Take so many records into an index that is wanted; return whether there is more to do."""
        return any(store.build(most) for store in self.stores)

    def newest(self) -> list[Record]:
        """Return what is held, each once, of each branch from the larger of the generations that is read and
        the one that is written.
        """
        return list(
            dict.fromkeys(
                record
                for branch in self.branches
                for record in max(branch.view.records()[0], branch.view.writing(), key=len)
            )
        )

    def writing(self) -> list[Record]:
        """Return what all branches hold, or are about to: what several do, several times."""
        return [record for branch in self.branches for record in branch.view.writing()]

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """What one read of the server's each would settle, sooner than the branches or at all. Empty with one
        branch.
        """
        return tuple(self._doubts.values())

    @property
    def oldest_doubt(self) -> Doubt | None:
        """The unconfirmed leave with the oldest version, or with none."""
        return self._doubts.oldest()

    def has_doubts_before(self, version: str, *, besides: Key) -> bool:
        """Return True if another object than this one has left a branch before the version, and that is
        unconfirmed.
        """
        oldest = self._doubts.oldest()
        if oldest is None or is_newer(oldest.version or version, version):
            return False  # All others are newer.
        return any(
            key != besides and (not doubt.version or not is_newer(doubt.version, version))
            for key, doubt in self._doubts.items()
        )

    def is_in_doubt(self, doubt: Doubt) -> bool:
        """Whether it has not been settled yet."""
        found = self._doubts.get((doubt.namespace, doubt.name))
        # What left at a version not told, and then did so again, has to be asked for again.
        return found == doubt and (found is doubt or doubt.version != "")

    def is_unconfirmed(self, key: Key) -> bool:
        """Return whether the object is shown although a stream has told that it left, and nothing newer is
        known.
        """
        left, shown = self._left.get(key), self._shown.held(key)
        return (
            key in self._doubts
            or key in self._unclear
            or (left is not None and shown is not None and is_newer(left.version, shown.version))
        )

    def confirmed(self, doubt: Doubt, *, version: str, uid: str = "", outside: bool = False) -> list[Change]:
        """Take in what the server answered, as of a version: the uid of the object of that name, or none if
        there is none.

        `outside` says that its metadata alone excludes it from every branch. Where it does not, and the uid
        is the same, nothing is known: ask again after a while, as long as there is the doubt.
        """
        return self._settled(
            [doubt.key] if self._confirm(doubt, version, uid, outside=outside) else [], gone=uid != doubt.uid
        )

    def joined_lists(self) -> list[JoinedLists]:
        """Return the lists of metadata that settle many unconfirmed leaves at once, for each group of
        branches that has some.
        """
        branches = {doubt: self._could_hold(doubt.key) for doubt in self._doubts.values()}
        found = [lists_of(group, self.branches, branches, self._epoch) for group in self._groups]
        return [lists for lists in found if lists is not None]

    def confirmed_by_lists(self, lists: JoinedLists, uids: Mapping[Key, str]) -> list[Change]:
        """Take in joined lists, all of them whole: the uids of the objects that they have. Leaves that came
        since stay unconfirmed.
        """
        return self._settled(
            [
                doubt.key
                for doubt in lists.doubts
                if self._confirm(doubt, lists.version, uids.get(doubt.key, ""), outside=False)
            ]
        )

    def _confirm(self, doubt: Doubt, version: str, uid: str, *, outside: bool) -> bool:
        """Remember what the server answered; return False if it settles nothing."""
        key = doubt.key
        undecided = uid == doubt.uid and not outside
        left = self._left.get(key)
        if uid and not outside and left is not None and left.lost:
            # Another object of the name, in the world after a restore: in neither world is there none.
            undecided = True
        if undecided or not self.is_in_doubt(doubt) or is_older(version, doubt.version):
            return False  # Or it was settled meanwhile, or a server that lags has answered.
        self._forget(key)
        for branch in self.branches:
            branch.wait_no_more([key])
        self._reads[key] = Read(self._epoch, version, "" if outside else uid)
        if len(self._reads) > self._most_reads and all(
            branch.view.stages_nothing for branch in self.branches
        ):
            self._catch_up()  # A list that is under way may be older than they are.
        return True

    def take_outdated(self) -> dict[Branch, Outdated]:
        """Return the branches that must be listed anew, once, and why."""
        outdated, self._outdated = self._outdated, {}
        return outdated

    # ---- What branches say. Each method returns what that changes for readers.

    def begin(self, branch: Branch) -> None:
        """Start a new generation of a branch beside the one that is read."""
        branch.view.begin()

    def abandon(self, branch: Branch) -> None:
        """Forget the generation that was begun."""
        branch.view.abandon()

    def put(self, branch: Branch, record: Record) -> list[Change]:
        # A watch that is wider than the filter brings others as well.
        if not branch.holds_all and not branch.keys.have(record.key):
            return []
        if self._alone:
            return branch.view.put(record)
        shown = self._shown.held(record.key)
        if shown is not None and shown.is_same(record):
            record = shown  # An object that is in several branches is held once.
        return self._settled([record.key], said=branch) if branch.view.put(record) else []

    def leave(self, branch: Branch, record: Record) -> list[Change]:
        key = record.key
        if not branch.holds_all and not branch.keys.have(key):
            return []
        changes = branch.view.leave(record)
        if self._alone or not changes:
            return changes
        if is_newer(record.version, branch.version):
            # A message at a version says that all before it have come.
            self._leaves(key, record.version)
            return self._settled([key, *self._reach(branch, record.version)], said=branch)
        # Some servers delete with the version that was deleted. Only the next message says what cannot be
        # later.
        if any(other is not branch for other in self._could_hold(key)):
            branch.vague.add(key)
            self._unclear.add(key)
        return self._settled([key], said=branch)

    def commit(self, branch: Branch, version: str, *, restored: bool = False) -> list[Change]:
        """Show the generation that was begun, whole; `restored` says that the server's versions have gone
        back.
        """
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
            return self._show(changes, [self._group_of[branch]])  # There is nothing to compare it with.
        keys = dict.fromkeys(map(key_of, changes))
        # A server may be restored under higher versions, too: then its objects alone show it.
        anew = self._disproved(branch) if not restored else set()
        if (restored or anew) and branch.epoch == self._epoch:
            reads = tuple(self._reads)
            anew |= self._begin_epoch(branch, higher=not restored)
            # What they kept out is there, where a branch of the new epoch holds it.
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
            keys |= dict.fromkeys(
                record.key for record in branch.view.records()[0]
            )  # What a read kept out may be as it was.
        left = [key_of(change) for change in changes if change.after is None]
        # A list does not tell what came and left before it, as something that is on its way back may have
        # done.
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
        """Return the keys of which something is shown that the list denies, though it is past that: newer, or
        of another uid.
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
        """Take note that the server was restored, as the first branch has found; return what is shown
        although nobody holds it.
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
                branch.epoch = self._epoch  # What it has taken in, the restored server has as well.
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
        """Move the branch on, and return the keys that waited for that."""
        vague = list(branch.vague)
        for key in vague:
            self._leaves(key, version)
        branch.vague.clear()
        return [*vague, *branch.reach(version)]

    def _catch_up(self) -> None:
        """Have the branches that are behind listed anew, rather than remember all that they have not heard
        of.
        """
        behind = [
            branch for branch in self.branches if any(branch.lags(read) for read in self._reads.values())
        ]
        self._outdated = {
            branch: self._outdated.get(branch, "behind")
            for branch in self.branches
            if branch in behind or branch in self._outdated
        }
        # What they hold, they say already.
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

    # ---- What is to be shown.

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
        """Show what is to be shown of these keys now, all at once, and return what that changed. `groups` are
        those that may have moved on. With `gone`, the server has said that objects that depart do not exist.
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
        """Return the version as of which all of a group is shown: the least of its branches', unless it must
        stay what it was.

        It stays while a branch was listed and others have yet to reach the list: an object may have been in
        that branch meanwhile, and have come to one that has not heard of it yet, or be gone. It stays while
        something is shown that has left at a version not told. And it stays until all have heard that the
        server was restored: what is lost may still be shown.
        """
        if (
            not self._listed.isdisjoint(group)
            or any(branch.epoch < self._epoch for branch in group)
            or any(not group.isdisjoint(self._could_hold(key)) for key in self._unclear)
        ):
            return before
        return least(branch.version for branch in group)

    def _first(self, key: Key) -> Record | None:
        """Return what is plainly to be shown of a key of which nothing is shown, as there is nothing to
        weigh.
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
        """Say what is to be shown of a key; `anew` if what is shown of it may be of an older epoch."""
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
            # What all branches are past, and none holds, is not there: versions may be equal, or not
            # comparable.
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
                # Past that, and with what it was before: it was not told of it. Objects never go back, so it
                # has to be listed anew, or asked about if it cannot be. Where none is past that, it is of a
                # server before it was restored.
                self._miss(past)
                self._unclear.add(key)
                self._doubts[key] = Doubt(*key, shown.uid, shown.version, self._epoch)
                return shown
        if left is not None:
            self._left[key] = left._replace(lost=False)
        return best

    def _awaited(self, key: Key, branches: Iterable[Branch]) -> Left | None:
        """Return the leave that some branch has not reached yet."""
        left = self._left.get(key)
        behind = first_behind(left, branches) if left is not None else None
        if left is None or behind is None:
            self._left.pop(key, None)
            return None
        behind.wait_for(left.version, key)
        return left

    def _still_true(self, key: Key, branches: Iterable[Branch]) -> Read | None:
        """Return the answer of the server's that some branch may still contradict with what is older."""
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
        """Have branches listed anew that are past a change, and hold what was before it: the server has not
        told them of it.
        """
        self._outdated |= {branch: "missed" for branch in branches if branch not in self._outdated}
