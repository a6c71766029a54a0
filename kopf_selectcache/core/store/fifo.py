"""Fifo: the changes of one subscriber in their order, of which none is joined. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .change import Change


class Fifo:
    """The changes that one subscriber has still to receive, up to `most`.

    If there are more, all of them are dropped, and further ones until `clear`: then the subscriber compares
    what it has received with the present objects.
    """

    def __init__(self, most: int, added: Callable[[], object] = lambda: None) -> None:
        self._changes: deque[Change] = deque()
        self._most = most
        self._added = added  # Called with each change, also if it is dropped.
        self.is_full = False
        """True if changes were dropped, until `clear`."""

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, change: Change) -> None:
        """Add a change as the last one."""
        if len(self._changes) >= self._most:
            self.is_full = True
            self._changes.clear()
        if not self.is_full:
            self._changes.append(change)
        self._added()

    def take(self) -> Change | None:
        """Remove and return the first change; None if there is none."""
        return self._changes.popleft() if self._changes else None

    def clear(self) -> None:
        """Drop all changes, because the subscriber looks at the present objects now."""
        self._changes.clear()
        self.is_full = False
