"""The table of built-in kinds, and what kubectl prints of them."""

from typing import Any

from kopf_selectcache.testing.api.kubectl.tables import COLUMNS
from tests.rows import each_row

from .writing import Store

STORE = Store()


@each_row(
    ("kind", "singular", "short", "namespaced"),
    [
        ("pods", "pod", ("po",), True),
        ("namespaces", "namespace", ("ns",), False),
        ("endpoints", "endpoints", ("ep",), True),
        ("jobs.batch", "job", (), True),
        (
            "customresourcedefinitions.apiextensions.k8s.io",
            "customresourcedefinition",
            ("crd", "crds"),
            False,
        ),
    ],
)
def test_kinds_are_served_under_their_names(
    kind: str, singular: str, short: tuple[str, ...], *, namespaced: bool
) -> None:
    served = STORE.kind(kind)
    assert (served.singular, served.short_names, served.namespaced) == (singular, short, namespaced)


def test_both_groups_of_events_share_one_table() -> None:
    assert STORE.kind("events").table == STORE.kind("events.events.k8s.io").table
    tables = [served.table for served in STORE.kinds]
    assert len(tables) == len(set(tables)) + 1


def cells(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    """The computed columns of an object, by name."""
    return {column.name: column.cell(obj) for column in COLUMNS[kind] if column.cell is not None}


@each_row(
    ("kind", "obj", "expected"),
    [
        (
            "pods",
            {
                "spec": {"containers": [{}, {}], "nodeName": "n"},
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        {"ready": True, "restartCount": 2},
                        {"restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                    ],
                },
            },
            {
                "Ready": "1/2",
                "Status": "CrashLoopBackOff",
                "Restarts": "3",
                "IP": "<none>",
                "Node": "n",
                "Nominated Node": "<none>",
                "Readiness Gates": "<none>",
            },
        ),
        (
            "pods",
            {
                "spec": {
                    "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}],
                    "containers": [{}],
                },
                "status": {
                    "phase": "Pending",
                    "nominatedNodeName": "n",
                    "conditions": [{"type": "a", "status": "True"}],
                },
            },
            {
                "Ready": "0/1",
                "Status": "Pending",
                "Restarts": "0",
                "IP": "<none>",
                "Node": "<none>",
                "Nominated Node": "n",
                "Readiness Gates": "1/2",
            },
        ),
        ("configmaps", {"data": {"a": "b"}, "binaryData": {"c": "d"}}, {"Data": 2}),
        ("secrets", {}, {"Data": 0}),
        (
            "deployments",
            {"spec": {"replicas": 3}, "status": {"readyReplicas": 1}},
            {"Ready": "1/3", "Up-to-date": 0, "Available": 0},
        ),
        (
            "jobs",
            {"status": {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}},
            {"Status": "Complete", "Completions": "1/1"},
        ),
        (
            "nodes",
            {
                "metadata": {"labels": {"node-role.kubernetes.io/worker": ""}},
                "spec": {"unschedulable": True},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
            {"Status": "Ready,SchedulingDisabled", "Roles": "worker"},
        ),
        (
            "services",
            {"spec": {"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}},
            {"Cluster-IP": "<none>", "External-IP": "<none>", "Port(s)": "80/TCP,53/UDP"},
        ),
        (
            "events",
            {"involvedObject": {"kind": "Pod", "name": "x"}, "message": "m"},
            {"Object": "pod/x", "Message": "m"},
        ),
    ],
)
def test_columns_of_common_kinds_are_those_of_kubectl(
    kind: str, obj: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert cells(kind, obj) == expected
