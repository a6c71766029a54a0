"""Attacks by objects that cannot be represented, and by the size of pages."""

from __future__ import annotations

import asyncio
import zlib
from functools import lru_cache

from .attack import Attacks
from .objects import LISTED, encoded
from .server import Exchange

SIZES = Attacks()

LEVELS = 1_500
BOMB = 512
"""MiB of a gzip bomb."""
MIB = 1024 * 1024


async def _bring(talk: Exchange, member: bytes) -> None:
    """Answer with the known objects and one that has this member, or with an event of it."""
    evil = encoded(talk.kind.object("evil", "150"))[:-1] + b"," + member + b"}"
    if talk.verb == "list":
        page = encoded(talk.page("150", talk.kind.object("a", "90"), talk.kind.object("b", "91")))
        await talk.answer(page[:-2] + b"," + evil + b"]}")
        return
    await talk.open()
    await talk.chunk(b'{"type":"ADDED","object":' + evil + b"}\n")
    while True:
        await talk.chunk(encoded({"type": "BOOKMARK", "object": talk.kind.bookmark("150")}) + b"\n")
        await asyncio.sleep(1.0)


@SIZES("1,500 levels", "list", "watch", held="synced", fresh="synced", shown={"evil": ""}, error="Unreadable")
async def deep(talk: Exchange) -> None:
    """An object that is nested 1,500 levels deep"""
    await _bring(talk, b'"deep":' + b'{"a":' * LEVELS + b"1" + b"}" * LEVELS)


@SIZES(
    "invalid UTF-8", "list", "watch", held="synced", fresh="synced", shown={"evil": ""}, error="Unreadable"
)
async def invalid_utf8(talk: Exchange) -> None:
    """An object with a text that is no UTF-8"""
    await _bring(talk, b'"text":"\xff\xfe\xc0\x80"')


@SIZES(
    "numbers out of range",
    "list",
    "watch",
    held="synced",
    fresh="synced",
    shown={"evil": ""},
    error="Unreadable",
)
async def out_of_range(talk: Exchange) -> None:
    """An object with a number beyond all bounds"""
    await _bring(talk, b'"number":1e99999')


@SIZES("gzip bomb", memory=192)
async def gzip_bomb(talk: Exchange) -> None:
    """A list of 0.5 MB in gzip, which becomes 512 MiB"""
    await talk.answer(_bomb(encoded(talk.page(LISTED))[:-1]), headers={"Content-Encoding": "gzip"})


# It ignores `limit`, so its list is read up to `max_page_bytes`.
@SIZES("endless page", memory=192, reason="has more than")
async def endless_page(talk: Exchange) -> None:
    """A page whose items have no end, 4 MiB every 0.4 s"""
    await talk.open()
    await talk.chunk(encoded(talk.page(LISTED, talk.kind.object("a", "90")))[:-2])
    number = 0
    while True:
        items = []
        for _ in range(512):
            number += 1
            items.append(
                b"," + encoded(talk.kind.object(f"evil-{number:09}", "95", annotations={"text": "x" * 8_000}))
            )
        await talk.chunk(b"".join(items))
        await asyncio.sleep(0.4)


@lru_cache
def _bomb(start: bytes) -> bytes:
    """Return a gzip of this and of blanks. Each MiB of blanks is the same few bytes, so that it is made in no
    time."""
    blanks, gzip = b" " * MIB, 16 + zlib.MAX_WBITS
    packer = zlib.compressobj(9, zlib.DEFLATED, gzip)
    head = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = zlib.crc32(start)
    for _ in range(BOMB):
        checksum = zlib.crc32(blanks, checksum)
    end = (
        b"\x01\x00\x00\xff\xff"
        + checksum.to_bytes(4, "little")
        + (len(start) + BOMB * MIB).to_bytes(4, "little")
    )
    return head + piece * BOMB + end
