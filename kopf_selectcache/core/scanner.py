"""Finds the members of a JSON object, and the items of a list, where the decoder gives up. It never recurses.

The decoder gives up on values that are nested too deeply, on texts that are no UTF-8, on bad escapes and on numbers out of
range. Here a text ends at its quote whatever is in it, a number has digits without a limit, and of nested values only the
tokens and brackets are checked. So whatever the decoder reads is found here as well, and the same of it. Other bytes are
refused: where a quote is damaged, text and structure are exchanged, and an object would get the content of the next one.
"""
from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SPACE = rb"[ \t\n\r]*+"
_KEY = re.compile(_SPACE + rb"(" + _TEXT + rb")" + _SPACE + rb":", re.DOTALL)
_WORD = rb"(?:-?[0-9]++(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+|true|false|null|NaN)"
_PLAIN = re.compile(_TEXT + rb"|" + _WORD, re.DOTALL)
"""A text, a number, or a word such as `true`."""
_ENDS = rb"(?=" + _SPACE + rb"[,\]}])"
"""What follows a value."""
_FLAT = (
    rb"(?:[ \t\n\r]++|[,:](?!" + _SPACE + rb"[,:\]}])|" + _WORD + _ENDS + rb"|" + _TEXT + rb"(?=" + _SPACE + rb"[,:\]}]))")
_OPENS = rb"(?!" + _SPACE + rb"[,:])"
_MARK = re.compile(
    rb"(?:" + _FLAT + rb"|\{" + _OPENS + _FLAT + rb"*+\}" + _ENDS + rb"|\[" + _OPENS + _FLAT + rb"*+\]" + _ENDS + rb")*+"
    rb"([{\[]" + _OPENS + rb"|[}\]]" + _ENDS + rb")", re.DOTALL)
"""The next bracket, but for those around what has no other brackets. It does not match what is no JSON."""
_OPENED = re.compile(_OPENS)
_BLANK = re.compile(_SPACE)
_CLOSING = {b"{": b"}", b"[": b"]"}
_ITEMS = b'"items"'

_text = msgspec.json.Decoder(str).decode


class Unscannable(Exception):
    """These bytes are no JSON object or list, whatever their texts and numbers are like."""


def members(data: bytes) -> dict[str, bytes]:
    """Return the values of a JSON object, as bytes; of several values of one key the last. Raise Unscannable if it is none.

    >>> members(b'{"a": [[[1e999]]], "b": {}, "a": 0}')
    {'a': b'0', 'b': b'{}'}
    """
    spans = {_key(key): (start, end) for key, start, end in _whole(data, b"{")}
    return {key: data[start:end] for key, (start, end) in spans.items()}


def items(data: bytes) -> Iterator[bytes]:
    """Yield the items of a JSON list, as bytes. Raise Unscannable, before the first or after some, if it is none.

    >>> list(items(b'[{"a": 1e999}, [], "]"]'))
    [b'{"a": 1e999}', b'[]', b'"]"']
    """
    return (data[start:end] for _, start, end in _whole(data, b"["))


def identity(data: bytes) -> bytes:
    r"""Return a Kubernetes object with no more than says which it is and what selects it. Raise Unscannable if it is none.

    >>> identity(b'{"metadata": {"uid": "u", "name": "a", "annotations": {"b": "\\\\q"}}, "kind": "Pod", "spec": [[1e999]]}')
    b'{"kind":"Pod","metadata":{"name":"a","uid":"u"}}'
    """
    found = members(data)
    metadata = found.get("metadata", b"null")
    if metadata[:1] == b"{":
        found["metadata"] = _only(members(metadata), ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences"))
    return _only(found, ("apiVersion", "kind", "metadata"))


def _only(found: Mapping[str, bytes], wanted: Iterable[str]) -> bytes:
    return b"{" + b",".join(b'"%s":%s' % (key.encode(), found[key]) for key in wanted if key in found) + b"}"


class Listed:
    """A JSON object as its members, with the items of the member `items` apart."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._spans: list[tuple[int, int]] = []
        self._members: dict[bytes, tuple[int, int]] = {}

    def scan(self) -> Iterator[int]:
        """Scan it. Yield after each part how far that is: a long one takes its time. Raise Unscannable if it is no object.

        >>> listed = Listed(b'{"items": [{"a": 1e999}, {}], "kind": "List"}')
        >>> list(listed.scan())
        [23, 27, 28, 44]
        >>> listed.envelope, list(listed.items)
        (b'{"kind":"List"}', [b'{"a": 1e999}', b'{}'])
        """
        items: list[tuple[int, int]] = []
        for key, start, end in _whole(self._data, b"{", apart=_ITEMS):
            if not key:
                items.append((start, end))
            elif key == _ITEMS and self._data[start:start + 1] == b"[":
                self._spans, items = items, []
                self._members.pop(key, None)
            else:   # Items that are no list stay in the envelope, which the decoder refuses then.
                if key == _ITEMS:
                    self._spans = []
                self._members.pop(key, None)   # The last value must also come last: the decoder may find the key escaped in between.
                self._members[key] = start, end
            yield end

    @property
    def envelope(self) -> bytes:
        """The object without its items."""
        return b"{" + b",".join(key + b":" + self._data[start:end] for key, (start, end) in self._members.items()) + b"}"

    @property
    def items(self) -> Iterator[bytes]:
        return (self._data[start:end] for start, end in self._spans)


_Spans: TypeAlias = Generator[tuple[bytes, int, int], None, int]


def _whole(data: bytes, opening: bytes, apart: bytes = b"") -> _Spans:
    """Yield the parts of what all of the bytes are."""
    at = _blank(data, 0)
    _expect(data, at, opening)
    if _blank(data, (yield from _spans(data, at, apart))) != len(data):
        raise Unscannable
    return len(data)


def _spans(data: bytes, at: int, apart: bytes = b"") -> _Spans:
    """Yield the key of each part of the object or list at this place, as it is written, and where its value starts and ends.

    Of a list under the key `apart`, its items come first, with no key. Return where the object or list ends.
    """
    opening = data[at:at + 1]
    closing = _CLOSING[opening]
    at = _blank(data, at + 1)
    if data[at:at + 1] != closing:
        while True:
            key = b""
            if opening == b"{":
                found = _KEY.match(data, at)
                if found is None:
                    raise Unscannable
                key, at = found[1], found.end()
            start = _blank(data, at)
            end = (yield from _spans(data, start)) if key and key == apart and data[start:start + 1] == b"[" else _end(data, start)
            yield key, start, end
            at = _blank(data, end)
            if data[at:at + 1] != b",":
                break
            at = _blank(data, at + 1)
    _expect(data, at, closing)
    return at + 1


def _end(data: bytes, start: int) -> int:
    """Return where the value ends that starts here."""
    closing = _CLOSING.get(data[start:start + 1])
    if closing is None:
        plain = _PLAIN.match(data, start)
        if plain is None:
            raise Unscannable
        return plain.end()
    if not _OPENED.match(data, start + 1):
        raise Unscannable
    awaited, at = [closing], start + 1
    while (mark := _MARK.match(data, at)) is not None:
        found, at = mark[1], mark.end()
        if found in _CLOSING:
            awaited.append(_CLOSING[found])
        elif found != awaited.pop():
            break
        elif not awaited:
            return at
    raise Unscannable


def _blank(data: bytes, at: int) -> int:
    found = _BLANK.match(data, at)
    assert found is not None, "nothing is blank as well"
    return found.end()


def _expect(data: bytes, at: int, what: bytes) -> None:
    if data[at:at + 1] != what:
        raise Unscannable


def _key(written: bytes) -> str:
    """Return a key as it is meant. One that cannot be decoded becomes a key that cannot be encoded: nobody takes it for another."""
    try:
        return _text(written)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "\udcff" + written.decode("latin-1")
