"""Health: the state of an informer or a stream, with its cause. The cause is a value, and the table `CAUSES`
says what each leads to: the health, the sentence, the ways out, and the reason in metrics. The log, the probe
and the errors of reads take them from there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

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
    call_of,
)
from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.core.errors import MetricReason, ReasonLabel, reason_of_code
from kopf_selectcache.core.protocol.machine import Lost, Silent
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.redact import NOTHING, Phrase, clipped, counted
from kopf_selectcache.core.selection.kinds import Kind, KindKey
from kopf_selectcache.selectors.kind_keys import SETTINGS, Site, assigned, unserved
from kopf_selectcache.selectors.selector import Branches, Selector
from kopf_selectcache.settings.checks import readable

from .memory import RETRY_EVICTED_SECONDS, Evicted


class Health(StrEnum):
    """The health of an informer or a stream. The worst comes last."""

    SYNCED = "synced"
    """The list is complete, and the watch follows."""
    STALE = "stale"
    """The list is complete, but the watch has failed for a while. Reads are answered: `age` is the age of the
    answer."""
    SYNCING = "syncing"
    """The first list is not complete, or its watch is not open yet."""
    STALLED = "stalled"
    """The first list has not completed within `sync_timeout`. Reads raise; requests go on."""
    OVERSIZED = "oversized"
    """The store exceeded `max_bytes` and was dropped. It is listed again about every 10 minutes."""
    MISSING = "missing"
    """The cluster does not serve the kind."""
    UNAUTHORIZED = "unauthorized"
    """The server accepts no credentials of the operator, or no login handler returns any."""
    FORBIDDEN = "forbidden"
    """A permission is missing."""
    REJECTED = "rejected"
    """The cluster refuses the selector, or the declaration contradicts the resource that the cluster
    serves."""


ERRORS: dict[Health | None, type[StateError]] = {
    Health.STALLED: Stalled,
    Health.UNAUTHORIZED: Unauthorized,
    Health.FORBIDDEN: Forbidden,
    Health.MISSING: Missing,
    Health.REJECTED: Rejected,
    Health.OVERSIZED: Oversized,
}
_PRECISE = frozenset({Health.UNAUTHORIZED, Health.FORBIDDEN, Health.REJECTED, Health.OVERSIZED})
"""Conditions whose failures the log tells apart: only a person can help, and must know the present failure.
Other failures have many forms, which would repeat the log line."""
_DENIALS = frozenset({Health.UNAUTHORIZED, Health.FORBIDDEN})
"""A server that starts denies all requests, so a synced informer tolerates these for a while."""

TOLERATED_SECONDS = 15.0
"""Seconds of failures until a synced informer becomes stale or forbidden.

Servers end every watch after some minutes, and restart. A server that starts denies all requests until it has
loaded the RBAC rules."""
LASTING_ANSWERS = 3
"""Number of equal answers in a row that count as lasting: a missing permission, or invalid answers."""
LOOKED_FOR = "\nThe cache waits for it"
"""The end of the remedy for a declared kind that is not served."""
CHECK = "selectcache check app.py"
"""The command that checks all declarations with the operator's own login."""

# ---- Causes: what each leads to, in one table.


class Mistake(NamedTuple):
    """A bug in this package, by the name of the exception."""

    error: str


Failure: TypeAlias = Refusal | Lost | Silent | NotServed | DeclarationError | Evicted | Mistake
"""The cause of a condition: the server's answer, a failed request, or a declaration that fails."""


class Row(NamedTuple):
    """One cause. The texts are `%` templates with the names of `_facts`. A single request, such as
    `fetch`, raises an error with the same sentence and the ways out in `asked`.
    """

    failure: type
    sentence: str
    ways_out: str
    health: Health | None = None
    """None if the failure may be transient: time decides."""
    codes: Collection[int] = ()
    flag: str = ""
    """The attribute of a `Lost` that must be true."""
    verb: str = ""
    """The verb of the request, if the row is for that verb only."""
    said: str = ""
    """The server's words, which may differ each time; they follow the sentence."""
    reason: MetricReason = MetricReason.SILENT
    """For metrics. Of a refusal, its status code is the reason."""
    repeats: bool = False
    """True if the same request would fail again, until a person helps."""
    asked: str = ""
    """The ways out of a single request; empty if there was no answer, so that it may be repeated."""
    meanwhile: str | None = ""
    """For a stalled cache: the arguments of `fetch`, which asks the server meanwhile; None if that would fail
    as well."""


_RETRIED = "The cache keeps retrying"
_SOON = Phrase(f"{_RETRIED}: a server that has just started refuses everybody")
_LOG_IN = f"Correct %(login)s\n{_RETRIED}"

CAUSES = (
    Row(NotServed, "%(problem)s", f"%(advice)s{LOOKED_FOR}", Health.MISSING),
    Row(DeclarationError, "%(problem)s", "%(advice)s", Health.REJECTED),
    Row(
        Evicted,
        "%(resource)s: the %(store)s was emptied, because %(grown)s exceeded %(limit)s",
        "Select less in %(declared)s, or keep less of each object: Cached(..., keep=[...])\n"
        "Or raise %(limit)s\n%(then)s",
        Health.OVERSIZED,
        said="%(held)s",
    ),
    Row(
        Mistake,
        "%(resource)s: a bug in kopf_selectcache: %(error)s",
        "Report it, with the traceback in the operator's log",
    ),
    Row(
        Refusal,
        "%(resource)s: %(whose)s does not have permission to discover what the cluster serves",
        "Bind it to the ClusterRole system:discovery",
        Health.FORBIDDEN,
        codes=(403,),
        verb="get",
        said="%(message)s",
        asked="Bind it to the ClusterRole system:discovery",
    ),
    Row(
        Refusal,
        "%(whose)s does not have permission to %(verb)s %(kind)s%(where)s",
        "Grant it the verbs list and watch%(role)s: %(rule)s (for %(declared)s, %(clipped)s)%(narrower)s"
        "%(check_all)s",
        Health.FORBIDDEN,
        codes=(403,),
        said="%(message)s",
        asked="Grant it the verb %(verb)s%(where)s: %(rule)s",
    ),
    Row(
        Refusal,
        "the cluster does not serve %(kind)s",
        f"Install the definition of %(resource)s\nOr remove %(declared)s{LOOKED_FOR}",
        Health.MISSING,
        codes=(404,),
        asked="%(advice)s",
    ),
    Row(
        Refusal,
        "%(resource)s: the server refuses %(request)s",
        "Give %(declared)s a selector that the server supports for this kind%(check_one)s",
        Health.REJECTED,
        codes=(400, 422),
        said="%(message)s",
        asked="Correct the selectors\nCompare a path with where=",
    ),
    Row(
        Refusal,
        "the server can't %(verb)s %(kind)s",
        "Remove %(declared)s\nTo ask the server: %(fetch)s",
        Health.REJECTED,
        codes=(405,),
        asked="Remove this read",
    ),
    Row(
        Refusal,
        "%(resource)s: the server does not accept %(whose)s's credentials",
        _LOG_IN,
        Health.UNAUTHORIZED,
        codes=(401,),
        said="%(message)s",
        asked="Correct %(login)s",
    ),
    Row(Refusal, "%(resource)s: the server answers %(answer)s", _RETRIED, asked="%(later)s"),
    Row(
        Lost,
        "%(resource)s: the server, or a proxy in front of it, ignores %(selector)s",
        "Correct the server or proxy that ignores labelSelector or fieldSelector\n"
        "Or give %(declared)s a selector that it supports",
        Health.REJECTED,
        flag="outside",
        said="%(why)s",
        reason=MetricReason.OUTSIDE,
        repeats=True,
        asked="Correct that server or proxy\nLeave out labels=, and filter the answer",
    ),
    Row(
        Lost,
        "%(resource)s: %(why)s",
        _LOG_IN,
        Health.UNAUTHORIZED,
        flag="unauthorized",
        reason=MetricReason.LOST,
        asked="Correct %(login)s",
    ),
    Row(
        Lost,
        "%(resource)s: %(why)s",
        "Correct the %(argument)s of %(declared)s%(besides)s",
        flag="transform",
        reason=MetricReason.TRANSFORM,
        repeats=True,
        asked="Correct %(argument)s of the declaration%(besides)s\nTo read whole objects: %(whole)s",
        meanwhile="whole=True",
    ),
    Row(
        Lost,
        "%(resource)s: the answer is too large: %(why)s",
        "Give %(declared)s a filter that selects less\nOr allow larger answers:"
        f" settings.selectcache.max_page_bytes = ...\n{_RETRIED}",
        flag="too_large",
        reason=MetricReason.GARBLED,
        repeats=True,
        asked="Ask for less\nAllow larger answers: settings.selectcache.max_page_bytes = ...",
        meanwhile=None,
    ),
    Row(Lost, "%(resource)s: %(why)s", _RETRIED, flag="garbled", reason=MetricReason.GARBLED),
    Row(Lost, "%(resource)s: %(why)s", _RETRIED, reason=MetricReason.LOST),
    Row(Silent, "%(resource)s: the server has stopped sending", _RETRIED),
)
"""The first row that fits a failure is its row."""


def row_of(failure: Failure, verb: str = "") -> Row:
    """Return what a failure leads to. `verb` is that of the request: `list`, `watch`, or `get` for
    discovery.
    """
    return next(
        row
        for row in CAUSES
        if isinstance(failure, row.failure)
        and (not row.codes or getattr(failure, "code", None) in row.codes)
        and (not row.flag or getattr(failure, row.flag))
        and row.verb in ("", verb)
    )


def cause_of(failure: Failure) -> Cause:
    """Return the cause of a failure, as errors have it."""
    match failure:
        case Refusal(code, reason, _, retry_after):
            return Cause(code, reason, retry_after, failure.is_transient)
        case Lost() | Silent() if not row_of(failure).repeats:
            return Cause(transient=True)
        case _:
            return NO_CAUSE


def reason_of(failure: Refusal | Lost | Silent) -> ReasonLabel:
    """Return the reason of a failure, for metrics."""
    return reason_of_code(failure.code) if isinstance(failure, Refusal) else row_of(failure).reason


class Subject(Protocol):
    """The stream, or the informer, that a condition is about."""

    @property
    def kind(self) -> Kind | None: ...
    @property
    def filter(self) -> Branches: ...
    @property
    def version(self) -> str: ...
    def held(self) -> int:
        """Return the number of stored objects."""


def _facts(
    failure: Failure, subject: Subject, key: KindKey, declared: str, verb: str, site: Site
) -> Iterator[tuple[str, object]]:
    """Yield what the texts of a row name."""
    yield from (("resource", subject), ("kind", subject), ("declared", declared), ("verb", verb))
    yield from (("request", f"the filter {subject.filter}"), ("selector", f"the selector {subject.filter}"))
    yield "clipped", clipped(subject.filter, 200)
    # These become a part of the template, by which logs are grouped.
    yield from (("whose", Phrase(site.whose)), ("login", Phrase(site.login)))
    yield "fetch", Phrase(call_of("fetch"))  # Its form is that of the running handler.
    yield "check_one", Phrase(f"\nTo try it: {CHECK}" if site.has_command else "")
    yield "check_all", Phrase(f"\nTo see all missing permissions: {CHECK}" if site.has_command else "")
    match failure:
        case NotServed():
            yield from (("problem", failure), ("advice", unserved(key, declared)))
        case DeclarationError(what=what, remedy=remedy):
            yield "problem", what if str(subject) in what else f"the filter of {subject}: {what}"
            yield "advice", remedy
        case Evicted():
            yield from _facts_of_eviction(failure)
        case Mistake(error):
            yield "error", error
        case Refusal(code, reason, message):
            yield from (("message", message), ("answer", f"{code} {reason}".rstrip()))
            yield from _facts_of_permission(subject, site)
        case Lost(why=why, argument=argument, besides=besides):
            yield from (("why", why), ("argument", argument), ("besides", besides))


def _facts_of_permission(subject: Subject, site: Site) -> Iterator[tuple[str, str]]:
    kind, filter_ = subject.kind, subject.filter
    spaces, names = (filter_.namespaces, filter_.names) if isinstance(filter_, Selector) else (None, None)
    # A list and watch of several namespaces is one of all.
    where = f" in the namespace {spaces[0]}" if spaces is not None and len(spaces) == 1 else ""
    rule = (
        f"apiGroups: [{kind.group!r}], resources: [{kind.plural!r}]"
        if kind is not None
        else f"the resource {subject}"
    )
    if names is not None and len(names) == 1:  # The server allows a list and a watch of that name.
        rule += f", resourceNames: {list(names)!r}"
    anywhere = " in a ClusterRole" if not where and kind is not None and kind.namespaced else ""
    yield from (("where", where), ("role", where or anywhere), ("rule", rule))
    is_narrowed = bool(anywhere) and spaces is None
    yield "narrower", f"\nOr, for a single namespace, {site.one_namespace}" if is_narrowed else ""


def _facts_of_eviction(evicted: Evicted) -> Iterator[tuple[str, str]]:
    objects, size, limit, total = evicted.excess
    held = readable(size) if total is None else f"{readable(size)} of {readable(total)}"
    yield "store", "cache for the new filter" if evicted.is_next else "cache"
    yield "limit", f"{'max_bytes=' if total is None else 'settings.selectcache.max_bytes = '}{limit!r}"
    yield "grown", "it" if total is None else "all caches together"
    yield "held", f"it had {counted(objects, 'object')} with {clipped(evicted.filter, 200)}, {held}"
    again = f"The cache retries about every {RETRY_EVICTED_SECONDS / 60:g} minutes"
    meanwhile = f"{again}\nMeanwhile, {call_of('fetch')} asks the server"
    yield "then", "The previous filter is still in use" if evicted.is_next else meanwhile


# ---- The condition of one stream.


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
        return [*Health].index(self.health)

    @property
    def failure(self) -> Failure | None:
        """The cause of the condition; None if there is no failure."""
        return self._status.failure

    @property
    def message(self) -> str:
        """The failure, as a sentence without its full stop; empty if there is none."""
        return str(self._message(self._status))

    @property
    def remedy(self) -> str:
        """The one thing to change."""
        return str(self._remedy(self._status))

    @property
    def precise(self) -> str:
        """A text that is equal for conditions that share one log line."""
        status = self._status
        return str(self._sentence(status)) if status.health in _PRECISE else status.health.value

    def error(self) -> StateError | None:
        """Return the error that reads must raise; None if they may be answered."""
        status = self._status
        error = ERRORS.get(status.health)
        if error is None:
            return None
        cause = NO_CAUSE if status.failure is None else cause_of(status.failure)
        return error(str(self._message(status)), remedy=str(self._remedy(status)), cause=cause)

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
        health = row_of(failure, verb).health
        if health in _DENIALS:
            self._deny(health, failure, verb)
        elif health is not None:
            self._set(health, failure, verb)
        elif not (isinstance(failure, Lost) and failure.lived):  # Servers end every watch after a while.
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
            self._denials < LASTING_ANSWERS or now - self._denied_since < TOLERATED_SECONDS
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
            since = now + TOLERATED_SECONDS if status.stale_at is None else status.stale_at
            self._set(Health.SYNCED, failure, verb, since)
        elif status.health is Health.STALLED:
            self._set(Health.STALLED, failure, verb)
        elif status.health is Health.SYNCING:
            complete = bool(self.subject.version)
            if now - status.began < self._sync_timeout and (complete or self._garbled < LASTING_ANSWERS):
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
        self.readable = health not in ERRORS
        if health is not before.health:
            # It may list for the first time now: what has failed was settled.
            (self._unsettled if self.readable else self._unreadable)()
        if health is not Health.SYNCING:
            self._settled.set()
        if failure is not None:
            if (
                health is not before.health
                or before.failure is None
                or (health in _PRECISE and str(self._sentence(after)) != str(self._sentence(before)))
            ):
                remedy = self._remedy(after).on_one_line()
                line = Phrase("%(message)s. %(remedy)s.", message=self._message(after), remedy=remedy)
                self._report(self, line)
        elif health is Health.SYNCED and (before.health is not health or before.failure is not None):
            self._report(self, None)

    # ---- In words.

    def _text(self, status: Status, template: str) -> Phrase:
        """Fill a text of the failure's row."""
        if status.failure is None or not template:
            return NOTHING
        facts = dict(_facts(status.failure, self.subject, self._key, self.line(), status.verb, self._site))
        return Phrase(template, **{name: facts[name] for name in re.findall(r"%\((\w+)\)", template)})

    def _sentence(self, status: Status) -> Phrase:
        """Return the failure without the server's words, which may differ each time."""
        return NOTHING if status.failure is None else self._text(status, _row(status).sentence)

    def _message(self, status: Status) -> Phrase:
        """Return the failure, with the server's words."""
        sentence = self._sentence(status)
        said = str(self._text(status, _row(status).said)) if status.failure is not None else ""
        return Phrase("%(sentence)s: %(said)s", sentence=sentence, said=said) if said else sentence

    def _remedy(self, status: Status) -> Phrase:
        if status.failure is None:
            return NOTHING
        row = _row(status)
        if status.health is Health.SYNCED and row.health in _DENIALS:
            return _SOON
        remedy = self._text(status, row.ways_out)
        if status.health is not Health.STALLED:
            return remedy
        template = "%(remedy)s"
        if row.meanwhile is not None:
            reads = f"{call_of('fetch', row.meanwhile)} and {call_of('fetch_list', row.meanwhile)}"
            template += f"\nMeanwhile, {reads} ask the server"
        if self._site.has_command:
            template += f"\nTo see what the server answers: {CHECK}"
        return Phrase(template, remedy=remedy)


def _row(status: Status) -> Row:
    assert status.failure is not None, "there is a failure"
    return row_of(status.failure, status.verb)
