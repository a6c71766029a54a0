"""Run on each node, and cache only its own Node, its pods and its Volumes."""

import os

import kopf

import kopf_selectcache as selectcache

NODE = os.environ["NODE_NAME"]


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    mine = selectcache.Selector("example.com/driver=disk", fields={"spec.node": NODE})
    select = selectcache.settings_of(settings).selectors
    select["v1/nodes"] = selectcache.Selector(names=[NODE])
    select["v1/pods"] = selectcache.Selector(fields={"spec.nodeName": NODE})
    select["example.com/v1/volumes"] = mine
    # Kopf's own watch feeds the handlers. These lines narrow it to the filter of the cache.
    settings.watching.label_selectors["example.com", "v1", "volumes"] = str(mine.labels)
    settings.watching.field_selectors["example.com", "v1", "volumes"] = str(mine.fields)


@kopf.on.event("example.com", "v1", "volumes")
@selectcache.with_cache
def attach(cache: selectcache.SyncCache, name, type, logger, **_):
    node = cache.get("nodes", NODE)
    if node["spec"].get("unschedulable"):
        logger.info(f"{name} waits: {NODE} is being emptied")
    else:
        volumes, pods = (len(cache.list_cached(kind)) for kind in ("volumes.example.com", "pods"))
        logger.info(f"{name} is attached; on {NODE}: {volumes} volumes, {pods} pods")
