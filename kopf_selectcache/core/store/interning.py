"""Interning of values that many objects share, such as labels: each is made and stored once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")

MOST = 4096
"""The number of values that are remembered while most of them recur."""

FEW = 1024
"""The number of values that are remembered while few recur. A small number is enough because servers list
objects by name, so that objects with equal values are close together."""


class Sharing(Generic[_T]):
    """Returns the identical value for equal input. Callers must not change the value.

    >>> sharing = Sharing(lambda text: text.decode().split(','))
    >>> sharing.of(b'a,b') is sharing.of(b'a,b')
    True
    """

    def __init__(self, make: Callable[[Any], _T]) -> None:
        self._make = make
        self._known: dict[Hashable, _T] = {}
        # The number of hits since the last reset.
        self._found = 0

    def of(self, given: Hashable) -> _T:
        """Return the value of this input. Exceptions of the function that makes it pass through."""
        try:
            value = self._known[given]
        except KeyError:
            value = self._make(given)
            # Records that share a forgotten value still share it.
            if len(self._known) >= (MOST if self._found > len(self._known) else FEW):
                self._known, self._found = {}, 0
            self._known[given] = value
        else:
            self._found += 1
        return value
