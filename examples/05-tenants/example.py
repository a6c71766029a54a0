"""Serves one tenant: holds what the tenant marked for it, in the tenant's namespace, and nothing else."""
import os

import kopf

import kopf_selectcache as selectcache

TENANT = os.environ["TENANT_NAMESPACE"]


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["v1/configmaps"] = selectcache.Selector("example.com/tenant=yes", namespaces=[TENANT])


@kopf.on.create("example.com", "v1", "requests")
@selectcache.with_cache
def answer(cache: selectcache.Cache, spec, namespace, patch, **_):
    covered = cache.scope("configmaps")
    if namespace not in covered.namespaces:
        patch.status["answer"] = f"not served here, but in {', '.join(covered.namespaces)}"
        return
    settings = {each["metadata"]["name"]: each.get("data", {}) for each in cache.held("configmaps", namespace=namespace)}
    patch.status["answer"] = settings.get(spec["about"], {}).get("value", "nothing is known of it")
