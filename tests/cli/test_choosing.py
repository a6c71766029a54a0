"""The commands print what docs/choosing.md shows."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.cli.conftest import Command, pod
from tests.docs.pages import DOCS, fences

PAGE = DOCS / "choosing.md"


def some(kind: str, name: str, namespace: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}


@pytest.fixture
def shop(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """The cluster that the page was written in front of."""
    for namespace in ("shop", "infra"):
        cluster.namespace(namespace)
    cluster.create(
        *(
            pod(f"{app}-{number}", app, namespace="shop")
            for app in ("web", "db", "cron")
            for number in range(4)
        ),
        *(some("Secret", name, "infra", data={"key": "eA=="}) for name in ("ca", "tls", "token")),
        *(some("ConfigMap", name, "shop", data={"page": "x" * 900}) for name in ("web", "db")),
    )
    return cluster


def without_bytes(output: str) -> str:
    """Return an output without its columns, and without the bytes, which depend on versions."""
    return re.sub(r" +", " ", re.sub(r"[\d.]+ (KiB|B)", "some", output)).strip()


@pytest.mark.usefixtures("shop")
def test_check_and_why_print_these_lines(command: Command) -> None:
    source = next(fence.text for fence in fences(PAGE, "python") if fence.name == "app.py")
    checked, explained = (fence.text for fence in fences(PAGE, "text"))
    said = command("check", "", source=source)
    assert (said.code, said.errors, without_bytes(said.output)) == (0, "", without_bytes(checked))
    said = command("why", "", "pods/shop/db-1", source=source)
    assert (said.code, said.output) == (1, explained)
