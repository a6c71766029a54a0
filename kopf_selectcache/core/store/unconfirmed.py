"""Unconfirmed leaves: objects that are shown although no substore holds them, or only an older version."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from .record import ObjectKey, is_number, rank_of


@dataclass(frozen=True, slots=True)
class UnconfirmedLeave:
    """A shown object that no substore holds, or only in an older version."""

    namespace: str
    name: str
    uid: str
    version: str
    """The version that all substores must reach; empty if it is unknown."""
    epoch: int
    since: str = field(default="", compare=False)
    """The first version that may lack the object; empty if that is unknown."""

    @property
    def key(self) -> ObjectKey:
        return self.namespace, self.name


SPARE = 1000
"""The slack of the heap before it is compacted."""


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
