from collections.abc import Iterator

import pytest

from kopf_selectcache.testing import EmbeddedCluster

from .asking import Asked
from .serving import Served


@pytest.fixture
def api() -> Asked:
    return Asked()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[Served]:
    client = Served(cluster)
    yield client
    client.close()
