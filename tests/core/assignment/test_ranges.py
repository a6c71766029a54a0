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
    SPACE,
    desired_owners,
    fnv1a_64,
    mixed_64,
    range_of,
    range_of_key,
)

REAL = [
    *(
        "default",
        "kube-system",
        "kube-public",
        "kube-node-lease",
        "monitoring",
        "ingress-nginx",
        "cert-manager",
    ),
    *(
        f"{team}-{stage}"
        for team in ("shop", "search", "billing", "mail")
        for stage in ("dev", "test", "prod")
    ),
    *(f"user-{name}" for name in ("anna", "ben", "carla", "dan", "eve", "finn", "greta", "hans")),
    *(f"preview-{number:x}" for number in range(0xA3F0, 0xA3F0 + 40)),
]
"""The namespaces of a cluster as they are named in real ones."""

FAMILIES = {
    "teams": [f"team-{each:03}" for each in range(100)],
    "pull requests": [f"pr-{each}" for each in range(1000, 2000)],
    "tenants": [f"tenant-{each}" for each in range(1, 1001)],
    "a real cluster": REAL,
}


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


@pytest.mark.parametrize("ranges", [1, 2, 3, 7, 64, 100])
def test_ranges_are_equal_parts_of_all_hashes(ranges: int) -> None:
    firsts = [-(-number * SPACE // ranges) for number in range(ranges)]
    for number, first in enumerate(firsts):
        assert range_of(first, ranges) == number
        assert range_of((first - 1) % SPACE, ranges) == (number - 1) % ranges


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


@pytest.mark.parametrize(("family", "used"), [("teams", 50), ("pull requests", 64), ("tenants", 64)])
def test_names_that_differ_at_their_end_spread(family: str, used: int) -> None:
    names = FAMILIES[family]
    spread = Counter(range_of(mixed_64(name)) for name in names)
    assert len(spread) == used
    assert max(spread.values()) <= 2.5 * max(2, len(names) / RANGES)


def test_the_hash_of_kubernetes_would_not_spread_them() -> None:
    assert len({range_of(fnv1a_64(name)) for name in FAMILIES["teams"]}) == 1
    assert len({range_of(fnv1a_64(name)) for name in FAMILIES["pull requests"]}) == 10


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("replicas", range(2, 11))
def test_each_replica_gets_work(family: str, replicas: int) -> None:
    owners = desired_owners(frozenset(pods(replicas)), RANGES)
    work = Counter(owners[range_of(mixed_64(name))] for name in FAMILIES[family])
    assert len(work) == replicas
    if len(FAMILIES[family]) >= 1000:
        assert max(work.values()) <= 1.35 * len(FAMILIES[family]) / replicas


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


def test_nothing_moves_without_a_reason() -> None:
    names = pods(5)
    before = desired_owners(frozenset(names), RANGES)
    desired_owners(frozenset(names[:4]), RANGES)
    assert desired_owners(frozenset(reversed(names)), RANGES) == before, "who comes back gets its own again"


def test_more_replicas_than_ranges_leave_some_without() -> None:
    owners = desired_owners(frozenset(pods(5)), 3)
    assert len({*owners}) == 3


def test_without_replicas_nobody_owns_a_range() -> None:
    assert desired_owners(frozenset(), 2) == ("", "")
