"""The rules of single built-in kinds for writes: first statuses, labels, finalizers, immutable fields.

Only rules that are visible to selectors, Kopf or kubectl are here: specs are neither validated nor filled
with defaults.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from . import events, leases, types, webhooks
from .kinds import Served
from .metadata import StatusCause, forbidden, invalid_value

Body: TypeAlias = dict[str, Any]

_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/\n\r")
_KEY = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
_CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or"
    " 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_POD_FIELDS = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
# Kinds without a status whose spec is always present.
_ALWAYS_SPEC = frozenset({"leases", "limitranges", "networkpolicies"})
# The status of a new object, which replaces that of the body.
_FIRST_STATUS: Mapping[str, Mapping[str, Any]] = {
    "pods": {"phase": "Pending", "qosClass": "BestEffort"},
    "namespaces": {"phase": "Active"},
    "services": {"loadBalancer": {}},
    "ingresses": {"loadBalancer": {}},
    "persistentvolumeclaims": {"phase": "Pending"},
    "persistentvolumes": {"phase": "Pending"},
    "replicationcontrollers": {"replicas": 0},
    "replicasets": {"replicas": 0},
    "statefulsets": {"replicas": 0, "availableReplicas": 0},
    "daemonsets": {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    "poddisruptionbudgets": {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    },
}


def part(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a copy of a part of a body; an empty one if it is absent or no object."""
    value = body.get(key)
    return dict(value) if isinstance(value, Mapping) else {}


def read_data(served: Served, body: Body) -> None:
    """Read the data of ConfigMaps and Secrets: null is dropped, and Secrets must be base64, else 400. So must
    the certificates of webhooks. The times of leases must be times.
    """
    if served.table in webhooks.TABLES and body.get("webhooks"):
        body["webhooks"] = types.without_nulls(types.fields_of(served)["webhooks"], body["webhooks"])
        for hook in body["webhooks"]:
            bundle = part(hook, "clientConfig").get("caBundle")
            if bundle and (at := not_base64(bundle)) is not None:
                raise types.unhandled(served, f"illegal base64 data at input byte {at}")
    if served.table == leases.TABLE:
        leases.read(served, body)
    if served.table not in {("", "configmaps"), ("", "secrets")}:
        return
    for key in ("data", "stringData", "binaryData"):
        pairs = body.get(key)
        if not pairs:
            body.pop(key, None)  # The server stores nothing that is empty.
        elif None in pairs.values():
            body[key] = pairs = {name: "" if value is None else value for name, value in pairs.items()}
        if pairs and types.fields_of(served)[key] == "map[string][]uint8":
            for value in pairs.values():
                if (at := not_base64(value)) is not None:
                    raise types.unhandled(served, f"illegal base64 data at input byte {at}")


def not_base64(text: str) -> int | None:
    """Return the position where a text stops to be base64, as Go's decoder counts it, or None
    if it is valid.
    """
    body = text.rstrip("=")
    for at, letter in enumerate(body):
        if letter not in _BASE64:
            return at
    padded = len(text) - len(body)
    if len(text) % 4 == 0 and padded <= 2:
        return None
    return len(text) - len(text) % 4 if len(text) % 4 else len(body)


def before_create(served: Served, body: Body) -> None:
    """Convert a body into the stored object. The metadata are there, with the uid."""
    _fill_spec(served, body)
    # The kubelet writes a Node's status when it registers.
    if served.has_status and served.plural != "nodes":
        body.pop("status", None)
        if not served.custom:
            body["status"] = dict(_FIRST_STATUS.get(served.plural, {}))
    if served.table in webhooks.TABLES:
        webhooks.fill(served, body)
    if not served.custom and (special := _CREATED.get((served.group, served.plural))):
        special(body)


def before_update(served: Served, body: Body) -> None:
    _fill_spec(served, body)
    if served.table in webhooks.TABLES:
        webhooks.fill(served, body)
    if served.table == ("", "secrets"):
        _secret(body)
    elif served.table == ("", "namespaces"):
        _namespace_label(body)


def problems_of(served: Served, body: Mapping[str, Any]) -> list[StatusCause]:
    """Return the errors of a built-in object. Few rules are checked here."""
    if served.table in webhooks.TABLES:
        return webhooks.problems(body)
    if served.table == events.TABLE:
        return events.problems(served.group, body)
    if served.table == leases.TABLE:
        return leases.problems(body)
    if served.table not in {("", "configmaps"), ("", "secrets")}:
        return []
    return [
        invalid_value(f"{part_of}[{key}]", key, _CONFIG_KEY)
        for part_of in ("data", "binaryData")
        for key in part(body, part_of)
        if not key or not _KEY.issuperset(key)
    ]


def problems_of_new(served: Served, body: Mapping[str, Any]) -> list[StatusCause]:
    """Return the further errors of a built-in object that is created."""
    is_strict = served.table == events.TABLE and served.group == events.GROUP
    return events.problems_of_new(body) if is_strict else []


def problems_of_change(served: Served, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[StatusCause]:
    """Return the changes of a built-in object that are not allowed."""
    if served.table == events.TABLE and served.group == events.GROUP:
        return events.problems(served.group, new) + events.problems_of_change(old, new)
    if served.table in {("", "configmaps"), ("", "secrets")} and old.get("immutable") is True:
        return [
            forbidden(key, "field is immutable when `immutable` is set")
            for key in ("immutable", "data", "binaryData")
            if old.get(key) != new.get(key)
        ]
    if served.table == ("", "secrets") and old.get("type") != new.get("type"):
        return [invalid_value("type", new.get("type"), "field is immutable")]
    if served.table == ("", "pods") and _fixed(old) != _fixed(new):
        return [forbidden("spec", _POD_FIELDS)]
    if served.plural in {"rolebindings", "clusterrolebindings"} and old.get("roleRef") != new.get("roleRef"):
        ref = part(new, "roleRef")
        group, kind, name = (ref.get(key, "") for key in ("apiGroup", "kind", "name"))
        told = f'{{"APIGroup":"{group}","Kind":"{kind}","Name":"{name}"}}'
        return [
            {**invalid_value("roleRef", "", ""), "message": f"Invalid value: {told}: cannot change roleRef"}
        ]
    return []


def counts_up(
    served: Served, old: Mapping[str, Any], new: Mapping[str, Any], *, changed: Callable[[Any, Any], bool]
) -> bool:
    """Return True if this change increases the generation."""
    if not served.has_generation:
        return False
    if served.custom:
        aside = {"metadata", "status"} if served.has_status else {"metadata"}
        return changed(
            {key: value for key, value in old.items() if key not in aside},
            {key: value for key, value in new.items() if key not in aside},
        )
    if served.plural == "deployments" and old["metadata"].get("annotations") != new["metadata"].get(
        "annotations"
    ):
        return True
    key = (
        "template"
        if served.plural == "podtemplates"
        else "value"
        if served.plural == "priorityclasses"
        else "webhooks"
        if served.table in webhooks.TABLES
        else "spec"
    )
    return changed(old.get(key), new.get(key))


def default_policy(served: Served) -> str:
    """Return the treatment of dependents by default. Empty: the finalizers decide."""
    return "Orphan" if served.qualified in {"jobs.batch", "replicationcontrollers"} else ""


def status_of(served: Served, old: Body, new: Mapping[str, Any]) -> Body:
    """Return the stored part of a write to the subresource `status`: some kinds store more of the metadata
    than others.
    """
    body = {**old, "status": new.get("status")}
    if body["status"] is None:
        del body["status"]
    if served.custom:
        return body
    if served.plural == "pods" and "qosClass" in part(old, "status"):
        body["status"] = {"qosClass": old["status"]["qosClass"], **part(body, "status")}
    metadata = dict(new["metadata"])
    kept = {"pods": ("ownerReferences",), "deployments": ("labels",)}.get(served.plural, ())
    for key in kept:
        metadata.pop(key, None)
        if key in old["metadata"]:
            metadata[key] = old["metadata"][key]
    body["metadata"] = metadata
    return body


def _fixed(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a pod's spec that never change."""
    spec = {"terminationGracePeriodSeconds": 30, **part(pod, "spec")}
    for key in ("activeDeadlineSeconds", "tolerations"):
        spec.pop(key, None)
    for key in ("containers", "initContainers"):
        spec[key] = [
            {**item, "image": ""} if isinstance(item, Mapping) else item for item in spec.get(key) or ()
        ]
    return spec


def _fill_spec(served: Served, body: Body) -> None:
    """Show an empty spec, if the server's own types cannot omit it."""
    may_not = served.custom or served.table == ("apiextensions.k8s.io", "customresourcedefinitions")
    if not may_not and (served.has_status or served.plural in _ALWAYS_SPEC):
        body.setdefault("spec", {})


# ---- Kinds


def _namespace(body: Body) -> None:
    spec = part(body, "spec")
    finalizers = [item for item in spec.get("finalizers") or () if isinstance(item, str)]
    body["spec"] = {
        **spec,
        "finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"],
    }
    _namespace_label(body)


def _namespace_label(body: Body) -> None:
    metadata = body["metadata"]
    if "name" in metadata:
        metadata["labels"] = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": metadata["name"]}


def _node(body: Body) -> None:
    names = (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    )
    info = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": dict.fromkeys(names, "")}
    body["status"] = {**info, **part(body, "status")}


def _secret(body: Body) -> None:
    texts = body.pop("stringData", None)
    if isinstance(texts, Mapping):
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        body["data"] = {**part(body, "data"), **encoded}
    body.setdefault("type", "Opaque")


def _service(body: Body) -> None:
    body["spec"] = {"type": "ClusterIP", "sessionAffinity": "None", **part(body, "spec")}


def _job(body: Body) -> None:
    """Add the labels by which the job's pods are found to them, and to the job itself if it has none."""
    spec = part(body, "spec")
    metadata = body["metadata"]
    template = part(spec, "template")
    labelled = part(template, "metadata")
    labels = part(labelled, "labels")
    if spec.get("manualSelector") is not True:
        uid, name = metadata["uid"], metadata.get("name", "")
        labels |= {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
    body["spec"] = {**spec, "template": {**template, "metadata": {**labelled, "labels": labels}}}
    metadata.setdefault("labels", labels)


def _replication_controller(body: Body) -> None:
    if labels := part(part(part(part(body, "spec"), "template"), "metadata"), "labels"):
        body["metadata"].setdefault("labels", labels)


def _protected(by: str) -> Callable[[Body], None]:
    def protect(body: Body) -> None:
        finalizers = body["metadata"].get("finalizers", [])
        if by not in finalizers:
            body["metadata"]["finalizers"] = [*finalizers, by]

    return protect


_CREATED: Mapping[tuple[str, str], Callable[[Body], None]] = {
    ("", "namespaces"): _namespace,
    ("", "nodes"): _node,
    ("", "secrets"): _secret,
    ("", "services"): _service,
    ("", "replicationcontrollers"): _replication_controller,
    ("", "persistentvolumeclaims"): _protected("kubernetes.io/pvc-protection"),
    ("", "persistentvolumes"): _protected("kubernetes.io/pv-protection"),
    ("batch", "jobs"): _job,
}
