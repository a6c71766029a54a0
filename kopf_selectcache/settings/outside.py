"""Outer streams of a split cache: the metadata of all objects in the namespaces of a filter that it does not
select. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement
from kopf_selectcache.core.store.substore import Selected
from kopf_selectcache.selectors.selector import Branches, Selector, make_selector
from kopf_selectcache.selectors.text import FieldSelector, LabelSelector

MOST_NAMES = 20
"""The most names that an outer stream excludes by its selector."""

_KEYS = ("metadata.name", "metadata.namespace")
_OPPOSITES = {"=": "!=", "==": "!=", "!=": "=", "in": "notin", "notin": "in", "exists": "!", "!": "exists"}


class Outer(NamedTuple):
    """One outer stream."""

    selector: Selector
    others: tuple[Selected, ...] = ()
    """The objects that it does not store, because the filter selects them. Empty if the server excludes
    them."""


def outer_streams(filter_: Branches) -> tuple[Outer, ...]:
    """Return the outer streams of a filter, one in each of its namespaces.

    >>> [str(each.selector) for each in outer_streams(Selector('app in (web,www)', namespaces=['shop']))]
    ["label='app notin (web,www)', namespaces=['shop']"]
    """
    named = {name for each in filter_.branches for name in each.namespaces or ()}
    spaces: list[str | None] = [*sorted(named)]
    if any(branch.namespaces is None for branch in filter_.branches):
        spaces = [None]
    found = []
    for namespace in spaces:
        within = [
            each
            for each in filter_.branches
            if namespace is None or each.namespaces is None or namespace in each.namespaces
        ]
        if any(_size(each) == 0 and namespace in (each.namespaces or (namespace,)) for each in within):
            continue  # The filter selects all objects there.
        opposite = _opposite(within)
        label, field = opposite if opposite is not None else (None, None)
        selector = make_selector(label, field, None, None if namespace is None else (namespace,))
        found.append(Outer(selector, () if opposite is not None else tuple(map(_selected, within))))
    return tuple(found)


def joined_stream(filter_: Branches) -> Outer:
    """Return one outer stream for all namespaces of a filter."""
    spaces = sorted({name for each in filter_.branches for name in each.namespaces or ()})
    return Outer(make_selector(None, None, None, tuple(spaces)), tuple(map(_selected, filter_.branches)))


def require_splittable(filter_: Branches) -> None:
    """Raise DeclarationError for a filter of which metadata does not show what it selects."""
    for branch in filter_.branches:
        if branch.namespace_label is not None:
            what = f"outside='metadata' with namespaces by label: {branch.namespace_label}"
            raise DeclarationError(what, remedy="Name the namespaces")
        fields = [term.label for term in branch.terms if term.label not in _KEYS]
        if fields and (len(filter_.branches) > 1 or _size(branch) > 1):
            what = f"outside='metadata' with the field {fields[0]} beside other requirements"
            raise DeclarationError(
                f"{what}: metadata does not show it", remedy="Select by it alone, or by labels"
            )


def _size(branch: Selector) -> int:
    """Return the number of requirements, besides the namespaces."""
    return len(branch.requirements) + len(branch.terms) + (branch.names is not None)


def _opposite(within: Sequence[Selector]) -> tuple[LabelSelector | None, FieldSelector | None] | None:
    """Return the selectors of all objects that these branches do not select; None if there are none."""
    branch = within[0]
    if len(within) > 1 or _size(branch) != 1:
        return None
    if branch.names is not None:
        if len(branch.names) > MOST_NAMES:
            return None
        terms = tuple(FieldTerm("metadata.name", name, equal=False) for name in branch.names)
        return None, FieldSelector(terms)
    if branch.terms:
        (term,) = branch.terms
        return None, FieldSelector((FieldTerm(term.label, term.value, not term.equal),))
    (requirement,) = branch.requirements
    opposite = _OPPOSITES.get(requirement.operator)
    if opposite is None:
        return None
    return LabelSelector((LabelRequirement(requirement.key, opposite, requirement.values),)), None  # type: ignore[arg-type]  # Of the table.


def _selected(branch: Selector) -> Selected:
    return Selected(
        None if branch.namespaces is None else frozenset(branch.namespaces),
        None if branch.names is None else frozenset(branch.names),
        branch.requirements,
        branch.terms,
    )
