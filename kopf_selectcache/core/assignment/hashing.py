"""Hashes of keys, the ranges that they fall into, and the text of a `shardSelector` for ranges.

A range is an interval of the 64-bit hash. Ranges have numbers, beginning with 0, and equal sizes.
"""

from __future__ import annotations

from collections.abc import Collection

RANGES = 64
SPACE = 1 << 64
"""The number of hashes. It's also the end of the last range."""

_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = SPACE - 1


def fnv1a_64(text: str) -> int:
    """Return the hash by which Kubernetes assigns uids to ranges (KEP-5866).

    >>> f"{fnv1a_64('a'):016x}"
    'af63dc4c8601ec8c'
    """
    hashed = _OFFSET
    for byte in text.encode("utf-8", "surrogatepass"):
        hashed = ((hashed ^ byte) * _PRIME) & _MASK
    return hashed


def mixed_64(text: str) -> int:
    """Return a hash whose high bits depend on all characters. Those of FNV-1a hardly depend on the last ones,
    so that `team-00` to `team-99` would share a range.

    >>> len({range_of(fnv1a_64(f"team-{each:03}")) for each in range(100)})
    1
    >>> len({range_of(mixed_64(f"team-{each:03}")) for each in range(100)})
    50
    """
    return mixed(fnv1a_64(text))


def mixed(hashed: int) -> int:
    """Spread each bit of a number over all 64 bits: the finaliser of MurmurHash3."""
    hashed = ((hashed ^ (hashed >> 33)) * 0xFF51AFD7ED558CCD) & _MASK
    hashed = ((hashed ^ (hashed >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK
    return hashed ^ (hashed >> 33)


def range_of(hashed: int, ranges: int = RANGES) -> int:
    """Return the number of the range that has a hash.

    >>> range_of(0), range_of(SPACE - 1), range_of(SPACE // 2, ranges=3)
    (0, 63, 1)
    """
    return hashed * ranges >> 64


def bounds(range_: int, ranges: int = RANGES) -> tuple[int, int]:
    """Return the first hash of a range, and the one that follows its last.

    >>> [f"{each:x}" for each in bounds(1)]
    ['400000000000000', '800000000000000']
    """
    return -(-range_ * SPACE // ranges), -(-(range_ + 1) * SPACE // ranges)


def shard_selector(held: Collection[int], ranges: int = RANGES) -> str:
    """Return the `shardSelector` of a request for the objects whose uids are in these ranges. Neighbours are
    joined. A server that doesn't know the parameter sends all objects.

    >>> shard_selector({0, 1, 63})  # doctest: +NORMALIZE_WHITESPACE
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x0800000000000000') ||
     shardRange(object.metadata.uid, '0xfc00000000000000', '0x10000000000000000')"
    """
    if not held:
        raise ValueError("give at least one range: no shardSelector selects nothing")
    intervals: list[tuple[int, int]] = []
    for start, end in (bounds(each, ranges) for each in sorted({*held})):
        if intervals and intervals[-1][1] == start:
            intervals[-1] = intervals[-1][0], end
        else:
            intervals.append((start, end))
    return " || ".join(
        f"shardRange(object.metadata.uid, '0x{start:016x}', '0x{end:016x}')" for start, end in intervals
    )
