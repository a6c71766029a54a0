"""Gives each test here a namespace on the API server that it is to hold on, and keeps it from what is not its
own."""

from collections.abc import Callable, Iterator

import kopf
import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.cluster import Cluster

from .places import Place, fresh_place


@pytest.hookimpl(tryfirst=True)  # Before any fixture does what the test may not do.
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.getoption("--api") == "kubeconfig" and (mark := item.get_closest_marker("needs")):
        pytest.skip(f"it needs {mark.args[0]}, and is to stay within namespaces of its own")


@pytest.fixture
def bookmark(server: str, request: pytest.FixtureRequest) -> Callable[[], None]:
    """See to it that bookmarks are sent: the embedded server does it on demand, others once a minute."""
    if server != "embedded":
        return lambda: None
    cluster: EmbeddedCluster = request.getfixturevalue("embedded")
    return cluster.bookmark


@pytest.fixture
def place(api: Cluster) -> Iterator[Place]:
    """A fresh namespace."""
    with fresh_place(api) as place:
        yield place


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    """The handlers of an operator: none yet."""
    return kopf.OperatorRegistry()
