"""The caches that a loaded operator declares, as the cluster serves their kinds: the streams of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from kopf_selectcache.client.discovery import NotServed, resolve
from kopf_selectcache.client.fetcher import pages_of_metadata
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.redact import one_line
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.informer.memory import PAGE_LIMIT, PATIENCE, labelled_namespaces
from kopf_selectcache.plugin.division import division_of
from kopf_selectcache.selectors.kind_keys import assigned, text_of, unserved
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan
from kopf_selectcache.settings.sharding import EVERY_NAMESPACE, Decision

from ._code import Late
from .operator_loader import Loaded
from .output import PROBLEM, CommandError


class PlannedCache(NamedTuple):
    """A declared cache, and its streams."""

    resource: Resource
    cached: Cached
    planned: Plan


def declared_in(operator: Loaded, late: Sequence[Late]) -> Iterator[tuple[KindKey, Cached, str]]:
    """Yield the declarations of the operator, and those of the command line, each with its place."""
    selectors = operator.declared.selectors
    formers = [(key, selectors.cached(key)) for key in selectors]
    for key in selectors:
        yield key, divided(operator, key, operator.declared.effective(key)), assigned(key)
    for each in late:
        completed = operator.declared.completed(each.key, each.completed(formers)[0])
        yield each.key, divided(operator, each.key, completed), each.where


def divided(operator: Loaded, key: KindKey, cached: Cached) -> Cached:
    """Return a declaration that says whether replicas divide the kind."""
    decision = decision_on(operator, key, cached)
    return cached.replaced(divided=decision.why) if decision is not None and decision.is_divided else cached


def decision_on(operator: Loaded, key: KindKey, cached: Cached, kind: Kind | None = None) -> Decision | None:
    """Return whether replicas divide a declared kind, and why; None for an operator of one replica. Raise
    CommandError if they can't, although it says so. `kind` is what the cluster says of the kind.
    """
    if (sharding := operator.declared.sharding) is None:
        return None
    try:
        return division_of(key, cached, sharding.by, operator.registry, kind=kind)
    except SelectCacheError as error:
        raise CommandError.of(error, f"{text_of(key)}: ", code=PROBLEM) from error


def following(cached: Cached, resource: Resource, planned: Plan) -> Plan:
    """Return the plan of all replicas together: each follows the namespaces that they divide."""
    if not cached.divided or resource.kind.namespaced is False:
        return planned
    return replace(planned, labels=(*planned.labels, EVERY_NAMESPACE))


async def resource_of(operator: Loaded, key: KindKey) -> Resource:
    """Return the resource of a key; raise CommandError if the cluster does not tell."""
    try:
        return await resolve(operator.transport, key)
    except NotServed as error:
        raise CommandError(str(error), one_line(unserved(key, text_of(key))), code=PROBLEM) from error
    except Garbled as error:
        raise CommandError(f"{text_of(key)}: {error}") from error


async def plan(operator: Loaded, resource: Resource, cached: Cached, *, joins: bool = True) -> Plan:
    """Return the streams of a declaration, as one replica alone would have them; raise SelectCacheError if
    it does not fit the kind.
    """
    whole = cached.replaced(divided="")
    labels, labelled = whole.namespace_labels, None
    if labels and resource.kind.namespaced is not False:
        with suppress(Refused, Garbled):  # `check` reports the missing permission.
            labelled = await labelled_namespaces(operator.transport, labels)
    planned = whole.plan(resource, namespaces=operator.namespaces, labelled=labelled, joins=joins)
    return following(cached, resource, planned)


async def plan_of(operator: Loaded, resource: Resource, cached: Cached) -> PlannedCache:
    """Return a declaration with its streams; raise CommandError if it does not fit the kind."""
    try:
        return PlannedCache(resource, cached, await plan(operator, resource, cached))
    except SelectCacheError as error:
        raise CommandError.of(error, f"{resource}: ", code=PROBLEM) from error


async def metadata_in(
    transport: KopfTransport, resource: Resource, path: str, query: Mapping[str, str]
) -> AsyncIterator[Record]:
    """Yield the metadata of the objects of a list; raise Refused, Unreachable or Garbled."""
    paging = Paging(query, page_limit=PAGE_LIMIT, patience=PATIENCE)
    async for records in pages_of_metadata(
        transport, resource, path, paging, chance=lambda: 1.0, sleep=asyncio.sleep
    ):
        for record in records:
            yield record
