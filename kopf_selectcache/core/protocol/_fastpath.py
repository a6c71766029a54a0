"""Finds parts of a server's answer by a search for bytes, if it is written as API servers write it. Decodes
no values.

The JSON is not parsed here: a part is located by its neighbours. The result is certain once the decoder has
accepted both the part and the rest without it. In all other cases the functions return None, and the decoder
reads the answer as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

_MANAGED = b',"managedFields":[{'
_ITEMS = b'"items":['

_skip = msgspec.json.Decoder(msgspec.Raw).decode


def without_managed(data: bytes, metadata: int) -> bytes | None:
    """Return an object without the `managedFields` of its metadata, which begins at this position; None if
    they are written in an unusual way.

    The result is correct only if it can be decoded. It may still have `managedFields` that were not found.

    >>> without_managed(b'{"metadata":{"name":"a","managedFields":[{"manager":"b"}]},"spec":{}}', 12)
    b'{"metadata":{"name":"a"},"spec":{}}'
    """
    start = data.find(_MANAGED, metadata)
    if start < 0:
        return data
    if data[start - 1] == ord("{"):
        return None  # A comma before the first member is invalid JSON, and the cut would hide it.
    value = start + len(_MANAGED) - 2
    end = data.find(b"]", value) + 1  # It has no lists inside; a bracket in a text is rare.
    try:
        # The metadata before the key is complete, so this is a key of the metadata and not of a nested value;
        # and the cut is a whole value.
        _skip(data[metadata:start] + b"}")
        _skip(memoryview(data)[value:end])
    except (msgspec.DecodeError, RecursionError):
        return None
    return data[:start] + data[end:]


class Parts(NamedTuple):
    """The envelope of a list, and its items."""

    envelope: bytes
    """The list without its items. The caller must check that its list of items is empty."""
    items: Iterator[bytes]
    """The items, provided that each can be decoded. They are produced one by one."""


def split_list(data: bytes, starts: Sequence[bytes]) -> Parts | None:
    """Split a list whose items all begin with the same one of these byte strings; None if it is written in
    another way.

    >>> parts = split_list(b'{"kind":"PodList","items":[{"metadata":{}},{"metadata":{}}],"metadata":{}}', [b'{"metadata":{'])
    >>> parts.envelope, list(parts.items)
    (b'{"kind":"PodList","items":[],"metadata":{}}', [b'{"metadata":{}}', b'{"metadata":{}}'])
    """  # The call in the example has to be on one line.  # noqa: E501
    first, end = data.find(_ITEMS) + len(_ITEMS), data.rfind(b"]")
    if not len(_ITEMS) <= first <= end:
        return None
    head, tail = data[:first], data[end:]
    start = next((each for each in starts if data.startswith(each, first)), None)
    # With an escaped key, or a second key of this name, the position of the items would be uncertain.
    if b"\\" in head + tail or _ITEMS[:-2] in tail or (start is None and first < end):
        return None
    return Parts(head + tail, _items(data, first, end, b"," + start) if start is not None else iter(()))


def _items(data: bytes, first: int, end: int, start: bytes) -> Iterator[bytes]:
    while (after := data.find(start, first, end)) >= 0:
        yield data[first:after]
        first = after + 1
    yield data[first:end]
