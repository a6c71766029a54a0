"""Samples of the objects of a cache show which declared paths and indexes have no value in any of them."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.store.compression import FEWEST
from kopf_selectcache.informer.samples import ENOUGH, Samples
from kopf_selectcache.settings.retention import indexes, projection
from tests.cache.environment import PODS, pod

KEPT = projection(keep=["metadata.labels", "status.nothing"])
INDEXES = indexes({"name": "metadata.name", "nothing": "status.nothing"})


def taken(count: int) -> Samples:
    samples = Samples()
    reader = replace(Reader.of(PODS, KEPT), indexes=INDEXES)
    samples.take(reader.record(msgspec.json.encode(pod(f"pod-{each}", app="web"))) for each in range(count))
    return samples


def test_paths_and_indexes_without_a_value_are_named_once_there_are_enough_objects() -> None:
    assert list(taken(ENOUGH - 1).lacking(KEPT, INDEXES)) == []
    path, index = taken(ENOUGH).lacking(KEPT, INDEXES)
    assert "status.nothing" in path
    assert "nothing" in index


def test_without_objects_nothing_is_packed() -> None:
    assert Samples().leaves("packed", 0) == 1.0


def test_the_packing_of_many_objects_is_measured_on_others_than_those_of_the_training() -> None:
    assert 0.0 < taken(FEWEST).leaves("packed", FEWEST) < 1.0
