"""Lists of one stream's metadata: what its objects are compared with."""

from __future__ import annotations

from collections.abc import Mapping

from kopf_selectcache.client.fetcher import pages_of_metadata
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.claims import Listed, listed_of
from kopf_selectcache.settings.planner import Stream

from .environment import Environment


async def metadata_as_of(
    stream: Stream,
    resource: Resource,
    first: Mapping[str, str],
    *,
    version: str = "",
    environment: Environment,
) -> tuple[str, Listed]:
    """List the metadata of a stream, with these parameters for its version; return the version and the list.
    Raise Refused, Unreachable or Garbled, also if the list is as of another `version` than is required.
    """
    listed: Listed = {}
    paging = Paging(
        stream.query(),
        page_limit=environment.settings.page_limit,
        patience=environment.settings.sync_timeout,
        first=first,
        version=version,
    )
    async for records in pages_of_metadata(
        environment.transport,
        resource,
        stream.path(resource),
        paging,
        chance=environment.chance,
        sleep=environment.sleep,
    ):
        listed |= listed_of(stream.within(records))
    return paging.version, listed
