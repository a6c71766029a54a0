"""Slots for objects that higher layers derive from an informer, such as memoised comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Memo:
    """One object for each factory. It lives as long as its informer, and reading threads share it."""

    def __init__(self) -> None:
        self._made: dict[Callable[[], Any], Any] = {}

    def of(self, make: Callable[[], _T]) -> _T:
        """Return the object of this factory; make it at the first call."""
        found: _T | None = self._made.get(make)
        return found if found is not None else self._made.setdefault(make, make())
