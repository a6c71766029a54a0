"""The default ClusterRoles and bindings of every cluster, as far as users and operators meet them. Data only.

Roles for the parts of a cluster (controllers, nodes, the scheduler) are left out: no client here is one.
"""

from __future__ import annotations

from typing import Any

from .kinds import Kinds
from .objects import Objects
from .rbac import GROUP, MASTERS

READ = "get list watch"
WRITE = "create delete deletecollection patch update"
ALL = f"{READ} {WRITE}"
# The verbs, the API groups (a dash is the core group) and the resources.
RULES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "cluster-admin": (("*", "*", "*"),),
    "system:basic-user": (
        ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
        ("create", "authentication.k8s.io", "selfsubjectreviews"),
    ),
    "system:discovery": (),
    "system:public-info-viewer": (),
    "system:auth-delegator": (
        ("create", "authentication.k8s.io", "tokenreviews"),
        ("create", "authorization.k8s.io", "subjectaccessreviews"),
    ),
    "system:aggregate-to-admin": (
        ("create", "authorization.k8s.io", "localsubjectaccessreviews"),
        (ALL, "rbac.authorization.k8s.io", "rolebindings roles"),
    ),
    "system:aggregate-to-edit": (
        (READ, "-", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
        ("impersonate", "-", "serviceaccounts"),
        (WRITE, "-", "pods pods/attach pods/exec pods/portforward pods/proxy"),
        ("create", "-", "pods/eviction"),
        (
            WRITE,
            "-",
            (
                "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale"
                " secrets serviceaccounts services services/proxy"
            ),
        ),
        ("create", "-", "serviceaccounts/token"),
        (WRITE, "- events.k8s.io", "events"),
        (
            WRITE,
            "apps",
            (
                "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale "
                "statefulsets statefulsets/scale"
            ),
        ),
        (WRITE, "autoscaling", "horizontalpodautoscalers"),
        (WRITE, "batch", "cronjobs jobs"),
        (WRITE, "policy", "poddisruptionbudgets"),
        (WRITE, "networking.k8s.io", "ingresses networkpolicies"),
        (ALL, "coordination.k8s.io", "leases"),
        (WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
    ),
    "system:aggregate-to-view": (
        (
            READ,
            "-",
            (
                "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods"
                " replicationcontrollers replicationcontrollers/scale serviceaccounts services"
                " services/status"
            ),
        ),
        (
            READ,
            "-",
            (
                "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status"
                " resourcequotas resourcequotas/status"
            ),
        ),
        (READ, "-", "namespaces"),
        (READ, "- events.k8s.io", "events"),
        (READ, "discovery.k8s.io", "endpointslices"),
        (
            READ,
            "apps",
            (
                "controllerrevisions daemonsets daemonsets/status deployments deployments/scale"
                " deployments/status replicasets replicasets/scale replicasets/status statefulsets"
                " statefulsets/scale statefulsets/status"
            ),
        ),
        (READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
        (READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
        (READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
        (READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
        (READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
    ),
}
URLS: dict[str, tuple[str, str]] = {
    "cluster-admin": ("*", "*"),
    "system:discovery": (
        "get",
        "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
    ),
    "system:public-info-viewer": ("get", "/healthz /livez /readyz /version /version/"),
}
# Each aggregates all ClusterRoles that are labelled for it, and is itself labelled for the next.
AGGREGATED = {"admin": "", "edit": "admin", "view": "edit"}
BINDINGS: dict[str, tuple[str, ...]] = {
    "cluster-admin": (MASTERS,),
    "system:basic-user": ("system:authenticated",),
    "system:discovery": ("system:authenticated",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
}


def create(objects: Objects, kinds: Kinds) -> None:
    """Create them."""
    roles, bindings = kinds.find(GROUP, "v1", "clusterroles"), kinds.find(GROUP, "v1", "clusterrolebindings")
    assert roles, "RBAC is served"
    assert bindings, "RBAC is served"
    for name in RULES:
        aggregated_to = (
            name.removeprefix("system:aggregate-to-") if name.startswith("system:aggregate-to-") else ""
        )
        objects.create(roles, "", {"metadata": _metadata(name, aggregated_to), "rules": _rules(name)})
    for name, next_one in AGGREGATED.items():
        selector = {"matchLabels": {_label(name): "true"}}
        objects.create(
            roles,
            "",
            {
                "metadata": _metadata(name, next_one),
                "aggregationRule": {"clusterRoleSelectors": [selector]},
                "rules": None,
            },
        )
    for name, groups in BINDINGS.items():
        objects.create(
            bindings,
            "",
            {
                "metadata": _metadata(name, ""),
                "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in groups],
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            },
        )


def _metadata(name: str, aggregated_to: str) -> dict[str, Any]:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    if aggregated_to:
        labels[_label(aggregated_to)] = "true"
    return {
        "name": name,
        "labels": labels,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }


def _label(role: str) -> str:
    return f"rbac.authorization.k8s.io/aggregate-to-{role}"


def _rules(name: str) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = [
        {
            "verbs": verbs.split(),
            "apiGroups": [group.strip("-") for group in groups.split()],
            "resources": resources.split(),
        }
        for verbs, groups, resources in RULES[name]
    ]
    if name in URLS:
        verbs, urls = URLS[name]
        rules.append({"verbs": verbs.split(), "nonResourceURLs": urls.split()})
    return rules
