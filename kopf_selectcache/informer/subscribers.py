"""Subscribers of the changes of one informer. They survive its restarts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kopf_selectcache.core.errors import let_exit
from kopf_selectcache.core.store.change import Change
from kopf_selectcache.core.store.record import Record

Listener: TypeAlias = Callable[[Change | None], None]
"""A subscriber of changes. None means that reads must raise, or that the filter has changed."""

Completed: TypeAlias = Callable[[Callable[[Record], Change]], None]
"""Called when the store is complete, for the first time or after a restart, with a function that returns the
cause of a departure that was missed."""


class _Subscriber(NamedTuple):
    listener: Listener
    completed: Completed | None


class Subscribers:
    """The listeners that are called with each change. A failing listener does not affect the others."""

    def __init__(
        self,
        resource: object,
        logger: logging.Logger,
        deliver: Callable[[Callable[[Any], None]], Callable[[Any], None]],
    ) -> None:
        self._resource = resource  # `str` returns the name of the resource.
        self._logger = logger
        self._deliver = deliver
        self._subscribers: list[_Subscriber] = []
        self.await_completion = True
        """True if the store is not complete yet, and `complete` is due."""

    def __bool__(self) -> bool:
        return bool(self._subscribers)

    def add(self, listener: Listener, completed: Completed | None = None) -> Callable[[], None]:
        """Call the listener with each change from now on; return the function that ends that."""
        deliver = self._deliver
        added = _Subscriber(deliver(listener), None if completed is None else deliver(completed))
        self._subscribers.append(added)
        return lambda: self._subscribers.remove(added)

    def notify(self, change: Change | None) -> None:
        for each in tuple(self._subscribers):
            self._call(each.listener, change)

    def complete(self, departure_of: Callable[[Record], Change]) -> None:
        """Notify all that the store is complete."""
        self.await_completion = False
        for each in tuple(self._subscribers):
            if each.completed is not None:
                self._call(each.completed, departure_of)

    def _call(self, called: Callable[[Any], None], argument: object) -> None:
        try:
            called(argument)
        except BaseException as error:
            let_exit(error)
            self._logger.exception(
                "A subscriber to the changes of %(resource)s failed.",
                {"resource": str(self._resource)},
                extra={"resource": str(self._resource)},
            )
