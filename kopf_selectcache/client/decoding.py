"""Decoding of answers on the event loop, in slices."""

from __future__ import annotations

import asyncio

from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Page, Refusal


async def decode_in_slices(reader: Reader, data: bytes, *, first: int = 0) -> Page | Refusal:
    """Decode the answer to a list in slices; other tasks run after each slice. Raise Garbled."""
    answer = None
    for answer in reader.slices(data, first=first):
        if answer is None:
            await asyncio.sleep(0)
    assert answer is not None, "the last slice is the answer"
    return answer
