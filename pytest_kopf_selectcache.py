"""What users' own tests get from pytest once the package is installed: fixtures with a cluster for their
operators.

It is a module beside the package, not in it: pytest loads it in every run, also of those who never use it,
and whatever stands in the package brings Kopf along. So it must import nothing of it, and nothing that is
big, until a fixture is used.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    import kopf

    from kopf_selectcache.testing import EmbeddedCluster


@pytest.fixture
def registry() -> Iterator[kopf.OperatorRegistry]:
    """A fresh registry, where handlers are registered that a test defines or loads; the one before comes back
    after it.
    """
    import kopf  # Whoever does not use the fixture does not pay for it.  # noqa: PLC0415

    from kopf_selectcache._kopf import SmartOperatorRegistry  # As above.  # noqa: PLC0415

    before = kopf.get_default_registry()
    with pytest.MonkeyPatch.context() as patch:
        # A registry finds out when it is made how to log in. Later there will be a cluster, if the test asks
        # for one.
        patch.setenv("KUBECONFIG", "of the cluster")
        fresh = SmartOperatorRegistry()
    kopf.set_default_registry(fresh)
    try:
        yield fresh
    finally:
        kopf.set_default_registry(before)


@pytest.fixture
def cluster(
    registry: kopf.OperatorRegistry,  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,  # It is to be there.
) -> Iterator[EmbeddedCluster]:
    """A fresh cluster, which Kopf and other clients find by `$KUBECONFIG`, and a fresh registry.

    def test_my_operator(cluster):
        with kopf.testing.KopfRunner(['run', '-A', 'operator.py']):
            cluster.create({...})
    """
    from kopf_selectcache.testing import EmbeddedCluster  # As above.  # noqa: PLC0415

    with EmbeddedCluster().in_thread() as running:
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig(tmp_path / "kubeconfig")))
        yield running
    # Kopf leaves sockets unclosed when an operator ends; found later, they would be warned of in somebody
    # else's test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
