"""Copy a Secret into all namespaces that a ClusterSecret matches, and keep the copies equal to it."""

import re
from contextlib import suppress

import kopf

import kopf_selectcache as selectcache

OURS = {"example.com/managed-by": "clustersecrets"}
AGAIN = 60  # Seconds until the operator tries again to write a copy.


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["example.com/v1/clustersecrets"] = selectcache.EVERYTHING
    select["v1/namespaces"] = selectcache.Cached(selectcache.EVERYTHING, metadata_only=True)
    select["v1/secrets"] = OURS


# ---- What is cached, and which ClusterSecrets a change concerns.


@selectcache.on.change("clustersecrets")
async def follow_sources(cache: selectcache.Cache, **_):
    """Cache the source Secrets and the copies, and no others."""
    sources = {source_of(each) for each in cache.list("clustersecrets")} - {None}
    named = [selectcache.Selector(names=[key.name], namespaces=[key.namespace]) for key in sorted(sources)]
    with suppress(selectcache.Superseded):  # A later call has the newer list.
        await cache.declare("v1/secrets", [selectcache.Selector(OURS), *named], replace=True)


def of_secret(secret, cache: selectcache.SyncCache):
    """Return the ClusterSecret that a copy is named after, and those that copy this Secret."""
    key = selectcache.Key.of(secret)
    users = [each for each in cache.list("clustersecrets") if source_of(each) == key]
    return [selectcache.Key(key.name), *users]


def of_namespace(_, cache: selectcache.SyncCache):
    return cache.list("clustersecrets")


def source_of(body):
    """The Secret to copy, unless the ClusterSecret itself has the data."""
    source = body["data"].get("valueFrom", {}).get("secretKeyRef")
    return source and selectcache.Key(source["name"], namespace=source["namespace"])


# ---- The copies.


@selectcache.reconcile(
    "example.com/v1/clustersecrets",
    watches=[
        selectcache.Watch("secrets", map=of_secret),
        selectcache.Watch("namespaces", map=of_namespace, predicates=[~selectcache.predicates.updated]),
    ],
    finalizer="example.com/copies",
)
async def reconcile(cache: selectcache.Cache, body, name, patch, deleting, **_):
    copies = cache.list("secrets", labels=OURS, names=[name])
    found = {copy["metadata"]["namespace"]: copy for copy in copies}
    wanted = [] if deleting else wanted_in(cache, body)
    for namespace in found.keys() - set(wanted):
        await cache.live.delete("secrets", name, namespace=namespace, uid=found[namespace]["metadata"]["uid"])
    if deleting:
        return None
    content = await content_of(cache, body)
    if content is None:  # Keep the copies until it comes back.
        patch.status["message"] = f"There is no Secret {source_of(body)}"
        return None
    failed = []
    for namespace in wanted:
        metadata = {"name": name, "namespace": namespace, "labels": {**body.get("labels", {}), **OURS}}
        copy = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **content}
        try:
            await write(cache, copy, found.get(namespace))
        except selectcache.AlreadyExists:
            failed.append(f"{namespace} has another Secret of this name")
        except selectcache.SelectCacheError as error:
            failed.append(str(error))
    patch.status["copies"] = len(wanted) - len(failed)
    patch.status["message"] = f"{len(failed)} not written: {failed[0]}" if failed else ""
    return AGAIN if failed else None


def wanted_in(cache: selectcache.Cache, body):
    """Return the matching namespaces, except those being deleted, and where the copy would be the source."""
    meta = [namespace["metadata"] for namespace in cache.list("namespaces")]
    alive = [each["name"] for each in meta if "deletionTimestamp" not in each]
    matched, avoided = body.get("matchNamespace", [".*"]), body.get("avoidNamespaces", [])
    wanted = [name for name in alive if matches(matched, name) and not matches(avoided, name)]
    return [
        name
        for name in wanted
        if source_of(body) != selectcache.Key(body["metadata"]["name"], namespace=name)
    ]


def matches(patterns, name):
    try:
        return any(re.fullmatch(pattern, name) for pattern in patterns)
    except re.error as error:  # Only an edit of the ClusterSecret helps.
        raise kopf.PermanentError(f"{error.pattern!r} is not a regular expression: {error}") from error


async def content_of(cache: selectcache.Cache, body):
    """Return the type and data of a copy, or None if the source doesn't exist."""
    source = {"type": "Opaque", "data": body["data"]}
    if key := source_of(body):  # This asks the server until the source is cached.
        source = await cache.fetch("secrets", key.name, namespace=key.namespace, default=None)
    return source and {"type": body.get("type", source["type"]), "data": source.get("data", {})}


async def write(cache: selectcache.Cache, copy, found):
    """Create a copy, or correct the one that was found. Keep labels that others have added."""
    if found and found["type"] != copy["type"]:  # A Secret's type can't be changed.
        there = found["metadata"]
        await cache.live.delete("secrets", there["name"], namespace=there["namespace"], uid=there["uid"])
        found = None
    if not found:
        await cache.live.create(copy)
        return
    labels = {**found["metadata"]["labels"], **copy["metadata"]["labels"]}
    if (found.get("data", {}), found["metadata"]["labels"]) != (copy["data"], labels):
        await cache.live.replace({**copy, "metadata": {**found["metadata"], "labels": labels}})
