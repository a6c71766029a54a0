"""Write the number of ready pods into the status of each Application."""

import kopf

import kopf_selectcache as selectcache

OURS = "example.com/app"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["v1/pods"] = OURS
    select["v1/configmaps"] = OURS


@kopf.timer("example.com", "v1", "applications", interval=5)
@selectcache.with_cache
async def reconcile(cache: selectcache.Cache, body, name, namespace, patch, **_):
    config = await cache.fetch("configmaps", name, namespace, default=None)
    pods = cache.owned(body, "pods")
    ready = [
        pod
        for pod in pods
        if any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in pod["status"].get("conditions", [])
        )
    ]
    patch.status["configured"] = config is not None
    patch.status["ready"] = f"{len(ready)}/{len(pods)}"
