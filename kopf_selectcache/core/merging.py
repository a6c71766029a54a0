"""Several streams feed one store: an object is held while any stream holds it, and never absent while it moves between them.

Theory of operation
-------------------
An OR is kept by several lists and watches, its *branches*. Each has a *view*: what it alone would hold, by the rules of
`core.store`. Readers see the *union* of the views: of each object the newest record. Branches are not equally fast, so
three rules keep the union true:

1. A leave at version r says only that the branch does not hold the object any more. It is shown until no branch can
   still have it: until every branch that could hold its key has *reached* r, which is when its version is r or newer.
   What a branch does not hold then, it did not hold at r.
2. A branch that is slow, or refused for ever, would keep the object for ever. So an object that nobody holds and that
   is still shown is in *doubt*, and one read of the server's ends the doubt: `confirmed`. What the branches that are
   behind that read still say of the object is older than the answer, and is not shown.
3. What is shown of a key never gets older, whichever branch speaks of it; except when the server was restored, which
   starts a new *epoch*. A branch is in the epoch of its last complete list, and what an older epoch says gives way.

Everything that happens ends in the same question, asked for each key that it concerns: what is to be shown now? It is
answered from the views alone, the leave that is waited for, and the read that was made. So the order in which branches
speak cannot matter. With one branch the view is what readers see, and nothing of this costs anything.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple, TypeAlias

from .record import Record, is_newer, is_older
from .store import Change, Store

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Which objects a branch could hold, whatever is in them; None means any."""

    namespace: str | None = None
    names: frozenset[str] | None = None

    def have(self, key: Key) -> bool:
        return self.namespace in (None, key[0]) and (self.names is None or key[1] in self.names)

    def meet(self, other: Keys) -> bool:
        """Whether there is a key that both could hold."""
        near = self.namespace is None or other.namespace in (None, self.namespace)
        return near and (self.names is None or other.names is None or not self.names.isdisjoint(other.names))


@dataclass(frozen=True, slots=True)
class Doubt:
    """An object that is shown, and that no branch holds: does it still exist, inside of some branch?

    Ask the server for this name and uid, for the metadata only, as a list (`metadata.name=`), whose version is known.
    """

    namespace: str
    name: str
    uid: str
    version: str
    """The answer counts if it is as new as this. If empty, only a consistent read will do that begins after now."""
    epoch: int


class _Left(NamedTuple):
    """A leave that not all branches have reached yet."""

    epoch: int
    version: str
    lost: bool = False
    """Whether what is shown is of an epoch before this one: whatever a branch says now is newer."""


class _Read(NamedTuple):
    """The answer of a read that not all branches have reached yet: what they say of the key up to then is old."""

    epoch: int
    version: str
    there: str
    """The uid of the object that the read found under this name, if there was another one."""


class _Wait:
    """What is to be looked at again when a branch has reached a version; in a heap, the oldest version comes first."""

    __slots__ = ("key", "version")

    def __init__(self, version: str, key: Key) -> None:
        self.version = version
        self.key = key

    def __lt__(self, other: _Wait) -> bool:
        return is_older(self.version, other.version)


class _View(Store):
    """A store whose writer looks into it as well."""

    def held(self, key: Key) -> Record | None:
        return self._held.get(key[0], {}).get(key[1])

    def change(self, changes: Iterable[Change], version: str) -> None:
        """Show all of these changes at once, and the version as of which they are all."""
        with self._lock:
            self._version = version
            for change in changes:
                namespace, name = _key(change)
                named = self._held.setdefault(namespace, {})
                if change.after is not None:
                    named[name] = change.after
                    continue
                del named[name]
                if not named:
                    del self._held[namespace]


class Branch:
    """Where the effects of one stream go: the calls of a `Store`, each of which returns what it changed for readers."""

    def __init__(self, keys: Keys, merging: Merging) -> None:
        self.keys = keys
        self.view = _View()
        self.epoch = 0
        self.listed = ""
        """The version of the last list: what came and left before it, this branch has not heard of."""
        self.vague: set[Key] = set()
        """What has left at a version not told: after the last one that was told, and not after the next one."""
        self._merging = merging
        self._waits: list[_Wait] = []
        self._waiting: set[Key] = set()
        """The keys of the heap: each is in it once, so that one that comes and goes does not fill it."""

    @property
    def version(self) -> str:
        """The version up to which everything was taken in; empty until there was a first complete list."""
        return self.view.version

    def begin(self) -> None:
        self.view.begin()

    def abandon(self) -> None:
        self.view.abandon()

    def put(self, record: Record) -> list[Change]:
        # A watch that is wider than the filter brings others as well.
        return self._merging.put(self, record) if self.keys.have(record.key) else []

    def leave(self, record: Record) -> list[Change]:
        return self._merging.leave(self, record) if self.keys.have(record.key) else []

    def commit(self, version: str, *, restored: bool = False) -> list[Change]:
        """Show the generation that was begun, whole; `restored` says that the server's versions have gone back."""
        return self._merging.commit(self, version, restored=restored)

    def progress(self, version: str) -> list[Change]:
        return self._merging.progress(self, version)

    def has_reached(self, mark: _Left) -> bool:
        """Whether everything up to there has been taken in: never of versions that cannot be compared, unless equal."""
        return self.epoch > mark.epoch or (self.epoch == mark.epoch and not is_newer(mark.version, self.version))

    def lags(self, read: _Read) -> bool:
        """Whether it may still say what is older than the read: never of versions that cannot be compared."""
        return self.epoch < read.epoch or is_older(self.version or "0", read.version)

    def wait_for(self, version: str, key: Key) -> None:
        if key not in self._waiting:
            self._waiting.add(key)
            heappush(self._waits, _Wait(version, key))

    def reach(self, version: str) -> list[Key]:
        """Move on, and return the keys that waited for that."""
        self.view.progress(version)
        keys = []
        while self._waits and not is_newer(self._waits[0].version, self.version):
            keys.append(heappop(self._waits).key)
        self._waiting.difference_update(keys)
        return keys

    def wait_for_nothing(self) -> None:
        self._waits.clear()
        self._waiting.clear()
        self.vague.clear()


class Merging:
    """The branches of one filter, and the store that readers see. The writer is one task."""

    def __init__(self, branches: Sequence[Keys] = (Keys(),)) -> None:
        self.branches = tuple(Branch(keys, self) for keys in branches)
        self._alone = len(self.branches) == 1
        self._shown = self.branches[0].view if self._alone else _View()
        self._epoch = 0
        self._listed: set[Branch] = set()
        """Those whose last list another branch that could hold the same keys has not reached."""
        self._outdated: list[Branch] = []
        self._left: dict[Key, _Left] = {}
        self._reads: dict[Key, _Read] = {}
        self._doubts: dict[Key, Doubt] = {}
        self._unclear: dict[Key, str] = {}
        """What has left at a version not told, and the store's version before; that never goes back, so the first is the least."""

    @property
    def store(self) -> Store:
        """What readers read. Its version is the least of all branches', and empty until each has had a complete list."""
        return self._shown

    def version_of(self, branches: Iterable[Branch]) -> str:
        """Return the version of an answer that needs these branches: the least of theirs. Ask before picking the answer.

        It is held back by a branch that was listed, until the others have reached the list: an object may have been in
        that branch meanwhile, and have come to one that has not heard of it yet, or be gone. And it is held back by what
        is shown and has left: at a version that another branch has yet to reach, or that was not told.
        """
        asked = tuple(branches)
        if not self._listed.isdisjoint(asked):
            return self._shown.version
        if self._left and len(asked) < len(self.branches):
            return self._shown.version
        versions = [*(branch.version for branch in asked), *islice(self._unclear.values(), 1)]
        if "" in versions:
            return ""
        least = versions[0]
        for version in versions:
            if is_older(version, least):
                least = version
        return least

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """What one read of the server's each would settle, sooner than the branches or at all. Empty with one branch."""
        return tuple(self._doubts.values())

    def confirmed(self, doubt: Doubt, *, version: str, uid: str = "", outside: bool = False) -> list[Change]:
        """Take in what the server answered, as of a version: the uid of the object of that name, or none if there is none.

        `outside` says that its metadata alone excludes it from every branch. Where it does not, and the uid is the
        same, nothing is known: ask again after a while, as long as there is the doubt.
        """
        key = doubt.namespace, doubt.name
        undecided = uid == doubt.uid and not outside
        if undecided or self._doubts.get(key) != doubt or is_older(version, doubt.version):
            return []   # Or it was settled meanwhile, or a server that lags has answered.
        self._forget(key)
        self._reads[key] = _Read(self._epoch, version, "" if outside else uid)
        return self._settled([key])

    def take_outdated(self) -> list[Branch]:
        """Return the branches that must be listed anew, since another one has found that the server was restored; once."""
        outdated, self._outdated = self._outdated, []
        return outdated

    # ---- What branches say.

    def put(self, branch: Branch, record: Record) -> list[Change]:
        if self._alone:
            return branch.view.put(record)
        shown = self._shown.held(record.key)
        if shown is not None and (shown.uid, shown.version, shown.data, shown.fields) == (record.uid, record.version, record.data, record.fields):
            record = shown   # An object that is in several branches is held once.
        return self._settled([record.key], said=branch) if branch.view.put(record) else []

    def leave(self, branch: Branch, record: Record) -> list[Change]:
        changes, key = branch.view.leave(record), record.key
        if self._alone or not changes:
            return changes
        if is_newer(record.version, branch.version):
            # A message at a version says that all before it have come.
            self._leaves(key, record.version)
            return self._settled([key, *self._reach(branch, record.version)], said=branch)
        # Some servers delete with the version that was deleted. Only the next message says what cannot be later.
        if any(other is not branch for other in self._could_hold(key)):
            branch.vague.add(key)
            self._unclear.setdefault(key, self._shown.version)
        return self._settled([key], said=branch)

    def commit(self, branch: Branch, version: str, *, restored: bool = False) -> list[Change]:
        changes = branch.view.commit(version)
        if self._alone:
            return changes
        branch.listed = version
        self._listed.add(branch)
        keys = dict.fromkeys(map(_key, changes))
        anew = self._disproved(branch)
        # A server may be restored under higher versions, too. Then the other branches hold what was lost, all of them.
        bumped = bool(anew) and not restored
        restored = restored or bumped
        if restored and branch.epoch == self._epoch:
            anew |= self._begin_epoch("0" if bumped else version, found_by=branch)
        if restored or branch.epoch < self._epoch:
            branch.epoch = self._epoch
            anew |= keys.keys()
        left = [_key(change) for change in changes if change.after is None]
        # A list does not tell what came and left before it, as something that is on its way back may have done.
        passing = set(self._left).union(*(other.vague for other in self.branches))
        left += [key for key in passing if branch.keys.have(key) and branch.view.held(key) is None]
        for key in left:
            self._leaves(key, version, lost=key in anew)
        return self._settled([*keys, *anew, *self._reach(branch, version)], said=branch, anew=anew)

    def progress(self, branch: Branch, version: str) -> list[Change]:
        if self._alone:
            branch.view.progress(version)
            return []
        return self._settled(self._reach(branch, version), said=branch)

    def _disproved(self, branch: Branch) -> set[Key]:
        """Return the keys of which something newer is shown than the branch was listed with, although it is past that."""
        listed = ((record, self._shown.held(record.key)) for record in branch.view.records()[0])
        return {
            record.key for record, shown in listed
            if shown is not None and is_older(record.version, shown.version) and not is_newer(shown.version, branch.version)}

    def _begin_epoch(self, version: str, *, found_by: Branch) -> set[Key]:
        """Take note that the server was restored, and is at this version; return what is shown although nobody holds it."""
        self._epoch += 1
        self._outdated = [branch for branch in self.branches if branch is not found_by and branch.version]
        self._reads.clear()
        self._unclear.clear()
        orphans = {*self._left}
        for branch in self.branches:
            orphans |= branch.vague
            branch.wait_for_nothing()
            if not is_newer(branch.version, version):
                branch.epoch = self._epoch   # What it has taken in, the restored server has as well.
        for key in orphans:
            self._left[key] = _Left(self._epoch, version, lost=True)
        return orphans

    def _leaves(self, key: Key, version: str, *, lost: bool = False) -> None:
        before = self._left.get(key)
        lost = lost or (before is not None and before.lost)
        if before is not None and not is_newer(version, before.version):
            version = before.version
        for branch in self._could_hold(key):
            if branch.epoch == self._epoch and is_older(version, branch.listed):
                version = branch.listed
        self._left[key] = _Left(self._epoch, version, lost)

    def _reach(self, branch: Branch, version: str) -> list[Key]:
        """Move the branch on, and return the keys that waited for that."""
        vague = list(branch.vague)
        for key in vague:
            self._leaves(key, version)
        branch.vague.clear()
        return [*vague, *branch.reach(version)]

    def _forget(self, key: Key) -> None:
        self._left.pop(key, None)
        self._unclear.pop(key, None)
        for branch in self.branches:
            branch.vague.discard(key)

    # ---- What is to be shown.

    def _could_hold(self, key: Key) -> list[Branch]:
        return [branch for branch in self.branches if branch.keys.have(key)]

    def _settled(self, keys: Iterable[Key], *, said: Branch | None = None, anew: Collection[Key] = ()) -> list[Change]:
        """Show what is to be shown of these keys now, all at once, and return what that changed."""
        changes: list[Change] = []
        for key in dict.fromkeys(keys):
            before = self._shown.held(key)
            after = self._choice(key, before, said, anew=key in anew)
            if after is before:
                continue
            if before is not None and after is not None and before.uid != after.uid:
                changes.append(Change(before, None))
                before = None
            changes.append(Change(before, after))
        self._listed = {branch for branch in self._listed if self._is_ahead(branch)}
        self._shown.change(changes, self.version_of(self.branches))
        return changes

    def _is_ahead(self, listed: Branch) -> bool:
        return any(
            branch.version == "" or is_older(branch.version, listed.listed)
            for branch in self.branches if listed.epoch == self._epoch and branch.keys.meet(listed.keys))

    def _choice(self, key: Key, shown: Record | None, said: Branch | None, *, anew: bool) -> Record | None:
        """Say what is to be shown of a key; `anew` if what is shown of it may be of an older epoch."""
        branches = self._could_hold(key)
        self._doubts.pop(key, None)
        left = self._awaited(key, branches)
        vague = any(key in branch.vague for branch in branches)
        if left is None and not vague:
            self._unclear.pop(key, None)
        read = self._still_true(key, branches)
        best: Record | None = None
        best_epoch = shown_epoch = -1
        for branch in branches:
            record = branch.view.held(key)
            if record is None or (left is not None and branch.epoch < left.epoch) or (read is not None and _is_past(record, branch, read)):
                continue
            if record is shown:
                shown_epoch = branch.epoch
            if best is None or branch.epoch > best_epoch or (
                    branch.epoch == best_epoch and _supersedes(record, best, said=branch is said)):
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
                best_epoch == shown_epoch and _supersedes(best, shown, said=said is not None and said.view.held(key) is best))
            # Of versions that cannot be compared, the one that some branch holds is right in the end.
            settled = orphan and left is None and not vague and _supersedes(best, shown, said=True)
            if not newer and not settled:
                return shown
        if left is not None:
            self._left[key] = left._replace(lost=False)
        return best

    def _awaited(self, key: Key, branches: Iterable[Branch]) -> _Left | None:
        """Return the leave that some branch has not reached yet."""
        left = self._left.get(key)
        behind = next((branch for branch in branches if not branch.has_reached(left)), None) if left is not None else None
        if left is None or behind is None:
            self._left.pop(key, None)
            return None
        behind.wait_for(left.version, key)
        return left

    def _still_true(self, key: Key, branches: Iterable[Branch]) -> _Read | None:
        """Return the answer of the server's that some branch may still contradict with what is older."""
        read = self._reads.get(key)
        behind = next((branch for branch in branches if branch.lags(read)), None) if read is not None else None
        if read is None or behind is None:
            self._reads.pop(key, None)
            return None
        behind.wait_for(read.version, key)
        return read


def _key(change: Change) -> Key:
    record = change.after or change.before
    assert record is not None, "a change of nothing"
    return record.key


def _supersedes(record: Record, other: Record, *, said: bool) -> bool:
    """Whether a record is newer: known to be, or maybe, where it is what was `said` last."""
    return is_newer(record.version, other.version) if said else is_older(other.version, record.version)


def _is_past(record: Record, branch: Branch, read: _Read) -> bool:
    return branch.epoch < read.epoch or (record.uid != read.there and not is_newer(record.version, read.version))
