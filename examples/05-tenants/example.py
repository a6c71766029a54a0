"""Serve several tenants, with a cache of the ConfigMaps that each has marked in its own namespace."""

import kopf

import kopf_selectcache as selectcache

TENANTS = {"shop": "example.com/tenant=yes", "office": "example.com/audience in (staff,public)"}


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["v1/configmaps"] = [
        selectcache.Selector(marked, namespaces=[tenant]) for tenant, marked in TENANTS.items()
    ]


@kopf.on.create("example.com", "v1", "requests")
@selectcache.with_cache
def answer(cache: selectcache.Cache, spec, namespace, patch, **_):
    served = [tenant for branch in cache.scope("configmaps").branches for tenant in branch.namespaces]
    if namespace not in served:
        patch.status["answer"] = f"not served here, but in {', '.join(served)}"
        return
    settings = {
        each["metadata"]["name"]: each.get("data", {})
        for each in cache.held("configmaps", namespace=namespace)
    }
    patch.status["answer"] = settings.get(spec["about"], {}).get("value", "nothing is known of it")
