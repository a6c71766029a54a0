"""Unconfirmed leaves, and the metadata lists that settle many of them.

An unconfirmed leave is an object that is shown although no substore holds it, or only an older version of it.

A joined list proves a leave only if no substore holds the object at one common version: between two versions,
the object may have moved from one substore to another. So the lists are exactly as of the newest version that
a substore has reached, and each substore behind this version is listed. An older version would be enough for
the leaves, but a server that was restored unnoticed may already be past it, with other objects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from .record import ObjectKey, is_newer, is_number, is_older, rank_of
from .substore import SPARE, Left, Substore


@dataclass(frozen=True, slots=True)
class UnconfirmedLeave:
    """An unconfirmed leave: a shown object that no substore holds, or only in an older version.

    To settle it, list the metadata of this name (`metadata.name=`) and compare the uid. A list is used
    because it has a version.
    """

    namespace: str
    name: str
    uid: str
    version: str
    """The least version of an answer that settles it. If empty, only a consistent read that begins later
    does."""
    epoch: int
    since: str = field(default="", compare=False)
    """The first version that may lack the object; empty if that is unknown. An answer as of this version may
    not settle it."""

    @property
    def key(self) -> ObjectKey:
        return self.namespace, self.name


class UnconfirmedLeaves(dict[ObjectKey, UnconfirmedLeave]):
    """Unconfirmed leaves by key, with a heap for the oldest. Leaves since an unknown version come first."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[tuple[int, str], int, UnconfirmedLeave]] = []
        self._numbers = count()

    def __setitem__(self, key: ObjectKey, leave: UnconfirmedLeave) -> None:
        super().__setitem__(key, leave)
        self._push(leave)
        if len(self._heap) > 2 * len(self) + SPARE:
            self._heap.clear()
            for each in self.values():
                self._push(each)

    def oldest(self) -> UnconfirmedLeave | None:
        while self._heap and self.get(self._heap[0][2].key) is not self._heap[0][2]:
            heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def _push(self, leave: UnconfirmedLeave) -> None:
        rank = rank_of(leave.since) if is_number(leave.since) else (0, "")
        heappush(self._heap, (rank, next(self._numbers), leave))


@dataclass(frozen=True, slots=True)
class JoinedLists:
    """Lists of metadata that settle many leaves at once: one for each substore that is behind, with its
    selector.
    """

    version: str
    """The exact version of all lists."""
    substores: tuple[int, ...]
    """The numbers of the substores to list."""
    leaves: tuple[UnconfirmedLeave, ...]
    """The leaves that they can settle."""


def lists_of(
    group: Collection[Substore],
    substores: Sequence[Substore],
    could_hold: Mapping[UnconfirmedLeave, Collection[Substore]],
    epoch: int,
) -> JoinedLists | None:
    """Return the lists that settle some of these leaves; None if lists settle none. `could_hold` has the
    substores that could hold the object of each leave.
    """
    version = ""
    for substore in substores:
        if (
            substore in group
            and substore.epoch == epoch
            and (not version or is_older(version, substore.version))
        ):
            version = substore.version
    behind = frozenset(substore for substore in group if not substore.has_reached(Left(epoch, version)))
    # A substore that is not behind and holds the object has missed the leave. Only a read by name settles it.
    leaves = tuple(
        leave
        for leave, near in could_hold.items()
        if leave.version
        and not is_newer(leave.version, version)
        and not behind.isdisjoint(near)
        and all(substore in behind or substore.view.held(leave.key) is None for substore in near)
    )
    numbers = tuple(
        number
        for number, substore in enumerate(substores)
        if substore in behind and any(substore in could_hold[leave] for leave in leaves)
    )
    return JoinedLists(version, numbers, leaves) if leaves else None
