"""Rendezvous: who should own each range, as a function of the replicas that are alive.

Each pair of a range and a replica has a score that nothing else changes. The best pairs come first, and each
replica gets an equal number of ranges, or one more. So all replicas find the same owners without talking, and
few ranges change hands when a replica comes or goes.
"""

from __future__ import annotations

from functools import lru_cache

from .hashing import RANGES, mixed, mixed_64

_GOLDEN = 0x9E3779B97F4A7C15


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
