"""The features of docs/features.md about parts of objects, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache import Cached, NotKept, Selector
from tests.apiserver.cluster import Cluster
from tests.real.inprocess import run, until
from tests.real.proxy import Proxy

from .places import Place, fresh_group, since_watch_list
from .test_features import WEB, cached, names

CANARY = "canary-7f3a"


def image(name: str = CANARY) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": name}]}


@pytest.mark.needs("custom resources of the whole cluster")
@pytest.mark.parametrize("initial", ["pages", pytest.param("stream", marks=since_watch_list)])
def test_a11_metadata_alone_crosses_the_network(place: Place, api: Cluster, initial: str) -> None:
    async def main() -> None:
        group = fresh_group()
        text = {"type": "string"}
        schema = {"type": "object", "properties": {"node": text, "note": text}}
        schema = {"type": "object", "properties": {"spec": schema}}
        api.create_crd(group, "v1", "State", "states", schema=schema, selectable_fields=[".spec.node"])
        states = place.of("states", prefix=f"/apis/{group}/v1", kind="State")
        states.create("mine", labels=WEB, spec={"node": "n1", "note": CANARY})
        states.create("theirs", labels=WEB, spec={"node": "n2", "note": CANARY})
        pods = place.of("pods")
        pods.create("web-1", labels=WEB, metadata={"annotations": {"note": "long"}}, spec=image())
        filters = {
            "v1/pods": Cached(Selector("app=web", field="status.phase=Pending"), metadata_only=True),
            f"{group}/v1/states": Cached(Selector(field="spec.node=n1"), metadata_only=True),
        }
        with Proxy(api) as proxy:
            async with cached(place, filters, url=proxy.url, initial=initial) as cache:
                pods.create("web-2", labels=WEB, spec=image())
                states.create("mine-too", spec={"node": "n1", "note": CANARY})
                await cache.wait_for("pods", lambda pod: pod["metadata"]["name"] == "web-2")
                await cache.wait_for("states", lambda state: state["metadata"]["name"] == "mine-too")
                # The server alone knows the fields, and selects by them.
                here: dict[str, Any] = {"namespace": place.namespace}
                pending = cache.list("pods", label="app=web", field="status.phase=Pending", **here)
                assert names(pending) == ["web-1", "web-2"]
                assert names(cache.list("states", field="spec.node=n1", **here)) == ["mine", "mine-too"]
                with pytest.raises(NotKept):
                    cache.held("pods", field="spec.nodeName=n1")
                pod = cache.get("pods", "web-1", place.namespace)
                assert pod.keys() == {"apiVersion", "kind", "metadata"}
                assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
                assert pod["metadata"]["annotations"] == {"note": "long"}
                assert "managedFields" not in pod["metadata"]
                state = cache.get("states", "mine", place.namespace)
                assert (state["apiVersion"], state["kind"]) == (f"{group}/v1", "State")
                with pytest.raises(NotKept):
                    cache.held("pods", where={"spec.nodeName": None})
                fetched = await cache.fetch("pods", "web-1", place.namespace, max_age=1e-9)
                assert fetched.keys() == {"apiVersion", "kind", "metadata"}
                pods.delete("web-2", query={"gracePeriodSeconds": 0})
                states.patch("mine-too", {"spec": {"node": "n2"}})
                await until(lambda: names(cache.held("pods")) == ["web-1"], "the pod is gone")
                await until(lambda: names(cache.held("states")) == ["mine"], "the state has left")
                received = b"".join(proxy.received)
                assert b"web-2" in received
                assert CANARY.encode() not in received
                whole = await cache.fetch("pods", "web-1", place.namespace, whole=True)
                assert whole["spec"]["containers"][0]["image"] == CANARY

    run(main())
