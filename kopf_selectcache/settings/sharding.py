"""Sharding: how several replicas of an operator divide its work, and which kinds have divided caches. What
isn't given is found in the pod.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.core.redact import shown
from kopf_selectcache.core.selection.grammar import LabelRequirement
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector, make_selector
from kopf_selectcache.selectors.text import FieldSelector, LabelSelector

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_SUFFIX = re.compile(r"-[a-z0-9]{6,10}-[a-z0-9]{5}$|-[0-9]+$")
"""The end of a pod's name that its Deployment or StatefulSet has added."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """Several replicas of the operator divide its work: `settings.selectcache.sharding = Sharding()`.

    Each object is handled by one replica. Give the pod its name: the environment variable `POD_NAME`, from
    the field `metadata.name` of the downward API.
    """

    name: str = ""
    """The name of the operator, which keeps two operators in one namespace apart. By default that of the
    Deployment or StatefulSet, as in the name of the pod."""
    by: Literal["namespace", "object"] = "namespace"
    """The unit of division: a replica handles whole namespaces, or single objects. Objects of cluster-scoped
    kinds are always divided by their names. Caches are divided by namespace only."""
    namespace: str = ""
    """The namespace of the Leases and the ConfigMap by which replicas agree. By default that of the pod."""
    lease: float = 40.0
    """The seconds after which a replica counts as dead that doesn't renew its Lease. It renews it four times
    as often."""
    pod: str = ""
    """The name of this replica. By default the environment variable `POD_NAME`."""
    static: tuple[int, int] | None = None
    """The number of this replica, from 0 on, and of all: ranges never move then, and no Leases are needed."""
    ready_port: int | None = None
    """The port at which the replica says by HTTP whether it is ready, for the kubelet."""

    def __post_init__(self) -> None:
        if wrong := _complaint(self):
            raise DeclarationError(f"Sharding({wrong[0]}", remedy=wrong[1])

    def found(self, environ: Mapping[str, str] | None = None, file: Path | None = None) -> Sharding:
        """Return it with what the pod says, in its environment; raise DeclarationError without it."""
        if self.static is not None:
            return self
        environ, file = os.environ if environ is None else environ, file or _NAMESPACE_FILE
        pod = self.pod or environ.get("POD_NAME", "")
        if not pod:
            raise DeclarationError(
                "sharding needs the name of the pod, and POD_NAME isn't set",
                remedy="In the Deployment, set the variable POD_NAME from fieldRef: metadata.name\n"
                "On your own machine: export POD_NAME=web-1, and another number for each replica",
            )
        name = self.name or (_SUFFIX.sub("", pod) if _SUFFIX.search(pod) else "")
        if not name:
            raise DeclarationError(
                f"sharding can't find the name of the operator in that of the pod, {shown(pod)}",
                remedy="Give it, the same for all replicas: Sharding(name='webapps')",
            )
        if not _NAME.fullmatch(name):
            raise DeclarationError(
                f"sharding can't use {shown(name)} as the name of the operator",
                remedy="Give one of at most 63 letters, digits and dashes: Sharding(name='webapps')",
            )
        namespace = self.namespace or (file.read_text("utf-8").strip() if file.exists() else "")
        if not namespace:
            raise DeclarationError(
                "sharding needs a namespace for its Leases, and this process runs in no pod",
                remedy="Give it: Sharding(namespace='operators')",
            )
        return replace(self, name=name, namespace=namespace, pod=pod)


def _complaint(given: Sharding) -> tuple[str, str] | None:
    """Return what is wrong, as the rest of a call, and the remedy."""
    if given.by not in ("namespace", "object"):
        return f"by={shown(given.by)}): not a unit of division", "Give by='namespace' or by='object'"
    if not isinstance(given.lease, (int, float)) or not 4.0 <= given.lease <= 600.0:
        remedy = "Give 4 to 600, or leave lease= out: it is 40"
        return f"lease={shown(given.lease)}): not a number of seconds from 4 to 600", remedy
    if given.static is not None:
        fits = (
            isinstance(given.static, tuple)
            and len(given.static) == 2
            and all(type(each) is int for each in given.static)
            and 0 <= given.static[0] < given.static[1]
        )
        if not fits:
            remedy = "Give the number of this replica and of all: static=(0, 3)"
            return (
                f"static={shown(given.static)}): not the number of a replica, from 0 on, and of all",
                remedy,
            )
    port = given.ready_port
    if port is not None and (type(port) is not int or not 1 <= port <= 65535):
        return f"ready_port={shown(port)}): not the number of a port", "Give one such as 8081"
    for name in ("name", "namespace", "pod"):
        value = getattr(given, name)
        if not isinstance(value, str) or (value and not _NAME.fullmatch(value)):
            return f"{name}={shown(value)}): not a name", "Use at most 63 letters, digits and dashes"
    return None


# ---- Division: which kinds have divided caches, where several replicas share the work, and the filter of
# such a cache. Pure.

EVERY_NAMESPACE = LabelSelector(())
"""Selects all namespaces: those of a divided cache come and go, as if they had a label."""

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that Kubernetes puts on each namespace: its name."""

_NAMESPACE = "metadata.namespace"


class KindUsers(NamedTuple):
    """The users of a kind, in words such as `reconciler 'deploy' watches them`. Empty if there are none."""

    handled: str = ""
    """The handlers of it that run for the keys of their replica only."""
    watched: str = ""
    """The reconcilers of other kinds that it calls: theirs may be in any namespace."""
    admission: str = ""
    """The admission handlers that read it: each replica answers for all namespaces."""


class KindDivision(NamedTuple):
    """Says if the cache of a kind is divided, and why."""

    is_divided: bool
    why: str
    """The reason, as the rest of a sentence: `divided: reconciler 'deploy' handles them`."""

    def __str__(self) -> str:
        return f"{'divided' if self.is_divided else 'whole'}: {self.why}"


def decide(
    kind: Kind | None, uses: KindUsers, *, by: str = "namespace", sharded: bool | None = None
) -> KindDivision:
    """Return whether replicas that divide the work `by` a unit divide the cache of a kind; None for one that
    the cluster has not named yet. Raise DeclarationError for `sharded=True` if they can't.

    >>> print(decide(None, KindUsers(handled="reconciler 'deploy' handles them")))
    divided: reconciler 'deploy' handles them
    >>> print(decide(None, KindUsers()))
    whole: they are only read, and reads may be of any namespace
    """
    if kind is not None and kind.namespaced is False:
        return KindDivision(False, "they are cluster-scoped")
    if by != "namespace" and sharded:
        raise DeclarationError(
            f"Cached(sharded=True): replicas that divide the work by {by} have whole caches",
            remedy="Leave sharded= out\nOr divide the work by namespace: Sharding(by='namespace')",
        )
    if by != "namespace":
        return KindDivision(False, f"replicas divide the work by {by}, and caches only by namespace")
    if sharded is not None:
        return KindDivision(sharded, f"declared with sharded={sharded}")
    for use in (uses.watched, uses.admission):
        if use:
            return KindDivision(False, use)
    if uses.handled:
        return KindDivision(True, uses.handled)
    return KindDivision(False, "they are only read, and reads may be of any namespace")


def in_own_namespaces(declared: Branches) -> Selector | AnyOf:
    """Return a filter that chooses all of its namespaces by labels, so that they can come and go.

    >>> in_own_namespaces(Selector('app=web', namespaces=['shop'])).namespace_label
    LabelSelector.parse('kubernetes.io/metadata.name in (shop)')
    """
    branches = [_by_label(branch) for branch in declared.branches]
    return branches[0] if len(branches) == 1 else AnyOf(branches)


def _by_label(branch: Selector) -> Selector:
    label = EVERY_NAMESPACE if branch.namespace_label is None else branch.namespace_label
    requirements = [*label.requirements]
    if branch.namespaces is not None:
        requirements.append(LabelRequirement(NAME_LABEL, "in", branch.namespaces))
    # The field of a namespace, and the label that has its name, select the same.
    requirements += [
        LabelRequirement(NAME_LABEL, "in" if term.equal else "notin", (term.value,))
        for term in branch.terms
        if term.label == _NAMESPACE
    ]
    fields = branch.fields
    if any(term.label == _NAMESPACE for term in branch.terms):
        terms = tuple(term for term in branch.terms if term.label != _NAMESPACE)
        fields = FieldSelector(terms) if terms else None
    by_label = LabelSelector(tuple(requirements))
    return make_selector(branch.labels, fields, branch.names, None, by_label)
