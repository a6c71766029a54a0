"""Publish each Page as a ConfigMap. Replicas share the namespaces, and the status names the one that did."""

import html
import os

import kopf

import kopf_selectcache as selectcache

OURS = "example.com/page"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.peering.standalone = True
    options = selectcache.settings_of(settings)
    # In a pod, leave out the namespace: the pod's own is used.
    options.sharding = selectcache.Sharding(name="pages", namespace=os.environ.get("NAMESPACE", ""))
    select = options.selectors
    select["example.com/v1/pages"] = selectcache.EVERYTHING
    select["v1/configmaps"] = OURS


@selectcache.reconcile("example.com/v1/pages", owns=["configmaps"])
async def publish(cache: selectcache.Cache, body, name, namespace, spec, patch, **_):
    page = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {OURS: name}},
        "data": {"index.html": f"<h1>{html.escape(spec['title'])}</h1>"},
    }
    kopf.append_owner_reference(page, owner=body)
    made = await cache.live.ensure(page, adopt=True)
    if made["data"] != page["data"]:
        await cache.live.patch("configmaps", name, {"data": page["data"]}, namespace=namespace)
    patch.status["replica"] = os.environ["POD_NAME"]
