"""The official Python client's informer: `python -m bench.peers.informer`. Its results are shared objects."""

from __future__ import annotations

import os
import threading
from typing import Any

from kubernetes import client, config
from kubernetes.informer import SharedInformer

from bench.peers.asking import Answers, Key, Order, Read, serve
from bench.peers.held import reader


class Informer:
    def __init__(self) -> None:
        config.load_kube_config(os.environ["KUBECONFIG"])
        self._informer = SharedInformer(client.CoreV1Api().list_pod_for_all_namespaces)
        self._cache = self._informer.cache

    def sync(self) -> None:
        listed = (
            threading.Event()
        )  # It does not report when it is synced. The first pod is added after all are stored.
        self._informer.add_event_handler("ADDED", lambda _: listed.set())
        self._informer.start()
        listed.wait()

    def count(self) -> int:
        return len(self._cache.list_keys())

    def read(self, order: Order) -> Read | None:
        return reader(
            order,
            get=self._get,
            objects=self._cache.list,
            namespace=lambda pod: str(pod.metadata.namespace),
            label=lambda pod, name: pod.metadata.labels.get(name),
        )

    def _get(self, key: Key) -> Any:
        return self._cache.get_by_key("/".join(key))

    def annotation(self, key: Key, name: str) -> str | None:
        found: str | None = self._get(key).metadata.annotations.get(name)
        return found


if __name__ == "__main__":
    serve(Informer(), Answers())
