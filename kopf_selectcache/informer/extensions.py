"""Objects that higher layers keep: `Extensions` for one operator, and `Memo` for one informer, such as
memoised comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol, TypeVar, cast


class Extension(Protocol):
    """An object that belongs to one operator."""

    def close(self) -> None:
        """End what it does. Called on the operator's loop."""


_E = TypeVar("_E", bound=Extension)


class Extensions:
    """The objects that belong to one operator, such as the states of its recorders, by their classes. They
    live as long as the operator.
    """

    def __init__(self, runtime: object) -> None:
        self._runtime = runtime
        self._made: dict[type[Extension], Extension] = {}
        self._lock = Lock()

    def get(self, make: type[_E]) -> _E:
        """Return the object of a class; make it of the runtime of the operator at the first call, in any
        thread.
        """
        with self._lock:
            if make not in self._made:
                self._made[make] = cast("Callable[[Any], _E]", make)(self._runtime)
            return cast("_E", self._made[make])

    def close(self) -> None:
        """Close all objects."""
        with self._lock:
            made = list(self._made.values())
        for each in made:
            each.close()


_T = TypeVar("_T")


class Memo:
    """One object for each factory. It lives as long as its informer, and reading threads share it."""

    def __init__(self) -> None:
        self._made: dict[Callable[[], Any], Any] = {}

    def of(self, make: Callable[[], _T]) -> _T:
        """Return the object of this factory; make it at the first call."""
        found: _T | None = self._made.get(make)
        return found if found is not None else self._made.setdefault(make, make())
