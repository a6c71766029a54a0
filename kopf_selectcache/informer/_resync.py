"""Resyncer: passes all stored objects to the subscribers again, once per period. It sends no request."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from kopf_selectcache.core.store.change import Change, ChangeCause
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.core.store.substore import ObjectKey

from .environment import Environment, sleep_until

JITTER = 0.1
"""Part of the period by which it is longer or shorter, so that kinds and operators do not resync at once."""

SLICE = 20
"""Number of objects that subscribers receive before other tasks run. A subscriber may decode each."""

PAUSE = 10.0
"""Average seconds until a cache that is not synced is looked at again."""


class Resyncer:
    """The resyncs of one informer. One is under way at a time. A restart of the streams interrupts it, and
    it goes on once the lists are complete again.
    """

    def __init__(
        self,
        period: float | None,
        environment: Environment,
        *,
        store: Callable[[], Store],
        is_synced: Callable[[], bool],
        notify: Callable[[Change], None],
    ) -> None:
        self._period = period or 0.0
        self._environment = environment
        self._store = store
        self._is_synced = is_synced
        self._notify = notify
        self._changed = asyncio.Event()
        """Set when the period has changed."""
        self._due: float | None = None
        """The time of the next resync; None if the period has not begun."""
        self._left: deque[ObjectKey] = deque()
        """The objects that subscribers have not received yet in the present resync."""

    def set_period(self, period: float | None) -> None:
        """Use this period in seconds from now on; None or 0 for no resync. Another one ends a resync."""
        if (period or 0.0) != self._period:
            self._period, self._due = period or 0.0, None
            self._left.clear()
            self._changed.set()

    async def run(self) -> None:
        """Resync until cancelled."""
        while True:
            if not self._left:
                await self._wait_until_due()
                await self._wait_until_synced()
                if self._due is None:  # The period has changed.
                    continue
                self._due = None
                self._left.extend(record.key for record in self._store().records()[0])
            while self._left:
                self._pass_on(SLICE)
                await asyncio.sleep(0)
                await self._wait_until_synced()

    async def _wait_until_due(self) -> None:
        environment = self._environment
        while True:
            self._changed.clear()
            if not self._period:
                await self._changed.wait()
                continue
            if self._due is None:
                jitter = JITTER * (2 * environment.chance() - 1)
                self._due = environment.clock() + self._period * (1 + jitter)
            await sleep_until(self._changed, environment.sleep(max(0.0, self._due - environment.clock())))
            if not self._changed.is_set():
                return

    async def _wait_until_synced(self) -> None:
        """Wait until the cache follows the server: a stale object may have been changed or deleted."""
        while not self._is_synced():
            await self._environment.sleep(PAUSE * (0.5 + self._environment.chance()))

    def _pass_on(self, most: int) -> None:
        """Notify subscribers of objects in their present state. Others have departed meanwhile."""
        store = self._store()
        for _ in range(min(most, len(self._left))):
            record, _ = store.get(*self._left.popleft())
            if record is not None:
                self._notify(Change(record, record, ChangeCause.RESYNC))
