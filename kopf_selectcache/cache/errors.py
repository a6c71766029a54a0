"""Errors of reads. Each class formats its own message from the request and the facts.

The functions return errors of the states of a cache, and of the server's answers to a read.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from kopf_selectcache._errors import (
    NO_CAUSE,
    Cause,
    Forbidden,
    Missing,
    NotDeclared,
    NotKept,
    NotSynced,
    ReadError,
    Stale,
    Stalled,
    StateError,
    Target,
    awaited_call,
    call_of,
)
from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import NO_VALUE, Garbled
from kopf_selectcache.core.protocol.machine import Lost
from kopf_selectcache.core.protocol.messages import LONGEST_ASKED_SECONDS, Refusal
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.selection.regions import Answer, Witness
from kopf_selectcache.core.store.projection import Keys, Projection, as_written
from kopf_selectcache.core.store.record import Record, UnreadableRecord
from kopf_selectcache.informer.background import IndexFailed
from kopf_selectcache.informer.health import ERRORS, Health, cause_of, row_of
from kopf_selectcache.informer.stream_writer import failure_of
from kopf_selectcache.selectors.kind_keys import SETTINGS, is_misspelt, key_of, unserved
from kopf_selectcache.selectors.object_key import Key
from kopf_selectcache.selectors.selector import Branches, Selector

from .formats.formats import RAISE
from .matcher import Coverage
from .request import Request, replace

_E = TypeVar("_E", bound=NotSynced | Stale | StateError)

_WITHOUT_CACHE = dict.fromkeys(("list", "list_cached", "count"), "fetch_list")
"""The read that asks the server, for each read of several objects."""

_MOST_REPEATED = 100
"""Characters of a filter that a sentence says twice."""

_CALL_CHARACTERS = 200
"""Characters of a call that a note proposes, where the filter is too complex to compare."""

_RETRY_SECONDS = 30
"""Seconds after which a read may be tried again, if the server names no time."""

_NO_ANSWER = Cause(transient=True)

OWN_LOGIN = {"whose": SETTINGS.whose, "login": SETTINGS.login}
"""The names of the operator and its login, in the texts of `CAUSES`."""


def _asking(request: Request, arguments: str = "") -> str:
    """Return the call that asks the server for the objects of a request."""
    return call_of("fetch" if request.name is not None else "fetch_list", arguments)


def _short(text: object) -> str:
    return text if isinstance(text, str) and len(text) <= 500 else clipped(text, 500)


class Reason(StrEnum):
    """Why a read falls outside the filter."""

    EXCLUDED = "excluded"
    """Nothing that is asked for can ever be cached."""
    HIDDEN = "hidden"
    """The object is absent, or it exists and fails the filter: from here the two look the same."""
    OVERLAPS = "overlaps"
    """Some of the requested objects may be cached, and some of them can't be."""
    OUTSIDE = "outside"
    """The object exists, and the filter does not select it. Split caches know its labels."""
    SHARD = "shard"
    """Another replica caches some of the requested objects, or all."""
    UNDECIDED = "undecided"
    """It would cost too much to find out if the filter holds all requested objects."""


class Elsewhere(NamedTuple):
    """A namespace that another replica caches."""

    namespace: str
    owner: str
    """The name of the replica that handles it; empty if none does at present."""


Hint: TypeAlias = Callable[[], str]
"""Returns what was probably meant by the names of an object, or an empty text. It is called for the text of
an error.
"""


def no_hint() -> str:
    return ""


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
        elsewhere: Elsewhere | None = None,
        outside: Record | None = None,
        failed: tuple[str, ...] = (),
        remedy: str = "",
        hint: Hint = no_hint,
    ) -> None:
        self._coverage = coverage
        self._elsewhere = elsewhere
        self.owner = "" if elsewhere is None else elsewhere.owner
        """The replica that handles the namespace (`reason` is `shard`); empty if none does at present."""
        self.uid = "" if outside is None else outside.uid
        """The uid of the object, if it is known that it exists (`reason` is `outside`)."""
        self.labels = None if outside is None else dict(outside.labels)
        """The labels of the object, if it is known that it exists."""
        self.wanted = failed
        """The requirements that it fails, one of each branch of the filter; empty if only the server knows
        them."""
        self.reason = Reason.OUTSIDE if outside is not None else _reason(request, coverage)
        server = awaited_call("%s")  # It depends on the place of the read.
        if elsewhere is not None:
            self.reason = Reason.SHARD
            describe = partial(_describe_shard, request, coverage, elsewhere)
            ways = partial(_ways_of_shard, request, coverage, server, hint)
        else:
            describe = partial(_describe, self.reason, request, coverage, lacking, self.labels, failed)
            ways = partial(_ways, self.reason, request, coverage, lacking, server, hint)
        super().__init__(describe, remedy=remedy or ways)

    @cached_property
    def witness(self) -> Witness | None:
        """An object that is asked for, and that the filter does not hold; None if there may be none."""
        if self._elsewhere is not None:
            some = self._coverage.witness or Witness("", "example", {}, {})
            return dataclasses.replace(some, namespace=self._elsewhere.namespace)
        return self._coverage.witness

    def __reduce__(self) -> tuple[Any, ...]:
        again, (cls, args, state) = super().__reduce__()
        state = {name: value for name, value in state.items() if name not in ("_coverage", "_elsewhere")}
        return again, (cls, args, state | {"witness": self.witness})


def is_there(error: NotFound | OutsideFilter) -> bool:
    """Return if the object exists for which a read has raised this error; raise it if that is not known."""
    if isinstance(error, OutsideFilter) and error.reason is not Reason.OUTSIDE:
        raise error
    return isinstance(error, OutsideFilter)


def _reason(request: Request, coverage: Coverage) -> Reason:
    if request.name is not None:
        if coverage.answer is Answer.UNKNOWN:
            return Reason.UNDECIDED
        return Reason.HIDDEN if coverage.possible else Reason.EXCLUDED
    if not coverage.possible:
        return Reason.EXCLUDED
    return Reason.UNDECIDED if coverage.answer is Answer.UNKNOWN else Reason.OVERLAPS


def _describe(
    reason: Reason,
    request: Request,
    coverage: Coverage,
    lacking: str,
    labels: Mapping[str, str] | None,
    failed: tuple[str, ...],
) -> str:
    """Return the sentence of a read outside of the filter."""
    if labels is not None:
        return _describe_outside(request, coverage, labels, failed)
    if lacking:
        return f"{request.subject} can't be in the cache: {lacking}"
    if reason is Reason.HIDDEN:
        wanted = _short(coverage.wanted)
        is_plain = len(wanted) <= _MOST_REPEATED and not re.search("!| notin | or ", wanted)
        fails = f"exist without {wanted}" if is_plain else "not match that filter"
        return f"{request.subject} is not in the cache, which only has {wanted}. It may be absent, or {fails}"
    filter_ = _in_words(coverage.filter)
    if reason is Reason.EXCLUDED:
        return f"{request.subject} can't be in the cache, which only has {filter_}"
    if reason is Reason.UNDECIDED:
        size = f"{len(coverage.filter.branches):,} alternatives"
        return f"the filter of {request.kind_text} is too complex to compare with this read: it has {size}"
    what = "count" if request.verb == "count" else "list"
    return f"the cache of {request.kind_text} only has {filter_}, so this {what} may be incomplete"


def _describe_shard(request: Request, coverage: Coverage, elsewhere: Elsewhere) -> str:
    """Return the sentence of a read of what another replica caches."""
    owner = f"replica {elsewhere.owner} handles" if elsewhere.owner else "no replica handles"
    where = f"{owner} the namespace {elsewhere.namespace!r}{'' if elsewhere.owner else ' at present'}"
    if coverage.possible and request.name is None:
        what = "count" if request.verb == "count" else "list"
        kinds = f"the cache of {request.kind_text} only has the namespaces of this replica"
        return f"{kinds}, so this {what} may be incomplete: {where}"
    return f"{request.subject} can't be in the cache: {where}"


def _ways_of_shard(request: Request, coverage: Coverage, server: str, hint: Hint) -> str:
    """Return the ways out of a read of what another replica caches."""
    reason = Reason.OVERLAPS if coverage.possible and request.name is None else Reason.EXCLUDED
    without_witness = coverage._replace(verdict=None, of_object=None)
    ways = [_ways(reason, request, without_witness, "", server, hint)]
    ways.append("To cache them in each replica: Cached(..., sharded=False)")
    return "\n".join(filter(None, ways))


def _in_words(selector: Branches) -> str:
    """Return a filter: only its labels, if it has nothing else."""
    if isinstance(selector, Selector) and selector.labels is not None:
        others = {selector.fields, selector.names, selector.namespaces, selector.namespace_label}
        if others == {None}:
            return _short(str(selector.labels))
    return _short(str(selector))


def _describe_outside(
    request: Request, coverage: Coverage, labels: Mapping[str, str], failed: tuple[str, ...]
) -> str:
    keys = dict.fromkeys(each.key for branch in coverage.filter.branches for each in branch.requirements)
    has = ", ".join(
        f"{key} is {clipped(repr(labels[key]), 100)}" if key in labels else f"it has no {key}" for key in keys
    )
    wanted = _short(" or ".join(dict.fromkeys(failed)) or str(coverage.filter))
    behind = f": {_short(has)}, not {wanted}" if has else f", {wanted}"
    return f"{request.subject} exists, but the filter leaves it out{behind}"


def _ways(reason: Reason, request: Request, coverage: Coverage, lacking: str, server: str, hint: Hint) -> str:
    """Return the ways out of a read outside of the filter."""
    ways = [hint()]
    if reason is Reason.OVERLAPS and coverage.witness is not None:
        ways.append(f"For example, {_short(_in_example(request, coverage.witness))} would be missing")
    ways += ["Label the namespace"] if " the label " in lacking else []
    if request.name is not None:
        asked = repr(replace(request, verb="fetch")).removeprefix("cache.")
        purpose = "To read it" if reason is Reason.OUTSIDE else "To find out"
        ways.append(f"{purpose}: {server.replace('%s', asked)}")
        if request.default is not RAISE:
            ways.append("default= can't answer that: it needs proof that the object is absent")
    elif request.uid is not None and reason is not Reason.EXCLUDED:  # No server selects by an owner.
        cached = repr(replace(request, verb="list_cached"))
        ways.append(f"To read what is cached: {f'len({cached})' if request.verb == 'count' else cached}")
    else:
        if reason in (Reason.OVERLAPS, Reason.UNDECIDED) and coverage.narrowest is not None:
            assert isinstance(coverage.narrowest, Selector), "a request of one branch is narrowed to one"
            part = repr(replace(request, selector=coverage.narrowest))
            is_short = reason is Reason.OVERLAPS or len(part) <= _CALL_CHARACTERS
            is_all = coverage.is_narrowest_all
            if is_short:
                verb = "count" if request.verb == "count" else "read"
                ways.append(f"To {verb} {'what is cached' if is_all else 'a part'}: {part}")
            if not is_short or not is_all:
                ways.append("To read what is cached: cache.list_cached(...)")
        is_served = request.verb in _WITHOUT_CACHE and request.index is None
        asked = repr(replace(request, verb="fetch_list")) if is_served else ""
        if not asked or (reason is Reason.UNDECIDED and len(asked) > _CALL_CHARACTERS):
            asked = "fetch_list(...)"
        ways.append(f"To ask the server: {server.replace('%s', asked.removeprefix('cache.'))}")
    if reason is Reason.UNDECIDED:
        ways.append("Or declare a simpler filter")
    return "\n".join(filter(None, ways))


def _in_example(request: Request, witness: Witness) -> str:
    """Return the objects that a witness stands for, in words. Its names count if the read has some."""
    names = request.selector is not None and request.selector.names is not None
    what = f"{request.kind_text}/{witness.name}" if names else request.kind_text
    within = f" in {witness.namespace}" if witness.namespace not in ("", "default") else ""
    has = [f"{key}={value}" for each in (witness.labels, witness.fields) for key, value in each.items()]
    return f"{what}{within} {'with ' + ','.join(has) if has else 'without labels'}"


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
        hint: Hint = no_hint,
    ) -> None:
        self.version = version
        source = f", as of version {version}" if version else " on the server"
        if is_split:
            source += ", inside or outside the filter"
        what = why or f"{request.subject} does not exist{source}"
        super().__init__(what, remedy=remedy or partial(_ways_of_absent, request, hint))


def _ways_of_absent(request: Request, hint: Hint) -> str:
    takes_default = request.verb in ("get", "fetch", "live.get")
    default = f"If it may not exist, {'give a default' if takes_default else 'catch NotFound'}"
    return "\n".join(filter(None, (hint(), default)))


class Unreadable(ReadError):
    """An object that is asked for exists, and cannot be decoded: it is nested too deeply, or is not UTF-8."""

    def __init__(self, request: Request, records: Sequence[UnreadableRecord]) -> None:
        self.keys = tuple(Key.stored(record.key) for record in records)
        """The key of each such object."""
        first = records[0]
        more = f", and {len(records) - 1:,} more objects" if len(records) > 1 else ""
        super().__init__(
            f"{request.kind_text}/{self.keys[0]} can't be decoded in version"
            f" {first.version}{more}: {first.why}",
            remedy="Correct the object\nLeave out the part that can't be decoded: Cached(..., drop=[...])",
        )


def require_readable(request: Request, records: Sequence[Record]) -> None:
    """Raise Unreadable if one of the objects cannot be decoded."""
    if unreadable := [record for record in records if isinstance(record, UnreadableRecord)]:
        raise Unreadable(request, unreadable)


class Unmatchable(ReadError):
    """Only the server can select by a field of this kind. `fetch_list` asks the server then."""

    def __init__(self, request: Request, field: str) -> None:
        super().__init__(
            f"the cache can't select {request.kind_text} by the field {field}, whose value only the server"
            " knows",
            remedy=f"Compare a path with where=\nTo ask the server: {call_of('fetch_list')}",
        )


# ---- Projections.


def not_stored_error(request: Request, path: Keys, projection: Projection) -> NotKept:
    """Return the error of a read that looks at a path that is not stored."""
    dropped = projection.dropping(path)
    if dropped is None and not projection.has_field([path]):
        why, remedy = "with metadata_only=True, it only has metadata", "Leave out metadata_only=True"
    elif dropped is None:
        why, remedy = "keep= does not have it", f"Add {as_written(path)!r} to keep="
    elif dropped in projection.drop:
        why, remedy = f"drop= has {as_written(dropped)!r}", f"Take {as_written(dropped)!r} out of drop="
    else:
        why, remedy = "it is dropped by default", "Write keep=['*', 'metadata.managedFields']"
    if projection.partial:
        remedy += f"\nTo read whole objects: {_asking(request, 'whole=True')}"
    return NotKept(
        f"the cache of {request.kind_text} does not store {as_written(path)!r}: {why}", remedy=_short(remedy)
    )


def unknown_field_error(request: Request, field: str, projection: Projection) -> ReadError:
    """Return the error of a read by a field whose value only the server knows."""
    if not projection.metadata_only:
        return Unmatchable(request, field)
    return NotKept(
        f"the cache of {request.kind_text} does not store the field {field}: with metadata_only=True, it only"
        " has metadata",
        remedy=f"Leave out metadata_only=True\nTo ask the server: {_asking(request)}",
    )


def not_whole_error(request: Request, projection: Projection) -> NotKept:
    """Return the error of a read that needs whole objects where a part of each is stored."""
    return NotKept(
        f"the cache of {request.kind_text} only stores a part of each object: {_short(projection)}",
        remedy=f"Read dicts\nTo read whole objects: {_asking(request, 'whole=True')}",
    )


# ---- States of a cache, as a read meets them.


def for_request(error: _E, declared: Branches | None = None) -> _E:
    """Return an error of a cache with the filter added."""
    behind = ""
    if declared is not None and (filter_text := _short(declared)) not in str(error):
        behind = f" (the filter is {filter_text})"
    cause = {"cause": error.cause} if isinstance(error, StateError) else {}
    return type(error)(f"{error.what}{behind}", remedy=error.remedy, **cause)


def not_declared_error(error: ReadError, request: Request) -> NotDeclared:
    """Return the error of a kind without a cache, with the read of the same objects that needs none."""
    verb = "fetch" if request.name is not None else _WITHOUT_CACHE.get(request.verb)
    if verb is None or ("Did you mean" in error.remedy and is_misspelt(key_of(request.kind))):
        return NotDeclared(error.what, remedy=error.remedy)
    return NotDeclared(error.what, remedy=f"{error.remedy}\nTo ask the server: {call_of(verb)}")


def not_synced_error(key: str, message: str, remedy: str, *, after: float | None = None) -> NotSynced:
    """Return the error of a cache that has had no complete list yet."""
    waited = "" if after is None else f" after {after:g} s"
    return NotSynced(
        f"the cache of {key} is not synced{waited}: {message or 'the first list is not complete yet'}",
        remedy=remedy or f"To wait for it: {call_of('wait_synced')}",
    )


def index_error(request: Request, failed: IndexFailed) -> ReadError:
    """Return the error of an index whose function fails for an object."""
    what = f"{request.kind_text}/{'/'.join(filter(None, failed.record.key))}: {failed.why}"
    remedy = f"Correct the function of the index {shown(failed.name)}: {NO_VALUE}"
    return ReadError(what, remedy=remedy)


def stale_error(request: Request, age: float | None) -> Stale:
    """Return the error of a cache that the server confirmed too long ago."""
    # Rounded up, because it must read as longer than the bound.
    ago = "has never confirmed" if age is None else "last confirmed"
    when = "" if age is None else f" {math.ceil(age * 10) / 10:g} s ago"
    return Stale(
        f"the server {ago} the cache of {request.kind_text}{when}",
        remedy=(
            f"Allow more: a quiet server confirms about once a minute\nTo ask the server: {_asking(request)}"
        ),
    )


def behind_error(request: Request, version: str, *, pinned: bool = False) -> Stale:
    """Return the error of a cache, or of a snapshot, that is not known to be as new as a read asks for."""
    # A snapshot does not advance, the server has no `list_outside`, and more objects than `list_cached` has.
    if pinned or request.verb in ("list_cached", "list_outside"):
        when = " before the snapshot is opened" if pinned else ""
        remedy = f"To wait{when}: {call_of('wait_synced', 'at_least=<the object>')}"
    else:
        verb = "fetch" if request.name is not None else "fetch_list"
        remedy = f"To wait, and then ask the server: {call_of(verb, 'at_least=...')}"
    return Stale(
        f"the {'snapshot' if pinned else 'cache'} of {request.kind_text} is only at version"
        f" {clipped(version, 50)}",
        remedy=f"{remedy}\nTo read later: raise kopf.TemporaryError",
    )


# ---- Answers of the server to a read.


def _object_first(request: Request) -> str:
    """Return the object of a request, to be put before a sentence; empty for a request of several."""
    return "" if request.name is None else f"{request.subject}: "


def not_served_error(request: Request, cause: Cause = NO_CAUSE) -> Missing:
    """Return the error of a kind that the cluster does not know."""
    row, advice = row_of(Refusal(404)), unserved(key_of(request.kind), None)
    what = _object_first(request) + row.sentence % {"kind": request.kind_text}
    return Missing(what, remedy=row.asked % {"advice": advice}, cause=cause)


def forbidden_error(
    verb: str, resource: Resource, namespaces: Sequence[str] | None, first: str = "", **about: Any
) -> Forbidden:
    """Return the error of a missing permission. `first` names the object, or the handler that patches."""
    facts = {
        "whose": f"{first}{SETTINGS.whose}",
        "verb": verb,
        "kind": resource,
        "where": f" in {', '.join(namespaces)}" if namespaces is not None else "",
        "rule": f"apiGroups: [{resource.kind.group!r}], resources: [{resource.kind.plural!r}]",
    }
    row = row_of(Refusal(403))
    return Forbidden(row.sentence % facts, remedy=row.asked % facts, **about)


def request_error(
    request: Request, error: Exception, verb: str = "", resource: Resource | None = None
) -> StateError:
    """Return the error of a request that failed, in the words of `CAUSES`. Without a resource, a refused
    request was to find out which resource a key means.
    """
    if isinstance(error, NotServed):
        return not_served_error(request)
    failure = failure_of(error)
    row, cause = row_of(failure, "get" if resource is None else ""), cause_of(failure)
    facts: dict[str, object] = {
        "resource": request.subject,
        "kind": resource,
        "verb": verb,
        "request": "the request",
        "selector": "the selector",
        **OWN_LOGIN,
        "whole": _asking(request, "whole=True"),
    }
    if isinstance(failure, Lost):
        facts |= {"why": failure.why, "argument": failure.argument, "besides": failure.besides}
    else:
        facts |= {"message": failure.message, "answer": f"{failure.code} {failure.reason}".rstrip()}
        facts["later"] = (
            retry_remedy(cause) if cause.transient else "Correct the server, or a proxy in front of it"
        )
        if resource is None and row.health not in (Health.UNAUTHORIZED, Health.FORBIDDEN):
            return no_answer_error(request, str(facts["answer"]), cause)
        if row.health is Health.MISSING:
            return not_served_error(request, cause)
        if resource is not None and row.health is Health.FORBIDDEN:
            where, target = request.region().namespaces, target_of(request, verb, resource)
            first = _object_first(request)
            return forbidden_error(verb, resource, where, first, cause=cause, target=target)
    if not row.asked:
        return no_answer_error(request, str(error), cause)
    said = row.said % facts
    first = "" if "%(resource)s" in row.sentence else _object_first(request)
    what = f"{first}{row.sentence % facts}{said and f': {said}'}"
    return ERRORS.get(row.health, Stalled)(what, remedy=row.asked % facts, cause=cause)


@contextmanager
def answering(request: Request, verb: str, resource: Resource | None) -> Iterator[None]:
    """Raise the errors of a request to the server as errors of the read."""
    try:
        yield
    except (NotServed, Refused) as error:
        raise request_error(request, error, verb, resource) from None
    except (Unreachable, Garbled) as error:
        raise request_error(request, error) from error


def target_of(request: Request, verb: str, resource: Resource) -> Target:
    """Return the object of a request, as errors have it."""
    return Target(verb, str(resource), request.name or "", request.namespace)


def no_answer_error(request: Request, why: str = "", cause: Cause = _NO_ANSWER) -> Stalled:
    """Return the error of a request without an answer."""
    within = "" if request.timeout is None else f" in {request.timeout:g} s"
    several = f" a request for {request.kind_text}" if request.name is None else ""
    behind = why and f": {why}"
    what = f"{_object_first(request)}the server did not answer{several}{within}{behind}"
    return Stalled(what, remedy=retry_remedy(cause), cause=cause)


def retry_remedy(cause: Cause) -> str:
    """Return the remedy of a failure that may pass."""
    delay = math.ceil(min(cause.retry_after or _RETRY_SECONDS, LONGEST_ASKED_SECONDS))
    return f"To retry: raise kopf.TemporaryError('no answer', delay={delay})"
