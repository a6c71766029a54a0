"""Subscribers of the changes of one informer. They survive its restarts, and receive differences only.

When the informer replaces its store by an empty one, nothing is known about the objects until all lists are
complete. Their records are set aside meanwhile. An object that comes back in the same version is no change;
in another version it is an update; another object of its name is a departure and an entry. Objects that did
not come back have departed.

If a store is dropped because it is too large, its objects must be freed, so that only their metadata is set
aside. While an object is still there, each subscriber is asked what it needs of it later.

`Resyncer` passes all stored objects to the subscribers again, once per period. It sends no request.
`PendingWrites` passes own writes on to the informer, and wakes those who wait for changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from kopf_selectcache._errors import own_loop
from kopf_selectcache.core.errors import let_exit
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.store.changes import Change, ChangeCause, replaced
from kopf_selectcache.core.store.claims import OwnWrite, OwnWrites
from kopf_selectcache.core.store.record import EvictedRecord, Keep, ObjectKey, Record
from kopf_selectcache.core.store.store import Store

from .environment import Environment, sleep_until
from .state import InformerState

Listener: TypeAlias = Callable[[Change | None], None]
"""A subscriber of changes. None means that reads must raise, or that the filter has changed."""

Completed: TypeAlias = Callable[[], object]
"""Called when the store is complete, for the first time or after a restart."""


class Known:
    """The knowledge of one subscriber about the objects that are set aside."""

    def __init__(self, keep: Keep, unknown: Iterable[ObjectKey]) -> None:
        self._keep = keep
        self._kept: dict[ObjectKey, Any] = {}
        self._unknown = set(unknown)
        """Objects that it has not received, or does not want."""

    def keep(self, record: Record) -> None:
        """Ask what the subscriber needs of an object that is about to be evicted."""
        if record.key in self._unknown:
            return
        kept = self._keep(record)
        if kept is None:
            self._unknown.add(record.key)
        elif kept is not True:
            self._kept[record.key] = kept

    def pop(self, record: Record) -> Record | None:
        """Return a record that was set aside, as the subscriber knows it; None if it does not."""
        if record.key in self._unknown:
            self._unknown.remove(record.key)
            return None
        if isinstance(record, EvictedRecord):
            return replace(record, kept=self._kept.pop(record.key, True))
        return record


def differences(former: Record | None, change: Change) -> Sequence[Change]:
    """Return what the arrival of an object changes for a subscriber that knows it in this former state, or
    does not know it.
    """
    after = change.after
    assert after is not None, "it arrives"
    if former is None:
        return (change,)
    if former.uid != after.uid:
        return (replaced(former), change)
    if former.version == after.version:
        return ()
    return (Change(former, after, ChangeCause.UPDATED),)


class _Subscriber(NamedTuple):
    listener: Callable[[Any], object]
    completed: Callable[[Any], object]
    known: Known


class Subscribers:
    """The listeners that are called with each change. A failing listener does not affect the others."""

    def __init__(self, resource: object, logger: logging.Logger) -> None:
        self._resource = resource  # `str` returns the name of the resource.
        self._logger = logger
        self._subscribers: list[_Subscriber] = []
        self._aside: dict[ObjectKey, Record] = {}
        """The records that may or may not still exist. One is removed when an object of its name arrives."""
        self.await_completion = True
        """True if the store is not complete yet, and `complete` is due."""

    def add(
        self, listener: Listener, completed: Completed = lambda: None, keep: Keep = lambda _: True
    ) -> Callable[[], None]:
        """Call the listener with each change from now on; return the function that ends that. `keep` is
        called before an object is evicted.
        """
        added = _Subscriber(listener, lambda _: completed(), Known(partial(self._call, keep), self._aside))
        self._subscribers.append(added)
        return lambda: self._remove(added)

    def __bool__(self) -> bool:
        return bool(self._subscribers)

    def _remove(self, subscriber: _Subscriber) -> None:
        self._subscribers.remove(subscriber)
        if not self._subscribers:
            self._aside = {}  # Nobody knows the objects.

    def notify(self, change: Change | None) -> None:
        after = None if change is None else change.after
        former = self._aside.pop(after.key, None) if self._aside and after is not None else None
        for each in tuple(self._subscribers):
            if change is None or former is None:
                self._call(each.listener, change)
                continue
            for difference in differences(each.known.pop(former), change):
                self._call(each.listener, difference)

    def drop(self, records: Sequence[Record], *, is_evicted: bool) -> None:
        """Note that the store is empty. Subscribers receive what has become of its records once that is
        known.
        """
        self.await_completion = True
        if self._subscribers:
            self._aside.update((record.key, record) for record in records)
        if is_evicted:  # It frees the objects of an earlier restart, too.
            for key, record in tuple(self._aside.items()):
                if not isinstance(record, EvictedRecord):
                    for each in tuple(self._subscribers):
                        each.known.keep(record)
                    self._aside[key] = EvictedRecord.of(record) if record.stored else record

    def complete(self, departure_of: Callable[[Record], Change]) -> None:
        """Notify all that the store is complete, and of the departures that a restart has hidden."""
        self.await_completion = False
        subscribers = tuple(self._subscribers)  # One that begins now has received none of these.
        aside, self._aside = self._aside, {}
        for record in aside.values():
            departure = departure_of(record)
            for each in subscribers:
                known = each.known.pop(record)
                if known is not None:
                    self._call(each.listener, replace(departure, before=known))
        for each in tuple(self._subscribers):
            self._call(each.completed, None)

    def _call(self, called: Callable[[Any], Any], argument: object) -> Any:
        """Call a function of a subscriber and return its result; log its error, and return True then."""
        try:
            return called(argument)
        except BaseException as error:
            let_exit(error)
            self._logger.exception(
                "A subscriber to the changes of %(resource)s failed.",
                {"resource": str(self._resource)},
                extra={"resource": str(self._resource)},
            )
            return True


RESYNC_JITTER_RATIO = 0.1
"""Part of the period by which it is longer or shorter, so that kinds and operators do not resync at once."""

SLICE_OBJECTS = 20
"""Number of objects that subscribers receive before other tasks run. A subscriber may decode each."""

PAUSE_SECONDS = 10.0
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
                self._pass_on(SLICE_OBJECTS)
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
                jitter = RESYNC_JITTER_RATIO * (2 * environment.chance() - 1)
                self._due = environment.clock() + self._period * (1 + jitter)
            await sleep_until(self._changed, environment.sleep(max(0.0, self._due - environment.clock())))
            if not self._changed.is_set():
                return

    async def _wait_until_synced(self) -> None:
        """Wait until the cache follows the server: a stale object may have been changed or deleted."""
        while not self._is_synced():
            await self._environment.sleep(PAUSE_SECONDS * (0.5 + self._environment.chance()))

    def _pass_on(self, most: int) -> None:
        """Notify subscribers of objects in their present state. Others have departed meanwhile."""
        store = self._store()
        for _ in range(min(most, len(self._left))):
            record, _ = store.get(*self._left.popleft())
            if record is not None:
                self._notify(Change(record, record, ChangeCause.RESYNC))


class PendingWrites:
    """The own writes of one informer, as they are added and dropped. Any thread may call `add`."""

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
        self._has_new = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # Known while `run` runs.
        self._listeners: list[Callable[[Change], None]] = []

    def add(self, write: OwnWrite, state: InformerState) -> None:
        """Show a write in reads of a state, and notify those who wait for changes."""
        own_writes = state.own_writes
        with own_writes.lock:
            dropped = state.union.add_own(write)
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
        self._has_new.set()
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
            await self._has_new.wait()
            self._has_new.clear()
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
            " show what the watch has reported.",
            {
                "resource": str(self._resource),
                "object": printable_name(*write.key),
                "why": why,
            },
            extra=self._context(),
        )
