"""Extensions: the objects that higher layers keep for one operator."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from .informers import Runtime


class Extension(Protocol):
    """An object that belongs to one operator."""

    def close(self) -> None:
        """End what it does. Called on the operator's loop."""


_E = TypeVar("_E", bound=Extension)


class Extensions:
    """The objects that belong to one operator, such as the states of its recorders, by their classes. They
    live as long as the operator.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._made: dict[type[Extension], Extension] = {}
        self._lock = Lock()

    def get(self, make: type[_E]) -> _E:
        """Return the object of a class; make it of the runtime at the first call, in any thread."""
        with self._lock:
            if make not in self._made:
                self._made[make] = cast("Callable[[Runtime], _E]", make)(self._runtime)
            return cast("_E", self._made[make])

    def close(self) -> None:
        """Close all objects."""
        with self._lock:
            made = list(self._made.values())
        for each in made:
            each.close()
