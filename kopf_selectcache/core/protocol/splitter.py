"""Splits the answer to a list, while it is received, into pieces of several items: for servers that ignore
`limit`. Decodes nothing, and does not recurse.

The splitter scans brackets and texts only. A piece ends with an item, where all opened brackets are closed.
If a piece in brackets is a valid JSON list, the split is correct: its last item can end nowhere else. So the
reader of the pieces needs no other check. The buffer has at most one unfinished object, one piece and one
chunk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kopf_selectcache.core.errors import Garbled, TooLarge
from kopf_selectcache.core.scanner import TEXT, Unscannable, members

_SPACE = rb"[ \t\n\r]*+"
_BARE = rb'[^"{}\[\]]*+'
_PLAIN = _BARE + rb"(?>(?:" + TEXT + _BARE + rb"){0,500})"
_INSIDE = re.compile(
    _PLAIN + rb"(?>(?:(?:\{" + _PLAIN + rb"\}|\[" + _PLAIN + rb"\])" + _PLAIN + rb"){0,500})", re.DOTALL
)
r"""Up to the next bracket or text, at least. Texts, and objects and lists without others inside, are skipped
as a whole, up to 500 in a row. An atomic group with a bound: see `_MARK` in scanner.py."""
_IN_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""The rest of a text, up to its quote or to an escape without an end."""
_BRACKETS = re.compile(rb"[{\[]++|[}\]]++")
_BETWEEN = re.compile(rb"[ \t\n\r,]*+")
_COMMA = re.compile(_SPACE + rb",")
_KEY = re.compile(rb'(?<!\\)"items"' + _SPACE + rb":" + _SPACE + rb"\Z")
_LONGEST_KEY = 64
"""The most bytes of the key `items` with the blanks around its colon."""

_QUOTE, _OPENING, _LIST, _OBJECT, _END = b'"'[0], b"{[", b"["[0], b"{"[0], b"]"[0]


class Splitter:
    """One list.

    >>> splitter = Splitter(most=100, piece=8)
    >>> [*splitter.feed(b'{"items": [{"a": 1}, {"b":'), *splitter.feed(b' {}}, {"c": "]}"}], "kind": "List"}')]
    [b'{"a": 1}', b' {"b": {}}, {"c": "]}"}']
    >>> splitter.head, splitter.envelope()
    (b'{"items": [', b'{"items": [], "kind": "List"}')
    """  # The call in the example has to be on one line.  # noqa: E501

    def __init__(self, *, most: int, piece: int) -> None:
        self.head = b""
        """The answer up to its items; empty until they begin."""
        self._most = most  # The limit in bytes: of an object, and of the rest of the list.
        self._piece = piece
        self._buffer = bytearray()
        self._at = 0  # The buffer is scanned up to here.
        self._complete = 0  # The end of the last complete item in the buffer.
        self._depth = 0  # The number of open brackets: of the answer before its items, then of the item.
        self._in_text = False
        self._items = 0
        self._pieces = 0
        self._has_ended = False  # True after the last item.

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield a piece if this chunk completes one: JSON items without the brackets around them.

        Raise Garbled if the items are no list of objects, and TooLarge if one of them is too large.
        """
        self._buffer += chunk
        if not self.head:
            self._find_items()
        if self.head and not self._has_ended:
            end = self._scan_items()
            if self._has_ended:  # From now on the buffer has the bytes after the items.
                yield from self._cut(end)
            elif self._complete and len(self._buffer) >= self._piece:
                yield from self._cut(self._complete)
        if len(self._buffer) - self._complete > self._most:
            where = (
                f"item {self._items} of a list"
                if self.head and not self._has_ended
                else "an answer, without its items,"
            )
            raise TooLarge(
                f"{where} has more than {self._most:,} bytes (settings.selectcache.max_page_bytes)"
            )

    def envelope(self) -> bytes:
        """Return the list without its items, after its end. Raise Garbled if it is incomplete, or if it has a
        second member `items`.
        """
        if self.head and not self._has_ended:
            raise Garbled(f"a list ended before its items did (after {self._items} items)")
        rest = bytes(self._buffer)
        if self.head:
            try:
                has_others = "items" in members(b'{"":[' + rest)
            except Unscannable:
                has_others = False  # The decoder refuses it.
            if has_others:
                raise Garbled("a list has two members `items`")
        return self.head + rest

    def _find_items(self) -> None:
        while self._find_brackets():
            buffer, at = self._buffer, self._at
            if (
                self._depth == 1
                and buffer[at] == _LIST
                and _KEY.search(buffer[max(0, at - _LONGEST_KEY) : at])
            ):
                self.head = bytes(buffer[: at + 1])
                del buffer[: at + 1]
                self._at = self._depth = 0
                return
            self._take_brackets()

    def _scan_items(self) -> int:
        """Scan the items; return the position of their end, or 0 if it has not come yet."""
        buffer = self._buffer
        while True:
            if self._depth == 0:
                self._at = _end(_BETWEEN, buffer, self._at)
                if self._at == len(buffer):
                    return 0
                if buffer[self._at] == _END:
                    self._has_ended = True
                    return self._at
                if buffer[self._at] != _OBJECT:
                    raise Garbled(f"an item of a list isn't an object (item {self._items})")
                self._depth, self._at = 1, self._at + 1
            if not self._find_brackets():
                return 0
            self._take_brackets()
            if self._depth == 0:
                self._complete = self._at
                self._items += 1

    def _find_brackets(self) -> bool:
        """Scan up to the next brackets; return False if they have not come yet."""
        buffer = self._buffer
        while True:
            if self._in_text:
                self._at = _end(_IN_TEXT, buffer, self._at)
                if (
                    self._at == len(buffer) or buffer[self._at] != _QUOTE
                ):  # A backslash is scanned with the byte after it.
                    return False
                self._in_text, self._at = False, self._at + 1
            self._at = _end(_INSIDE, buffer, self._at)
            if self._at == len(buffer):
                return False
            if buffer[self._at] != _QUOTE:
                return True
            self._in_text, self._at = True, self._at + 1

    def _take_brackets(self) -> None:
        """Count successive brackets of one sort, but no more closing ones than are open."""
        count = _end(_BRACKETS, self._buffer, self._at) - self._at
        if self._buffer[self._at] not in _OPENING:
            count = min(count, max(self._depth, 1))
            self._depth -= count
        else:
            self._depth += count
        self._at += count

    def _cut(self, end: int) -> Iterator[bytes]:
        """Remove the bytes before this position from the buffer, and yield them if they have items."""
        data = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._at, self._complete = self._at - end, 0
        if data.strip():
            start = 0
            if self._pieces:
                comma = _COMMA.match(data)
                start = comma.end() if comma is not None else len(data)
                if not data[start:].strip():
                    raise Garbled(
                        f"the items of a list are not separated by single commas (item {self._items})"
                    )
            self._pieces += 1
            yield data[start:]


def _end(pattern: re.Pattern[bytes], data: bytearray, at: int) -> int:
    found = pattern.match(data, at)
    assert found is not None, "the patterns match the empty string, or the bytes that were found"
    return found.end()
