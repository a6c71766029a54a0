"""Give each Application a ConfigMap, and write the number of its ready pods into its status."""

import kopf

import kopf_selectcache as selectcache

OURS = "example.com/app"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["example.com/v1/applications"] = selectcache.EVERYTHING
    select["v1/pods"] = OURS
    select["v1/configmaps"] = OURS


@selectcache.reconcile("example.com/v1/applications", owns=["pods", "configmaps"])
async def reconcile(cache: selectcache.Cache, body, name, namespace, spec, patch, **_):
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {OURS: name}},
        "data": {"currency": spec.get("currency", "EUR")},
    }
    kopf.append_owner_reference(config, owner=body)
    made = await cache.live.ensure(config, adopt=True)
    if made["data"] != config["data"]:
        await cache.live.patch("configmaps", name, {"data": config["data"]}, namespace=namespace)
    pods = cache.list_cached("pods", owner=body)
    ready = [pod for pod in pods if is_ready(pod)]
    patch.status["currency"] = config["data"]["currency"]
    patch.status["ready"] = f"{len(ready)}/{len(pods)}"


def is_ready(pod):
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
