"""Division: which kinds have divided caches, where several replicas share the work, and the filter of such a
cache. Pure.

A divided cache has the namespaces of its replica, and only those. A whole one has all that its filter
selects, in each replica.
"""

from __future__ import annotations

from typing import NamedTuple

from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.core.selection.grammar import LabelRequirement
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector, make_selector
from kopf_selectcache.selectors.text import FieldSelector, LabelSelector

EVERY_NAMESPACE = LabelSelector(())
"""Selects all namespaces: those of a divided cache come and go, as if they had a label."""

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that Kubernetes puts on each namespace: its name."""

_NAMESPACE = "metadata.namespace"


class Uses(NamedTuple):
    """The users of a kind, in words such as `reconciler 'deploy' watches them`. Empty if there are none."""

    handled: str = ""
    """The handlers of it that run for the keys of their replica only."""
    watched: str = ""
    """The reconcilers of other kinds that it calls: theirs may be in any namespace."""
    admission: str = ""
    """The admission handlers that read it: each replica answers for all namespaces."""


class Decision(NamedTuple):
    """Says if the cache of a kind is divided, and why."""

    is_divided: bool
    why: str
    """The reason, as the rest of a sentence: `divided: reconciler 'deploy' handles them`."""

    def __str__(self) -> str:
        return f"{'divided' if self.is_divided else 'whole'}: {self.why}"


def decide(kind: Kind | None, uses: Uses, *, by: str = "namespace", sharded: bool | None = None) -> Decision:
    """Return whether replicas that divide the work `by` a unit divide the cache of a kind; None for one that
    the cluster has not named yet. Raise DeclarationError for `sharded=True` if they can't.

    >>> print(decide(None, Uses(handled="reconciler 'deploy' handles them")))
    divided: reconciler 'deploy' handles them
    >>> print(decide(None, Uses()))
    whole: they are only read, and reads may be of any namespace
    """
    if kind is not None and kind.namespaced is False:
        return Decision(False, "they are cluster-scoped")
    if by != "namespace" and sharded:
        raise DeclarationError(
            f"Cached(sharded=True): replicas that divide the work by {by} have whole caches",
            remedy="Leave sharded= out\nOr divide the work by namespace: Sharding(by='namespace')",
        )
    if by != "namespace":
        return Decision(False, f"replicas divide the work by {by}, and caches only by namespace")
    if sharded is not None:
        return Decision(sharded, f"declared with sharded={sharded}")
    for use in (uses.watched, uses.admission):
        if use:
            return Decision(False, use)
    if uses.handled:
        return Decision(True, uses.handled)
    return Decision(False, "they are only read, and reads may be of any namespace")


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
