"""The official Python client's informer, in a process of its own: `python -m bench.contenders.informer`.

It logs in as pods do, with a token that is read again every minute.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from kubernetes import client
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.informer import SharedInformer

from bench.contenders.asking import LABEL, NAMESPACE, Held, answer, options


def make_informer() -> SharedInformer:
    account = Path(os.environ["ACCOUNT"])
    InClusterConfigLoader(token_filename=account / "token", cert_filename=account / "ca.crt").load_and_set()
    return SharedInformer(
        client.CoreV1Api().list_namespaced_pod,
        namespace=NAMESPACE,
        label_selector=LABEL,
        resync_period=options().get("resync", 0),
    )


def held_by(informer: SharedInformer) -> Held:
    return {
        pod.metadata.name: [pod.metadata.uid, pod.metadata.resource_version] for pod in informer.cache.list()
    }


def answer_from(informer: SharedInformer) -> None:
    def read(name: str) -> str:
        found = informer.cache.get_by_key(f"{NAMESPACE}/{name}")
        return "None" if found is None else "the pod"

    answer(lambda: held_by(informer), read)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    informer = make_informer()
    answer_from(informer)
    informer.start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
