"""The operator of docs/changes.md that keeps records: its handlers bear records that are absent already."""

from __future__ import annotations

import logging
from typing import Any

import kopf
import pytest

from kopf_selectcache.testing import FakeCache
from tests.docs.pages import ROOT, fences

LOG = logging.getLogger(__name__)


def job(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "labels": {"app": "web"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}


@pytest.fixture
def operator(registry: kopf.OperatorRegistry) -> dict[str, Any]:
    """Return the names that the example defines."""
    (example,) = (
        fence for fence in fences(ROOT / "docs/changes.md", "python") if "async def compare" in fence.text
    )
    assert registry is kopf.get_default_registry()
    made: dict[str, Any] = {}
    exec(example.text, made)  # The test is about this code.  # noqa: S102
    return made


@pytest.mark.parametrize("is_recorded", [True, False])
async def test_the_record_of_a_deleted_job_may_be_absent(operator: dict[str, Any], is_recorded: bool) -> None:
    settings = kopf.OperatorSettings()
    operator["configure"](settings=settings)
    cache = FakeCache([job("a")], settings)
    uid = cache.get("jobs", "a", namespace="shop")["metadata"]["uid"]
    given: dict[str, Any] = {"namespace": "shop", "cache": cache, "logger": LOG}
    if is_recorded:
        await operator["record"](name="a", uid=uid, **given)
    await cache.live.delete("jobs", "a", namespace="shop")
    for record in cache.list("configmaps", labels="example.com/record"):
        await operator["compare"](body=record, labels=record["metadata"]["labels"], **given)
    await operator["depart"](name="a", uid=uid, **given)
    assert not cache.list_cached("configmaps")
