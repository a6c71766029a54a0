"""The tables that kubectl prints: the columns of common kinds, and their values for an object."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from kopf_selectcache.testing.api.kinds import Column, Served

UNKNOWN = "<unknown>"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
# Ages below these seconds are in one unit, with a smaller one in addition.
_AGES = (
    (120, "s", ""),
    (10 * 60, "m", "s"),
    (3 * 3600, "m", ""),
    (8 * 3600, "h", "m"),
    (48 * 3600, "h", ""),
    (8 * 86400, "d", "h"),
    (730 * 86400, "d", ""),
    (8 * 365 * 86400, "y", "d"),
)
_STEP = re.compile(
    r"""\.?(?:
    \[\?\(\s*@\.(?P<key>[^=\s]+)\s*==\s*(?P<quote>["'])(?P<value>.*?)(?P=quote)\s*\)\] |
    \[(?P<index>-?\d+)\] | \[(?P<all>\*)\] | \[(?P<quoted>'[^']*'|"[^"]*")\] |
    (?P<name>(?:\\.|[^.\[\]\\])+)
)""",
    re.VERBOSE,
)


def definitions(served: Served) -> list[dict[str, Any]]:
    """Return the columns. Their descriptions, which nobody prints, are left out."""
    return [
        {
            "name": column.name,
            "type": "string"
            if column.type == "date" and not served.custom and column.cell is None
            else column.type,
            "format": "name" if column.path == ".metadata.name" and column.name == "Name" else "",
            "description": "",
            "priority": int(column.wide),
        }
        for column in served.columns
    ]


def cells(served: Served, obj: Mapping[str, Any], *, now: dt.datetime) -> list[Any]:
    """Return the values in the order of the columns."""
    return [_cell(column, obj, served, now) for column in served.columns]


def _cell(column: Column, obj: Mapping[str, Any], served: Served, now: dt.datetime) -> Any:
    if column.cell is not None:
        return column.cell(obj)
    found = next(find(column.path, obj), "" if column.path == ".metadata.name" else None)
    if column.type == "date":
        if found is None and served.custom:
            return None
        return age(found, now=now)
    if served.custom:
        return _of_type(column.type, found)
    return "" if found is None else found


def _of_type(wanted: str, found: Any) -> Any:
    """Print a custom resource's value as the type of its column; empty if it is of another type."""
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if found is None:
        return None
    if wanted == "string":
        return found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))
    if wanted == "integer":
        return int(found) if number else None
    if wanted == "number":
        return found if number else None
    if wanted == "boolean":
        return found if isinstance(found, bool) else None
    return None


def find(path: str, obj: Any) -> Iterator[Any]:
    """Iterate over the values of a simple JSON path: names, indexes, `[*]`, and `[?(@.type=="Ready")]`."""
    step = _STEP.match(path)
    if path in ("", "."):
        if obj is not None:
            yield obj
    elif step is not None:
        for value in _take(step, obj):
            yield from find(path[step.end() :], value)


def _take(step: re.Match[str], obj: Any) -> Iterator[Any]:
    items = obj if isinstance(obj, list) else []
    if step["all"]:
        yield from items
    elif step["index"]:
        at = int(step["index"])
        if -len(items) <= at < len(items):
            yield items[at]
    elif step["key"]:
        yield from (
            item for item in items if step["value"] in [str(each) for each in find("." + step["key"], item)]
        )
    elif isinstance(obj, Mapping):
        name = step["quoted"][1:-1] if step["quoted"] else re.sub(r"\\(.)", r"\1", step["name"])
        if name in obj:
            yield obj[name]


def age(text: Any, *, now: dt.datetime) -> str:
    """Return an age as kubectl prints it: at most two units, one if the first is large."""
    try:
        then = dt.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return UNKNOWN
    if then.tzinfo is None:
        return UNKNOWN
    seconds = int((now - then).total_seconds())
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    unit, smaller = next(((unit, smaller) for limit, unit, smaller in _AGES if seconds < limit), ("y", ""))
    count, rest = divmod(seconds, _SECONDS[unit])
    more = rest // _SECONDS[smaller] if smaller else 0
    return f"{count}{unit}{more}{smaller}" if more else f"{count}{unit}"


# ---- The columns of common built-in kinds.

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
