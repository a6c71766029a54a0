"""Kopf's finalizer on objects of a kind that is reconciled now, on both servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.__main__ import main as command
from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster
from tests.plugin.reconciling import CRD, operated
from tests.real.inprocess import run, until
from tests.real.proxy import Proxy

KOPFS, OTHER = "kopf.zalando.org/KopfFinalizerMarker", "example.com/other"
GROUP = "leftovers.example.com"


@pytest.fixture(scope="module")
def served(api: Cluster) -> Iterator[Cluster]:
    schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    api.create_crd(GROUP, "v1", "WebApp", "webapps", schema=schema, status=True)
    yield api
    api.request("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/webapps.{GROUP}")


class Space:
    """A namespace with a living object and one that cannot be deleted."""

    def __init__(self, api: Cluster) -> None:
        self._api, self.name = api, api.namespace()
        self._path = f"/apis/{GROUP}/v1/namespaces/{self.name}/webapps"
        for name, finalizers in (("web", [OTHER, KOPFS]), ("old", [KOPFS])):
            metadata = {"name": name, "finalizers": finalizers}
            body = {"apiVersion": f"{GROUP}/v1", "kind": "WebApp", "metadata": metadata, "spec": {}}
            api.request("POST", self._path, body=body)
        api.request("DELETE", f"{self._path}/old")

    def finalizers(self, name: str) -> list[str] | None:
        """Return the finalizers of an object; None if it does not exist."""
        with suppress(ApiError):
            found: list[str] = self._api.request("GET", f"{self._path}/{name}")["metadata"]["finalizers"]
            return found
        return None


@pytest.mark.parametrize("finalizer", [True, False])
def test_18_an_object_that_kopf_has_left_undeletable_is_deleted(served: Cluster, finalizer: bool) -> None:
    space, registry = Space(served), kopf.OperatorRegistry()
    calls: list[tuple[str, bool]] = []

    @selectcache.reconcile(f"{GROUP}/v1/webapps", registry=registry, finalizer=finalizer)
    async def follow(name: str, deleting: bool, **_: Any) -> None:
        calls.append((name, deleting))

    async def main() -> None:
        filters = {f"{GROUP}/v1/webapps": selectcache.Selector(namespaces=[space.name])}
        with Proxy(served) as proxy:
            address: Any = SimpleNamespace(url=proxy.url, token=served.token)
            async with operated(registry, address, filters=filters):
                await until(lambda: space.finalizers("old") is None, "the object is gone")
                await until(lambda: ("web", False) in calls, "the other object is seen")

    run(main())
    assert space.finalizers("web") == ([OTHER, KOPFS] if finalizer else [OTHER])
    assert (("old", True) in calls) is finalizer


def test_20_the_command_takes_it_off(
    served: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    space = Space(served)
    cluster = {"server": served.url, "insecure-skip-tls-verify": True}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": served.token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    assert command(["finalizers", "remove", f"{GROUP}/v1/webapps", "--all", "-n", space.name]) == 0
    assert "KopfFinalizerMarker from 2 objects. Nothing was changed" in capsys.readouterr().out
    assert space.finalizers("web") == [OTHER, KOPFS]
    assert command(["finalizers", "remove", f"webapps.{GROUP}", "web", "old", "-n", space.name, "--yes"]) == 0
    assert (space.finalizers("web"), space.finalizers("old")) == ([OTHER], None)
