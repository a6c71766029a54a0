"""Shards of the embedded server, beside what tests/conformance/test_shards.py holds it to."""

from __future__ import annotations

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.api.shards import fnv1a, read
from kopf_selectcache.testing.api.status import Problem

from .asking import MAPS
from .serving import Served

NOBODY = "shardRange(object.metadata.uid, '0x0000000000000000', '0x0000000000000001')"


def test_a_server_gets_and_loses_its_feature_gate_while_it_runs(
    cluster: EmbeddedCluster, client: Served
) -> None:
    cluster.create({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}})
    counts = []
    for cluster.sharded_lists in (False, True, False):
        counts.append(len(client.request("GET", MAPS, query={"shardSelector": NOBODY})["items"]))
    assert counts == [1, 0, 1]


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_the_hash_is_that_of_its_published_vectors(text: str, value: int) -> None:
    assert fnv1a(text) == value


@pytest.mark.parametrize("nested", ["(" * 5000, "!" * 5000, "a(" * 5000, f"{'(' * 60}x{')' * 60}"])
def test_no_depth_is_too_much_for_the_reader(nested: str) -> None:
    with pytest.raises(Problem, match="invalid shard selector"):
        read(nested)
