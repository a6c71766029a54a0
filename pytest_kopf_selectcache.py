"""Fixtures for users' own tests: a cluster, operators that run against it, and a fresh registry.

This module is beside the package, not in it: pytest loads it in every run, also without these fixtures, and
every module of the package imports Kopf. So it imports nothing of the package, and nothing big, until a
fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    import kopf

    from kopf_selectcache.testing import EmbeddedCluster
    from kopf_selectcache.testing._operator import OperatorRun


@pytest.fixture
def registry() -> Iterator[kopf.OperatorRegistry]:
    """A fresh registry for the handlers that a test defines or loads; the previous one is restored after the
    test.
    """
    import kopf  # Tests without the fixture do not pay for the import.  # noqa: PLC0415

    from kopf_selectcache._kopf import SmartOperatorRegistry  # Imported on use.  # noqa: PLC0415

    before = kopf.get_default_registry()
    with pytest.MonkeyPatch.context() as patch:
        # A registry chooses its login when it is made. The cluster of the test is started
        # later.
        patch.setenv("KUBECONFIG", "of the cluster")
        fresh = SmartOperatorRegistry()
    kopf.set_default_registry(fresh)
    try:
        yield fresh
    finally:
        kopf.set_default_registry(before)


@pytest.fixture
def cluster(
    registry: kopf.OperatorRegistry,  # The fixture is needed for its effect.  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[EmbeddedCluster]:
    """A fresh cluster, which Kopf and other clients find by `$KUBECONFIG`, and a fresh registry.

    def test_my_operator(cluster, operator):
        with operator('app.py', '-A'):
            cluster.create({...})
    """
    from kopf_selectcache.testing import EmbeddedCluster  # Imported on use.  # noqa: PLC0415
    from kopf_selectcache.testing._operator import collect_sockets  # As well.  # noqa: PLC0415

    with EmbeddedCluster().in_thread() as running:
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig(tmp_path / "kubeconfig")))
        yield running
    collect_sockets()  # Those of operators that the test has run without the fixture `operator`.


@pytest.fixture
def operator(
    cluster: EmbeddedCluster,  # The fixture is needed for its effect.  # noqa: ARG001
) -> type[OperatorRun]:
    """Runs `kopf run` with the given arguments against the cluster of the test.

    def test_my_operator(cluster, operator):
        with operator('app.py', '-A') as running:
            cluster.wait_for(...)
        assert 'done' in running.output

    If the operator ends by itself, the waits of the test end, and raise `OperatorEnded` with the line that
    says why.
    """
    from kopf_selectcache.testing._operator import OperatorRun  # Imported on use.  # noqa: PLC0415

    return OperatorRun
