"""Unconfirmed leaves: objects that are shown, and that no branch holds, or none as new; and the lists that
settle many of them.

A joined list proves a leave only if it says, together with all other branches, that no branch holds the
object at one and the same version: between two versions, the object may have moved from one branch to
another. So the lists are exactly as of the newest version that a branch has reached, and each branch that is
behind this version is listed. An older version would be enough for the leaves. But a server that was restored
unnoticed may already be past it, with other objects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from .record import is_newer, is_number, is_older, rank_of
from .substore import SPARE, Branch, Key, Left


@dataclass(frozen=True, slots=True)
class Doubt:
    """An object that is shown, and that no branch holds, or none as new: does it still exist, inside of some
    branch?

    Ask the server for this name and uid, for the metadata only, as a list (`metadata.name=`), whose version
    is known.
    """

    namespace: str
    name: str
    uid: str
    version: str
    """The answer counts if it is as new as this. If empty, only a consistent read will do that begins after
    now."""
    epoch: int

    @property
    def key(self) -> Key:
        return self.namespace, self.name


class Doubts(dict[Key, Doubt]):
    """The unconfirmed leaves, by key. The oldest is found without looking at all; those at a version not told
    come first.
    """

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[tuple[int, str], int, Doubt]] = []
        self._numbers = count()

    def __setitem__(self, key: Key, doubt: Doubt) -> None:
        super().__setitem__(key, doubt)
        self._push(doubt)
        if len(self._heap) > 2 * len(self) + SPARE:
            self._heap.clear()
            for each in self.values():
                self._push(each)

    def oldest(self) -> Doubt | None:
        while self._heap and self.get(self._heap[0][2].key) is not self._heap[0][2]:
            heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def _push(self, doubt: Doubt) -> None:
        rank = rank_of(doubt.version) if is_number(doubt.version) else (0, "")
        heappush(self._heap, (rank, next(self._numbers), doubt))


@dataclass(frozen=True, slots=True)
class JoinedLists:
    """Lists of metadata that settle many leaves at once: one for each branch that has not told yet, with its
    own selector.
    """

    version: str
    """All of the lists must be exactly as of this version."""
    branches: tuple[int, ...]
    """The numbers of the branches to list."""
    doubts: tuple[Doubt, ...]
    """The leaves that they can settle."""


def lists_of(
    group: Collection[Branch],
    branches: Sequence[Branch],
    could_hold: Mapping[Doubt, Collection[Branch]],
    epoch: int,
) -> JoinedLists | None:
    """Return the lists that settle what they can of these leaves, each with the branches that could hold the
    object; None if they settle none.
    """
    version = ""
    for branch in branches:
        if branch in group and branch.epoch == epoch and (not version or is_older(version, branch.version)):
            version = branch.version
    behind = frozenset(branch for branch in group if not branch.has_reached(Left(epoch, version)))
    # A branch that is not behind, and holds the object, was not told that it left: it has to be asked for by
    # its name.
    doubts = tuple(
        doubt
        for doubt, near in could_hold.items()
        if doubt.version
        and not is_newer(doubt.version, version)
        and not behind.isdisjoint(near)
        and all(branch in behind or branch.view.held(doubt.key) is None for branch in near)
    )
    numbers = tuple(
        number
        for number, branch in enumerate(branches)
        if branch in behind and any(branch in could_hold[doubt] for doubt in doubts)
    )
    return JoinedLists(version, numbers, doubts) if doubts else None
