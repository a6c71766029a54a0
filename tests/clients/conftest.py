"""Gives tests of clients the API servers of tests/conformance/, a custom resource, and kubeconfigs.

Tests of clients that are no part of the environment are not collected: `make test-clients` has an environment
with all."""

import gc
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.cluster import Cluster
from tests.conformance.places import fresh_group

from .environment import SCHEMA, Environment

FOLDER = Path(__file__).parent
PACKAGES = ("kubernetes", "kubernetes_asyncio", "pykube", "kr8s", "lightkube")
FILES = {
    **{f"test_{package}.py": (package,) for package in PACKAGES},
    "test_forms.py": PACKAGES,
    "test_parts.py": ("kubernetes", "kubernetes_asyncio", "pykube"),
    "test_types.py": (*PACKAGES, "basedpyright"),
    "test_copied_secrets.py": ("kubernetes",),
    "test_writing.py": ("kubernetes", "kubernetes_asyncio", "pykube"),
    "typed.py": PACKAGES,
}
collect_ignore = [
    file
    for file, packages in FILES.items()
    if any(importlib.util.find_spec(package) is None for package in packages)
]


@pytest.hookimpl(tryfirst=True)  # Before pytest deselects by markers.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    paths = {FOLDER / file for file in FILES}
    for item in items:
        if item.path in paths:
            item.add_marker(pytest.mark.clients)
            # Some leave connections to the garbage collector.
            for kind in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Collect what a client leaves behind in the test that knows of it, and not in another."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def group(api: Cluster) -> str:
    """The API group of the widgets, which have selectable colours and a status."""
    name = fresh_group("clients")
    api.create_crd(
        name,
        "v1",
        "Widget",
        "widgets",
        schema=SCHEMA,
        selectable_fields=[".spec.color"],
        status=True,
        short_names=["wd"],
    )
    return name


@pytest.fixture
def environment(api: Cluster, group: str, tmp_path: Path) -> Iterator[Environment]:
    """A fresh namespace, what a client needs to get there, and a client of our own for what others do there
    meanwhile."""
    environment = Environment(api, api.namespace(prefix="clients"), group, tmp_path)
    yield environment
    environment.clean_up()
