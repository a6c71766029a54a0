"""Give each Website its ConfigMap, and adopt one that someone else created."""

import kopf

import kopf_selectcache as selectcache

OURS = {"example.com/managed-by": "websites"}


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["v1/configmaps"] = OURS


@kopf.on.create("example.com", "v1", "websites")
@kopf.on.update("example.com", "v1", "websites", field="spec")
@selectcache.with_cache
async def settle(cache: selectcache.Cache, body, spec, name, namespace, patch, **_):
    metadata = {"name": name, "namespace": namespace, "labels": OURS}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"title": spec["title"]}}
    kopf.append_owner_reference(config, owner=body)
    try:
        found = await cache.live.ensure(config, adopt=spec.get("adopt", False))
    except selectcache.HiddenByFilter as error:  # It exists, but not in the cache.
        patch.status["state"] = f"Blocked: the ConfigMap lacks {', '.join(error.lacks)}"
    except selectcache.AlreadyExists:
        patch.status["state"] = "Blocked: the ConfigMap has another controller"
    else:
        if found.get("data", {}).get("title") != spec["title"]:
            await cache.live.patch("configmaps", name, {"data": config["data"]}, namespace=namespace)
        patch.status["state"] = "Ready"
