"""Answer Requests from the ConfigMaps that each Tenant marks in its namespace."""

from contextlib import suppress

import kopf

import kopf_selectcache as selectcache

SHARED = "shared"
FOR_EVERYBODY = selectcache.Selector("example.com/audience=everybody", namespaces=[SHARED])


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["example.com/v1/tenants"] = ""
    select["v1/configmaps"] = FOR_EVERYBODY


def marked_by(tenant):
    selector = selectcache.Selector(tenant["spec"]["marked"], namespaces=[tenant["metadata"]["name"]])
    selector.require_satisfiable(kind="configmaps")
    return selector


@selectcache.on.change("tenants")
async def serve(cache: selectcache.Cache, name, logger, **_):
    """Cache what the current tenants mark. The watches of tenants that stay continue."""
    marked = []
    for tenant in cache.list("tenants"):
        try:
            marked.append(marked_by(tenant))
        except selectcache.DeclarationError as error:
            if tenant["metadata"]["name"] == name:
                logger.warning(f"the tenant {name} is not served: {error}")
                kopf.warn(tenant, reason="NotServed", message=str(error))
    with suppress(selectcache.Superseded):  # A later call has the newer list.
        await cache.declare("v1/configmaps", [FOR_EVERYBODY, *marked], replace=True)


@kopf.on.create("example.com", "v1", "requests", backoff=1)
@selectcache.with_cache
def answer(cache: selectcache.SyncCache, spec, namespace, patch, **_):
    served = sorted(tenant["metadata"]["name"] for tenant in cache.list("tenants"))
    if namespace not in served:
        patch.status["answer"] = f"not served here, but in {', '.join(served)}"
        return
    # Until the filter includes the tenant, this read raises an error, and Kopf retries.
    settings = {
        each["metadata"]["name"]: each.get("data", {})
        for where in (SHARED, namespace)
        for each in cache.list_cached("configmaps", namespace=where)
    }
    patch.status["answer"] = settings.get(spec["about"], {}).get("value", "nothing is known of it")
