"""Rendezvous: the range of each key, and who should own each range, as a function of the replicas that are
alive.

Each pair of a range and a replica has a score that nothing else changes. The best pairs come first, and each
replica gets an equal number of ranges, or one more. So all replicas find the same owners without talking, and
few ranges change hands when a replica comes or goes.
"""

from __future__ import annotations

from functools import lru_cache

_GOLDEN = 0x9E3779B97F4A7C15


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
    the object is deleted and created again (docs/dev/decisions.md, 0041).

    >>> range_of_key("shop", "web", "namespace") == range_of_key("shop", "db", "namespace")
    True
    >>> range_of_key("shop", "web", "object") == range_of_key("shop", "db", "object")
    False
    """
    unit = f"{namespace or ''}/{name}" if by == "object" else namespace or name
    return range_of(mixed_64(unit), ranges)


@lru_cache(maxsize=64)
def desired_owners(members: frozenset[str], ranges: int = RANGES) -> tuple[str, ...]:
    """Return the name of the replica that should own each range; empty texts if there is none.

    >>> owners = desired_owners(frozenset({"web-1", "web-2", "web-3"}))
    >>> sorted(map(owners.count, {*owners}))
    [21, 21, 22]
    """
    owners = [""] * ranges
    if not members:
        return tuple(owners)
    seeds = {name: mixed_64(name) for name in members}
    pairs = sorted(
        (mixed(seed ^ (range_ * _GOLDEN & 0xFFFFFFFFFFFFFFFF)), name, range_)
        for name, seed in seeds.items()
        for range_ in range(ranges)
    )
    fewest, remainder = divmod(ranges, len(members))
    owned = dict.fromkeys(members, 0)
    for _, name, range_ in reversed(pairs):
        if owners[range_] or owned[name] > fewest or (owned[name] == fewest and not remainder):
            continue
        if owned[name] == fewest:
            remainder -= 1
        owners[range_] = name
        owned[name] += 1
    return tuple(owners)
