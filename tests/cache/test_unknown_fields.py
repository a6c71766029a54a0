"""Fields of custom resources: known from the definition, or unknown because it may not be read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache import Selector
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.faults.environment import keeping, until

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "singular": "widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "selectableFields": [{"jsonPath": ".spec.env"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"env": {"type": "string"}, "note": {"type": "string"}},
                            }
                        },
                    }
                },
            }
        ],
    },
}


def widget(name: str, env: str) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"env": env, "note": "old"},
    }


@asynccontextmanager
async def reading_widgets(code: int, times: int | None) -> AsyncIterator[Runtime]:
    """Run an informer of `spec.env=prod`; the definition is refused with this code."""
    cluster = EmbeddedCluster(tls=False)
    with cluster.in_thread():
        cluster.namespace("shop")
        cluster.create(DEFINITION)
        cluster.create(widget("a", "prod"), widget("b", "dev"))
        cluster.faults.add(Refuse(code), verb="get", resource="customresourcedefinitions", times=times)
        vault = Vault({"login": kopf.ConnectionInfo(server=cluster.url, token=cluster.token)})
        async with keeping(vault, {"widgets": Selector(fields="spec.env=prod")}) as (runtime, _):
            await until(lambda: runtime.informer("widgets").state.is_synced)
            yield runtime
        await vault.close()


async def called_with_newer(runtime: Runtime, **spec: str) -> Cache:
    """Return the cache of a handler whose body is newer than the stream."""
    body = await Cache(runtime).fetch("widgets", "a", namespace="shop")
    body["metadata"]["resourceVersion"] = str(int(body["metadata"]["resourceVersion"]) + 1000)
    body["spec"].update(spec)
    return Cache(runtime, own=body)


@pytest.mark.parametrize("code", [429, 503])
async def test_contract_9_a_transient_refusal_of_the_definition_hides_no_field_and_no_own_object(
    code: int,
) -> None:
    async with reading_widgets(code, 1) as runtime:
        resource = runtime.informer("widgets").state.resource
        assert resource is not None
        assert resource.fields_known
        mine = await called_with_newer(runtime, note="new")
        assert mine.get("widgets", "a", namespace="shop")["spec"]["note"] == "new"
        left = await called_with_newer(runtime, env="dev")
        assert left.list_cached("widgets").keys() == []


async def test_where_the_definition_is_forbidden_an_own_object_is_read_from_a_stream_with_a_field() -> None:
    async with reading_widgets(403, None) as runtime:
        resource = runtime.informer("widgets").state.resource
        assert resource is not None
        assert not resource.fields_known
        mine = await called_with_newer(runtime, note="new")
        assert mine.get("widgets", "a", namespace="shop")["spec"]["note"] == "old"
