"""One object of a split cache: inside of the filter, outside, or absent. And the objects outside of a
filter whose namespaces come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kopf_selectcache._errors import NotSynced, ReadError
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.core.store.claims import OwnWrite
from kopf_selectcache.core.store.record import OutsideRecord, Record, is_older, rank_of
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.state import Followed, InformerState, Present, Serving
from kopf_selectcache.selectors.object_key import names_hint
from kopf_selectcache.selectors.selecting import failures, failures_outside
from kopf_selectcache.selectors.selector import Branches, Selector
from kopf_selectcache.settings.sharding import NAME_LABEL

from ._overlay import Own
from .errors import Elsewhere, Hint, NotFound, OutsideFilter, for_request
from .matcher import Comparisons, Coverage
from .request import Request


def shown_outside(
    held: Record | None, version: str, write: OwnWrite | None, own: Own | None
) -> Record | None:
    """Return the object outside that an own write, or the handler's own object, shows instead."""
    known = [own.outside] if own is not None and is_older(version, own.version) else []
    if write is not None and write.is_deletion:
        # It hides the objects that it has deleted, and no later one of their name.
        known = [each for each in known if each is not None and not write.is_newer_than(each, version)]
    elif write is not None and write.is_newer_than(held, version):
        known = [*known, write.outside]
    return max(filter(None, known), key=lambda each: rank_of(each.version), default=None)


def require_inside(
    request: Request,
    coverage: Coverage,
    comparisons: Comparisons,
    found: Record | None,
    version: str,
    hint: Hint,
) -> Record:
    """Return the located object; raise NotFound if there is none, and OutsideFilter if it is outside."""
    if found is None:
        raise NotFound(request, version, is_split=True, hint=hint)
    if failed := failures_of(comparisons, found):
        raise OutsideFilter(request, coverage, outside=found, failed=failed)
    return found


def swap_hint(get: Callable[[str, str], tuple[Record | None, str]], namespace: str, name: str) -> str:
    """Return what was meant if an object has these two swapped; else an empty text."""
    found = get(name, namespace)[0] if namespace else None
    return "" if found is None else names_hint(namespace, name)


def failures_of(comparisons: Comparisons, record: Record) -> tuple[str, ...]:
    """Return the requirement that an object of a split cache fails in each branch; none if it is inside."""
    if isinstance(record, OutsideRecord):
        return failures_outside(comparisons.filter, record)
    return failures(comparisons.filter, record, comparisons.resource, comparisons.projection) or ()


# ---- Filters whose namespaces come and go, by their labels or among replicas: what they serve, and the
# error of a read outside.


def serving_of(informer: Informer, state: InformerState) -> Serving | None:
    """Return the namespaces that a filter chooses by label; None if it chooses none."""
    if not state.followed:
        return None
    chosen = informer.chosen
    division = chosen.division if informer.declared.divided else None
    return Serving(state.followed, chosen.error_of, state.lost, chosen.watched, division)


def outside_labelled(
    request: Request, coverage: Coverage, comparisons: Comparisons, serving: Serving, hint: Hint
) -> ReadError:
    """Return the error of a read outside the filter: of another replica, or without the label."""
    names: Collection[str] | None = [request.namespace] if request.namespace else None
    region = Selector(namespaces=names)
    if request.selector is not None:
        region, names = request.selector, request.selector.namespaces
    if (elsewhere := _elsewhere(region, names, comparisons.filter, comparisons.kind, serving)) is not None:
        return OutsideFilter(request, coverage, elsewhere=elsewhere, hint=hint)
    if coverage.possible:
        return OutsideFilter(request, coverage, hint=hint)
    lacking = dict[str, None]()
    for branch in comparisons.filter.branches:
        followed = _followed_by(branch, serving)
        if followed is None:
            continue
        present = followed.present()
        as_of = f"{followed.label}, as of version {present.version}"
        gained = _own(present, serving).difference(branch.namespaces or ())
        gained = {each for each in gained if names is None or each in names}
        if gained and not branch.in_namespaces(gained).disjoint(region, kind=comparisons.kind):
            name = min(gained)
            if (error := serving.error_of(name)) is not None:
                return for_request(error, coverage.filter)
            which = f"which has the label {as_of}" if serving.division is None else "which this replica has"
            return NotSynced(
                f"the cache has not listed {request.kind_text} in the namespace {name!r} yet, {which}",
                remedy="To read later: raise kopf.TemporaryError('not synced', delay=5)",
            )
        without = [each for each in names or () if each not in present.names]
        # By the label of names, the filter itself says which namespaces it has.
        is_label = not all(each.key == NAME_LABEL for each in followed.label.requirements)
        if not followed.label.requirements:
            for each in without:
                lacking[f"as of version {present.version}, there is no namespace {each!r}"] = None
        elif is_label and names is None and not present.names:
            lacking[f"no namespace has the label {as_of}"] = None
        elif is_label and len(without) == 1:
            lacking[f"the namespace {without[0]!r} does not have the label {as_of}"] = None
        elif is_label and without:
            lacking[f"the namespaces {clipped(without, 200)} do not have the label {as_of}"] = None
    return OutsideFilter(request, coverage, lacking=" and ".join(lacking), hint=hint)


def _elsewhere(
    region: Selector, names: Collection[str] | None, filter_: Branches, kind: Kind | None, serving: Serving
) -> Elsewhere | None:
    """Return a namespace of another replica that has some of the requested objects; None if there is none."""
    division = serving.division
    if division is None:
        return None
    found = set[str]()
    for branch in filter_.branches:
        if (followed := _followed_by(branch, serving)) is not None:
            others = {
                each
                for each in followed.present().names
                if (names is None or each in names)
                and (serving.watched is None or each in serving.watched)
                and not division.serves(each)
            }
            if others and not branch.in_namespaces(others).disjoint(region, kind=kind):
                found |= others
    if not found:
        return None
    name = min(found)
    return Elsewhere(name, division.owner_of(name))


def _followed_by(branch: Selector, serving: Serving) -> Followed | None:
    return next((each for each in serving.followed if each.label == branch.namespace_label), None)


def _own(present: Present, serving: Serving) -> set[str]:
    """Return the namespaces with a label that the operator watches, and that this replica caches."""
    names = {*present.names}
    if serving.watched is not None:
        names.intersection_update(serving.watched)
    return names if serving.division is None else {*filter(serving.division.serves, names)}
