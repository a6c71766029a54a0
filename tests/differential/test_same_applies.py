"""Server-side apply on the embedded server against the real one: the same writes of several managers make the
same objects, managers of fields, and conflicts."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.cluster import Cluster
from tests.apiserver.server import ApiServer
from tests.conftest import client_of

from .applies import SCHEMA, run, sequence

GROUP = "applies.example.com"
OBJECTS = 15
LENGTH = 7
pytestmark = [
    pytest.mark.real,
    pytest.mark.since("1.36", "the embedded server answers as Kubernetes 1.36 does"),
]


@dataclass(frozen=True)
class Pair:
    real: Cluster
    embedded: Cluster


@pytest.fixture(scope="module")
def pair(real_api: ApiServer, embedded: EmbeddedCluster) -> Iterator[Pair]:
    other = client_of(embedded)
    spec = {"type": "object", "properties": dict(SCHEMA)}
    schema = {"type": "object", "properties": {"spec": spec}}
    for api in (real_api, other):
        api.create_crd(GROUP, "v1", "Thing", "things", schema=schema, status=True)
    yield Pair(real_api, other)
    other.close()


@pytest.mark.parametrize("seed", range(10))
def test_both_servers_apply_alike(pair: Pair, seed: int) -> None:
    typed = {"apiVersion": f"{GROUP}/v1", "kind": "Thing"}
    namespaces = [api.namespace(prefix="applies") for api in (pair.real, pair.embedded)]
    for number in range(OBJECTS):
        writes = sequence(seed * OBJECTS + number, LENGTH)
        real, embedded = (
            run(api, f"/apis/{GROUP}/v1/namespaces/{namespace}/things/t{number}", typed, writes)
            for api, namespace in zip((pair.real, pair.embedded), namespaces, strict=True)
        )
        for index, (one, other) in enumerate(zip(real, embedded, strict=True)):
            assert one == other, f"seed {seed}, after {writes[: index + 1]}"
