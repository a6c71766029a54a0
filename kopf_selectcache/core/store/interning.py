"""Values that many objects have in common: made and kept once. Knows no object."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")

MOST = 4096
"""So many values are remembered, while most come again."""

FEW = 512
"""So many are, while they do not. What is alike comes close together: servers list objects by their names."""


class Sharing(Generic[_T]):
    """Gives for what is equal the same value, which nobody must change.

    >>> sharing = Sharing(lambda text: text.decode().split(','))
    >>> sharing.of(b'a,b') is sharing.of(b'a,b')
    True
    """

    def __init__(self, make: Callable[[Any], _T]) -> None:
        self._make = make
        self._known: dict[Hashable, _T] = {}
        self._found = 0  # How often one of these has come again.

    def of(self, given: Hashable) -> _T:
        """Return what is made of this; raise what making it does."""
        try:
            value = self._known[given]
        except KeyError:
            value = self._make(given)
            # What is forgotten is still shared by those who have it.
            if len(self._known) >= (MOST if self._found > len(self._known) else FEW):
                self._known, self._found = {}, 0
            self._known[given] = value
        else:
            self._found += 1
        return value
