"""The caches that a loaded operator declares, as the cluster serves their kinds: the streams of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from kopf_selectcache.client.discovery import NotServed, resolve
from kopf_selectcache.client.partial_metadata import pages_of_metadata
from kopf_selectcache.client.transport import KopfTransport, Refused
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.informer.estimate import PAGE_LIMIT, PATIENCE, labelled_namespaces
from kopf_selectcache.selectors.kind_keys import text_of, unserved
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan

from ._late import Late
from .operator_loader import PROBLEM, Loaded, Unloadable


class PlannedCache(NamedTuple):
    """A declared cache, and its streams."""

    resource: Resource
    cached: Cached
    planned: Plan


def declared_in(operator: Loaded, late: Sequence[Late]) -> Iterator[tuple[KindKey, Cached]]:
    """Yield the declarations of the operator, and those of the command line."""
    selectors = operator.declared.selectors
    formers = [(key, selectors.cached(key)) for key in selectors]
    for key in selectors:
        yield key, operator.declared.effective(key)
    for each in late:
        yield each.key, operator.declared.completed(each.key, each.completed(formers)[0])


async def resource_of(operator: Loaded, key: KindKey) -> Resource:
    """Return the resource of a key; raise Unloadable if the cluster does not tell."""
    try:
        return await resolve(operator.transport, key)
    except NotServed as error:
        remedy = unserved(key, text_of(key))
        raise Unloadable(f"{error}. {remedy}", code=PROBLEM) from error
    except Garbled as error:
        raise Unloadable(f"{text_of(key)}: {error}") from error


async def plan_of(operator: Loaded, resource: Resource, cached: Cached) -> PlannedCache:
    """Return the streams of a declaration; raise Unloadable if it does not fit the kind."""
    labels, labelled = cached.namespace_labels, None
    if labels and resource.kind.namespaced is not False:
        with suppress(Refused, Garbled):  # The missing right is named by `check`.
            labelled = await labelled_namespaces(operator.transport, labels)
    try:
        planned = cached.plan(resource, namespaces=operator.namespaces, labelled=labelled)
    except SelectCacheError as error:
        raise Unloadable(f"{resource}: {error}", code=PROBLEM) from error
    return PlannedCache(resource, cached, planned)


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
