"""World: one state of the model, and the scope that says what can happen in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto
from types import ModuleType
from typing import NamedTuple, TypeAlias

from .rule import NEVER, Claim, Table
from .server import History

Rule: TypeAlias = ModuleType
"""`rule`, or a copy of it with a mistake."""


class Budget(IntEnum):
    """What happens a limited number of times."""

    OWN = 0
    LIST = auto()
    PROBE = auto()
    LOSS = auto()
    RESTORE = auto()
    EVICTION = auto()
    CHANGE = auto()


@dataclass(frozen=True)
class Scope:
    """What can happen in one exploration."""

    name: str
    streams: int = 2
    names: tuple[tuple[int, ...], ...] = ((0, 1),)
    """For each object name, the streams that could hold it."""
    writes: int = 2
    own: int = 0
    lists: int = 0
    probes: int = 0
    losses: int = 0
    restores: int = 0
    evictions: int = 0
    changes: int = 0
    filters: tuple[tuple[int, ...], ...] = ()
    """The streams of each filter; all streams if there is one filter."""
    selections: tuple[frozenset[int], ...] = ()
    """The sets of streams that may select an object; all if there are none."""
    outer: int = -1
    """The stream of the objects outside of the filter, if the cache is split."""
    has_unreadable: bool = False
    has_ticks: bool = False
    """True if other objects are written as well, which no stream selects."""
    deletes_with_old_version: bool = False
    loses_answers: bool = False
    """True if the answer to an own write may be lost, so that the object is looked up."""
    are_lists_slow: bool = False
    """True if something may happen while a list is read."""
    begins_listed: bool = False
    """True if the exploration begins after the first lists."""
    misread: frozenset[int] = frozenset()
    """The streams of which nobody but the server knows whether they select an object."""
    has_order: bool = True
    """False if the server's versions can only be compared for equality."""
    targets_only: bool = False
    """True if probes are as of the newest version that the group knows, as those of the prober."""

    @property
    def streams_of(self) -> tuple[tuple[int, ...], ...]:
        """The streams of each filter."""
        return self.filters or (tuple(range(self.streams)),)

    @property
    def budget(self) -> tuple[int, ...]:
        return (
            self.own,
            self.lists,
            self.probes,
            self.losses,
            self.restores,
            self.evictions,
            self.changes,
        )


class Request(NamedTuple):
    """A list of a stream that the server has answered, and whose answer is on its way."""

    version: int
    deleted: frozenset[int] = frozenset()
    """The uids whose deletion had been answered before."""


class Side(NamedTuple):
    """A group: the one that readers see, or the one that is prepared beside it."""

    filter: int
    table: Table
    cursors: tuple[int, ...]
    """The version up to which each watch has sent its events; NEVER while there is none."""
    lists: tuple[Request | None, ...]
    probes: tuple[int, ...]
    """The version of the metadata with which each stream is compared; NEVER if there is none."""
    compared: tuple[int, ...]
    """For each stream to which an event was not sent, the version of its newest probe that has ended."""
    lost: frozenset[int] = frozenset()
    """The streams to which an event was not sent, until they are listed again."""
    doubted: int = NEVER
    """The version of a list that shows what was lost."""
    is_frozen: bool = False
    """True after a restore of the server: readers see the old state, which only own writes change."""


class World(NamedTuple):
    """All that is known of one moment."""

    history: History
    side: Side
    beside: Side | None
    answers: tuple[int, ...]
    """The versions of own writes whose answers are on their way."""
    budget: tuple[int, ...]
    seen: tuple[int, ...]
    """For each name, the oldest version that readers may still be shown."""
    written: tuple[int, ...]
    """For each name, the version of the newest own write whose answer has come."""


def shown_in(world: World) -> tuple[Claim | None, ...]:
    """Return what readers see of each name."""
    return tuple(row.shown for row in world.side.table.rows)
