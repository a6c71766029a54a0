"""Kinds that come and go: declares, replaces and ends caches at run time, and plans what that would do."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Literal, TypedDict, TypeVar, cast

from kopf_selectcache._errors import (
    DeclarationError,
    NotDeclared,
    NotSynced,
    ReadError,
    StateError,
    call_of,
    caller,
    require,
)
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.protocol.messages import written
from kopf_selectcache.core.redact import clipped, counted
from kopf_selectcache.core.selection.kinds import KindKey, Resource, find
from kopf_selectcache.core.store.index_spec import Function
from kopf_selectcache.core.store.packing import Storage, weights_of
from kopf_selectcache.core.store.projection import Path, Transform
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.background import IndexFailed
from kopf_selectcache.informer.checks import Reviewer, Unreviewed
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime, remedy_of_withdrawn
from kopf_selectcache.informer.state import Relist, Split, split_streams
from kopf_selectcache.selectors.kind_keys import AnyKey, assigned, checked_key, declared_like, likely
from kopf_selectcache.selectors.selector import Branches
from kopf_selectcache.selectors.text import Everything, LabelSelector
from kopf_selectcache.settings.checks import OPTIONS, Size, readable, require_received
from kopf_selectcache.settings.declaration import (
    Cached,
    Declared,
    are_one_kind,
    checked,
    differing_options,
    named,
    select_alike,
)
from kopf_selectcache.settings.namespaces import NamespacesGiven
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.settings.planner import Plan, Right, Stream, merged, of_cache

from ._server_reads import resource_of
from .errors import answering, for_request, index_error, not_synced_error
from .estimates import Amount, Counter
from .request import Request
from .snapshots import Access, informer_of

_M = TypeVar("_M", bound=Callable[..., Any])


class DeclareOptions(TypedDict, total=False):
    """The options of `declare`: those of `Cached`, and the timeout in seconds."""

    timeout: float | None

    keep: Collection[Path] | Everything | None
    drop: Collection[Path]
    transform: Transform | None
    metadata_only: bool
    outside: Literal["metadata"] | None
    share_watches: bool
    sharded: bool | None
    storage: Storage | None
    index: Mapping[str, Path | Function] | None
    max_bytes: Size | None
    namespaces: NamespacesGiven
    page_limit: int
    audit_interval: float
    bookmarks: bool
    resync: float


def with_call_site(place: str, cache: Any) -> Any:
    """Return a copy of a cache that names this place as the one of its calls."""
    copied = copy(cache)
    copied._place = place  # Of the same package.  # noqa: SLF001
    return copied


def records_call_site(method: _M) -> _M:
    """Call a method with the place of its call, unless that is known: a coroutine runs without its caller."""

    @wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return method(self if self._place else with_call_site(caller(), self), *args, **kwargs)

    return cast("_M", call)


async def declare(
    runtime: Runtime, kind: AnyKey, declared: Declared, options: DeclareOptions, *, replace: bool
) -> None:
    """Declare a kind, or change it with `replace`; wait until it is synced; else withdraw it and raise."""
    require(
        isinstance(replace, bool), DeclarationError, "cache.declare()", "replace", replace, "True or False"
    )
    key, request, cached = checked_request("declare", kind, declared, options)
    runtime = await started(runtime, request)
    informer, pending = _declared_informer(runtime, key), runtime.names.pending
    if informer is not None and replace:
        given = None if isinstance(declared, Cached) else options
        await _change(
            runtime, request, key, completed(runtime.settings, key, cached, informer, given), informer
        )
        return
    cached = runtime.settings.completed(key, cached)
    if informer is not None:
        _require_alike(informer, key, cached)
    else:
        informer = runtime.declare(key, cached)
        pending[informer] = 0
    if informer in pending:
        pending[informer] += 1
    try:
        await _wait_until_readable(informer, _timeout_of(runtime, request))
    except BaseException as error:
        if informer in pending:
            pending[informer] -= 1
            if not pending[informer]:  # No other call waits for it.
                await runtime.withdraw(informer)
                if isinstance(error, ReadError):
                    error.remedy = remedy_of_withdrawn(error.remedy)
        raise
    pending.pop(informer, None)


def checked_request(
    verb: str, kind: AnyKey, declared: Declared, options: DeclareOptions
) -> tuple[KindKey, Request, Cached]:
    """Return the key, the request and the declaration; raise DeclarationError if they make no sense."""
    given = dict(options)
    timeout = cast("float | None", given.pop("timeout", None))
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout >= 0
    wanted = "a number of seconds, 0 or more"
    require(timeout is None or is_number, DeclarationError, f"cache.{verb}()", "timeout", timeout, wanted)
    key = checked_key(kind)
    cached = checked(key, find(key), declared, **given)
    return key, Request(verb=verb, kind=kind, timeout=timeout, is_plain=timeout is None), cached


async def started(runtime: Runtime, request: Request) -> Runtime:
    """Return the runtime once it exists; that of `cache_of` only stands for it."""
    timeout = _timeout_of(runtime, request)
    try:
        async with asyncio.timeout(timeout):
            return await runtime.wait_started(request.verb)
    except TimeoutError:
        what = f"the operator has not logged in after {timeout:g} s"
        if handlers := cast(
            "Any", runtime
        ).unended_handlers():  # It is that of `cache_of`, which may be late.
            raise NotSynced(
                f"{what}, because its {handlers} handlers are still running",
                remedy=(
                    "If one of them waits for this call, declare the kind in a startup handler:"
                    f" {assigned(checked_key(request.kind))} = ...\nWait longer: timeout=..."
                ),
            ) from None
        raise NotSynced(what, remedy=f"Wait for it first: {call_of('wait_synced')}") from None


def _timeout_of(runtime: Runtime, request: Request) -> float:
    return runtime.settings.sync_timeout if request.timeout is None else request.timeout


def _declared_informer(runtime: Runtime, key: KindKey) -> Informer | None:
    """Return the informer of the kind; None if the kind is not declared."""
    if (informer := runtime.informers.get(key)) is not None:
        return informer
    same = (each for other, each in runtime.informers.items() if are_one_kind(key, other))
    if (informer := next(same, None)) is not None:
        return informer
    try:
        return runtime.informer(key)
    except (NotDeclared, NotSynced):  # If two keys mean one resource, `Claims` rejects the second.
        return None


def _require_alike(informer: Informer, key: KindKey, cached: Cached) -> None:
    """Raise DeclarationError if the kind is declared with another filter, or other options."""
    selects_alike = select_alike(informer.declared, cached, kind=find(key))
    options = differing_options(informer.declared, cached)
    if selects_alike and not options:
        return
    differing = ["the same filter" if selects_alike else clipped(informer.state.filter, 500)]
    differing += [f"another {', '.join(options)}"] if options else []
    raise DeclarationError(
        f"{informer} are already declared, with {' and '.join(differing)}",
        remedy=f"To change it: {call_of('declare', 'replace=True')}",
    )


async def _wait_until_readable(informer: Informer, timeout: float) -> None:  # noqa: ASYNC109  # Its end names a reason.
    try:
        async with asyncio.timeout(timeout):
            while informer.state.ready is None and informer.state.part().error is None:
                await informer.wait_until_settled()
    except TimeoutError:
        pass  # The reason is raised below.
    part = informer.state.part()
    if part.error is not None:
        raise for_request(part.error, informer.state.filter)
    if informer.state.ready is None:
        remedy = part.remedy or f"Wait longer: {call_of('declare', 'timeout=...')}"
        raise not_synced_error(str(informer), part.message, remedy, after=timeout)


async def _change(
    runtime: Runtime, request: Request, key: KindKey, cached: Cached, informer: Informer
) -> None:
    """Change what is declared of a kind; return once reads see it."""
    _require_unchanged(informer, cached)
    if cached == informer.declared and informer.filter_change.is_idle and informer.state.ready is not None:
        return  # Nothing changes.
    with _for_change(informer, request):
        await informer.ending.limit(
            runtime.change(key, informer, cached, timeout=_timeout_of(runtime, request))
        )
    runtime.names.pending.pop(informer, None)  # A call of `declare` that ends now withdraws nothing.


def completed(
    settings: SelectCacheSettings,
    key: KindKey,
    cached: Cached,
    informer: Informer,
    options: DeclareOptions | None,
) -> Cached:
    """Return a declaration with the present options that are not given (None: all are), and the defaults."""
    present = informer.declared
    if options is None:
        return settings.completed(key, cached)
    former = present if present.source is None else present.source
    indexes = (*informer.state.indexes.values(),)
    cached = settings.completed(key, cached.completed(former, indexes=indexes, given=options))
    if cached.projection != present.projection and "index" not in options:
        # Indexes that were added read whole objects from now on.
        cached = cached.replaced(indexes=tuple(dataclasses.replace(each, late=False) for each in indexes))
    if cached.indexes:
        with named(key):
            require_received(cached.indexes, cached.projection)
    return cached


def _suggestion(runtime: Runtime, key: KindKey) -> str:
    """Return a question for the kind that may be meant by a misspelt key; empty if there is none."""
    if find(key) is not None:
        return ""
    meant = declared_like(key, runtime.informers) or likely(key)
    return f"Did you mean {meant!r}?\n" if meant is not None else ""


def _require_unchanged(informer: Informer, cached: Cached) -> None:
    """Raise DeclarationError if a change has options that only a new declaration may have."""
    for name, option in OPTIONS.items():
        if not option.changes and getattr(informer.declared, name) != getattr(cached, name):
            raise DeclarationError(
                f"{name}= of {informer} can't be changed while the kind is declared",
                remedy=f"Undeclare it, then declare it again: {call_of('undeclare')}, {call_of('declare')}",
            )


@contextmanager
def _for_change(informer: Informer, request: Request) -> Iterator[None]:
    """Raise the errors of a change as errors of the request."""
    try:
        yield
    except (NotSynced, StateError) as error:
        raise for_request(error, informer.state.filter) from None
    except IndexFailed as failed:
        raise index_error(request, failed) from None


async def remove(runtime: Runtime, kind: AnyKey, place: str) -> None:
    """Remove a kind; return once its tasks have ended."""
    key, request = checked_key(kind), Request(verb="undeclare", kind=kind)
    runtime = await started(runtime, request)
    try:
        informer = informer_of(runtime, request)
    except NotDeclared as error:
        remedy = f"{_suggestion(runtime, key)}Only declared kinds can be undeclared"
        raise NotDeclared(error.what, remedy=remedy) from None
    await runtime.remove(informer, place)


# ---- Plans: the streams, permissions and memory of a declaration or a change, computed before it is made.

_NO_REVIEWS = (403, 404, 405)
"""Codes of servers that do not review permissions."""


@dataclass(frozen=True, slots=True)
class PlannedStream:
    """One list and watch of a `ChangePlan`."""

    filter: Branches
    """Its part of the filter."""
    path: str
    query: Mapping[str, str]
    """The query parameters of its selector."""
    reason: str = ""
    """Why it would be listed anew; empty if it would not."""

    def __str__(self) -> str:
        return written(self.path, self.query) + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The effects of a declaration or a change, from `cache.plan`. `str` gives a few lines of text."""

    kind: str
    filter: Branches
    """The filter, with the namespaces that the operator is confined to."""
    former: Branches | None
    """The present filter; None if the kind is not declared."""
    opened: tuple[PlannedStream, ...]
    """The streams that would be listed and watched anew, each with the reason."""
    kept: tuple[PlannedStream, ...]
    """The present streams that would go on."""
    ended: tuple[PlannedStream, ...]
    """The present streams that would end."""
    permissions: tuple[Right, ...]
    """The permissions that all its streams need."""
    missing: tuple[Right, ...] | None
    """Those of them that the operator lacks; None if the server does not tell."""
    objects: int | None
    """The number of objects that the cache would hold; None if some may not be listed."""
    bytes: int | None
    """An estimate of the memory that they would take, as `max_bytes` counts it; None likewise."""

    def __str__(self) -> str:
        former = "" if self.former is None else f", instead of {clipped(self.former)}"
        lines = [f"{self.kind} with {clipped(self.filter)}{former}"]
        for what, streams in (("opens", self.opened), ("keeps", self.kept), ("ends", self.ended)):
            lines += [f"  {what} {each}" for each in streams]
        lines += [f"  needs permission to {each}" for each in self.permissions]
        if self.missing is None:
            lines.append("  The server does not tell which permissions are missing.")
        else:
            lines += [f"  lacks permission to {each}: {each.written()}" for each in self.missing]
        if self.objects is None or self.bytes is None:
            lines.append("  The objects can't be counted without these permissions.")
        else:
            lines.append(
                f"  caches {counted(self.objects, 'object')}, about {readable(self.bytes)} of memory"
            )
        return "\n".join(lines)


async def plan(access: Access, kind: AnyKey, declared: Declared, options: DeclareOptions) -> ChangePlan:
    """Return what a declaration or change with these arguments would do."""
    key, request, cached = checked_request("plan", kind, declared, options)
    runtime = await started(access.runtime, request)
    kept = None if isinstance(declared, Cached) else options
    return await access.retry(request, partial(_plan, runtime, key, cached, kept))


async def _plan(
    runtime: Runtime, key: KindKey, cached: Cached, options: DeclareOptions | None, request: Request
) -> ChangePlan:
    """`options` are None if the declaration replaces all of them."""
    informer: Informer | None = None
    with suppress(NotDeclared):
        informer = runtime.informer(key)
    settings = runtime.settings
    cached = (
        settings.completed(key, cached)
        if informer is None
        else completed(settings, key, cached, informer, options)
    )
    cached = cached.replaced(divided=runtime.division.why_divided(key, cached))
    resource = await resource_of(runtime, request)
    namespaces = runtime.namespaces_for(key, cached.filter)
    async with runtime.namespaces.known(cached.chosen_filter, timeout=_timeout_of(runtime, request)):
        labelled: dict[LabelSelector, Collection[str]] = {
            label: [each for each in names if not cached.divided or runtime.division.serves(each)]
            for label, names in runtime.namespaces.sets(cached.chosen_filter).items()
        }
        with named(key):
            planned = (
                informer.resolver.plan(cached, resource)
                if informer is not None
                else cached.plan(resource, namespaces=namespaces, labelled=labelled)
            )
    split = _split(informer, cached, planned)
    rights = merged(of_cache(resource, planned))
    with answering(request, "list", resource):
        missing = await _missing(runtime, rights)
        unlisted = any("list" in each.verbs for each in missing or ())
        held = None if unlisted else await _held(runtime, resource, cached, split)
    return ChangePlan(
        str(resource),
        planned.filter,
        None if informer is None else informer.state.filter,
        tuple(_described(stream, resource, str(why)) for stream, why in split.opened.items()),
        tuple(_described(stream, resource) for stream in split.kept),
        tuple(_described(each.stream, resource) for each in split.ended),
        tuple(rights),
        missing,
        *(held or (None, None)),
    )


def _split(informer: Informer | None, cached: Cached, planned: Plan) -> Split:
    if informer is None or informer.state.is_resolving:
        why = Relist.NEW if informer is None else Relist.INCOMPLETE
        return Split({}, dict.fromkeys(planned.streams, why), ())
    return split_streams(informer.state, informer.declared, cached, planned)


def _described(stream: Stream, resource: Resource, reason: str = "") -> PlannedStream:
    return PlannedStream(stream.selector, stream.path(resource), stream.query(), reason)


async def _missing(runtime: Runtime, rights: Iterable[Right]) -> tuple[Right, ...] | None:
    """Return the missing parts of rights; None if the server does not review them."""
    reviewer = Reviewer(lambda path, question: runtime.transport.send("POST", path, {}, question))
    try:
        return tuple(await reviewer.missing(rights))
    except Unreviewed:
        return None
    except Refused as error:
        if error.refusal.code not in _NO_REVIEWS:
            raise
        return None


async def _held(runtime: Runtime, resource: Resource, cached: Cached, split: Split) -> tuple[int, int]:
    """Return the number and bytes of the objects: counted where streams are kept, else asked for."""
    present: dict[tuple[str, str], Record] = {}
    for reflector in split.kept.values():
        present |= {record.key: record for record in reflector.substore.view.records()[0]}
    seen, amount = set(present), Amount()
    counter = Counter(runtime.transport, resource)
    for stream in split.opened:
        amount += await counter.held(stream, cached.stored_part(stream), seen, cached.indexes)
    storage = cached.storage or runtime.settings.storage
    added = await counter.memory(amount, storage)
    return len(seen), weights_of(present.values()).total + added
