"""Fifo: the changes of one subscriber in their order, of which none is joined. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .change import Change, ChangeCause

_DEPARTURES = (ChangeCause.LEFT, ChangeCause.DELETED)


class Fifo:
    """The changes that one subscriber has still to receive, up to `most`.

    If there are more, all of them are dropped, and further ones until `clear`: then the subscriber compares
    what it has received with the present objects. The same happens after `drop`.
    """

    def __init__(
        self,
        most: int,
        added: Callable[[], object] = lambda: None,
        knows: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`added` is called with each change, also if it is dropped. `knows` returns False for the uid of an
        object that the subscriber has not received: nobody wants to hear that it has departed.
        """
        self._changes: deque[Change] = deque()
        self._departures: dict[str, Change] = {}
        self._most = most
        self._added = added
        self._knows = knows
        self.is_full = False
        """True if changes are dropped, until `clear`."""

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, change: Change) -> None:
        """Add a change as the last one."""
        if len(self._changes) >= self._most:
            self.drop()
        if self.is_full:
            self._note(change)
        else:
            self._changes.append(change)
        self._added()

    def take(self) -> Change | None:
        """Remove and return the first change; None if there is none."""
        return self._changes.popleft() if self._changes else None

    def drop(self) -> None:
        """Drop all changes, and further ones until `clear`, but note which objects have departed."""
        self.is_full = True
        while self._changes:
            self._note(self._changes.popleft())

    def clear(self) -> dict[str, Change]:
        """Drop all changes, because the subscriber looks at the present objects now. Return the departures
        among the dropped ones, by uid, of objects that have not come back.
        """
        self.drop()
        departures, self._departures = self._departures, {}
        self.is_full = False
        return departures

    def _note(self, change: Change) -> None:
        record = change.before or change.after
        assert record is not None, "a change has an object"
        if change.cause not in _DEPARTURES:
            self._departures.pop(record.uid, None)
        elif self._knows(record.uid):
            self._departures[record.uid] = change
