"""The memory and requests of replicas, and how long ranges are free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from bench.replicas import (
    OPERATORS,
    SINGLE,
    Figures,
    Objects,
    Setup,
    Size,
    make_namespace,
    measure,
    report,
)
from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.client import Client
from tests.conftest import client_of


@pytest.fixture
def client() -> Iterator[Client]:
    with (
        EmbeddedCluster(garbage_collection=False).in_thread() as cluster,
        closing(client_of(cluster)) as found,
    ):
        make_namespace(found, OPERATORS)
        yield found


def test_each_replica_has_a_part_of_the_objects_and_handles_changes_of_it(client: Client) -> None:
    found = measure(client, Setup(2, is_static=True), Objects(client, 40, 8), Size(40, 20, rest=0.0))
    assert sum(each.objects for each in found) == 40
    for each in found:
        assert min(each.objects, each.memory, each.start, each.changes, each.received) > 0


def test_the_table_has_the_least_and_the_most_of_the_replicas_and_their_ratios_to_a_part() -> None:
    single, half = Figures(100, 20, 66, 2, 4, 1.5), Figures(60, 10, 34, 1, 3, 1.5)
    other = Figures(40, 12, 35, 1, 1, 0.75)
    lines = report({64: {SINGLE: [single], Setup(2): [half, other]}}).splitlines()
    assert lines[2] == "| 64 | cached objects | 100 | 40 to 60 (0.80x to 1.20x) |"
    assert lines[3] == "| 64 | memory, MB | 20 | 10 to 12 (1.00x to 1.20x) |"
    assert lines[7] == "| 64 | received, MB | 1.5 | 0.75 to 1.5 (1.00x to 2.00x) |"
