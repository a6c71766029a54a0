"""The configuration of the webhooks of an operator with several replicas: each serves them, and the one that
handles the name of the configuration writes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.sharding.shards import Shards

from .operator import operator_of

Write = Callable[[], Coroutine[Any, Any, None]]


class _Configuration:
    """The writes of the configuration (`sharding.shards.Handling`)."""

    def __init__(self, shards: Shards, name: str, write: Write) -> None:
        self._shards, self._key, self._write = shards, ("", name), write
        self._until = asyncio.timeout(None)

    async def keep(self) -> None:
        """Write it whenever this replica gets its name."""
        with self._shards.handling(self):
            while True:
                self._until = asyncio.timeout(None)
                try:
                    async with self._until:
                        with self._shards.run_of(self._key) as is_handled:
                            await (self._write() if is_handled else asyncio.Event().wait())
                except TimeoutError:
                    if not self._until.expired():
                        raise
                except _kopf.APINotFoundError:
                    if self._shards.handles(self._key):
                        raise  # It was sent.

    def replay(self, has: Callable[[ObjectKey], bool]) -> None:
        if has(self._key) and not self._until.expired():
            self._until.reschedule(-inf)

    forget = replay

    def release(self, has: Callable[[ObjectKey], bool]) -> None:
        """Nobody waits for it."""

    def running(self, has: Callable[[ObjectKey], bool]) -> set[asyncio.Task[Any]]:  # None is needed.  # noqa: ARG002
        return set()  # It never ends, and its fence is closed.


def keeper(settings: kopf.OperatorSettings) -> Callable[[Write], Coroutine[Any, Any, None]] | None:
    """Return what writes the configuration of an operator with several replicas; None if Kopf writes none."""
    operator, name = operator_of(settings), settings.admission.managed
    if operator is None or name is None or settings_of(settings).sharding is None:
        return None

    async def keep(write: Write) -> None:
        await operator.logged_in()
        operator.runtime  # noqa: B018  # It raises an error if the caches can't be started.
        assert operator.shards is not None, "it is sharded"
        await _Configuration(operator.shards, name, write).keep()

    return keep
