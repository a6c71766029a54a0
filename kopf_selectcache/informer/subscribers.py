"""Subscribers of the changes of one informer. They survive its restarts, and receive differences only.

When the informer replaces its store by an empty one, nothing is known about the objects until all lists are
complete. Their records are set aside meanwhile. An object that comes back in the same version is no change;
in another version it is an update; another object of its name is a departure and an entry. Objects that did
not come back have departed.

If a store is dropped because it is too large, its objects must be freed, so that only their metadata is set
aside. While an object is still there, each subscriber is asked what it needs of it later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from kopf_selectcache.core.errors import let_exit
from kopf_selectcache.core.store.change import Change, ChangeCause, replaced
from kopf_selectcache.core.store.record import EvictedRecord, Keep, Record
from kopf_selectcache.core.store.substore import ObjectKey

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

    def __init__(
        self,
        resource: object,
        logger: logging.Logger,
        deliver: Callable[[Callable[[Any], object]], Callable[[Any], object]],
    ) -> None:
        self._resource = resource  # `str` returns the name of the resource.
        self._logger = logger
        self._deliver = deliver
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
        deliver = self._deliver
        added = _Subscriber(
            deliver(listener),
            deliver(lambda _: completed()),
            Known(partial(self._call, keep), self._aside),
        )
        self._subscribers.append(added)
        return lambda: self._remove(added)

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
