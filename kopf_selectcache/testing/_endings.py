"""The operators of a test that have ended by themselves, and the waits that end with them."""

from __future__ import annotations

from collections.abc import Callable


class OperatorEnded(Exception):
    """The operator that a test runs has ended by itself. The text is the line that says why."""

    __module__ = "kopf_selectcache.testing"  # As users import it.


class Endings:
    """The errors of these operators. A wait is woken by each new one, and raises it.

    An operator may use several clusters, so each wait of the process ends: a test that waits at any of them
    waits for what the operator does there.
    """

    def __init__(self) -> None:
        self._errors: list[OperatorEnded] = []
        self._wakers: list[Callable[[], None]] = []

    def add(self, error: OperatorEnded) -> None:
        """Raise this error in the waits of today, and in those that begin before it is removed."""
        self._errors.append(error)
        for wake in tuple(self._wakers):
            wake()

    def remove(self, error: OperatorEnded) -> None:
        self._errors.remove(error)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call a function, in any thread, when an operator ends; return a function that unregisters it."""
        self._wakers.append(wake)
        return lambda: self._wakers.remove(wake)

    def check(self) -> None:
        """Raise the error of an operator that has ended, if there is one."""
        for error in tuple(self._errors):
            raise error.with_traceback(None)


ENDINGS = Endings()
