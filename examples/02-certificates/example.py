"""Keeps a Secret with a certificate for each Certificate, under the name that the user chose."""
import kopf

import kopf_selectcache as selectcache

MANAGED = {"example.com/managed-by": "certificates"}


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["v1/secrets"] = selectcache.Selector(label=MANAGED)


@kopf.on.create("example.com", "v1", "certificates")
@kopf.on.update("example.com", "v1", "certificates")
@selectcache.with_cache
async def issue(cache: selectcache.Cache, spec, namespace, patch, **_):
    # Ours, or somebody else's, or none: the cache knows ours, and the server is asked only about the others.
    secret = await cache.fetch("secrets", spec["secretName"], namespace, default=None)
    if secret is None:
        patch.status["state"] = "Issuing"
    elif all(secret["metadata"].get("labels", {}).get(key) == value for key, value in MANAGED.items()):
        patch.status["state"] = "Issued"
    else:
        patch.status["state"] = "Refused: the secret is somebody else's"
