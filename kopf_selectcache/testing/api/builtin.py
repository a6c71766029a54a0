"""The table of built-in kinds that are served: their data from `core/selection/kinds.py`, and how each one is
written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kopf_selectcache.core.selection import kinds

from .kinds import Served
from .kubectl.tables import COLUMNS, DEFAULT

# The version of each group that is served.
_GROUPS: Mapping[str, str] = {
    "": "v1",
    "apps": "v1",
    "autoscaling": "v2",
    "batch": "v1",
    "networking.k8s.io": "v1",
    "policy": "v1",
    "rbac.authorization.k8s.io": "v1",
    "scheduling.k8s.io": "v1",
    "storage.k8s.io": "v1",
    "coordination.k8s.io": "v1",
    "events.k8s.io": "v1",
    "apiextensions.k8s.io": "v1",
    "admissionregistration.k8s.io": "v1",
}
# Of these groups, only the kinds that operators write.
_FEW: Mapping[str, frozenset[str]] = {
    "networking.k8s.io": frozenset({"ingresses", "ingressclasses", "networkpolicies"}),
    "storage.k8s.io": frozenset({"storageclasses"}),
    "admissionregistration.k8s.io": frozenset(
        {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
    ),
}
_CATEGORIES: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("customresourcedefinitions", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
    ("api-extensions",),
)
_ALL = frozenset(
    {
        "pods",
        "replicationcontrollers",
        "services",
        "daemonsets",
        "deployments",
        "replicasets",
        "statefulsets",
        "horizontalpodautoscalers",
        "cronjobs",
        "jobs",
    }
)
_STATUS = frozenset(
    {
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "services",
        "daemonsets",
        "deployments",
        "replicasets",
        "statefulsets",
        "cronjobs",
        "jobs",
        "horizontalpodautoscalers",
        "ingresses",
        "poddisruptionbudgets",
        "customresourcedefinitions",
    }
)
_GENERATION = frozenset(
    {
        "pods",
        "podtemplates",
        "replicationcontrollers",
        "daemonsets",
        "deployments",
        "replicasets",
        "statefulsets",
        "cronjobs",
        "jobs",
        "ingresses",
        "ingressclasses",
        "networkpolicies",
        "poddisruptionbudgets",
        "priorityclasses",
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    }
)
_CREATES_ON_UPDATE = frozenset(
    {
        "endpoints",
        "limitranges",
        "services",
        "events",
        "leases",
        "roles",
        "rolebindings",
        "clusterroles",
        "clusterrolebindings",
    }
)
_CONDITIONAL = frozenset(
    {
        "leases",
        "poddisruptionbudgets",
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    }
)
_SHOWS_DELETED = frozenset(
    {"pods", "podtemplates", "resourcequotas", "services", "serviceaccounts", "storageclasses"}
)


def _served() -> Iterator[Served]:
    for kind in kinds.BUILT_IN:
        version = _GROUPS.get(kind.group)
        if version not in kind.versions or (kind.group in _FEW and kind.plural not in _FEW[kind.group]):
            continue
        yield Served(
            kind.group,
            version,
            kind.plural,
            kind.kind.lower(),
            kind.kind,
            bool(kind.namespaced),
            kind,
            short_names=tuple(sorted(kind.names - {kind.kind, kind.kind.lower(), kind.plural})),
            categories=("all",) if kind.plural in _ALL else _CATEGORIES.get(kind.plural, ()),
            has_status=kind.plural in _STATUS,
            has_generation=kind.plural in _GENERATION,
            columns=COLUMNS.get(kind.plural, DEFAULT),
            table=("", "events") if kind.plural == "events" else (kind.group, kind.plural),
            creates_on_update=kind.plural in _CREATES_ON_UPDATE,
            unconditional=kind.plural not in _CONDITIONAL,
            shows_deleted=kind.plural in _SHOWS_DELETED,
        )


BUILT_IN: tuple[Served, ...] = tuple(_served())
