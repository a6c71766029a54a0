"""Give each WebApp a Deployment, and a route in a ConfigMap that all WebApps share."""

import kopf

import kopf_selectcache as selectcache

OURS = "webapp"
ROUTES = selectcache.Key("routes", namespace="front")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["example.com/v1/webapps"] = selectcache.EVERYTHING
    select["apps/v1/deployments"] = OURS  # The Deployments with this label.
    select["v1/configmaps"] = selectcache.Selector(names=[ROUTES.name], namespaces=[ROUTES.namespace])


def all_webapps(_, cache: selectcache.SyncCache):
    return cache.list_cached("webapps")


@selectcache.reconcile(
    "example.com/v1/webapps",
    owns=["deployments"],
    watches=[selectcache.Watch("configmaps", map=all_webapps)],
    finalizer=True,  # Kopf's own finalizer, which existing objects already have.
)
async def reconcile(cache: selectcache.Cache, body, name, namespace, spec, deleting, patch, **_):
    await write_route(cache, namespace, name, None if deleting else spec["host"])
    if deleting:
        return
    wanted = make_deployment(name, namespace, spec)
    kopf.adopt(wanted, owner=body)
    found = cache.list_cached("deployments", owner=body)
    deployment = found[0] if found else await cache.live.ensure(wanted, adopt=True)
    if image_of(deployment) != image_of(wanted):
        await cache.live.patch("deployments", name, {"spec": wanted["spec"]}, namespace=namespace)
    patch.status["ready"] = deployment.get("status", {}).get("readyReplicas", 0)


async def write_route(cache: selectcache.Cache, namespace, name, host):
    key, routes = f"{namespace}.{name}", cache.get("configmaps", ROUTES)
    if routes.get("data", {}).get(key) != host:
        await cache.live.patch("configmaps", ROUTES, {"data": {key: host}})


def image_of(deployment):
    return deployment["spec"]["template"]["spec"]["containers"][0]["image"]


def make_deployment(name, namespace, spec):
    labels = {OURS: name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": spec["image"]}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    }
