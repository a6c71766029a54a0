"""The answers of the server to the writes of `cache.live`, for the reads that follow them."""

from __future__ import annotations

from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.informer.informers import Runtime


def remember_answer(runtime: Runtime, resource: Resource, data: bytes) -> None:
    """Remember an object as the server has answered a write of it."""


def remember_deletion(
    runtime: Runtime, resource: Resource, namespace: str, name: str, uid: str, data: bytes
) -> None:
    """Remember that an object is deleted, or is being deleted. `data` is the server's answer, and empty if
    it was lost; `uid` is empty if it is not known.
    """
