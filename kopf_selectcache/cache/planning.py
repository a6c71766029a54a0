"""Plans: the streams, permissions and memory of a declaration or a change, computed before it is made.

Asks the server for the operator's permissions, and for the objects of streams that would be opened. Changes
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from kopf_selectcache._errors import NotDeclared
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.protocol.query import written
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.kinds import KindKey, Resource
from kopf_selectcache.core.store.packing import weights_of
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.checks import Reviewer, Unreviewed
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.memory import Amount, Counter
from kopf_selectcache.informer.state import Relist, Split, split_streams
from kopf_selectcache.selectors.kind_keys import AnyKey
from kopf_selectcache.selectors.selector import Branches
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.checks import readable
from kopf_selectcache.settings.declaration import Cached, Declared, named
from kopf_selectcache.settings.planner import Plan, Stream
from kopf_selectcache.settings.rights import Right, merged, of_cache

from ._server_reads import resource_of
from .declaring import DeclareOptions, checked_request, completed, started
from .errors import answering
from .request import Request
from .snapshots import Access

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
            number = f"{self.objects:,} object{'' if self.objects == 1 else 's'}"
            lines.append(f"  caches {number}, about {readable(self.bytes)} of memory")
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
    timeout = runtime.settings.sync_timeout if request.timeout is None else request.timeout
    async with runtime.namespaces.known(cached.chosen_filter, timeout=timeout):
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
