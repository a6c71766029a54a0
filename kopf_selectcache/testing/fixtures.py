"""What users' own tests get from pytest once this package is installed: a fixture with a cluster for their operators."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import kopf

    from .cluster import EmbeddedCluster


@pytest.fixture
def registry(request: pytest.FixtureRequest) -> Iterator[kopf.OperatorRegistry]:
    """A fresh registry, where handlers are registered that a test defines or loads; the one before comes back after it."""
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster")   # It has one, which logs in to it.
    with _fresh_registry() as fresh:
        yield fresh


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    """A fresh cluster, which Kopf and other clients find by `$KUBECONFIG`, and a fresh registry.

        def test_my_operator(cluster):
            with kopf.testing.KopfRunner(['run', '-A', 'operator.py']):
                cluster.create({...})
    """
    from .cluster import EmbeddedCluster  # noqa: PLC0415  # Whoever does not use the fixture does not pay for it.

    with EmbeddedCluster().in_thread() as running:
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig(tmp_path / "kubeconfig")))
        with _fresh_registry():
            yield running


@contextmanager
def _fresh_registry() -> Iterator[kopf.OperatorRegistry]:
    """Replace Kopf's default registry, by one that has found out anew how to log in."""
    import kopf  # noqa: PLC0415  # As above.

    before = kopf.get_default_registry()
    fresh = type(before)()
    kopf.set_default_registry(fresh)
    try:
        yield fresh
    finally:
        kopf.set_default_registry(before)
