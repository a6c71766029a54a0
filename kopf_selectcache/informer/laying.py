"""Laying: adds own writes to those of one informer, tells the waits for changes, and drops the writes that no
stream reports in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from kopf_selectcache._errors import own_loop
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.claims import OwnWrite, OwnWrites

from .environment import Environment
from .state import InformerState


class Laying:
    """The own writes of one informer, as they are added and dropped. Any thread may call `lay`."""

    def __init__(
        self,
        states: Callable[[], Sequence[InformerState]],
        resource: object,
        *,
        environment: Environment,
        context: Callable[[], dict[str, str]],
    ) -> None:
        self._states = states  # Returns that of the present filter, and that of the next one if there is one.
        self._resource = resource  # `str` returns the name of the resource.
        self._environment = environment
        self._context = context  # Returns the attributes of log records.
        self._has_laid = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # Known while `run` runs.
        self._listeners: list[Callable[[Change], None]] = []

    def lay(self, write: OwnWrite, state: InformerState) -> None:
        """Show a write in reads of a state, and notify those who wait for changes."""
        own_writes = state.own_writes
        with own_writes.lock:
            dropped = state.union.lay(write)
        if own_writes is not self._states()[0].own_writes:
            return  # The present filter tells of it.
        for each in dropped:
            self._log(each, "there are too many of them")
        loop = self._loop
        if loop is None or loop is own_loop():
            self._tell(write)
        else:
            with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                loop.call_soon_threadsafe(self._tell, write)

    def _tell(self, write: OwnWrite) -> None:
        self._has_laid.set()
        if write.record is not None:
            for listener in tuple(self._listeners):
                listener(Change(None, write.record, ChangeCause.UPDATED))

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call the listener with each written object; return the function that ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def run(self) -> None:
        """Drop writes that no stream has reported for `sync_timeout`, until cancelled."""
        self._loop = asyncio.get_running_loop()
        environment = self._environment
        patience = environment.settings.sync_timeout
        while True:
            await self._has_laid.wait()
            self._has_laid.clear()
            while any(each.own_writes.writes or each.own_writes.resting for each in self._states()):
                await environment.sleep(patience / 2)
                self._drop_expired(patience)  # No variable here holds a state: its filter may change.

    def _drop_expired(self, patience: float) -> None:
        for state in self._states():
            for each in self._expired(state.own_writes):
                if each.expected and state is self._states()[0]:
                    self._log(each, f"its watch has not reported it in {patience:g} s")

    def _expired(self, own_writes: OwnWrites) -> Sequence[OwnWrite]:
        environment = self._environment
        with own_writes.lock:
            return own_writes.expire(environment.clock() - environment.settings.sync_timeout)

    def _log(self, write: OwnWrite, why: str) -> None:
        self._environment.logger.warning(
            "The cache of %(resource)s no longer shows this operator's write of %(object)s: %(why)s. Reads"
            " show"
            " what the watch has reported.",
            {
                "resource": str(self._resource),
                "object": printable_name(*write.key),
                "why": why,
            },
            extra=self._context(),
        )
