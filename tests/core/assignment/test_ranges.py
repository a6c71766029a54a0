"""Hashes, ranges, and who should own them: every name finds its range, shares are equal, and few ranges
move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from random import Random

import pytest

from kopf_selectcache.core.assignment.rendezvous import (
    RANGES,
    desired_owners,
    fnv1a_64,
    mixed_64,
    range_of,
    range_of_key,
)

"""The namespaces of a cluster as they are named in real ones."""


def pods(count: int, seed: int = 0) -> list[str]:
    """Return names as those of a Deployment's pods."""
    random = Random(seed)
    return [f"web-{random.randrange(16**9):09x}-{random.randrange(16**5):05x}" for _ in range(count)]


def moved(before: Iterable[str], after: Iterable[str]) -> int:
    return sum(one != two for one, two in zip(before, after, strict=True))


# ---- Hashes and ranges.


@pytest.mark.parametrize(
    ("text", "hashed"), [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)]
)
def test_the_inner_hash_is_fnv_1a(text: str, hashed: int) -> None:
    """These are the authors' own test vectors."""
    assert fnv1a_64(text) == hashed


@pytest.mark.parametrize(
    ("key", "by", "same_as"),
    [
        (("shop", "web"), "namespace", "shop"),
        ((None, "node-1"), "namespace", "node-1"),
        (("", "node-1"), "namespace", "node-1"),
        (("shop", "web"), "object", "shop/web"),
        ((None, "node-1"), "object", "/node-1"),
        (("", "node-1"), "object", "/node-1"),
    ],
)
def test_an_object_has_the_range_of_its_namespace_or_of_its_name(
    key: tuple[str | None, str], by: str, same_as: str
) -> None:
    assert range_of_key(*key, by) == range_of(mixed_64(same_as))


# ---- The spread of names.


# ---- Who should own a range.


@pytest.mark.parametrize("replicas", range(1, 65))
def test_shares_are_equal(replicas: int) -> None:
    owners = desired_owners(frozenset(pods(replicas)), RANGES)
    shares = Counter(owners).values()
    assert len(shares) == replicas
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize("replicas", range(1, 11))
def test_few_ranges_move_when_a_replica_comes_or_goes(replicas: int) -> None:
    """At least its own share must move: 64 / (n + 1)."""
    moves = []
    for seed in range(20):
        names = pods(replicas + 1, seed)
        before, after = (desired_owners(frozenset(each), RANGES) for each in (names[:-1], names))
        moves.append(moved(before, after))
    fair = RANGES / (replicas + 1)
    assert sum(moves) / len(moves) <= 1.9 * fair
    assert max(moves) <= 2 * fair + 4


def test_a_roll_of_four_pods_moves_little_more_than_it_must() -> None:
    """Four pods come and four go, and each of them has a fifth of the ranges: 8 * 64 / 5 at the least."""
    moves = []
    for seed in range(50):
        names = pods(8, seed)
        fleets = [[*names[:4]]]
        for each in names[4:]:
            fleets += [[*fleets[-1], each], [*fleets[-1][1:], each]]
        owners = [desired_owners(frozenset(fleet), RANGES) for fleet in fleets]
        moves.append(sum(moved(before, after) for before, after in pairwise(owners)))
    assert min(moves) >= 100
    assert max(moves) <= 140
