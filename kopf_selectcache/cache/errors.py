"""Errors of reads. Each class formats its own message from the request and the facts.

The functions return errors of the states of a cache, and of the server's answers to a read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

from kopf_selectcache._errors import (
    NO_CAUSE,
    Cause,
    Forbidden,
    Missing,
    NotDeclared,
    NotKept,
    NotSynced,
    ReadError,
    Rejected,
    Stale,
    Stalled,
    StateError,
    Target,
    Unauthorized,
    call_of,
)
from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.client.transport import NoCredentials, Refused, Unreachable
from kopf_selectcache.core.errors import Garbled, TooLarge, Untransformed
from kopf_selectcache.core.protocol.backoff import ASKED
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.regions import MAX_BOXES
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.selection.sent import Unselected
from kopf_selectcache.core.selection.witness import Answer
from kopf_selectcache.core.store.projection import Keys, Projection, as_written
from kopf_selectcache.core.store.record import Record, UnreadableRecord
from kopf_selectcache.informer.causes import NO_ANSWER, cause_of
from kopf_selectcache.selectors.kind_keys import key_of, unserved
from kopf_selectcache.selectors.object_key import Key
from kopf_selectcache.selectors.selector import Branches, Selector

from .formats.formats import RAISE
from .matcher import Coverage
from .request import Request, replace

_E = TypeVar("_E", bound=NotSynced | Stale | StateError)

_WITHOUT_CACHE = dict.fromkeys(("list", "list_cached", "count"), "fetch_list")
"""The read that asks the server, for each read of several objects."""

_LATER = 30
"""Seconds after which a read may be tried again, if the server names no time."""


_UNDECIDED = f"undecided after {MAX_BOXES:,} boxes if"


def _asking(request: Request, arguments: str = "") -> str:
    """Return the call that asks the server for the objects of a request."""
    return call_of("fetch" if request.name is not None else "fetch_list", arguments)


def _short(text: object) -> str:
    return text if isinstance(text, str) and len(text) <= 500 else clipped(text, 500)


class Reason(StrEnum):
    """Why a read falls outside the filter."""

    EXCLUDED = "excluded"
    """Nothing that is asked for can ever be held."""
    HIDDEN = "hidden"
    """The object is absent, or it exists and fails the filter: from here the two look the same."""
    OVERLAPS = "overlaps"
    """Some of the requested objects may be held, and some of them cannot be."""
    OUTSIDE = "outside"
    """The object exists, and the filter does not select it. Split caches know its labels."""
    UNDECIDED = "undecided"
    """It would cost too much to find out if the filter holds all requested objects."""


class OutsideFilter(ReadError):
    """The read asks for something that the declared filter does not hold, so that "not found" would be a
    guess.
    """

    def __init__(
        self,
        request: Request,
        coverage: Coverage,
        *,
        lacking: str = "",
        outside: Record | None = None,
        failed: tuple[str, ...] = (),
        remedy: str = "",
    ) -> None:
        self.witness = coverage.witness
        self.uid = "" if outside is None else outside.uid
        """The uid of the object, if it is known that it exists (`reason` is `outside`)."""
        self.labels = None if outside is None else dict(outside.labels)
        """The labels of the object, if it is known that it exists."""
        self.wanted = failed
        """The requirements that it fails, one of each branch of the filter; empty if only the server knows
        them."""
        describe = _describe_one if request.name is not None else _describe_several
        self.reason, why, known = describe(request, coverage)
        remedy = remedy or known
        if lacking:
            why = f"{lacking}; the filter is {_short(coverage.filter)}"
            remedy = f"Label the namespace; {remedy[0].lower()}{remedy[1:]}"
        if outside is not None:
            self.reason, why = Reason.OUTSIDE, _describe_outside(coverage, outside, failed)
        super().__init__(f"{request!r}: {why}", remedy=remedy)
        if request.default is not RAISE:
            self.add_note("The default is only for an object that the filter selects and that doesn't exist.")


def is_there(error: NotFound | OutsideFilter) -> bool:
    """Return if the object exists for which a read has raised this error; raise it if that is not known."""
    if isinstance(error, OutsideFilter) and error.reason is not Reason.OUTSIDE:
        raise error
    return isinstance(error, OutsideFilter)


def _describe_outside(coverage: Coverage, outside: Record, failed: tuple[str, ...]) -> str:
    keys = dict.fromkeys(each.key for branch in coverage.filter.branches for each in branch.requirements)
    labels = (
        f"{key} is {clipped(repr(outside.labels[key]), 100)}" if key in outside.labels else f"it has no {key}"
        for key in keys
    )
    has, wanted = _short(", ".join(labels)), _short(" or ".join(dict.fromkeys(failed)) or coverage.filter)
    return f"the object exists outside of the filter{f': {has}' if has else ''}, and {wanted} is wanted"


def _describe_one(request: Request, coverage: Coverage) -> tuple[Reason, str, str]:
    remedy = f"To ask the server: {_asking(request)}"
    if coverage.answer is Answer.UNKNOWN:
        filter_ = _short(coverage.filter)
        why = f"the object is not held, and it is {_UNDECIDED} the filter, {filter_}, would hold it"
        return Reason.UNDECIDED, why, remedy
    if not coverage.possible:
        return Reason.EXCLUDED, f"the filter, {_short(coverage.filter)}, never holds this object", remedy
    why = f"the object is not held: it is absent, or present {_short(coverage.lacking)}"
    return Reason.HIDDEN, why, remedy


def _describe_several(request: Request, coverage: Coverage) -> tuple[Reason, str, str]:
    narrowest, server = coverage.narrowest, f"o ask the server: {call_of('fetch_list')}"
    if narrowest is None:
        return (
            Reason.EXCLUDED,
            f"the filter, {_short(coverage.filter)}, never holds such objects",
            f"T{server}",
        )
    assert isinstance(narrowest, Selector), "a request of one branch is narrowed to one"
    if request.uid is not None:  # No server selects by an owner.
        cached = repr(replace(request, verb="list_cached"))
        remedy = f"For those that are cached: {f'len({cached})' if request.verb == 'count' else cached}"
    else:
        held = f"For all of a narrower request: {replace(request, selector=narrowest)!r}"
        remedy = f"{held}; for the held part: cache.list_cached(...); t{server}"
    if coverage.witness is None:
        return (
            Reason.UNDECIDED,
            f"it is {_UNDECIDED} the filter, {_short(coverage.filter)}, holds all",
            remedy,
        )
    fails = _short(" and ".join(dict.fromkeys(coverage.witness.fails)))
    why = f"does not hold all of them: {_short(coverage.witness)} would fail {fails}"
    return Reason.OVERLAPS, f"the filter, {_short(coverage.filter)}, {why}", remedy


class NotFound(ReadError):
    """The object is absent: the filter would hold it, and as of `version` it does not exist."""

    def __init__(
        self,
        request: Request,
        version: str,
        *,
        why: str = "",
        remedy: str = "",
        is_split: bool = False,
    ) -> None:
        self.version = version
        if not remedy:
            takes_default = request.verb in ("get", "fetch", "live.get")
            remedy = f"{'Give a default' if takes_default else 'Catch NotFound'} if it may be absent"
        source = f"as of version {version}" if version else "on the server"
        if version:
            source += ", inside and outside of the filter" if is_split else ", and the filter would hold it"
        super().__init__(f"{request!r}: {why or f'the object is absent {source}'}", remedy=remedy)


class Unreadable(ReadError):
    """An object that is asked for exists, and cannot be decoded: it is nested too deeply, or is not UTF-8."""

    def __init__(self, request: Request, records: Sequence[UnreadableRecord]) -> None:
        self.keys = tuple(Key.stored(record.key) for record in records)
        """The key of each such object."""
        first = records[0]
        more = f"; nor {len(records) - 1:,} more" if len(records) > 1 else ""
        super().__init__(
            f"{request!r}: {self.keys[0]} cannot be read: {first.why} (version {first.version}){more}",
            remedy="Correct the object, or declare drop= for the part that cannot be decoded",
        )


def require_readable(request: Request, records: Sequence[Record]) -> None:
    """Raise Unreadable if one of the objects cannot be decoded."""
    if unreadable := [record for record in records if isinstance(record, UnreadableRecord)]:
        raise Unreadable(request, unreadable)


class Unmatchable(ReadError):
    """Only the server can select by a field of this kind. `fetch_list` asks the server then."""

    def __init__(self, request: Request, field: str) -> None:
        super().__init__(
            f"{request!r}: only the server knows the value of the field {field}",
            remedy=f"Compare a path with where=; or ask the server: {call_of('fetch_list')}",
        )


# ---- Projections.


def path_not_stored(request: Request, path: Keys, projection: Projection) -> NotKept:
    """Return the error of a read that looks at a path that is not stored."""
    dropped = projection.dropping(path)
    if dropped is None and not projection.has_field([path]):
        why, remedy = "metadata_only=True asks for metadata alone", "Leave out metadata_only=True"
    elif dropped is None:
        why, remedy = "it is not among the paths of keep=", f"Add {as_written(path)!r} to keep="
    elif dropped in projection.drop:
        why, remedy = f"drop= has {as_written(dropped)!r}", f"Take {as_written(dropped)!r} out of drop="
    else:
        why, remedy = f"{as_written(dropped)!r} is never stored", "Look at another path"
    if projection.partial:
        remedy += f"; or ask the server for whole objects: {_asking(request, 'whole=True')}"
    return NotKept(f"{request!r}: {as_written(path)!r} is not stored: {why}", remedy=_short(remedy))


def unknown_field(request: Request, field: str, projection: Projection) -> ReadError:
    """Return the error of a read by a field whose value only the server knows."""
    if not projection.metadata_only:
        return Unmatchable(request, field)
    return NotKept(
        f"{request!r}: the field {field} is not stored: metadata_only=True asks for metadata alone",
        remedy=f"Leave out metadata_only=True; or ask the server: {_asking(request)}",
    )


def not_whole(request: Request, projection: Projection) -> NotKept:
    """Return the error of a read that needs whole objects where a part of each is stored."""
    return NotKept(
        f"{request!r}: only a part of each object is stored, {_short(projection)}",
        remedy=f"Read dicts; or ask the server for whole objects: {_asking(request, 'whole=True')}",
    )


# ---- States of a cache, as a read meets them.


def for_request(error: _E, request: Request, declared: Branches | None = None) -> _E:
    """Return an error of a cache with the request and the filter added."""
    behind = ""
    if declared is not None and (filter_text := _short(declared)) not in str(error):
        behind = f"; the filter is {filter_text}"
    cause = {"cause": error.cause} if isinstance(error, StateError) else {}
    return type(error)(f"{request!r}: {error.what}{behind}", remedy=error.remedy, **cause)


def undeclared(error: ReadError, request: Request) -> NotDeclared:
    """Return the error of a kind without a cache, with the read of the same objects that needs none."""
    verb = "fetch" if request.name is not None else _WITHOUT_CACHE.get(request.verb)
    server = f"; or ask the server: {call_of(verb)}" if verb is not None else ""
    return NotDeclared(error.what, remedy=f"{error.remedy}{server}")


def unsynced(key: str, message: str, remedy: str, *, after: float | None = None) -> NotSynced:
    """Return the error of a cache that has had no complete list yet."""
    waited = "" if after is None else f" after {after:g} s"
    return NotSynced(
        f"the cache of {key} is not synced{waited}: {message or 'no complete list has come yet'}",
        remedy=remedy or f"Wait for it: {call_of('wait_synced')}",
    )


def stale(request: Request, age: float | None) -> Stale:
    """Return the error of a cache that the server confirmed too long ago."""
    # Rounded up, because it must read as longer than the bound.
    ago = "never confirmed" if age is None else f"last confirmed {math.ceil(age * 10) / 10:g} s ago"
    return Stale(
        f"{request!r}: the held state was {ago}",
        remedy=f"Allow more than a minute, in which servers confirm; or ask the server: {_asking(request)}",
    )


def behind(request: Request, version: str, *, pinned: bool = False) -> Stale:
    """Return the error of a cache, or of a snapshot, that is not known to be as new as a read asks for."""
    # The server has no such read, and a snapshot does not advance.
    if pinned or request.verb == "list_outside":
        when = " before the snapshot is opened" if pinned else ""
        remedy = f"To wait{when}: {call_of('wait_synced', 'at_least=<the object>')}"
    else:
        verb = "fetch" if request.name is not None else "fetch_list"
        remedy = f"To wait, and then ask the server: {call_of(verb, 'at_least=...')}"
    return Stale(
        f"{request!r}: the {'snapshot' if pinned else 'cache'} is at version {clipped(version, 50)}",
        remedy=f"{remedy}; or raise kopf.TemporaryError, and read later",
    )


# ---- Answers of the server to a read.


def not_served(request: Request, cause: Cause = NO_CAUSE) -> Missing:
    """Return the error of a kind that the cluster does not know."""
    key = key_of(request.kind)
    return Missing(
        f"{request!r}: the cluster does not serve the kind", remedy=unserved(key, None), cause=cause
    )


def refused(request: Request, verb: str, resource: Resource | None, refusal: Refusal) -> StateError:
    """Return the error of a request that the server refuses. Without a resource, the request was to find out
    which resource a key means.
    """
    cause, code = cause_of(refusal), refusal.code
    if code == 401:
        return unauthorized(request, "the server accepts no credentials of the operator", cause)
    if resource is None:
        return unanswered(request, f"{code} {refusal.reason}".rstrip(), cause)
    error: type[StateError] = Rejected
    match code:
        case 403:
            where, target = request.region().namespaces, target_of(request, verb, resource)
            return forbidden(request, verb, resource, where, cause=cause, target=target)
        case 404:
            return not_served(request, cause)
        case 400 | 422:
            why = f"the server refuses it: {refusal.message}"
            remedy = "Correct the selectors, or compare a path with where="
        case 405:
            why, remedy = f"the server does not let anybody {verb} {resource}", "Take the read out"
        case _:
            error, why = Stalled, f"the server answers {code} {refusal.reason}".rstrip()
            remedy = again(cause) if cause.transient else "Correct the server, or a proxy in front of it"
    return error(f"{request!r}: {why}", remedy=remedy, cause=cause)


def forbidden(
    request: Request, verb: str, resource: Resource, namespaces: Sequence[str] | None, **about: Any
) -> Forbidden:
    """Return the error of a missing right."""
    within = f" in {', '.join(namespaces)}" if namespaces is not None else ""
    rule = f"apiGroups: [{resource.kind.group!r}], resources: [{resource.kind.plural!r}]"
    why = f"the operator may not {verb} {resource}{within}"
    return Forbidden(f"{request!r}: {why}", remedy=f"Grant it the verb {verb}{within}: {rule}", **about)


@contextmanager
def answering(request: Request, verb: str, resource: Resource | None) -> Iterator[None]:
    """Raise the errors of a request to the server as errors of the read."""
    try:
        yield
    except NotServed:
        raise not_served(request) from None
    except Refused as error:
        raise refused(request, verb, resource, error.refusal) from None
    except (Unreachable, Garbled) as error:
        raise failed(request, error) from error


def target_of(request: Request, verb: str, resource: Resource) -> Target:
    """Return the object of a request, as errors have it."""
    return Target(verb, str(resource), request.name or "", request.namespace)


def failed(request: Request, error: Unreachable | Garbled) -> StateError:
    """Return the error of a request that got no answer, or none that makes sense."""
    kind: type[StateError] = Stalled
    match error:
        case Untransformed():
            return untransformed(request, error)
        case Unselected():
            kind, why = Rejected, "the server, or a proxy in front of it, does not select by label"
            remedy = (
                "Correct the server or proxy that ignores labelSelector; or leave labels= out, and select"
                " from the answer"
            )
        case TooLarge():
            why = "the answer is too large"
            remedy = "Ask for less, or assign more bytes to settings.selectcache.max_page_bytes"
        case NoCredentials():
            return unauthorized(request, str(error), NO_ANSWER)
        case _:
            return unanswered(request, str(error))
    return kind(f"{request!r}: {why}: {error}", remedy=remedy, cause=cause_of(error))


def unanswered(request: Request, why: str, cause: Cause = NO_ANSWER) -> Stalled:
    """Return the error of a request without an answer."""
    return Stalled(f"{request!r}: the server gave no answer: {why}", remedy=again(cause), cause=cause)


def unauthorized(request: Request, why: str, cause: Cause) -> Unauthorized:
    """Return the error of a request whose credentials the server does not accept, or that had none."""
    return Unauthorized(f"{request!r}: {why}", remedy="Correct the operator's login", cause=cause)


def untransformed(request: Request, error: Untransformed) -> Stalled:
    """Return the error of an object for which a function of the declaration failed."""
    correct = f"Correct {error.argument} of the declaration{error.besides}"
    whole = f"or ask the server for whole objects: {_asking(request, 'whole=True')}"
    return Stalled(f"{request!r}: {error}", remedy=f"{correct}; {whole}")


def again(cause: Cause) -> str:
    """Return the remedy of a failure that may pass."""
    delay = math.ceil(min(cause.retry_after or _LATER, ASKED))
    return f"Ask again later: raise kopf.TemporaryError('no answer', delay={delay})"
