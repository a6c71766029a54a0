"""Values that many objects have in common: decoded and kept once. Knows no object."""
from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")

MOST = 4096
"""So many values are remembered, while most come again."""

FEW = 512
"""So many are, while they do not. What is alike comes close together: servers list objects by their names."""


class Sharing(Generic[_T]):
    """Gives for equal bytes the same value, which nobody must change.

    >>> sharing = Sharing(lambda text: text.decode().split(','))
    >>> sharing.of(b'a,b') is sharing.of(b'a,b')
    True
    """

    def __init__(self, decode: Callable[[bytes], _T]) -> None:
        self._decode = decode
        self._known: dict[bytes, _T] = {}
        self._found = 0   # How often one of these has come again.

    def of(self, text: bytes) -> _T:
        """Return what the text says; raise what decoding it does."""
        try:
            value = self._known[text]
        except KeyError:
            value = self._decode(text)
            # What is forgotten is still shared by those who have it.
            if len(self._known) >= (MOST if self._found > len(self._known) else FEW):
                self._known, self._found = {}, 0
            self._known[text] = value
        else:
            self._found += 1
        return value
