"""The columns of kubectl's tables for the common built-in kinds. Dates become ages elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from kopf_selectcache.testing.api.kinds import Column

_Object: TypeAlias = Mapping[str, Any]

NAME = Column("Name", ".metadata.name")
AGE = Column("Age", ".metadata.creationTimestamp", "date")
CREATED_AT = Column(
    "Created At",
    ".metadata.creationTimestamp",
    "date",
    cell=lambda obj: _at(obj, "metadata", "creationTimestamp"),
)
NONE = "<none>"


def _at(obj: Any, *path: str) -> Any:
    for key in path:
        obj = obj.get(key) if isinstance(obj, Mapping) else None
    return obj


def _items(obj: _Object, *path: str) -> list[Any]:
    found = _at(obj, *path)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def _number(obj: _Object, *path: str) -> int:
    found = _at(obj, *path)
    return found if isinstance(found, int) else 0


def _pod_ready(obj: _Object) -> str:
    ready = sum(bool(status.get("ready")) for status in _items(obj, "status", "containerStatuses"))
    return f"{ready}/{len(_items(obj, 'spec', 'containers'))}"


def _pod_status(obj: _Object) -> str:
    """Return the phase, or the reason of a container that waits or has ended."""
    shown = _at(obj, "status", "reason") or _at(obj, "status", "phase") or ""
    for status in _items(obj, "status", "containerStatuses"):
        shown = (
            _at(status, "state", "waiting", "reason") or _at(status, "state", "terminated", "reason") or shown
        )
    ended = _at(obj, "status", "phase") in {"Succeeded", "Failed"}
    return "Terminating" if _at(obj, "metadata", "deletionTimestamp") and not ended else str(shown)


def _pod_restarts(obj: _Object) -> str:
    return str(sum(_number(status, "restartCount") for status in _items(obj, "status", "containerStatuses")))


def _ready_of_desired(obj: _Object) -> str:
    desired = _at(obj, "spec", "replicas")
    return f"{_number(obj, 'status', 'readyReplicas')}/{1 if desired is None else desired}"


def _replicas(*path: str) -> Column:
    names = {"replicas": "Current", "readyReplicas": "Ready"}
    return Column(names[path[-1]], "." + ".".join(path), "integer", cell=lambda obj: _number(obj, *path))


def _desired(obj: _Object) -> int:
    desired = _at(obj, "spec", "replicas")
    return desired if isinstance(desired, int) else 1


def _count(*path: str) -> Column:
    """Return the number of pairs of ConfigMaps and Secrets."""
    return Column("Data", "." + path[0], cell=lambda obj: sum(len(_at(obj, part) or ()) for part in path))


def _node_status(obj: _Object) -> str:
    ready = [
        item.get("status") for item in _items(obj, "status", "conditions") if item.get("type") == "Ready"
    ]
    status = {"True": "Ready"}.get(str(ready[0]), "NotReady") if ready else "Unknown"
    return f"{status},SchedulingDisabled" if _at(obj, "spec", "unschedulable") else status


def _node_roles(obj: _Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = _at(obj, "metadata", "labels") or {}
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or NONE


def _ports(obj: _Object) -> str:
    ports = _items(obj, "spec", "ports")
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or NONE


def _or_none(name: str, path: str, *, wide: bool = False) -> Column:
    keys = path.strip(".").split(".")
    return Column(name, path, wide=wide, cell=lambda obj: _at(obj, *keys) or NONE)


def _true_conditions(obj: _Object) -> list[Any]:
    return [item.get("type") for item in _items(obj, "status", "conditions") if item.get("status") == "True"]


def _readiness_gates(obj: _Object) -> str:
    """Return how many of the readiness conditions of a pod are true."""
    desired = [gate.get("conditionType") for gate in _items(obj, "spec", "readinessGates")]
    true = _true_conditions(obj)
    return f"{sum(kind in true for kind in desired)}/{len(desired)}" if desired else NONE


def _job_status(obj: _Object) -> str:
    if _at(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    true = _true_conditions(obj)
    status = [
        name
        for name in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")
        if name in true
    ]
    return status[0] if status else "Running"


def _completions(obj: _Object) -> str:
    desired = _at(obj, "spec", "completions")
    return f"{_number(obj, 'status', 'succeeded')}/{1 if desired is None else desired}"


def _involved(obj: _Object) -> str:
    of = _at(obj, "involvedObject") or _at(obj, "regarding") or {}
    return f"{str(of.get('kind', '')).lower()}/{of.get('name', '')}"


def _role_ref(obj: _Object) -> str:
    return f"{_at(obj, 'roleRef', 'kind')}/{_at(obj, 'roleRef', 'name')}"


_WEBHOOKS = (
    NAME,
    Column("Webhooks", ".webhooks", "integer", cell=lambda obj: len(_items(obj, "webhooks"))),
    AGE,
)
COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "configmaps": (NAME, _count("data", "binaryData"), AGE),
    "customresourcedefinitions": (NAME, CREATED_AT),
    "cronjobs": (
        NAME,
        Column("Schedule", ".spec.schedule"),
        _or_none("Timezone", ".spec.timeZone"),
        Column(
            "Suspend", ".spec.suspend", "boolean", cell=lambda obj: str(bool(_at(obj, "spec", "suspend")))
        ),
        Column("Active", ".status.active", "integer", cell=lambda obj: len(_items(obj, "status", "active"))),
        _or_none("Last Schedule", ".status.lastScheduleTime"),
        AGE,
    ),
    "clusterrolebindings": (NAME, Column("Role", ".roleRef.name", cell=_role_ref), AGE),
    "clusterroles": (NAME, CREATED_AT),
    "deployments": (
        NAME,
        Column("Ready", ".status.readyReplicas", cell=_ready_of_desired),
        Column(
            "Up-to-date",
            ".status.updatedReplicas",
            cell=lambda obj: _number(obj, "status", "updatedReplicas"),
        ),
        Column(
            "Available",
            ".status.availableReplicas",
            cell=lambda obj: _number(obj, "status", "availableReplicas"),
        ),
        AGE,
    ),
    "events": (
        Column("Last Seen", ".lastTimestamp", "date"),
        Column("Type", ".type"),
        Column("Reason", ".reason"),
        Column("Object", ".involvedObject.name", cell=_involved),
        Column("Message", ".message", cell=lambda obj: _at(obj, "message") or _at(obj, "note") or ""),
        Column("Name", ".metadata.name", wide=True),
    ),
    "jobs": (
        NAME,
        Column("Status", ".status", cell=_job_status),
        Column("Completions", ".status.succeeded", cell=_completions),
        AGE,
    ),
    "mutatingwebhookconfigurations": _WEBHOOKS,
    "validatingwebhookconfigurations": _WEBHOOKS,
    "leases": (NAME, Column("Holder", ".spec.holderIdentity"), AGE),
    "namespaces": (NAME, Column("Status", ".status.phase"), AGE),
    "nodes": (
        NAME,
        Column("Status", ".status", cell=_node_status),
        Column("Roles", ".metadata.labels", cell=_node_roles),
        AGE,
        Column("Version", ".status.nodeInfo.kubeletVersion"),
    ),
    "persistentvolumeclaims": (
        NAME,
        Column("Status", ".status.phase"),
        Column("Volume", ".spec.volumeName"),
        AGE,
    ),
    "pods": (
        NAME,
        Column("Ready", ".status.containerStatuses", cell=_pod_ready),
        Column("Status", ".status.phase", cell=_pod_status),
        Column("Restarts", ".status.containerStatuses", cell=_pod_restarts),
        AGE,
        _or_none("IP", ".status.podIP", wide=True),
        _or_none("Node", ".spec.nodeName", wide=True),
        _or_none("Nominated Node", ".status.nominatedNodeName", wide=True),
        Column("Readiness Gates", ".spec.readinessGates", wide=True, cell=_readiness_gates),
    ),
    "replicasets": (
        NAME,
        Column("Desired", ".spec.replicas", "integer", cell=_desired),
        _replicas("status", "replicas"),
        _replicas("status", "readyReplicas"),
        AGE,
    ),
    "rolebindings": (NAME, Column("Role", ".roleRef.name", cell=_role_ref), AGE),
    "roles": (NAME, CREATED_AT),
    "secrets": (NAME, Column("Type", ".type"), _count("data"), AGE),
    "services": (
        NAME,
        Column("Type", ".spec.type"),
        _or_none("Cluster-IP", ".spec.clusterIP"),
        Column(
            "External-IP",
            ".spec.externalIPs",
            cell=lambda obj: ",".join(_at(obj, "spec", "externalIPs") or ()) or NONE,
        ),
        Column("Port(s)", ".spec.ports", cell=_ports),
        AGE,
    ),
    "statefulsets": (NAME, Column("Ready", ".status.readyReplicas", cell=_ready_of_desired), AGE),
}
DEFAULT = (NAME, AGE)
