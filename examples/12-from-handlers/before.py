"""Kopf's handlers and the `kubernetes` client: what example.py did before it became a reconciler."""

import kopf
import kubernetes


@kopf.on.startup()
def log_in(**_):
    kubernetes.config.load_config()


@kopf.on.create("example.com", "v1", "webapps")
def create(body, name, namespace, spec, **_):
    deployment = make_deployment(name, spec)
    kopf.adopt(deployment, owner=body)
    kubernetes.client.AppsV1Api().create_namespaced_deployment(namespace, deployment)
    write_route(namespace, name, spec["host"])


@kopf.on.update("example.com", "v1", "webapps", field="spec.image")
def roll_out(name, namespace, spec, **_):
    kubernetes.client.AppsV1Api().patch_namespaced_deployment(name, namespace, make_deployment(name, spec))


@kopf.on.update("example.com", "v1", "webapps", field="spec.host")
def move(name, namespace, new, **_):
    write_route(namespace, name, new)


@kopf.on.delete("example.com", "v1", "webapps")
def delete(name, namespace, **_):
    write_route(namespace, name, None)


@kopf.timer("example.com", "v1", "webapps", interval=30, initial_delay=3)
def count(name, namespace, patch, **_):
    deployment = kubernetes.client.AppsV1Api().read_namespaced_deployment(name, namespace)
    patch.status["ready"] = deployment.status.ready_replicas or 0


def write_route(namespace, name, host):
    changes = {"data": {f"{namespace}.{name}": host}}  # None removes the key.
    kubernetes.client.CoreV1Api().patch_namespaced_config_map("routes", "front", changes)


def make_deployment(name, spec):
    labels = {"webapp": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": spec["image"]}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    }
