"""Subscribers of the changes of one informer. They survive its restarts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from kopf_selectcache.core.store.store import Change

Listener: TypeAlias = Callable[[Change | None], None]
"""A subscriber of changes. None means that reads must raise."""


class Subscribers:
    """The listeners that are called with each change. A failing listener does not affect the others."""

    def __init__(
        self, resource: object, logger: logging.Logger, deliver: Callable[[Listener], Listener]
    ) -> None:
        self._resource = resource  # `str` returns the name of the resource.
        self._logger = logger
        self._deliver = deliver
        self._listeners: list[Listener] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with each change from now on; return the function that ends that."""
        delivered = self._deliver(listener)
        self._listeners.append(delivered)
        return lambda: self._listeners.remove(delivered)

    def notify(self, change: Change | None) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception:
                self._logger.exception(
                    "Somebody who is told of changes in the cache of %(resource)s failed.",
                    {"resource": str(self._resource)},
                    extra={"resource": str(self._resource)},
                )
