"""Shard selectors: a list or a watch of the objects whose hash lies in a range (KEP-5866).

The real server reads them as CEL, and words mistakes in its terms. This module knows the valid ones: ranges
with `||` between them, in parentheses or not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from .history import Stored
from .status import Problem

_FIELDS = ("object.metadata.uid", "object.metadata.namespace")
_END = 2**64
_UNSEEN = re.compile(r"\s+|//[^\n]*", re.ASCII)
_RANGE = re.compile(
    r"""(?:object\.)?shardRange\((?P<field>[\w.]+),(?P<start>'\w*'|"\w*"),(?P<end>'\w*'|"\w*")\)""", re.ASCII
)
_RANGES = re.compile(rf"{_RANGE.pattern}(?:\|\|{re.sub('[?]P<[a-z]+>', '', _RANGE.pattern)})*", re.ASCII)
_GROUP = re.compile(rf"(?<![\w.])\(({_RANGES.pattern})\)", re.ASCII)


class Range(NamedTuple):
    """The hashes from `start` up to, but not including, `end`: as numbers, and as they were written."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Shards:
    """The ranges of one request, and the field whose hash lies in one of them."""

    field: str
    ranges: tuple[Range, ...]

    def __call__(self, stored: Stored) -> bool:
        hashed = fnv1a(stored.uid if self.field == _FIELDS[0] else stored.key[0])
        return any(start <= hashed < end for start, end, _ in self.ranges)

    @property
    def text(self) -> str:
        """The selector as lists repeat it."""
        return " || ".join(each.text for each in self.ranges)


@lru_cache(2**16)
def fnv1a(text: str) -> int:
    """Return the hash of a text: FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def read(text: str) -> Shards:
    """Read a selector; raise Problem for an invalid one, with the status 500, as the server does."""
    dense = ""
    rest = _UNSEEN.sub("", text)
    while rest != dense:
        dense, rest = rest, _GROUP.sub(r"\1", rest)
    if not _RANGES.fullmatch(dense):
        raise _invalid("only shardRange(field, '0x...', '0x...') and || are allowed")
    found = list(_RANGE.finditer(dense))
    (field, *others) = dict.fromkeys(each["field"] for each in found)
    if field not in _FIELDS:
        raise _invalid(f'unsupported field path "{field}"; supported: {", ".join(_FIELDS)}')
    if others:
        both = f'got "{field}" and "{others[0]}"'
        raise _invalid(f"all shard ranges must use the same field, {both}")
    return Shards(field, tuple(_range(field, each["start"][1:-1], each["end"][1:-1]) for each in found))


def _range(field: str, start: str, end: str) -> Range:
    first, last = _bound(start, "hexStart"), _bound(end, "hexEnd")
    if first >= last:
        raise _invalid(f"shard range start {start} must be less than end {end}")
    return Range(first, last, f"shardRange({field}, '{start}', '{end}')")


def _bound(text: str, name: str) -> int:
    """Read one end of a range: 16 digits in lower case, or 2^64."""
    if not re.fullmatch("0x([0-9a-f]{16}|10{16})", text):
        raise _invalid(f'{name} must be a 0x-prefixed 16-digit hex value, got "{text}"')
    return int(text, 16)


def _invalid(why: str) -> Problem:
    return Problem(500, "", f"invalid shard selector: {why}")
