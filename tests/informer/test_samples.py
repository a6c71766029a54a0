"""Samples of the objects of a cache show which declared paths and indexes have no value in any of them."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from kopf_selectcache.cache.estimates import Samples
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.store.packing import (
    FEWEST_OBJECTS,
    OVERHEAD_BYTES,
    learned,
    packing_of,
    weights_of,
)
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.settings.checks import indexes, projection
from tests.cache.environment import PODS, pod

KEPT = projection(keep=["metadata.labels", "status.nothing"])
INDEXES = indexes({"name": "metadata.name", "nothing": "status.nothing"})


def taken(count: int) -> Samples:
    samples = Samples()
    reader = replace(Reader.of(PODS, KEPT), indexes=INDEXES)
    samples.take(reader.record(msgspec.json.encode(pod(f"pod-{each}", app="web"))) for each in range(count))
    return samples


@pytest.mark.parametrize("count", [1, 2, 32])
def test_paths_and_indexes_without_a_value_are_named_for_any_number_of_objects(count: int) -> None:
    samples = taken(count)
    assert len(samples) == count
    assert samples.without_value(KEPT.keep or ()) == [("status", "nothing")]
    assert [each.name for each in samples.without_key(INDEXES)] == ["nothing"]


def test_without_objects_nothing_is_packed() -> None:
    assert Samples().leaves("packed", 0) == 1.0


def test_the_packing_of_many_objects_is_measured_on_others_than_those_of_the_training() -> None:
    assert 0.0 < taken(FEWEST_OBJECTS).leaves("packed", FEWEST_OBJECTS) < 1.0


def siblings(groups: int, each: int) -> list[Record]:
    """Return objects of groups, by name. Those of a group have most of their contents in common."""
    found = []
    for group in range(groups):
        common = random.Random(group)
        env = {f"key-{index}": f"{common.getrandbits(160):x}" for index in range(20)}
        for number in range(each):
            made = pod(f"group-{group:03}-{number}", app="web") | {"env": env}
            made["metadata"]["uid"] = f"uid-{group}-{number}"
            made["metadata"]["ownerReferences"] = [{"uid": f"owner-{group}"}]
            found.append(Reader.of(PODS, ALL).record(msgspec.json.encode(made)))
    return found


@pytest.mark.parametrize("others", [1, 5])
def test_a_group_that_is_most_of_the_sample_is_trained_with(others: int) -> None:
    samples = Samples()
    samples.take([*siblings(1, others), *siblings(2, FEWEST_OBJECTS)[FEWEST_OBJECTS:]])
    few = Samples()
    few.take(siblings(2, FEWEST_OBJECTS)[FEWEST_OBJECTS:])
    assert samples.leaves("auto", 10_000) < 1.2 * few.leaves("auto", 10_000)


def test_siblings_are_estimated_as_they_are_packed() -> None:
    records = siblings(400, 8)
    samples = Samples()
    samples.take(records[100:200])
    samples.take(records[300:400])
    whole = sum(len(record.data) for record in records)
    packing = packing_of("auto")
    assert packing is not None
    packing.adopt(learned([record.data for record in records]))
    for record in records:
        record.packing = packing
        packing.pack_record(record)
    packed = (weights_of(records).total - OVERHEAD_BYTES * len(records)) / whole
    assert 0.9 * packed < samples.leaves("auto", len(records)) < 1.15 * packed
    assert packed < 0.7 * packing.leaves, "it matters"
