"""WriteQueue: the Events that wait to be written. It is bounded, fair between objects, and has at most one
write for each Event. Pure.

Order. Warnings go first, but each fifth write is a Normal if any waits. Among those of one type, the objects
take turns, and the Events of one object go in the order in which they came.

Bound. A newer state of an Event replaces the one that waits. If more than `bound` Events wait, the object
with the most of them gives up one: its oldest Normal, or its oldest Warning if it has no Normal. Of objects
with equally many, one that has a Normal gives up one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from .events import Event, EventType, Reference

NORMAL_SHARE = 5
"""While Warnings wait, every fifth write is a Normal."""

Obj: TypeAlias = tuple[str, str, str, str, str]


@dataclass(slots=True)
class WaitingWrite:
    """An Event that waits for its write, or is being written."""

    key: str
    event: Event
    is_new: bool
    """True if it must be created, as far as is known."""
    may_be_created: bool = False
    """True if the answer to a creation was lost."""
    had_series: bool = False
    """True if the server's Event had a series when it was read."""


class Added(NamedTuple):
    """The result of an add."""

    is_replacement: bool
    """True if it replaces a waiting write of the same Event."""
    dropped: WaitingWrite | None
    """The write that was given up for it; it may be the one that was added."""


class _Lane:
    """The waiting Events of one type. The objects take turns."""

    def __init__(self) -> None:
        self._objects: dict[Obj, dict[str, WaitingWrite]] = {}

    def __bool__(self) -> bool:
        return bool(self._objects)

    def count(self, obj: Obj) -> int:
        return len(self._objects.get(obj, ()))

    def put(self, obj: Obj, item: WaitingWrite) -> None:
        self._objects.setdefault(obj, {})[item.key] = item

    def next_object(self) -> Obj:
        """Return the object whose turn it is."""
        return next(iter(self._objects))

    def take(self) -> WaitingWrite:
        """Take the oldest Event of the object whose turn it is."""
        obj = self.next_object()
        item = self.take_oldest(obj)
        if (rest := self._objects.pop(obj, None)) is not None:
            self._objects[obj] = rest  # Its next turn comes after those of the others.
        return item

    def take_oldest(self, obj: Obj) -> WaitingWrite:
        return self.take_key(obj, next(iter(self._objects[obj])))

    def take_key(self, obj: Obj, key: str) -> WaitingWrite:
        items = self._objects[obj]
        item = items.pop(key)
        if not items:
            del self._objects[obj]
        return item


class WriteQueue:
    """The Events that wait to be written. Use it in one thread, or under a lock."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._places: dict[str, tuple[Obj, WaitingWrite]] = {}
        self._normals, self._warnings = _Lane(), _Lane()
        self._sizes: dict[tuple[int, bool], dict[Obj, None]] = {}
        """The objects by the number of Events that wait, and whether a Normal is among them. A full queue
        drops one for each that comes: a search would take the thread of the caller 2 ms each time."""
        self._largest = 0
        self._turns = 0

    def __len__(self) -> int:
        return len(self._places)

    def add(self, item: WaitingWrite) -> Added:
        """Add an Event, or replace the waiting state of it; say what was given up for it."""
        known = self._places.get(item.key)
        if known is not None:
            # The Event keeps its place, and is created if that has not happened yet.
            _, waiting = known
            waiting.event, waiting.is_new = item.event, waiting.is_new or item.is_new
            return Added(is_replacement=True, dropped=None)
        obj = _object_of(item.event)
        before = self._size(obj)
        self._lane(item).put(obj, item)
        self._places[item.key] = obj, item
        self._resize(obj, before)
        return Added(is_replacement=False, dropped=self._drop() if len(self) > self._bound else None)

    def take(self) -> WaitingWrite:
        """Take the next Event to write. There must be one."""
        is_turn_of_normals = (self._turns + 1) % NORMAL_SHARE == 0
        lane = self._warnings
        if self._normals and (is_turn_of_normals or not self._warnings):
            lane = self._normals
        self._turns = self._turns + 1 if self._normals and self._warnings else 0
        obj = lane.next_object()
        before = self._size(obj)
        item = lane.take()
        self._forget(obj, item, before)
        return item

    def take_key(self, key: str) -> WaitingWrite | None:
        """Take the waiting state of this Event; None if none waits."""
        known = self._places.get(key)
        if known is None:
            return None
        obj, item = known
        before = self._size(obj)
        self._lane(item).take_key(obj, key)
        self._forget(obj, item, before)
        return item

    def find(self, key: str) -> WaitingWrite | None:
        """Return the waiting state of this Event; None if none waits."""
        known = self._places.get(key)
        return None if known is None else known[1]

    def _lane(self, item: WaitingWrite) -> _Lane:
        return self._warnings if item.event.occurrence.type is EventType.WARNING else self._normals

    def _drop(self) -> WaitingWrite:
        """Take an Event of the object with the most of them."""
        with_normals = self._sizes.get((self._largest, True))
        obj = next(iter(with_normals or self._sizes[self._largest, False]))
        before = self._size(obj)
        item = (self._normals if with_normals else self._warnings).take_oldest(obj)
        self._forget(obj, item, before)
        return item

    def _forget(self, obj: Obj, item: WaitingWrite, before: tuple[int, bool]) -> None:
        del self._places[item.key]
        self._resize(obj, before)

    def _size(self, obj: Obj) -> tuple[int, bool]:
        normals = self._normals.count(obj)
        return normals + self._warnings.count(obj), normals > 0

    def _resize(self, obj: Obj, before: tuple[int, bool]) -> None:
        """Keep the objects by size, after the size of one has changed by one."""
        after = self._size(obj)
        if before[0]:
            same = self._sizes[before]
            del same[obj]
            if not same:
                del self._sizes[before]
        if after[0]:
            self._sizes.setdefault(after, {})[obj] = None
        if after[0] > self._largest:
            self._largest = after[0]
        elif not ({(self._largest, True), (self._largest, False)} & self._sizes.keys()):
            self._largest -= 1


def _object_of(event: Event) -> Obj:
    about: Reference = event.occurrence.about
    return about.api_version, about.kind, about.namespace, about.name, about.uid
