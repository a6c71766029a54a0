"""`list_outside`: finds the objects of a split cache that its filter leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.settings.planner import Plan

from ._outside import failures_of
from .errors import OutsideFilter
from .matcher import Compared, Coverage, Match
from .request import Request, replace
from .snapshots import Snapshot, compare, outside_of


@dataclass(frozen=True, slots=True)
class OutsideObject:
    """An object that exists, and that the filter of a split cache does not select."""

    namespace: str | None
    """Its namespace; None for a cluster-scoped object."""
    name: str
    uid: str
    version: str
    labels: dict[str, str]
    owners: tuple[str, ...]
    """The uids of its owners."""
    wanted: tuple[str, ...]
    """The requirements that it fails, one of each branch of the filter."""


def hiding(owner: str | None, within: str | None) -> Callable[[Request, Snapshot], list[OutsideObject]]:
    """Return the function that finds objects outside, of one owner, in the namespace `within`, or of any."""

    def find(request: Request, snapshot: Snapshot) -> list[OutsideObject]:
        if within is not None and not snapshot.resource.kind.namespaced and request.selector is not None:
            request = replace(request, selector=request.selector.in_namespaces(None))
        match = replace(_match(request, snapshot), owner=owner)
        comparisons, (_, outside) = snapshot.comparisons, snapshot.sides()
        found = match.chosen(outside.values())
        return [_hidden(each, failures_of(comparisons, each)) for each in found]

    return find


def _hidden(record: Record, wanted: tuple[str, ...]) -> OutsideObject:
    return OutsideObject(
        record.namespace or None,
        record.name,
        record.uid,
        record.version,
        dict(record.labels),
        tuple(record.owners),
        wanted,
    )


def _match(request: Request, snapshot: Snapshot) -> Match:
    """Return the predicate of a request; raise OutsideFilter if some objects may be on neither side."""
    compared, plan = compare(request, snapshot), snapshot.plan
    spaces = compared.selector.namespaces
    if not compared.is_covered:
        if plan is None or not plan.is_split:
            remedy = "Declare the kind with Cached(..., outside='metadata')"
            raise OutsideFilter(request, compared.coverage, remedy=remedy)
        if not all(map(plan.proves, spaces or ("",))) or (spaces is None and not plan.is_of_all):
            raise outside_of(request, _coverage_of_sides(compared, plan, snapshot.comparisons.kind), snapshot)
    return snapshot.comparisons.match(compared.selector, under=Selector())


def _coverage_of_sides(compared: Compared, plan: Plan, kind: Kind | None) -> Coverage:
    """Return the comparison with both sides of a split cache: they have all objects of its namespaces."""
    spaces = frozenset(name for branch in plan.filter.branches for name in branch.namespaces or ())
    if not spaces:  # The filter chooses namespaces by a label, and none has it.
        return compared.coverage
    verdict = Selector(namespaces=spaces).covers(compared.selector, kind=kind)
    possible = [] if verdict.filter.disjoint(compared.selector, kind=kind) else verdict.filter.branches
    return compared.coverage._replace(verdict=verdict, possible=possible)
