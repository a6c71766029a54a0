"""Copy the shared ConfigMaps of a hub cluster into this cluster, and keep the copies equal."""

import asyncio
import os
from pathlib import Path

import kopf
import yaml

import kopf_selectcache as selectcache

SHARED = selectcache.Selector({"example.com/shared": "yes"}, namespaces=["registry"])
COPIED = {"example.com/copied-from": "hub"}
NAMESPACE = "default"


def log_in_to_hub(**_):
    config = yaml.safe_load(Path(os.environ["HUB_KUBECONFIG"]).read_text())
    hub, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    return kopf.ConnectionInfo(server=hub["server"], ca_data=hub["certificate-authority-data"], token=token)


@kopf.on.startup()
async def begin(settings: kopf.OperatorSettings, memo: kopf.Memo, logger, **_):
    select = selectcache.settings_of(settings).selectors
    select["v1/configmaps"] = selectcache.Selector(COPIED, namespaces=[NAMESPACE])
    on_hub = {"v1/configmaps": selectcache.Cached(SHARED, resync=60)}
    memo.hub = selectcache.Caches(on_hub, login=log_in_to_hub, name="hub")
    hub, cache = await memo.hub.start(), selectcache.cache_of(settings)
    memo.following = asyncio.create_task(follow(hub, cache, logger))


@kopf.on.cleanup()
async def end(memo: kopf.Memo, **_):
    memo.following.cancel()
    await memo.hub.stop()


async def follow(hub: selectcache.Cache, cache: selectcache.Cache, logger):
    while True:
        try:
            await asyncio.gather(hub.wait_synced(), cache.wait_synced())
            await copy_all(hub, cache)
            async for _ in hub.changes("configmaps"):  # A resync repeats them, too.
                await copy_all(hub, cache)
        except selectcache.SelectCacheError as error:
            logger.warning(f"The copies are compared again in 10 s: {error}")
            await asyncio.sleep(10)


async def copy_all(hub: selectcache.Cache, cache: selectcache.Cache):
    shared, copies = data_by_name(hub), data_by_name(cache)
    for name in shared.keys() - copies.keys():
        metadata = {"name": name, "namespace": NAMESPACE, "labels": COPIED}
        copy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": shared[name]}
        await cache.live.ensure(copy)
    for name, data in copies.items():
        if name not in shared:
            await cache.live.delete("configmaps", name, namespace=NAMESPACE)
        elif data != shared[name]:  # None removes the keys that the hub doesn't have.
            await cache.live.patch(
                "configmaps", name, {"data": dict.fromkeys(data) | shared[name]}, namespace=NAMESPACE
            )


def data_by_name(cache: selectcache.Cache):
    return {each["metadata"]["name"]: each.get("data", {}) for each in cache.list_cached("configmaps")}
