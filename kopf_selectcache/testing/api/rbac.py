"""RBAC: evaluates Roles and bindings, and has the default ones of every cluster. It knows no tokens.

The permissions of a user are computed once and dropped whenever a Role or a binding changes. Escalation is
not checked: a user who may write Roles may grant permissions that they lack, which a real server refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import msgspec

from kopf_selectcache.core.errors import BadText
from kopf_selectcache.core.selection.grammar import parse_fields

from .history import Change, Stored
from .kinds import Kinds
from .objects import Objects
from .request import Call, User
from .selection import label_selector
from .status import Problem

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
KEPT = 10_000  # Users times namespaces: tests have few operators, and dropped entries are computed again.


class Url(NamedTuple):
    """A request for a path that is no resource: `/version`."""

    verb: str
    """The HTTP method in lower case."""
    path: str


Asked: TypeAlias = Call | Url


class Decision(NamedTuple):
    allowed: bool
    reason: str
    """The binding that allows it; or the one that cannot be followed, because its role is missing."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a Role."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @classmethod
    def of(cls, rule: Mapping[str, Any]) -> Rule:
        parts = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
        return cls(*(tuple(one for one in _list(rule.get(part)) if isinstance(one, str)) for part in parts))

    def allows(self, asked: Asked) -> bool:
        if asked.verb not in self.verbs and "*" not in self.verbs:
            return False
        if isinstance(asked, Url):
            return any(
                asked.path.startswith(url.rstrip("*")) if url.endswith("*") else asked.path == url
                for url in self.urls
            )
        resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        return (
            (asked.group in self.groups or "*" in self.groups)
            and (
                resource in self.resources
                or "*" in self.resources
                or (asked.subresource != "" and f"*/{asked.subresource}" in self.resources)
            )
            and (not self.names or asked.name in self.names)
        )


@dataclass(slots=True)
class Granted:
    """All rules of a user in one namespace, each with its binding."""

    rules: list[tuple[Rule, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def problem(self) -> str:
        """The problems of the evaluation, in one line; empty if all roles exist."""
        told = list(dict.fromkeys(self.errors))
        return f"[{', '.join(told)}]" if len(told) > 1 else "".join(told)


class Rbac:
    def __init__(self, objects: Objects, kinds: Kinds) -> None:
        self._history = objects.history
        self._kinds = kinds
        self._granted: dict[tuple[str, tuple[str, ...], str], Granted] = {}
        self._history.subscribe(self._changed)

    def allows(self, user: User, call: Call) -> bool:
        return self.decide(user, effective(call)).allowed

    def allows_url(self, user: User, verb: str, path: str) -> bool:
        return self.decide(user, Url(verb, path)).allowed

    def require(self, user: User, call: Call) -> None:
        """Raise Forbidden (403) unless the user may do this."""
        self._require(user, call)

    def require_url(self, user: User, verb: str, path: str) -> None:
        """Raise Forbidden (403) unless the user may request this path; the verb is the method
        in lower case.
        """
        self._require(user, Url(verb, path))

    def decide(self, user: User, asked: Asked) -> Decision:
        """Decide by the permissions only: the request is taken literally, as in reviews."""
        if MASTERS in user.groups:
            return Decision(True, "")
        granted = self.granted(user, "" if isinstance(asked, Url) else asked.namespace)
        for rule, source in granted.rules:
            if rule.allows(asked):
                return Decision(True, f"RBAC: allowed by {source}")
        return Decision(False, f"RBAC: {granted.problem}" if granted.errors else "")

    def granted(self, user: User, namespace: str) -> Granted:
        """Return the permissions of the user in this namespace (or in none), including those of the
        whole cluster.
        """
        key = (user.name, user.groups, namespace)
        found = self._granted.get(key)
        if found is None:
            if len(self._granted) >= KEPT:
                self._granted.clear()
            found = self._granted[key] = Granted()
            for binding in self._all("clusterrolebindings"):
                self._follow(binding, user, "", found)
            for binding in self._all("rolebindings", namespace) if namespace else ():
                self._follow(binding, user, namespace, found)
        return found

    def forget(self) -> None:
        """Compute all permissions again, after the history has been restored."""
        self._granted.clear()

    def _require(self, user: User, asked: Asked) -> None:
        asked = effective(asked)
        decision = self.decide(user, asked)
        if not decision.allowed:
            raise forbidden(user, asked, decision.reason)

    def _changed(self, change: Change) -> None:
        if change.table[0] == GROUP:
            self.forget()

    def _follow(self, binding: Mapping[str, Any], user: User, namespace: str, granted: Granted) -> None:
        subject = next(
            (one for one in _mappings(binding.get("subjects")) if _means(one, user, namespace)), None
        )
        if subject is None:
            return
        ref = _mapping(binding.get("roleRef"))
        kind, name = ref.get("kind"), str(ref.get("name", ""))
        plural = "clusterroles" if kind == "ClusterRole" else "roles"
        role = self._get(plural, "" if kind == "ClusterRole" else namespace, name)
        if role is None:
            granted.errors.append(f'{plural[:-1]}.{GROUP} "{name}" not found')
            return
        described = f'{subject["kind"]} "{subject["name"]}"'
        if subject["kind"] == "ServiceAccount":
            described = f'ServiceAccount "{subject["name"]}/{subject.get("namespace") or namespace}"'
        own = binding["metadata"]["name"]
        source = f'RoleBinding "{own}/{namespace}"' if namespace else f'ClusterRoleBinding "{own}"'
        told = f'{source} of {kind} "{name}" to {described}'
        granted.rules.extend((rule, told) for rule in self._rules(role, frozenset()))

    def _rules(self, role: Mapping[str, Any], seen: frozenset[str]) -> Iterator[Rule]:
        """Iterate over a role's rules. An aggregating role has at once those that a controller
        would write.
        """
        aggregation = _mapping(role.get("aggregationRule"))
        if not aggregation:
            yield from map(Rule.of, _mappings(role.get("rules")))
            return
        seen |= {role["metadata"]["name"]}
        selectors = [
            label_selector(selector) for selector in _mappings(aggregation.get("clusterRoleSelectors"))
        ]
        for stored in self._stored("clusterroles"):
            if stored.key[1] not in seen and any(selects(stored.labels) for selects in selectors):
                yield from self._rules(msgspec.json.decode(stored.data, type=dict[str, Any]), seen)

    def _stored(self, plural: str, namespace: str = "") -> Iterator[Stored]:
        served = self._kinds.find(GROUP, "v1", plural)
        if served is None:
            return
        for key in self._history.keys(served.table, namespace=namespace):
            stored = self._history.get(served.table, key)
            assert stored is not None, "a key that is listed is there"
            yield stored

    def _all(self, plural: str, namespace: str = "") -> Iterator[dict[str, Any]]:
        return (
            msgspec.json.decode(stored.data, type=dict[str, Any])
            for stored in self._stored(plural, namespace)
        )

    def _get(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        served = self._kinds.find(GROUP, "v1", plural)
        stored = self._history.get(served.table, (namespace, name)) if served else None
        return msgspec.json.decode(stored.data, type=dict[str, Any]) if stored else None


def effective(asked: Asked) -> Asked:
    """Return the request in the form of rights: with the name of a field selector, and for a namespace, its
    own name as the namespace.
    """
    if isinstance(asked, Url):
        return asked
    if not asked.name and asked.verb in {"list", "watch"}:
        asked = replace(asked, name=_selected_name(asked.options.get("fieldSelector") or ""))
    elif asked.resource == "namespaces" and not asked.group and asked.name and not asked.namespace:
        asked = replace(asked, namespace=asked.name)
    return asked


def forbidden(user: User, asked: Asked, reason: str = "") -> Problem:
    """Make the response 403 with the server's text; a reason is part of the message."""
    why = f": {reason}" if reason else ""
    if isinstance(asked, Url):
        said = _unhtml(f'User "{user.name}" cannot {asked.verb} path "{asked.path}"')
        return Problem(403, "Forbidden", f"forbidden: {said}{why}", details={})
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    said = _unhtml(
        f'User "{user.name}" cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {where}'
    )
    full = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    named = f'{full} "{asked.name}"' if asked.name else full
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return Problem(
        403,
        "Forbidden",
        f"{named} is forbidden: {said}{why}",
        details={key: value for key, value in details.items() if value},
    )


def _unhtml(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _selected_name(field_selector: str) -> str:
    """Return the name that a field selector requires by itself, which counts as the name in the path; or an
    empty text.
    """
    try:
        terms = parse_fields(field_selector)
    except BadText:
        return ""
    for term in terms:
        if term.label == "metadata.name" and term.equal:
            return "" if term.value in {".", ".."} or {"/", "%"} & set(term.value) else term.value
    return ""


def _means(subject: Mapping[str, Any], user: User, namespace: str) -> bool:
    match subject.get("kind"):
        case "User":
            return bool(subject.get("name") == user.name)
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            home = subject.get("namespace") or namespace
            return bool(home) and user.name == f"system:serviceaccount:{home}:{subject.get('name')}"
        case _:
            return False


# Roles and bindings are not validated as strictly as on a real server: an invalid one gives
# no permissions.


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [one for one in _list(value) if isinstance(one, dict)]


# ---- The default ClusterRoles and bindings of every cluster, as far as users and operators meet them.
# Data only.

_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_ALL = f"{_READ} {_WRITE}"
# The verbs, the API groups (a dash is the core group) and the resources.
_DEFAULT_RULES: dict[str, tuple[tuple[str, str, str], ...]] = {
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
        (_ALL, "rbac.authorization.k8s.io", "rolebindings roles"),
    ),
    "system:aggregate-to-edit": (
        (_READ, "-", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
        ("impersonate", "-", "serviceaccounts"),
        (_WRITE, "-", "pods pods/attach pods/exec pods/portforward pods/proxy"),
        ("create", "-", "pods/eviction"),
        (
            _WRITE,
            "-",
            (
                "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale"
                " secrets serviceaccounts services services/proxy"
            ),
        ),
        ("create", "-", "serviceaccounts/token"),
        (_WRITE, "- events.k8s.io", "events"),
        (
            _WRITE,
            "apps",
            (
                "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale "
                "statefulsets statefulsets/scale"
            ),
        ),
        (_WRITE, "autoscaling", "horizontalpodautoscalers"),
        (_WRITE, "batch", "cronjobs jobs"),
        (_WRITE, "policy", "poddisruptionbudgets"),
        (_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
        (_ALL, "coordination.k8s.io", "leases"),
        (_WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
    ),
    "system:aggregate-to-view": (
        (
            _READ,
            "-",
            (
                "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods"
                " replicationcontrollers replicationcontrollers/scale serviceaccounts services"
                " services/status"
            ),
        ),
        (
            _READ,
            "-",
            (
                "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status"
                " resourcequotas resourcequotas/status"
            ),
        ),
        (_READ, "-", "namespaces"),
        (_READ, "- events.k8s.io", "events"),
        (_READ, "discovery.k8s.io", "endpointslices"),
        (
            _READ,
            "apps",
            (
                "controllerrevisions daemonsets daemonsets/status deployments deployments/scale"
                " deployments/status replicasets replicasets/scale replicasets/status statefulsets"
                " statefulsets/scale statefulsets/status"
            ),
        ),
        (_READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
        (_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
        (_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
        (_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
        (_READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
    ),
}
_DEFAULT_URLS: dict[str, tuple[str, str]] = {
    "cluster-admin": ("*", "*"),
    "system:discovery": (
        "get",
        "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
    ),
    "system:public-info-viewer": ("get", "/healthz /livez /readyz /version /version/"),
}
# Each aggregates all ClusterRoles that are labelled for it, and is itself labelled for the next.
_AGGREGATED = {"admin": "", "edit": "admin", "view": "edit"}
_DEFAULT_BINDINGS: dict[str, tuple[str, ...]] = {
    "cluster-admin": (MASTERS,),
    "system:basic-user": ("system:authenticated",),
    "system:discovery": ("system:authenticated",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
}


def create_default_roles(objects: Objects, kinds: Kinds) -> None:
    """Create them."""
    roles, bindings = kinds.find(GROUP, "v1", "clusterroles"), kinds.find(GROUP, "v1", "clusterrolebindings")
    assert roles, "RBAC is served"
    assert bindings, "RBAC is served"
    for name in _DEFAULT_RULES:
        aggregated_to = (
            name.removeprefix("system:aggregate-to-") if name.startswith("system:aggregate-to-") else ""
        )
        objects.create(roles, "", {"metadata": _metadata(name, aggregated_to), "rules": _rules(name)})
    for name, next_one in _AGGREGATED.items():
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
    for name, groups in _DEFAULT_BINDINGS.items():
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
        for verbs, groups, resources in _DEFAULT_RULES[name]
    ]
    if name in _DEFAULT_URLS:
        verbs, urls = _DEFAULT_URLS[name]
        rules.append({"verbs": verbs.split(), "nonResourceURLs": urls.split()})
    return rules
