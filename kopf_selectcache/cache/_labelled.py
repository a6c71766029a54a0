"""Filters that choose namespaces by their labels: what they serve, and the error of a read outside."""

from __future__ import annotations

from collections.abc import Collection

from kopf_selectcache._errors import NotSynced, ReadError
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.state import InformerState, Serving
from kopf_selectcache.selectors.selector import Selector

from .errors import Hint, OutsideFilter, for_request
from .matcher import Comparisons, Coverage
from .request import Request


def serving_of(informer: Informer, state: InformerState) -> Serving | None:
    """Return the namespaces that a filter chooses by label; None if it chooses none."""
    if not state.followed:
        return None
    chosen = informer.chosen
    return Serving(state.followed, chosen.error_of, state.lost, chosen.watched)


def outside_labelled(
    request: Request, coverage: Coverage, comparisons: Comparisons, serving: Serving, hint: Hint
) -> ReadError:
    """Return the error of a read that the filter does not cover. A namespace that has gained the label is not
    synced yet; another one lacks it.
    """
    names: Collection[str] | None = [request.namespace] if request.namespace else None
    region = Selector(namespaces=names)
    if request.selector is not None:
        region, names = request.selector, request.selector.namespaces
    lacking = dict[str, None]()
    for branch in comparisons.filter.branches:
        followed = next((each for each in serving.followed if each.label == branch.namespace_label), None)
        if followed is None:
            continue
        present = followed.present()
        as_of = f"{followed.label}, as of version {present.version}"
        gained = {*present.names}.difference(branch.namespaces or ())
        gained = {each for each in gained if names is None or each in names}
        if serving.watched is not None:
            gained.intersection_update(serving.watched)
        if gained and not branch.in_namespaces(gained).disjoint(region, kind=comparisons.kind):
            name = min(gained)
            if (error := serving.error_of(name)) is not None:
                return for_request(error, coverage.filter)
            return NotSynced(
                f"the cache has not listed {request.kind_text} in the namespace {name!r} yet, which has the"
                f" label {as_of}",
                remedy="To read later: raise kopf.TemporaryError('not synced', delay=5)",
            )
        without = [each for each in names or () if each not in present.names]
        if names is None and not present.names:
            lacking[f"no namespace has the label {as_of}"] = None
        elif len(without) == 1:
            lacking[f"the namespace {without[0]!r} does not have the label {as_of}"] = None
        elif without:
            lacking[f"the namespaces {clipped(without, 200)} do not have the label {as_of}"] = None
    return OutsideFilter(request, coverage, lacking=" and ".join(lacking), hint=hint)
