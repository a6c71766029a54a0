"""Reads that ask the server where the cache cannot answer: `fetch`, `fetch_list` and `is_deleted`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kopf_selectcache._errors import NotDeclared, NotKept, NotSynced, Stale, StateError

from . import _server_reads, snapshots
from .errors import NotFound, OutsideFilter, Unmatchable, Unreadable
from .formats.formats import RAISE
from .request import Request
from .snapshots import Access, informer_of

_NOT_HERE = (OutsideFilter, NotDeclared, NotSynced, Stale, StateError, Unmatchable)
"""Errors of reads that the server may be able to answer."""


async def fetch(access: Access, request: Request) -> Any:
    """Return one object in its form, or the default if it is absent."""
    await access.wait(request)
    try:
        with suppress(*_NOT_HERE, NotKept, Unreadable):
            return access.read(request, snapshots.get_object)
        return await _server_reads.fetch_object(access.runtime, request)
    except NotFound:
        if request.default is RAISE:
            raise
        return request.default


async def fetch_list(access: Access, request: Request) -> Any:
    """Return all requested objects in their form."""
    await access.wait(request)
    with suppress(*_NOT_HERE, NotKept):
        return access.read(request, snapshots.list_objects)
    return await _server_reads.fetch_objects(access.runtime, request)


async def is_deleted(access: Access, departed: str | None, request: Request) -> bool:
    """Return True if an object does not exist. `departed` is the uid of an object that may be gone although
    it is held.
    """
    uid = request.uid
    await access.wait(request)
    held = ""
    try:
        held = access.read(request, snapshots.get_record).uid
    except OutsideFilter as error:
        held = error.uid  # Empty if it is not known.
    except NotFound:
        if uid and request.at_least is not None and request.at_least.uid == uid:
            return True  # It existed in that version, and the cache is as new: it came and went.
    except _NOT_HERE:
        pass
    if held:
        informer = informer_of(access.runtime, request)
        if (
            uid in (None, held)
            and held != departed
            and not informer.state.union.is_unconfirmed((request.namespace or "", request.name or ""))
        ):
            return False
    # The server alone knows of an object that is absent here, and that the reader may know from elsewhere.
    found = await _server_reads.fetch_uid(access.runtime, request)
    return found is None or uid not in (None, found)
