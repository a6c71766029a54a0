"""The objects of the bench: the same for a seed, as big as is said, and with as much in them that is random
as real ones."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import count

import pytest

from bench.data import (
    Obj,
    compression,
    encoded,
)
from bench.datasets import SETS, dataset
from bench.filling import AT_ONCE, LONGEST, await_idle, batches
from bench.unrelated import Unrelated

COUNT = 1_000


@pytest.fixture(scope="module")
def made() -> list[Obj]:
    return list(Unrelated(seed=1).pods(COUNT))


@pytest.fixture(scope="module")
def pods(made: list[Obj]) -> list[bytes]:
    return [encoded(pod) for pod in made]


def test_a_seed_makes_the_same_objects_each_time_and_fewer_are_the_first_of_more(pods: list[bytes]) -> None:
    assert [encoded(pod) for pod in Unrelated(seed=1).pods(50)] == pods[:50]


def test_pods_are_of_4_to_5_kb_without_managed_fields_and_one_in_fifty_is_big(made: list[Obj]) -> None:
    sizes = []
    for pod in made:
        metadata = dict(pod["metadata"])
        assert len(metadata.pop("managedFields")) == 2
        sizes.append(len(encoded({**pod, "metadata": metadata})))
    assert 4_000 < statistics.median(sizes) < 5_000
    assert 0.01 < sum(size > 20_000 for size in sizes) / COUNT < 0.03
    assert max(sizes) < 110_000


@pytest.mark.parametrize("name", SETS)
def test_the_namespace_and_the_app_that_are_read_have_as_many_pods_as_the_mean(name: str) -> None:
    data = dataset(name, seed=1)
    apps = Counter(data.app_of(number) for number in range(5_000))
    namespaces = Counter(data.place_of(number)[0] for number in range(5_000))
    assert abs(apps[data.typical_app(5_000)] - 100) <= 2
    assert abs(namespaces[data.typical_namespace(5_000)] - 250) <= 5


def test_pods_compress_as_real_ones_not_as_copies_of_each_other(pods: list[bytes]) -> None:
    found = compression(pods[:200])
    assert 2 < found.alone < 4
    assert 3.5 < found.together < 8


def test_a_transaction_takes_no_more_than_etcd_does_and_none_is_lost() -> None:
    objects = [
        bytes([number % 256]) * size
        for number, size in enumerate([10] * 250 + [LONGEST - 5, 10, LONGEST + 9, 1])
    ]
    found = list(batches(objects))
    assert [one for batch in found for one in batch] == objects
    assert all(len(batch) <= AT_ONCE for batch in found)
    assert all(sum(map(len, batch)) <= LONGEST or len(batch) == 1 for batch in found)
    assert list(batches([])) == []


def test_a_server_is_awaited_until_it_uses_little_cpu_and_not_for_ever() -> None:
    used, waits = iter([0.0, 1.7, 2.3, 2.32, 2.33]), list[float]()
    assert await_idle(lambda: next(used), sleep=waits.append)
    assert sum(waits) == 3
    busy = count()
    assert not await_idle(lambda: float(next(busy)), sleep=waits.append)
    assert sum(waits) == 123
