"""Handlers that the demo loads beside examples/01. They read its cache, and print the results.

They use the public API only.
"""

import asyncio
import json

import kopf

import kopf_selectcache as selectcache

STEP = "demo.example.com/step"
RUN = "example.com/run-id"
memory = {}


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    memory["collector"] = selectcache.collector(settings)
    selectcache.settings_of(
        settings
    ).page_limit = 25  # Small pages, so that the demo can show a sync. Keep the default in your operators.


@kopf.on.event("configmaps", labels={STEP: kopf.PRESENT})
@selectcache.with_cache
async def show(cache: selectcache.Cache, type, labels, body, **_):
    if type != "DELETED":
        for line in [line async for line in SHOWN[labels[STEP]](cache, **body["data"])]:
            print(f"demo: {line}", flush=True)  # The demo reads the output.  # noqa: T201
        print("demo: .", flush=True)  # The demo reads the output.  # noqa: T201


async def held(cache, **_):
    for family in memory["collector"].collect():
        if family.name in ("kopf_selectcache_objects", "kopf_selectcache_bytes"):
            for sample in family.samples:
                yield json.dumps([family.name.rpartition("_")[2], sample.labels["resource"], sample.value])


async def reads(cache, namespace, job, pod, run, **_):
    yield f"cache.get('jobs', '{job}', '{namespace}')"
    yield f"   -> {cache.get('jobs', job, namespace)['kind']} {job}"
    yield (
        f"cache.list('pods', namespace='{namespace}', label={{'{RUN}': '{run}'}})      # all there are:"
        " provably"
    )
    for one in cache.list("pods", namespace=namespace, label={RUN: run}):
        yield f"   -> {one['metadata']['name']}, {one['status']['phase']}"
    yield f"cache.count('pods', label='{RUN}')"
    yield f"   -> {cache.count('pods', label=RUN):,}"


async def outside(cache, other, elsewhere, **_):
    yield f"cache.get('pods', '{other}', '{elsewhere}')"
    try:
        cache.get("pods", other, elsewhere)
    except selectcache.OutsideFilter as error:
        yield f"   -> OutsideFilter: {error}"
    yield f"await cache.fetch('pods', '{other}', '{elsewhere}')"
    yield f"   -> {(await cache.fetch('pods', other, elsewhere))['metadata']['name']}, from the server"


async def left(cache, namespace, pod, **_):
    yield f"cache.get('pods', '{pod}', '{namespace}')"
    while True:
        try:
            cache.get("pods", pod, namespace)
        except selectcache.OutsideFilter as error:
            yield f"   -> OutsideFilter: {error}"
            return
        await asyncio.sleep(0.05)  # The event has not arrived yet.


SHOWN = {"held": held, "reads": reads, "outside": outside, "left": left}
