"""The words for what is in the way of a read: its cache, or what the server says. Makes errors, raises none;
the log has shorter ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

from kopf_selectcache._errors import (
    NO_CAUSE,
    Cause,
    Forbidden,
    Missing,
    NotDeclared,
    NotFound,
    NotSynced,
    Rejected,
    Stale,
    Stalled,
    StateError,
    Unauthorized,
)
from kopf_selectcache.core.errors import TooLarge, Untransformed
from kopf_selectcache.core.protocol.backoff import ASKED
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.kinds import Key
from kopf_selectcache.core.selection.sent import Unselected
from kopf_selectcache.informer.causes import NO_ANSWER, cause_of
from kopf_selectcache.selectors.kind_keys import key_of, not_declared, unserved
from kopf_selectcache.selectors.selector import Branches

from .request import Many, One, Read, method

_E = TypeVar("_E", bound=NotSynced | Stale | StateError)

REFUSED_CREDENTIALS = "the server accepts no credentials of the operator"

_LATER = 30
"""After so many seconds a read may be tried again, where the server says nothing of it."""


# ---- What is said of a cache, once a read meets it.


def of_read(error: _E, call: str, declared: Branches | None) -> _E:
    """Return an error of a cache as one of this read, of which the cache knows nothing: with its call, and
    with the filter.
    """
    told = clipped(declared, 500)
    said = error.what if isinstance(error, Stale) else str(error)  # Its remedy has the call.
    behind = f"; the filter is {told}" if declared is not None and told not in said else ""
    of_call = type(error)(f"{call}: {error.what}{behind}", remedy=error.remedy)
    if isinstance(error, StateError) and isinstance(of_call, StateError):
        of_call.cause = error.cause
    return of_call


def undeclared(read: Read, declared: Iterable[Key]) -> NotDeclared:
    """Say that no cache is declared for what is read, how to declare one that would hold it, and how to do
    without.
    """
    return not_declared(
        key_of(read.kind), declared, call=read.call(), wanted=read.as_filter(), of_server=read.of_server()
    )


def unsynced(
    key: str, trouble: str, remedy: str, *, after: float | None = None, sync: bool = False
) -> NotSynced:
    """Say that there was no complete list yet, and why, if that is known."""
    why = trouble or "the first complete list has not come yet"
    waited = "" if after is None else f" after {after:g} s"
    return NotSynced(
        f"the cache of {key} is not synced{waited}: {why}",
        remedy=remedy or f"Wait for it: {method('wait_synced', sync=sync)}()",
    )


def stale(kind: object, age: float | None, max_age: float, of_server: str) -> Stale:
    """Say that what is held was confirmed too long ago."""
    # Rounded up: it was longer ago than is allowed, and must read so.
    ago = "never confirmed" if age is None else f"last confirmed {math.ceil(age * 10) / 10:g} s ago"
    return Stale(
        f"what is held of {kind} was {ago}, and {max_age:g} s are allowed",
        remedy=(
            "Allow some more than a minute, which is how often servers confirm; or ask the server:"
            f" {of_server}"
        ),
    )


# ---- What the server says.


def gone(one: One) -> NotFound:
    """Say that the server has no such object."""
    return NotFound(
        f"{one} is absent: the server has none",
        remedy=f"If it may be absent: {one.call(None, 'default=None')}",
        version="",
    )


def not_served(call: str, name: str, key: Key, line: str | None, cause: Cause = NO_CAUSE) -> Missing:
    """Say that the cluster does not know the kind; `line` is where it is declared."""
    return Missing(f"{call}: the cluster serves no {name}", remedy=unserved(key, line), cause=cause)


def refused(asked: One | Many, verb: str, refusal: Refusal, line: str | None) -> StateError:
    """Say that the server refuses a request; `line` is where the kind is declared, if it is."""
    cause = cause_of(refusal)
    match refusal.code:
        case 401:
            return unauthorized(asked.call(), REFUSED_CREDENTIALS, cause)
        case 403:
            group = asked.resource.kind.group
            return Forbidden(
                f"{asked.call()}: the operator may not {verb} {asked}",
                remedy=(
                    f"Grant it the verb {verb}{asked.where}: apiGroups: [{group!r}], resources:"
                    f" [{asked.resource.kind.plural!r}]"
                ),
                cause=cause,
            )
        case 404:
            return not_served(asked.call(), str(asked.resource), key_of(asked.kind), line, cause)
        case 400 | 422:
            return Rejected(
                f"The server refuses {asked.call()}: {refusal.message}",
                remedy=_corrected(asked, refusal.message),
                cause=cause,
            )
        case 405:
            return Rejected(
                f"{asked.call()}: the server does not let anybody {verb} {asked.resource}",
                remedy="Take the read out",
                cause=cause,
            )
        case code:
            return Stalled(
                f"The server answers {code} {refusal.reason}".rstrip() + f" to {asked.call()}",
                remedy=(
                    _again(refusal.retry_after)
                    if cause.transient
                    else "The same request fails again: correct the server, or a proxy in front of it"
                ),
                cause=cause,
            )


def _corrected(asked: One | Many, message: str) -> str:
    """Say which argument the server means."""
    if isinstance(asked, One):
        return f"Correct the name, {asked.name!r}"
    field, label = asked.request.field, asked.request.label
    if field is not None and (label is None or "field" in message):
        path = field.terms[0].label
        return (
            f"Correct field={str(field)!r}; or leave it out, and compare a path of the objects:"
            f" where={{{path!r}: ...}}"
        )
    return (
        f"Correct label={str(label)!r}"
        if label is not None
        else f"Correct the kind, {asked.bare()}: it cannot be listed so"
    )


def _again(seconds: float | None = None) -> str:
    return (
        "Ask again later: raise kopf.TemporaryError('no answer',"
        f" delay={math.ceil(min(seconds or _LATER, ASKED))})"
    )


def unanswered(asked: str, why: str, cause: Cause = NO_ANSWER) -> Stalled:
    """Say that no answer came, or none that makes sense."""
    return Stalled(
        f"The server gave no answer to {asked}: {why}", remedy=_again(cause.retry_after), cause=cause
    )


def too_large(asked: str, error: TooLarge, *, one: bool) -> Stalled:
    """Say that the answer has more bytes than are read of one. Of one object, no less can be asked for."""
    return Stalled(
        f"The server's answer to {asked} is too large: {error}",
        remedy=(
            f"{'Assign' if one else 'Ask for less, or assign'} more bytes to"
            " settings.selectcache.max_page_bytes"
        ),
        cause=cause_of(error),
    )


def unselected(asked: One | Many, error: Unselected) -> Rejected:
    """Say that the answer has objects that were not asked for."""
    return Rejected(
        f"{asked.call()}: the server, or a proxy in front of it, does not select by label: {error}",
        remedy="Correct what ignores labelSelector; or leave label= out, and select from the answer",
        cause=cause_of(error),
    )


def unauthorized(asked: str, why: str, cause: Cause = NO_ANSWER) -> Unauthorized:
    """Return the error of a request whose credentials the server does not accept, or that was not sent for
    want of them.
    """
    return Unauthorized(f"{asked}: {why}", remedy="Correct the operator's login", cause=cause)


def untransformed(asked: str, error: Untransformed, line: str | None, of_server: str) -> Stalled:
    """Say that an object did come, and the operator's own function, declared in this line, failed for it."""
    instead = f"; for what the server has: {of_server}" if of_server else ""
    return Stalled(f"{asked}: {error}", remedy=f"Correct {error.argument} of {line}{error.besides}{instead}")
