import os

import kopf
import prometheus_client

import kopf_selectcache as selectcache


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.peering.standalone = True
    ours = settings.selectcache
    ours.selectors["example.com/v1/webapps"] = selectcache.EVERYTHING
    ours.selectors["v1/pods"] = "app=web,instance"
    # In a pod, the namespace is that of the pod.
    ours.sharding = selectcache.Sharding(
        name="webapps", ready_port=8081, namespace=os.environ.get("POD_NAMESPACE", "")
    )
    prometheus_client.REGISTRY.register(selectcache.collector(settings))
    prometheus_client.start_http_server(int(os.environ.get("METRICS_PORT", "9090")))


def webapp_of(pod):
    meta = pod["metadata"]
    return [selectcache.Key(meta["labels"]["instance"], namespace=meta["namespace"])]


@selectcache.reconcile("example.com/v1/webapps", watches=[selectcache.Watch("pods", map=webapp_of)])
async def count(cache: selectcache.Cache, name, namespace, patch, **_):
    labels = {"app": "web", "instance": name}
    patch.status["pods"] = cache.count("pods", namespace=namespace, labels=labels)
