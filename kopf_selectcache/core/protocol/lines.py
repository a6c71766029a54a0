"""Splits the bytes of a stream into lines. Decodes none, except for the name in a line that is too long."""

from __future__ import annotations

from collections.abc import Iterator

from kopf_selectcache.core.errors import Garbled

MAX_LINE = 16 * 1024 * 1024
"""The longest line of a watch, in bytes. etcd takes objects of 1.5 MiB; some aggregated servers ten times
that."""

_START = 64 * 1024
"""The number of bytes of an endless line that are searched for the object's name."""


class Lines:
    """Splits the chunks of a stream into lines. Bytes after the last newline are kept until the line is
    complete.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def rest(self) -> bytes:
        """The bytes since the last newline."""
        return b"".join(self._parts)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that this chunk completes; raise Garbled once an unfinished one is too long."""
        *complete, rest = chunk.split(b"\n")
        for end in complete:
            line = b"".join((*self._parts, end))
            self._parts, self._size = [], 0
            if line.strip():
                yield line
        self._size += len(rest)
        if self._size > self._limit:
            name = _name_in(b"".join((*self._parts, rest))[:_START])
            raise Garbled(
                f"a line of a watch is longer than {self._limit:,}"
                f" bytes{f'; the object is {name!r}' if name else ''}"
            )
        self._parts.append(rest)


def _name_in(start: bytes) -> str:
    """Find the object's name in the start of a line. No other value may be returned, even if its key is
    `name`: it could be secret.
    """
    # Without escaped quotes, every other piece is the contents of quotes.
    pieces = start.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    path: list[bytes] = []
    key = b""
    for marks, text in zip(pieces[::2], pieces[1:-1:2], strict=False):
        for mark in marks.decode("latin-1"):
            if mark in "{[":
                path.append(key)
            elif mark in "}]":
                del path[-1:]
        if not marks.rstrip().endswith(b":"):
            key = text
        elif key == b"name" and path == [b"", b"object", b"metadata"]:
            return text[:253].decode("utf-8", "replace")
    return ""
