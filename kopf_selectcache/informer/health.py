"""How one cache is doing: what is in the way, since when, in which words. Tells each change once; it must
decide no request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol

from kopf_selectcache._errors import (
    NO_CAUSE,
    Cause,
    Forbidden,
    Missing,
    Oversized,
    Rejected,
    Stalled,
    StateError,
    Unauthorized,
)
from kopf_selectcache.core.protocol.machine import Lost, Silent
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.selectors.selector import Branches, Selector

from .causes import cause_of
from .phrase import NOTHING, Phrase

TOLERATED = 15.0
"""
So many seconds may pass until a cache that was synced, and is in trouble, is called stale, or forbidden.

Servers end every watch after a while, and restart. One that starts refuses everybody until it has read who
has which rights. """

CHECK = "selectcache check operator.py"
"""What looks at all that is declared, with the operator's own login, and says what is wrong."""

_FETCH = "; meanwhile, await cache.fetch(...) and cache.fetch_list(...) ask the server directly"
_FETCH_WHOLE = (
    "; meanwhile, await cache.fetch(..., whole=True) and cache.fetch_list(..., whole=True) ask the server"
    " directly"
)

_LOGIN = Phrase("Correct the operator's login; the cache goes on asking")
_ASKED_AGAIN = Phrase("It is asked again")

SEVERAL = 3
"""So many answers make certain what one does not: that a right is missing, or that what comes will never make
sense."""


class Health(StrEnum):
    """How the cache of one kind is doing."""

    SYNCING = "syncing"
    """Its first complete list has not come yet, or is not followed yet."""
    SYNCED = "synced"
    """It holds what the server had, and follows."""
    STALE = "stale"
    """It holds what the server had, and has not been able to follow for a while. It is read as before: `age`
    tells how old it is."""
    STALLED = "stalled"
    """Its first complete list has not come for so long that nobody should wait for it. It is asked for all
    the same."""
    UNAUTHORIZED = "unauthorized"
    """The server accepts no credentials of the operator, or no login gives any."""
    FORBIDDEN = "forbidden"
    """A right is missing."""
    MISSING = "missing"
    """The cluster does not serve the kind."""
    REJECTED = "rejected"
    """The cluster refuses the selector, or what is declared contradicts what the cluster serves."""
    OVERSIZED = "oversized"
    """It grew beyond `max_bytes`, and was let go: it holds nothing, and is tried again now and then."""


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
"""The worst comes last."""


class Subject(Protocol):
    """Whose health it is: what a list and watch keeps, or a cache of which it is not known yet what it is."""

    @property
    def kind(self) -> Kind | None: ...
    @property
    def filter(self) -> Branches: ...
    @property
    def version(self) -> str: ...
    def held(self) -> int:
        """Return how many objects are held."""


class Listener(Protocol):
    """Who is told of changes, of which each is told once."""

    def trouble(self, condition: Condition, cause: str, line: Phrase, /) -> None:
        """Something is in the way: in a word, the same for whom the same is in the way, and in a line for
        people.
        """

    def well(self, condition: Condition, /) -> None:
        """Nothing is in the way any more, and all has come."""


class Condition:
    """The health of one cache, or one branch of it, with its reason."""

    def __init__(
        self,
        subject: Subject,
        *,
        declared: str,
        sync_timeout: float,
        clock: Callable[[], float],
        listener: Listener,
        unreadable: Callable[[], None],
        since: float | None = None,
    ) -> None:
        self.trouble = ""
        """What is in the way, as a sentence without its full stop; empty if nothing is."""
        self.remedy = ""
        """The one thing to change."""
        self.cause = NO_CAUSE
        """The cause of the trouble."""
        self.subject = subject
        self._declared = declared  # Where: what is to be corrected.
        self._sync_timeout = sync_timeout
        self._clock = clock  # Asked for the health, it must answer in any thread.
        self._listener = listener
        self._unreadable = unreadable  # Called whenever reads begin to raise.
        self.readable = True
        """Whether reads may be answered, once there was a complete list: whether there is no `error`."""
        self._health = Health.SYNCING
        # The trouble without what the server said, which may be other words each time; and the remedy.
        self._headline = self._advice = NOTHING
        self._began = (
            clock() if since is None else since
        )  # When the present state began, except for staleness.
        self._stale_at: float | None = None
        self._denied: float | None = None
        self._denials = 0
        self._garbled = 0
        self._fetch = _FETCH
        self._settled = asyncio.Event()

    @property
    def health(self) -> Health:
        """How it is now: time alone makes a cache in trouble stale."""
        stale_at = self._stale_at
        if self._health is Health.SYNCED and stale_at is not None and self._clock() >= stale_at:
            return Health.STALE
        return self._health

    def lasted(self) -> float:
        """Return for how many seconds it has been in its present state."""
        began = self._stale_at if self.health is Health.STALE and self._stale_at is not None else self._began
        return self._clock() - began

    @property
    def since(self) -> float:
        """The time at which its present state began."""
        return self._began

    @property
    def is_missing(self) -> bool:
        """True if the cluster does not serve the kind."""
        return self._health is Health.MISSING

    @property
    def gravity(self) -> int:
        """How bad it is, compared with other conditions."""
        return _GRAVITY.index(self.health)

    def error(self) -> StateError | None:
        """Return the error that reads must raise, since the cache cannot be kept; None if it can be."""
        error = _UNREADABLE.get(self._health)
        return error(self.trouble, remedy=self.remedy, cause=self.cause) if error is not None else None

    def until_stalled(self) -> float | None:
        """Return the seconds until a first list that has not come makes it `stalled`; None if it has come, or
        the state is another one.
        """
        waits = self._health is Health.SYNCING and not self.subject.version
        return max(0.0, self._began + self._sync_timeout - self._clock()) if waits else None

    def repeat_trouble(self) -> None:
        """Note that the trouble lasts: a server can ask for a wait that is longer than a first list may
        take.
        """
        self._hindered(self._headline, self._advice, self.cause, fetch=self._fetch)

    @property
    def has_settled(self) -> bool:
        """Whether it has been synced, or has said why it is not."""
        return self._settled.is_set()

    async def settled(self) -> None:
        """Wait until the cache is synced, or has said why it is not."""
        await self._settled.wait()

    @property
    def _told(self) -> Phrase:
        """What is declared, and where."""
        return Phrase(
            "for %(declared)s, %(filter)s",
            declared=self._declared,
            filter=clipped(self.subject.filter, 200),
        )

    def _of_subject(self, template: str, **parts: object) -> Phrase:
        return Phrase(f"%(resource)s: {template}", resource=self.subject, **parts)

    def _of_declared(self, template: str, **parts: object) -> Phrase:
        return Phrase(template, declared=self._declared, **parts)

    def reset(self) -> None:
        """Forget the failure: what it was about is done, and will begin anew."""
        self._health, self._headline, self._advice, self._stale_at = Health.SYNCING, NOTHING, NOTHING, None
        self.trouble, self.remedy, self.cause, self.readable = "", "", NO_CAUSE, True
        self._denied, self._denials, self._garbled, self._began = None, 0, 0, self._clock()
        self._settled.set()

    def dismiss(self) -> None:
        """Let go whoever waits: what this is the health of is kept no more."""
        self._settled.set()

    # ---- What is told.

    def well(self) -> None:
        """All is well: the server accepts what it is asked."""
        self._denied, self._denials, self._garbled = None, 0, 0
        if self.subject.version:
            self._tell(Health.SYNCED)
        elif self._health not in (
            Health.STALLED,
            Health.OVERSIZED,
        ):  # That was asked before as well, and came to nothing.
            self._tell(Health.SYNCING)

    def troubled(self, trouble: Refusal | Lost | Silent, *, verb: str) -> None:
        """Take in what has gone wrong with a request, which was to `get` what the cluster serves, or to list
        or watch.
        """
        garbled = isinstance(trouble, Lost) and trouble.garbled
        self._garbled = self._garbled + 1 if garbled else 0
        subject, cause = self.subject, cause_of(trouble)
        match trouble:
            case Refusal(403):
                self._forbidden(trouble.message, verb, cause)
            case Refusal(404):
                self.missing(
                    self._of_subject("the cluster does not serve them"),
                    self._of_declared(
                        "Install the definition of %(resource)s, or take out %(declared)s; it is looked for"
                        " again and again",
                        resource=subject,
                    ),
                    cause,
                )
            case Refusal(400) | Refusal(422):
                self._tell(
                    Health.REJECTED,
                    self._of_subject("the server refuses the filter %(filter)s", filter=subject.filter),
                    self._of_declared(
                        "Assign a selector that the server supports for this kind to %(declared)s (to try"
                        f" it: {CHECK})"
                    ),
                    said=trouble.message,
                    cause=cause,
                )
            case Refusal(405):
                self._tell(
                    Health.REJECTED,
                    self._of_subject("the server does not let anybody %(verb)s them", verb=verb),
                    self._of_declared("Take out %(declared)s, and ask the server: await cache.fetch(...)"),
                    cause=cause,
                )
            case Lost(why, outside=True):
                self._tell(
                    Health.REJECTED,
                    self._of_subject(
                        "the server, or a proxy in front of it, does not select by %(filter)s",
                        filter=subject.filter,
                    ),
                    self._of_declared(
                        "Correct what ignores labelSelector or fieldSelector, or assign a selector that it"
                        " supports to %(declared)s"
                    ),
                    said=why,
                    cause=cause,
                )
            case Lost(lived=True):
                pass  # Servers end every watch after a while.
            case Refusal(401):
                self._denied_by(
                    Health.UNAUTHORIZED,
                    self._of_subject("the server accepts no credentials of the operator"),
                    _LOGIN,
                    cause,
                    trouble.message,
                )
            case Lost(why, unauthorized=True):
                self._denied_by(Health.UNAUTHORIZED, self._of_subject("%(why)s", why=why), _LOGIN, cause)
            case Refusal():
                answer = f"{trouble.code} {trouble.reason}".rstrip()
                self._hindered(
                    self._of_subject("the server answers %(answer)s", answer=answer), _ASKED_AGAIN, cause
                )
            case Lost(why, transform=True, argument=argument, besides=besides):
                self._hindered(
                    self._of_subject("%(why)s", why=why),
                    self._of_declared(
                        "Correct the %(argument)s of %(declared)s%(besides)s",
                        argument=argument,
                        besides=besides,
                    ),
                    cause,
                    fetch=_FETCH_WHOLE,
                )
            case Lost(why, too_large=True):
                self._hindered(
                    self._of_subject("%(why)s", why=why),
                    self._of_declared(
                        "Assign a filter that selects less to %(declared)s, or more bytes to"
                        " settings.selectcache.max_page_bytes; the server is asked again"
                    ),
                    cause,
                    fetch="",
                )
            case Lost(why):
                self._hindered(
                    self._of_subject("%(why)s", why=why), Phrase("The server is asked again"), cause
                )
            case _:  # Silent.
                self._hindered(self._of_subject("the server has fallen silent"), _ASKED_AGAIN, cause)

    def missing(self, what: Phrase, remedy: Phrase, cause: Cause = NO_CAUSE) -> None:
        """The cluster does not serve the kind."""
        self._tell(Health.MISSING, what, remedy, cause=cause)

    def rejected(self, what: Phrase, remedy: Phrase) -> None:
        """The cluster being what it is, the declaration makes no sense."""
        self._tell(Health.REJECTED, what, remedy)

    def oversized(self, what: Phrase, held: str, remedy: Phrase) -> None:
        """More came than may be held; what was held is not told of anew when it is tried again."""
        self._tell(Health.OVERSIZED, what, remedy, said=held)

    def mistaken(self, error: Exception) -> None:
        """We have made a mistake."""
        self._hindered(
            self._of_subject("a mistake of kopf_selectcache itself, %(error)s", error=type(error).__name__),
            Phrase("Report it, with the traceback in the operator's log"),
            NO_CAUSE,
        )

    def _forbidden(self, message: str, verb: str, cause: Cause) -> None:
        subject = self.subject
        spaces, names = (
            (subject.filter.namespaces, subject.filter.names)
            if isinstance(subject.filter, Selector)
            else (None, None)
        )
        where = f" in the namespace {spaces[0]}" if spaces else ""
        if verb == "get":
            what, remedy = (
                self._of_subject("the operator may not ask what the cluster serves"),
                Phrase("Bind it to the ClusterRole system:discovery"),
            )
        else:
            kind = subject.kind
            rule = (
                f"apiGroups: [{kind.group!r}], resources: [{kind.plural!r}]"
                if kind is not None
                else f"the resource {subject}"
            )
            if names is not None and len(names) == 1:  # The server allows a list and a watch of that name.
                rule += f", resourceNames: {list(names)!r}"
            anywhere = " in a ClusterRole" if not where and kind is not None and kind.namespaced else ""
            what, remedy = (
                self._of_subject("the operator may not %(verb)s them%(where)s", verb=verb, where=where),
                Phrase(
                    "Grant it the verbs list and watch%(role)s: %(rule)s%(narrower)s (%(told)s; all that it"
                    f" lacks is told by {CHECK})",
                    role=where or anywhere,
                    rule=rule,
                    narrower="; or, for one namespace alone, run it with -n" if anywhere else "",
                    told=self._told,
                ),
            )
        self._denied_by(Health.FORBIDDEN, what, remedy, cause, message)

    def _denied_by(
        self, health: Health, what: Phrase, remedy: Phrase, cause: Cause, message: str = ""
    ) -> None:
        """The server denies the request, as it may for a moment after its start."""
        now = self._clock()
        self._denied = now if self._denied is None else self._denied
        self._denials += 1
        if self._health is Health.SYNCED and (self._denials < SEVERAL or now - self._denied < TOLERATED):
            stale_at = (
                now if self._stale_at is None else min(now, self._stale_at)
            )  # It may have been stale for long, for another reason.
            self._tell(
                Health.SYNCED,
                what,
                Phrase("It is asked again: a server that has just started says so to everybody"),
                said=message,
                stale_at=stale_at,
                cause=cause,
            )
        else:
            self._tell(health, what, remedy, said=message, cause=cause)

    def _hindered(self, what: Phrase, remedy: Phrase, cause: Cause, *, fetch: str = _FETCH) -> None:
        """Something is wrong that may pass by itself. `fetch` says how handlers can read meanwhile; it is
        empty if such a read fails too.
        """
        self._fetch = fetch
        asking = Phrase(
            f"%(remedy)s{fetch} (%(told)s; to see what the server answers: {CHECK})",
            remedy=remedy,
            told=self._told,
        )
        if self._health is Health.SYNCED:
            since = self._clock() + TOLERATED
            self._tell(
                Health.SYNCED,
                what,
                remedy,
                stale_at=since if self._stale_at is None else self._stale_at,
                cause=cause,
            )
        elif self._health is Health.STALLED:
            self._tell(Health.STALLED, what, asking, cause=cause)
        elif self._health is Health.SYNCING:
            complete, now = bool(self.subject.version), self._clock()
            if now - self._began < self._sync_timeout and (complete or self._garbled < SEVERAL):
                self._tell(Health.SYNCING, what, remedy, cause=cause)
            elif complete:  # A complete list is as good as it was; it is only not followed.
                self._tell(Health.SYNCED, what, remedy, stale_at=now, cause=cause)
            else:
                self._tell(Health.STALLED, what, asking, cause=cause)
        # Else what only a person can help with still stands: nobody has said otherwise.

    def _tell(
        self,
        health: Health,
        what: Phrase = NOTHING,
        remedy: Phrase = NOTHING,
        *,
        said: str = "",
        stale_at: float | None = None,
        cause: Cause = NO_CAUSE,
    ) -> None:
        """Take a change in, and tell it once."""
        before, headline = self._health, self._headline
        self._health, self._headline, self._advice, self._stale_at = health, what, remedy, stale_at
        self.readable = health not in _UNREADABLE
        trouble = Phrase("%(what)s: %(said)s", what=what, said=said) if said else what
        self.trouble, self.remedy, self.cause = str(trouble), str(remedy), cause
        if health is not before:
            self._began = self._clock()
        if health is not before and health in _UNREADABLE:
            self._unreadable()
        if health is not Health.SYNCING:
            self._settled.set()
        # Where only a person can help, that has to know what is wrong now; other trouble comes in many forms.
        precise = health in (Health.UNAUTHORIZED, Health.FORBIDDEN, Health.REJECTED, Health.OVERSIZED)
        if what:
            if health is not before or (str(what) != str(headline) if precise else not headline):
                line = Phrase("%(trouble)s. %(remedy)s.", trouble=trouble, remedy=remedy)
                self._listener.trouble(self, str(what) if precise else health.value, line)
        elif health is Health.SYNCED and (before is not health or headline):
            self._listener.well(self)
