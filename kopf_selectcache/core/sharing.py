"""Values that many objects have in common: decoded and kept once. Knows no object."""
from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")

MOST = 4096
"""So many values are remembered. Where there are more, most of them are not shared, and nothing is lost by forgetting them."""

LONGEST = 4096
"""Longer texts, in bytes, are shared by few."""


class Sharing(Generic[_T]):
    """Gives for equal bytes the same value, which nobody must change.

    >>> sharing = Sharing(lambda text: text.decode().split(','))
    >>> sharing.of(b'a,b') is sharing.of(b'a,b')
    True
    """

    def __init__(self, decode: Callable[[bytes], _T]) -> None:
        self._decode = decode
        self._known: dict[bytes, _T] = {}

    def of(self, text: bytes) -> _T:
        """Return what the text says; raise what decoding it does."""
        try:
            return self._known[text]
        except KeyError:
            pass
        value = self._decode(text)
        if len(text) <= LONGEST:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[text] = value
        return value
