"""Hashes of keys, and the ranges that they fall into.

A range is an interval of the 64-bit hash. Ranges have numbers, beginning with 0, and equal sizes.
"""

from __future__ import annotations

RANGES = 64
SPACE = 1 << 64
"""The number of hashes. It's also the end of the last range."""

_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = SPACE - 1


def fnv1a_64(text: str) -> int:
    """Return the hash that `mixed_64` spreads.

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


def range_of_key(namespace: str | None, name: str, by: str, ranges: int = RANGES) -> int:
    """Return the range of an object, where replicas divide the work by `namespace` or by `object`.

    Objects of one namespace stay together, or each has a range of its own. A name keeps its range when
    the object is deleted and created again (docs/decisions/0041).

    >>> range_of_key("shop", "web", "namespace") == range_of_key("shop", "db", "namespace")
    True
    >>> range_of_key("shop", "web", "object") == range_of_key("shop", "db", "object")
    False
    """
    unit = f"{namespace or ''}/{name}" if by == "object" else namespace or name
    return range_of(mixed_64(unit), ranges)
