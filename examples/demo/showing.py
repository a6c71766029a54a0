"""Handlers that the demo loads beside examples/01. They read its cache, and print the results.

They use the public API only.
"""

import json

import kopf

import kopf_selectcache as selectcache

STEP = "demo.example.com/step"
RUN = "example.com/run-id"
memory = {}


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    memory["collector"] = selectcache.collector(settings)
    options = selectcache.settings_of(settings)
    options.selectors["v1/configmaps"] = RUN
    options.page_limit = (
        25  # Small pages, so that the demo can show a sync. Keep the default in your operators.
    )


@kopf.on.event("configmaps", labels={STEP: kopf.PRESENT})
@selectcache.with_cache
async def show(cache: selectcache.Cache, type, labels, body, **_):
    if type != "DELETED":
        for line in [line async for line in SHOWN[labels[STEP]](cache, **body["data"])]:
            print(f"demo: {line}", flush=True)  # The demo reads the output.  # noqa: T201
        print("demo: .", flush=True)  # The demo reads the output.  # noqa: T201


@selectcache.on.change("pods", entered=False, updated=False)
async def follow(cause, name, **_):
    line = f"demo: @selectcache.on.change('pods') is called: {name}, cause '{cause}'"
    print(line, flush=True)  # The demo reads the output.  # noqa: T201


async def sizes(cache, **_):
    for family in memory["collector"].collect():
        if family.name in ("kopf_selectcache_objects", "kopf_selectcache_bytes"):
            for sample in family.samples:
                yield json.dumps([family.name.rpartition("_")[2], sample.labels["resource"], sample.value])


async def reads(cache, namespace, job, run, **_):
    yield f"cache.get('jobs', '{job}', namespace='{namespace}')"
    yield f"   -> {cache.get('jobs', job, namespace=namespace)['kind']} {job}"
    yield f"cache.list('pods', namespace='{namespace}', labels={{'{RUN}': '{run}'}})   # all of them"
    for one in cache.list("pods", namespace=namespace, labels={RUN: run}):
        yield f"   -> {one['metadata']['name']}, {one['status']['phase']}"
    yield f"cache.count('pods', labels='{RUN}')"
    yield f"   -> {cache.count('pods', labels=RUN):,}"


def refusal(error):
    """Return the lines of an error, as the end of a traceback shows them."""
    yield f"   -> OutsideFilter: {error}"
    for note in error.__notes__:
        yield f"      {note}"


async def outside(cache, namespace, params, **_):
    yield f"cache.get('configmaps', '{params}', namespace='{namespace}', default=None)"
    try:
        cache.get("configmaps", params, namespace=namespace, default=None)
    except selectcache.OutsideFilter as error:
        for line in refusal(error):
            yield line
    yield f"await cache.why('configmaps', '{params}', namespace='{namespace}')"
    for line in str(await cache.why("configmaps", params, namespace=namespace)).splitlines():
        yield f"   -> {line}"
    yield f"await cache.fetch('configmaps', '{params}', namespace='{namespace}')"
    found = await cache.fetch("configmaps", params, namespace=namespace)
    yield f"   -> {found['metadata']['name']} with {found['data']}, from the server"


async def left(cache, namespace, pod, **_):
    yield f"cache.get('pods', '{pod}', namespace='{namespace}', default=None)"
    try:
        cache.get("pods", pod, namespace=namespace, default=None)
    except selectcache.OutsideFilter as error:
        for line in refusal(error):
            yield line


SHOWN = {"sizes": sizes, "reads": reads, "outside": outside, "left": left}
