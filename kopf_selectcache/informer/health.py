"""Condition: the health of an informer or a stream, with its cause. The cause is a value; `_messages` puts it
into words.

`StateLog` logs one line for each change of an informer's health, regardless of its number of streams. It
decides nothing. What concerns one stream among several is logged at the level DEBUG.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Protocol

from kopf_selectcache._errors import (
    NO_CAUSE,
    Cause,
    DeclarationError,
    Forbidden,
    Missing,
    Oversized,
    Rejected,
    Stalled,
    StateError,
    Unauthorized,
)
from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.core.errors import MetricReason, ReasonLabel, TooLarge, Untransformed, reason_of_code
from kopf_selectcache.core.protocol.machine import Lost, Silent
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.redact import Phrase, clipped, printable, printable_name
from kopf_selectcache.core.selection.grammar import Unselected
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.store.record import UnreadableRecord
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.selectors.kind_keys import SETTINGS, Site, assigned
from kopf_selectcache.selectors.selector import Branches, Selector
from kopf_selectcache.settings.checks import readable

from ._messages import SOON, Described, Failure, Subject, asking, describe
from .memory import Evicted, bytes_of

NO_ANSWER = Cause(transient=True)


def cause_of(failure: Refusal | Lost | Silent | Exception) -> Cause:
    """Return the cause of a failed request: a refusal, an invalid or incomplete answer, or no answer."""
    if isinstance(failure, Refusal):
        return Cause(failure.code, failure.reason, failure.retry_after, failure.is_transient)
    lasting = (
        failure.transform or failure.outside or failure.too_large
        if isinstance(failure, Lost)
        else isinstance(failure, (Untransformed, Unselected, TooLarge))
    )
    # These failures repeat: a transform fails for the same object, a selector is ignored, an object is as
    # large.
    return NO_CAUSE if lasting else NO_ANSWER


def reason_of(failure: Refusal | Lost | Silent) -> ReasonLabel:
    """Return the reason of a failure, for metrics."""
    match failure:
        case Refusal(code):
            return reason_of_code(code)
        case Lost(transform=True):
            return MetricReason.TRANSFORM
        case Lost(garbled=True):
            return MetricReason.GARBLED
        case Lost(outside=True):
            return MetricReason.OUTSIDE
        case Lost():
            return MetricReason.LOST
        case _:
            return MetricReason.SILENT


TOLERATED = 15.0
"""Seconds of failures until a synced informer becomes stale or forbidden.

Servers end every watch after some minutes, and restart. A server that starts denies all requests until it has
loaded the RBAC rules."""

SEVERAL = 3
"""Number of equal answers in a row that count as lasting: a missing permission, or invalid answers."""


class Health(StrEnum):
    """The health of an informer or a stream."""

    SYNCING = "syncing"
    """The first list is not complete, or its watch is not open yet."""
    SYNCED = "synced"
    """The list is complete, and the watch follows."""
    STALE = "stale"
    """The list is complete, but the watch has failed for a while. Reads are answered: `age` is the age of the
    answer."""
    STALLED = "stalled"
    """The first list has not completed within `sync_timeout`. Reads raise; requests go on."""
    UNAUTHORIZED = "unauthorized"
    """The server accepts no credentials of the operator, or no login handler returns any."""
    FORBIDDEN = "forbidden"
    """A permission is missing."""
    MISSING = "missing"
    """The cluster does not serve the kind."""
    REJECTED = "rejected"
    """The cluster refuses the selector, or the declaration contradicts the resource that the cluster
    serves."""
    OVERSIZED = "oversized"
    """The store exceeded `max_bytes` and was dropped. It is listed again about every 10 minutes."""


_UNREADABLE: Mapping[Health, type[StateError]] = {
    Health.STALLED: Stalled,
    Health.UNAUTHORIZED: Unauthorized,
    Health.FORBIDDEN: Forbidden,
    Health.MISSING: Missing,
    Health.REJECTED: Rejected,
    Health.OVERSIZED: Oversized,
}


_GRAVITY = (
    Health.SYNCED,
    Health.STALE,
    Health.SYNCING,
    Health.STALLED,
    Health.OVERSIZED,
    Health.MISSING,
    Health.UNAUTHORIZED,
    Health.FORBIDDEN,
    Health.REJECTED,
)
"""All values; the worst comes last."""


_PRECISE = frozenset({Health.UNAUTHORIZED, Health.FORBIDDEN, Health.REJECTED, Health.OVERSIZED})
"""Conditions whose failures the log tells apart: only a person can help, and must know the present failure.
Other failures have many forms, which would repeat the log line."""


def _lasting(failure: Failure) -> Health | None:
    """Return the health that a failure leads to at once; None if it may be transient."""
    match failure:
        case Refusal(404) | NotServed():
            return Health.MISSING
        case Refusal(400) | Refusal(422) | Refusal(405) | Lost(outside=True) | DeclarationError():
            return Health.REJECTED
        case Evicted():
            return Health.OVERSIZED
        case _:
            return None


def _denied(failure: Failure) -> Health | None:
    """Return the health for a denied request; None for other failures. A server that starts denies all
    requests.
    """
    match failure:
        case Refusal(403):
            return Health.FORBIDDEN
        case Refusal(401) | Lost(unauthorized=True):
            return Health.UNAUTHORIZED
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Status:
    """One version of a condition. It is replaced as a whole, since reads in any thread look at it."""

    health: Health
    began: float
    """The time at which the health began; staleness begins at `stale_at`."""
    failure: Failure | None = None
    verb: str = ""
    """The verb of the request that failed."""
    stale_at: float | None = None
    """The time at which a synced informer with a failure becomes stale."""


class Condition:
    """The health of one stream, or of an informer that resolves its key, with its cause."""

    def __init__(
        self,
        subject: Subject,
        *,
        key: KindKey,
        sync_timeout: float,
        clock: Callable[[], float],
        report: Callable[[Condition, Phrase | None], None],
        unreadable: Callable[[], None],
        unsettled: Callable[[], None] = lambda: None,
        since: float | None = None,
        line: Callable[[], str] | None = None,
        site: Site = SETTINGS,
    ) -> None:
        self.subject = subject
        self._site = site
        self.line = line or partial(assigned, key)
        """Returns the assignment or the call that declares the kind, for messages."""
        self.readable = True
        """True if reads may be answered once there was a complete list: if there is no `error`."""
        self._key = key  # As it was declared.
        self._sync_timeout = sync_timeout
        self._clock = clock  # Reads call it in any thread.
        self._report = report  # Called once for each change, with a log line, or None after the failure.
        self._unreadable = unreadable  # Called when reads begin to raise.
        self._unsettled = unsettled  # Called when those who wait for it may have to wait again.
        self._status = Status(Health.SYNCING, clock() if since is None else since)
        self._denied_since: float | None = None
        self._denials = 0
        self._garbled = 0
        self._settled = asyncio.Event()

    @property
    def health(self) -> Health:
        """The present health: time alone makes a synced informer with a failure stale."""
        return self._health_of(self._status)

    def _health_of(self, status: Status) -> Health:
        if (
            status.health is Health.SYNCED
            and status.stale_at is not None
            and self._clock() >= status.stale_at
        ):
            return Health.STALE
        return status.health

    def lasted(self) -> float:
        """Return for how many seconds the stream has had its present health."""
        status = self._status
        stale = self._health_of(status) is Health.STALE and status.stale_at is not None
        return self._clock() - (status.stale_at if stale and status.stale_at is not None else status.began)

    @property
    def since(self) -> float:
        """The time at which its present health began."""
        return self._status.began

    @property
    def is_missing(self) -> bool:
        """True if the cluster does not serve the kind."""
        return self._status.health is Health.MISSING

    @property
    def gravity(self) -> int:
        """The rank of the health among others; the worst is the highest."""
        return _GRAVITY.index(self.health)

    @property
    def failure(self) -> Failure | None:
        """The cause of the condition; None if there is no failure."""
        return self._status.failure

    @property
    def message(self) -> str:
        """The failure, as a sentence without its full stop; empty if there is none."""
        return str(self._described(self._status).message)

    @property
    def remedy(self) -> str:
        """The one thing to change."""
        return str(self._remedy(self._status))

    @property
    def precise(self) -> str:
        """A text that is equal for conditions that share one log line."""
        status = self._status
        return str(self._described(status).what) if status.health in _PRECISE else status.health.value

    def error(self) -> StateError | None:
        """Return the error that reads must raise; None if they may be answered."""
        status = self._status
        error = _UNREADABLE.get(status.health)
        if error is None:
            return None
        described = self._described(status)
        return error(str(described.message), remedy=str(self._remedy(status)), cause=_cause(status))

    def until_stalled(self) -> float | None:
        """Return the seconds until the health becomes `stalled`; None if the first list is complete, or the
        health is not `syncing`.
        """
        status = self._status
        waits = status.health is Health.SYNCING and not self.subject.version
        return max(0.0, status.began + self._sync_timeout - self._clock()) if waits else None

    @property
    def has_settled(self) -> bool:
        """True if it has been synced, or has failed."""
        return self._settled.is_set()

    async def wait_until_settled(self) -> None:
        """Wait until it is synced, or has failed."""
        await self._settled.wait()

    def dismiss(self) -> None:
        """Wake all who wait: the stream ends."""
        self._settled.set()

    def reset(self) -> None:
        """Return to `syncing` without a failure, and wake all waiters."""
        self._status, self.readable = Status(Health.SYNCING, self._clock()), True
        self._denied_since, self._denials, self._garbled = None, 0, 0
        self._settled.set()  # Waiters check the state again.
        self._settled = asyncio.Event()
        self._unsettled()

    # ---- Changes.

    def report_to(
        self, report: Callable[[Condition, Phrase | None], None], unreadable: Callable[[], None]
    ) -> None:
        """Call these from now on, instead of those that it was created with."""
        self._report, self._unreadable = report, unreadable

    def well(self) -> None:
        """Note that the server accepts the requests."""
        self._denied_since, self._denials, self._garbled = None, 0, 0
        if self.subject.version:
            self._set(Health.SYNCED)
        # In these two the server accepted the requests before as well, and the list did not complete.
        elif self._status.health not in (Health.STALLED, Health.OVERSIZED):
            self._set(Health.SYNCING)

    def fail(self, failure: Failure, *, verb: str = "") -> None:
        """Note a failure. `verb` is that of the request: `list`, `watch`, or `get` for discovery."""
        garbled = isinstance(failure, Lost) and failure.garbled
        self._garbled = self._garbled + 1 if garbled else 0
        if (lasting := _lasting(failure)) is not None:
            self._set(lasting, failure, verb)
        elif isinstance(failure, Lost) and failure.lived:
            pass  # Servers end every watch after a while.
        elif (denied := _denied(failure)) is not None:
            self._deny(denied, failure, verb)
        else:
            self._hinder(failure, verb)

    def repeat(self) -> None:
        """Note that the failure lasts. Called during a long wait, so that the condition becomes `stalled` in
        time.
        """
        self._hinder(self._status.failure, self._status.verb)

    def _deny(self, health: Health, failure: Failure, verb: str) -> None:
        now, status = self._clock(), self._status
        self._denied_since = now if self._denied_since is None else self._denied_since
        self._denials += 1
        if status.health is Health.SYNCED and (
            self._denials < SEVERAL or now - self._denied_since < TOLERATED
        ):
            # It may be stale already, because of another failure.
            self._set(
                Health.SYNCED, failure, verb, now if status.stale_at is None else min(now, status.stale_at)
            )
        else:
            self._set(health, failure, verb)

    def _hinder(self, failure: Failure | None, verb: str) -> None:
        """Note a failure that may be transient."""
        now, status = self._clock(), self._status
        if status.health is Health.SYNCED:
            since = now + TOLERATED if status.stale_at is None else status.stale_at
            self._set(Health.SYNCED, failure, verb, since)
        elif status.health is Health.STALLED:
            self._set(Health.STALLED, failure, verb)
        elif status.health is Health.SYNCING:
            complete = bool(self.subject.version)
            if now - status.began < self._sync_timeout and (complete or self._garbled < SEVERAL):
                self._set(Health.SYNCING, failure, verb)
            elif complete:  # The list is complete, but no watch follows it: the informer is stale.
                self._set(Health.SYNCED, failure, verb, now)
            else:
                self._set(Health.STALLED, failure, verb)
        # Else the present health needs a person's help, and this failure does not end it.

    def _set(
        self,
        health: Health,
        failure: Failure | None = None,
        verb: str = "",
        stale_at: float | None = None,
    ) -> None:
        """Replace the status, and report the change once."""
        before = self._status
        after = Status(health, self._clock(), failure, verb, stale_at)
        if health is before.health:
            after = replace(after, began=before.began)
        self._status = after
        self.readable = health not in _UNREADABLE
        if health is not before.health:
            # It may list for the first time now: what has failed was settled.
            (self._unsettled if self.readable else self._unreadable)()
        if health is not Health.SYNCING:
            self._settled.set()
        if failure is not None:
            described = self._described(after)
            if (
                health is not before.health
                or before.failure is None
                or (health in _PRECISE and str(described.what) != str(self._described(before).what))
            ):
                remedy = self._remedy(after).on_one_line()
                self._report(
                    self, Phrase("%(message)s. %(remedy)s.", message=described.message, remedy=remedy)
                )
        elif health is Health.SYNCED and (before.health is not health or before.failure is not None):
            self._report(self, None)

    # ---- In words.

    def _described(self, status: Status) -> Described:
        return describe(status.failure, self.subject, self._key, self.line(), status.verb, self._site)

    def _remedy(self, status: Status) -> Phrase:
        described = self._described(status)
        if status.failure is not None and status.health is Health.STALLED:
            return asking(described, self._site)
        if status.failure is not None and status.health is Health.SYNCED and _denied(status.failure):
            return SOON
        return described.remedy


def _cause(status: Status) -> Cause:
    return cause_of(status.failure) if isinstance(status.failure, (Refusal, Lost, Silent)) else NO_CAUSE


LOG_INTERVAL = 60.0
"""Seconds between two log lines about the unreadable objects of one cache. Objects that come meanwhile are in
the next line."""

NAMED = 5
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
        """The level of the line that the cache is complete: after a warning always that of other lines."""
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
                    "objects": _counted(subject.held(), "object"),
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
            self._next_line = self._clock() + LOG_INTERVAL
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
                "objects": _counted(len(records), "object"),
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
    """Return the names of up to `NAMED` unreadable objects, each with the reason and its version."""
    named = [
        f"{printable_name(*record.key)} ({record.why}, version {printable(record.version, 50)})"
        for record in islice(unreadable, NAMED)
    ]
    return "; ".join(named) + (f"; and {len(unreadable) - NAMED:,} more" if len(unreadable) > NAMED else "")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
