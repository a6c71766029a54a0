"""Finds the parts of what a server sends by their bytes, where those are as servers write them. Reads no
values.

JSON is not looked at byte by byte here: a part is where its neighbours are found, and certain once the
decoder has taken both it and what is left without it. Whatever is found otherwise is None, and the decoder's
to read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

_MANAGED = b',"managedFields":[{'
_ITEMS = b'"items":['

_skip = msgspec.json.Decoder(msgspec.Raw).decode


def without_managed(data: bytes, metadata: int) -> bytes | None:
    """Return an object without the `managedFields` of its metadata, which begins at this place; None if they
    are elsewhere.

    It is what the bytes mean only if what is returned can be decoded. Fields that are not found may be there
    all the same.

    >>> without_managed(b'{"metadata":{"name":"a","managedFields":[{"manager":"b"}]},"spec":{}}', 12)
    b'{"metadata":{"name":"a"},"spec":{}}'
    """
    start = data.find(_MANAGED, metadata)
    if start < 0:
        return data
    if data[start - 1] == ord("{"):
        return None  # A comma before the first member is no JSON, and would be cut out.
    value = start + len(_MANAGED) - 2
    end = data.find(b"]", value) + 1  # There are lists in it in texts alone, which is seldom.
    try:
        # What stands before is complete, so this is a key of the metadata and not of something within; and it
        # is a whole value.
        _skip(data[metadata:start] + b"}")
        _skip(data[value:end])
    except (msgspec.DecodeError, RecursionError):
        return None
    return data[:start] + data[end:]


class Parts(NamedTuple):
    """A list, as its items and what is around them."""

    envelope: bytes
    """The list without its items. The caller must check that its list of items is empty."""
    items: Iterator[bytes]
    """The items, provided that each can be decoded. They are produced one by one."""


def parted(data: bytes, starts: Sequence[bytes]) -> Parts | None:
    """Take a list apart whose items all begin with the same one of these bytes; None if it is not written
    like that.

    >>> parts = parted(b'{"kind":"PodList","items":[{"metadata":{}},{"metadata":{}}],"metadata":{}}', [b'{"metadata":{'])
    >>> parts.envelope, list(parts.items)
    (b'{"kind":"PodList","items":[],"metadata":{}}', [b'{"metadata":{}}', b'{"metadata":{}}'])
    """  # A line of an example is not broken.  # noqa: E501
    first, end = data.find(_ITEMS) + len(_ITEMS), data.rfind(b"]")
    if not len(_ITEMS) <= first <= end:
        return None
    head, tail = data[:first], data[end:]
    start = next((each for each in starts if data.startswith(each, first)), None)
    # With an escaped key, or another of this name, it would not be certain where the items are.
    if b"\\" in head + tail or _ITEMS[:-2] in tail or (start is None and first < end):
        return None
    return Parts(head + tail, _items(data, first, end, b"," + start) if start is not None else iter(()))


def _items(data: bytes, first: int, end: int, start: bytes) -> Iterator[bytes]:
    while (after := data.find(start, first, end)) >= 0:
        yield data[first:after]
        first = after + 1
    yield data[first:end]
