"""The forms in which objects are requested: whole or metadata only (PartialObjectMetadata), both without
`managedFields`, unless they are stored. A server may not support a form, and answers with whole objects.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Protocol

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.decoder import PARTIAL_KIND, PARTIAL_VERSION, Reader
from kopf_selectcache.core.protocol.messages import Page
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.projection import ALL, Projection
from kopf_selectcache.core.store.record import Record

from .reading import Refused
from .transport import DROP, JSON, Transport, ask_in_size

ONE = f"{JSON};as={PARTIAL_KIND};g=meta.k8s.io;v=v1{DROP},{JSON}{DROP}"
"""The header Accept of a request for one object, or for a watch."""

PAGE = f"{JSON};as={PARTIAL_KIND}List;g=meta.k8s.io;v=v1{DROP},{JSON}{DROP}"
"""The header Accept of a list."""


class Client(Protocol):
    """Sends GET requests: a transport, or the fetcher of an operator."""

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = ..., most: int | None = None
    ) -> bytes: ...


_READER = Reader(PARTIAL_VERSION, PARTIAL_KIND)


def accept_of(projection: Projection, *, is_list: bool = False) -> str:
    """Return the header Accept of a request for objects of which this part is stored."""
    accept = f"{JSON}{DROP}"
    if projection.metadata_only:
        accept = PAGE if is_list else ONE
    return accept.replace(DROP, "") if projection.keeps_managed else accept


def metadata_of(resource: Resource, answer: bytes) -> Record:
    """Decode the answer to a request for one object. Raise Garbled."""
    try:
        return _READER.record(answer, kindless=False)
    except Garbled:
        return Reader.of(resource, ALL).record(answer, kindless=False)


async def pages_of_metadata(
    transport: Transport,
    resource: Resource,
    path: str,
    paging: Paging,
    *,
    chance: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> AsyncGenerator[tuple[Record, ...], None]:
    """Yield the objects of a list, page by page, to its end; raise Refused, Unreachable or Garbled."""
    while not paging.is_complete:
        if pause := paging.take_pause(chance()):
            await sleep(pause)
        page = await page_of_metadata(transport, resource, path, paging)
        paging.turn(page)
        yield page.records


async def exists(client: Client, resource: Resource, namespace: str | None, name: str) -> bool:
    """Ask whether an object exists, with the permission to list the kind. Raise Refused, Unreachable or
    Garbled.
    """
    paging = Paging({"fieldSelector": f"metadata.name={name}"}, page_limit=1, patience=0.0)
    page = await page_of_metadata(client, resource, resource.path(namespace), paging)
    return any(record.name == name for record in page.records)


async def page_of_metadata(transport: Client, resource: Resource, path: str, paging: Paging) -> Page:
    """Return the next page of a list; raise Refused, Unreachable or Garbled."""
    answer = await ask_in_size(
        paging.size, lambda: transport.get(path, paging.query, accept=PAGE, most=paging.size.most_bytes)
    )
    try:
        page = _READER.page(answer)
    except Garbled:
        page = Reader.of(resource, ALL).page(answer)
    if not isinstance(page, Page):
        raise Refused(page)
    return page
