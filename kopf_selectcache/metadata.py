"""Lists of metadata: which objects the server has, of which uid and version, without what is in them. Compares nothing."""
from __future__ import annotations

from collections.abc import Mapping

from .core.problems import Garbled
from .core.resources import Resource
from .core.wire import Page, Reader
from .transport import Refused, Transport

# An aggregated server need not know how to send less.
_ACCEPTED = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

_READER = Reader("meta.k8s.io/v1", "PartialObjectMetadata")


async def page_of_metadata(transport: Transport, resource: Resource, path: str, query: Mapping[str, str]) -> Page:
    """Return a page of a list; raise Refused, Unreachable or Garbled."""
    answer = await transport.get(path, query, accept=_ACCEPTED)
    try:
        page = _READER.page(answer)
    except Garbled:
        page = Reader(resource.api_version, resource.kind.kind).page(answer)
    if not isinstance(page, Page):
        raise Refused(page)
    return page
