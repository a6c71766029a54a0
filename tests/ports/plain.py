"""The operator of examples/10-copied-secrets with plain Kopf and the official client, as one writes it who
knows both: `kopf run -A tests/ports/plain.py`.

It is written from what ClusterSecret documents that it does, and from none of its code.

- The ClusterSecrets are in a dict, so that an event of a Secret needs no request to find out which of them it
  concerns. An index of Kopf cannot be iterated over in threads, where sync handlers run.
- A copy is read before it is written, and before its source: several handlers may write it at the same time,
  and none may bring back what the source was before.
- Secrets have a handler of events and no others, because those would put an annotation of Kopf on each Secret
  of the cluster. Namespaces have `on.create`, which Kopf repeats after an error.
"""

from __future__ import annotations

import re
from typing import Any

import kopf
import kubernetes
from kubernetes.client import ApiException, CoreV1Api, V1ObjectMeta, V1Secret

KIND = ("example.com", "v1", "clustersecrets")
LABEL, VALUE = "example.com/managed-by", "clustersecrets"

Body = dict[str, Any]


@kopf.on.startup()
def configure(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
    kubernetes.config.load_config()
    memo.core, memo.known = CoreV1Api(), {}
    settings.posting.enabled = False


# ---- ClusterSecrets.


@kopf.on.event(*KIND)
async def know(
    type: str | None,  # As Kopf calls it.  # noqa: A002
    name: str,
    meta: kopf.Meta,
    body: kopf.Body,
    memo: kopf.Memo,
    **_: Any,
) -> None:
    if type == "DELETED" or meta.get("deletionTimestamp"):  # Its copies are not to be repaired.
        memo.known.pop(name, None)
    else:
        memo.known[name] = {key: body[key] for key in body if key not in ("metadata", "status")}


@kopf.on.create(*KIND)
@kopf.on.resume(*KIND)
@kopf.on.update(*KIND)
def copy_to_all(
    body: kopf.Body, name: str, memo: kopf.Memo, patch: kopf.Patch, logger: kopf.Logger, **_: Any
) -> None:
    patch.status["copies"] = synchronise(memo.core, body, name, logger)


@kopf.on.delete(*KIND)
def delete_all(name: str, memo: kopf.Memo, **_: Any) -> None:
    for namespace in copies_of(memo.core, name):
        delete(memo.core, name, namespace)


# ---- Namespaces and Secrets.


@kopf.on.create("namespaces")
def fill_namespace(name: str, memo: kopf.Memo, logger: kopf.Logger, **_: Any) -> None:
    for each, body in list(memo.known.items()):
        if is_wanted(body, each, name):
            copy_to_one(memo.core, body, each, name, logger)


@kopf.on.event("secrets")
def repair(
    type: str | None,  # As Kopf calls it.  # noqa: A002
    body: kopf.Body,
    name: str,
    namespace: str | None,
    memo: kopf.Memo,
    logger: kopf.Logger,
    **_: Any,
) -> None:
    assert namespace is not None, "each Secret has one"
    core: CoreV1Api = memo.core
    for each, wanted in list(memo.known.items()):
        if source_of(wanted) == (namespace, name) and type != "DELETED":
            synchronise(core, wanted, each, logger)
        elif each == name and (type == "DELETED" or is_copy(body)) and is_wanted(wanted, each, namespace):
            copy_to_one(core, wanted, each, namespace, logger)


# ---- What is wanted.


def is_wanted(body: Any, name: str, namespace: str) -> bool:
    def matches(patterns: list[str]) -> bool:
        return any(re.fullmatch(pattern, namespace) for pattern in patterns)

    return (
        matches(body.get("matchNamespace", [".*"]))
        and not matches(body.get("avoidNamespaces", []))
        and source_of(body) != (namespace, name)
    )


def source_of(body: Any) -> tuple[str, str] | None:
    source = body["data"].get("valueFrom", {}).get("secretKeyRef")
    return source and (source["namespace"], source["name"])


def content_of(core: CoreV1Api, body: Any) -> Body | None:
    """Return the type, the data and the labels of a copy; None if there is no source."""
    data, type_ = dict(body["data"]), "Opaque"
    if (source := source_of(body)) is not None:
        secret = read(core, source[1], source[0])
        if secret is None:
            return None
        data, type_ = secret.data or {}, secret.type
    return {
        "type": body.get("type") or type_,
        "data": data,
        "labels": {**body.get("labels", {}), LABEL: VALUE},
    }


def is_copy(body: Any) -> bool:
    return bool(body["metadata"].get("labels", {}).get(LABEL) == VALUE)


# ---- Requests.


def synchronise(core: CoreV1Api, body: Any, name: str, logger: kopf.Logger) -> int:
    """Delete the copies that are not wanted, and write the others; return their number."""
    wanted = {
        each.metadata.name
        for each in core.list_namespace().items
        if each.metadata.deletion_timestamp is None and is_wanted(body, name, each.metadata.name)
    }
    copies = copies_of(core, name)
    for namespace in copies.keys() - wanted:
        delete(core, name, namespace)
    content = content_of(core, body)
    if content is None:
        return len(copies)
    return sum(
        put(core, body, content, name, namespace, copies.get(namespace), logger)
        for namespace in sorted(wanted)
    )


def copy_to_one(core: CoreV1Api, body: Any, name: str, namespace: str, logger: kopf.Logger) -> bool:
    found = read(core, name, namespace)
    content = content_of(core, body)
    return content is not None and put(core, body, content, name, namespace, found, logger)


def put(
    core: CoreV1Api,
    body: Any,
    content: Body,
    name: str,
    namespace: str,
    found: V1Secret | None,
    logger: kopf.Logger,
) -> bool:
    """Write a copy if it is not as it should be; return False if somebody else has the name, or the namespace
    is ending.
    """
    labels = content["labels"]
    if found is not None:
        there = found.metadata.labels or {}
        if there.get(LABEL) != VALUE:
            logger.warning("%s/%s is somebody else's", namespace, name)
            return False
        if found.type == content["type"]:
            if (found.data or {}) != content["data"] or not labels.items() <= there.items():
                found.data, found.metadata.labels = content["data"], {**there, **labels}
                try:
                    core.replace_namespaced_secret(name, namespace, found)
                except ApiException as error:
                    if error.status not in {404, 409}:
                        raise
                    return copy_to_one(core, body, name, namespace, logger)  # It has changed meanwhile.
            return True
        delete(core, name, namespace)
    metadata = V1ObjectMeta(name=name, namespace=namespace, labels=labels)
    try:
        core.create_namespaced_secret(
            namespace, V1Secret(metadata=metadata, type=content["type"], data=content["data"])
        )
    except ApiException as error:
        if error.status == 409:
            logger.warning("%s/%s is somebody else's", namespace, name)
        elif error.status not in {403, 404}:  # The namespace is ending, or has ended.
            raise
        return False
    return True


def copies_of(core: CoreV1Api, name: str) -> dict[str, V1Secret]:
    found = core.list_secret_for_all_namespaces(
        label_selector=f"{LABEL}={VALUE}", field_selector=f"metadata.name={name}"
    )
    return {each.metadata.namespace: each for each in found.items}


def read(core: CoreV1Api, name: str, namespace: str) -> V1Secret | None:
    try:
        return core.read_namespaced_secret(name, namespace)
    except ApiException as error:
        if error.status == 404:
            return None
        raise


def delete(core: CoreV1Api, name: str, namespace: str) -> None:
    try:
        core.delete_namespaced_secret(name, namespace)
    except ApiException as error:
        if error.status != 404:
            raise
