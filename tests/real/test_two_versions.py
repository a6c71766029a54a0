"""Two declared keys that mean two versions of one custom resource: the cluster alone can tell."""

from __future__ import annotations

import copy

import pytest
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache import Selector
from tests.apiserver.cluster import Cluster
from tests.faults.environment import keeping
from tests.real.inprocess import credentials, until


async def test_two_versions_of_one_custom_resource_are_warned_of(
    api: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = api.namespace(prefix="g")
    group = f"{namespace}.example.com"
    definition = api.create_crd(group, "v1", "Widget", "widgets")
    first = definition["spec"]["versions"][0]
    second = copy.deepcopy(first) | {"name": "v1beta1", "storage": False}
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}"
    api.request("PATCH", path, body={"spec": {"versions": [first, second]}})
    keys = {f"widgets.{version}.{group}": Selector(namespaces=[namespace]) for version in ("v1", "v1beta1")}
    async with keeping(Vault({"login": credentials(api)}), keys) as (runtime, _):
        await until(
            lambda: all(informer.state.is_synced for informer in runtime.informers.values()),
            "both versions are kept",
        )
    (said,) = (message for message in caplog.messages if "two versions" in message)
    assert all(key in said for key in keys)
