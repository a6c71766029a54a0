"""The log of an informer: one line for each change of its health, regardless of its number of streams. It
decides nothing. What concerns one stream among several is logged at the level DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Protocol

from kopf_selectcache.core.redact import Phrase, clipped, counted, printable, printable_name
from kopf_selectcache.core.store.record import UnreadableRecord
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.selectors.selector import Branches, Selector
from kopf_selectcache.settings.checks import readable

from .health import Condition, Health
from .memory import bytes_of

LOG_INTERVAL_SECONDS = 60.0
"""Seconds between two log lines about the unreadable objects of one cache. Objects that come meanwhile are in
the next line."""

NAMED_OBJECTS = 5
"""Number of unreadable objects that one line names."""


class LoggedState(Protocol):
    """The part of the state of an informer that its log reads."""

    @property
    def filter(self) -> Branches: ...
    @property
    def health(self) -> Health: ...
    @property
    def store(self) -> Store: ...


class Logged(Protocol):
    """The informer that a log record is about."""

    @property
    def state(self) -> LoggedState: ...


def context_of(cache: Logged) -> dict[str, str]:
    """Return the attributes of a log record (`extra`) about a cache."""
    return _context(cache, cache.state.filter, cache.state.health)


def context_of_stream(condition: Condition) -> dict[str, str]:
    """Return the attributes of a log record (`extra`) about a stream."""
    return _context(condition.subject, condition.subject.filter, condition.health)


def _context(resource: object, filter_: Branches, state: Health) -> dict[str, str]:
    return {"resource": str(resource), "filter": clipped(filter_), "state": state.value}


class StateLog:
    """The log of one informer."""

    def __init__(self, cache: Logged, *, clock: Callable[[], float], logger: logging.Logger) -> None:
        self._cache = cache
        self._clock = clock
        self._logger = logger
        self._causes: dict[Condition, str] = {}  # The present failures, by condition.
        self._lists_and_watches = 1
        self._is_whole = False
        self._since = clock()
        self._unreadable: Mapping[tuple[str, str], UnreadableRecord] = {}  # Those that the log has named.
        self.level = logging.INFO
        """The level of the line that the cache is synced. After a warning, it is INFO again."""
        self._next_line = float("-inf")  # The earliest time of the next line about unreadable objects.

    def begin(self, resolving: Condition, streams: Collection[Condition]) -> None:
        """Follow these conditions from now on."""
        self._causes = {
            condition: cause
            for condition, cause in self._causes.items()
            if condition is resolving or condition in streams
        }
        self._lists_and_watches = len(streams)

    def forget(self, condition: Condition) -> None:
        """Forget the failure of a condition."""
        self._causes.pop(condition, None)

    def report(self, condition: Condition, line: Phrase | None) -> None:
        """Log the failure of a stream, at DEBUG if another stream has the same failure; for None, its end."""
        if line is None:
            self._well(condition)
            return
        cause = condition.precise
        told = cause in self._causes.values()
        if not told:
            self.level = logging.INFO
        self._causes[condition] = cause
        if self._is_whole and self._cache.state.health not in (Health.SYNCED, Health.STALE):
            self._is_whole, self._since = False, self._clock()
        self._logger.log(
            logging.DEBUG if told else logging.WARNING,
            line.template,
            line.parts,
            extra=context_of_stream(condition),
        )

    def _well(self, condition: Condition) -> None:
        """Log that one stream is synced: if that completes the cache, or if the stream had a failure."""
        cause = self._causes.pop(condition, None)
        subject = condition.subject
        if self._lists_and_watches > 1:
            self._logger.debug(
                "The cache of %(resource)s has %(objects)s with %(filter)s so far. The rest is still being"
                " listed.",
                {
                    "resource": str(subject),
                    "objects": counted(subject.held(), "object"),
                    "filter": str(subject.filter),
                },
                extra=context_of_stream(condition),
            )
        if self.look() or cause is None or cause in self._causes.values():
            return
        if self._is_whole and not self._causes:
            self._logger.info(
                "The cache of %(resource)s follows the server again.",
                {"resource": str(self._cache)},
                extra=context_of(self._cache),
            )
        elif self._causes:  # Else the cache is not complete yet, and `look` logs that it is.
            self._logger.info(
                "The cache of %(resource)s follows the server again with %(filter)s.",
                {"resource": str(self._cache), "filter": clipped(subject.filter)},
                extra=context_of_stream(condition),
            )

    def _name_unreadable(self, unreadable: Mapping[tuple[str, str], UnreadableRecord]) -> None:
        before, self._unreadable = self._unreadable, unreadable
        unnamed = [
            record
            for key, record in unreadable.items()
            if key not in before or before[key].version != record.version
        ]
        if unnamed:
            self._next_line = self._clock() + LOG_INTERVAL_SECONDS
            self._logger.warning(
                "The cache of %(resource)s has objects that can't be decoded: %(objects)s. Reads that need"
                " one of them raise Unreadable. list_cached leaves it out.",
                {"resource": str(self._cache), "objects": in_words(unnamed)},
                extra=context_of(self._cache),
            )

    def look(self) -> bool:
        """Log unreadable objects, and that the cache is complete once it is; return True in the
        latter case.
        """
        cache, state = self._cache, self._cache.state
        unreadable = state.store.unreadable
        if unreadable is not self._unreadable and self._clock() >= self._next_line:
            self._name_unreadable(unreadable)
        if self._is_whole or not state.store.version or state.health is not Health.SYNCED:
            return False
        self._is_whole = True
        records, _ = state.store.records()
        over = f", over {self._lists_and_watches} lists and watches" if self._lists_and_watches > 1 else ""
        self._logger.log(
            self.level,
            "The cache of %(resource)s is synced: %(objects)s, %(size)s, with %(filter)s, in %(seconds).1f"
            " s%(over)s.",
            {
                "resource": str(cache),
                "objects": counted(len(records), "object"),
                "size": readable(bytes_of(records)),
                "filter": clipped(state.filter),
                "seconds": self._clock() - self._since,
                "over": over,
            },
            extra=context_of(cache),
        )
        return True


def warn_of_needless(cache: Logged, needless: Iterable[Selector], *, logger: logging.Logger) -> None:
    """Warn of selectors of a filter that select nothing that the others do not."""
    for each in needless:
        logger.warning(
            "The filter of %(resource)s has a selector that adds nothing to the others: %(selector)s.",
            {"resource": str(cache), "selector": str(each)},
            extra=context_of(cache),
        )


def in_words(unreadable: Collection[UnreadableRecord]) -> str:
    """Return the names of up to `NAMED_OBJECTS` unreadable objects, each with the reason and its version."""
    named = [
        f"{printable_name(*record.key)} ({record.why}, version {printable(record.version, 50)})"
        for record in islice(unreadable, NAMED_OBJECTS)
    ]
    return "; ".join(named) + (
        f"; and {len(unreadable) - NAMED_OBJECTS:,} more" if len(unreadable) > NAMED_OBJECTS else ""
    )
