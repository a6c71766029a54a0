"""The embedded server against the real one: the same requests in the same order, and the same answers and
events.

A failure names its seed, and shows the shortest beginning of the sequence after which the servers differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.cluster import Cluster
from tests.apiserver.server import ApiServer
from tests.conftest import client_of

from .operations import CRD, Operation, Run, sequence

LENGTH = 200
SEEDS = range(10)
pytestmark = [
    pytest.mark.real,
    pytest.mark.since("1.36", "the embedded server answers as Kubernetes 1.36 does"),
]


@dataclass(frozen=True)
class Pair:
    """The two servers, each with the same custom resource."""

    real: Cluster
    embedded: Cluster

    def compare(self, operations: list[Operation]) -> str:
        """Run the operations on both; say where they differ first, or nothing."""
        real, embedded = (self._told(api, operations) for api in (self.real, self.embedded))
        for index, (one, other) in enumerate(zip(real, embedded, strict=True)):
            if one != other:
                return f"operation {index}: {operations[index]}\nreal:     {one}\nembedded: {other}"
        return ""

    def _told(self, api: Cluster, operations: list[Operation]) -> list[str]:
        return Run(api, api.namespace(prefix="different")).run(operations)


@pytest.fixture(scope="module")
def pair(real_api: ApiServer, embedded: EmbeddedCluster) -> Iterator[Pair]:
    other = client_of(embedded)
    for api in (real_api, other):
        api.create_crd(
            "different.example.com",
            "v1",
            "Thing",
            "things",
            schema=CRD,
            status=True,
            selectable_fields=[".spec.color", ".spec.size"],
        )
    yield Pair(real_api, other)
    other.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_both_servers_answer_alike(pair: Pair, seed: int) -> None:
    operations = sequence(seed, LENGTH)
    if not (first := pair.compare(operations)):
        return
    # Ranks of versions are those of the whole run: so the first difference may come of a later answer.
    low, high = 0, LENGTH
    while high - low > 1:
        middle = (low + high) // 2
        if pair.compare(operations[:middle]):
            high = middle
        else:
            low = middle
    said = pair.compare(operations[:high])
    told = "\n".join(str(operation) for operation in operations[:high])
    pytest.fail(
        f"seed {seed}: the servers differ after {high}"
        f" operations.\n{told}\n{said or f'not again, but at first: {first}'}",
        pytrace=False,
    )
