"""Outer streams of a split cache: the metadata of all objects in the namespaces of a filter that it does not
select. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kopf_selectcache._errors import ConflictingSelectors, DeclarationError
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement
from kopf_selectcache.core.selection.regions import Selected
from kopf_selectcache.selectors.selector import Branches, Selector, make_selector
from kopf_selectcache.selectors.text import FieldSelector, LabelSelector

MOST_NAMES = 20
"""The most names that an outer stream excludes by its selector."""

MOST_PARTS = 20
"""The most outer streams in one namespace: there are several if the filter has fields."""

_KEYS = ("metadata.name", "metadata.namespace")
_OPPOSITES = {"=": "!=", "==": "!=", "!=": "=", "in": "notin", "notin": "in", "exists": "!", "!": "exists"}


class Outer(NamedTuple):
    """One outer stream."""

    selector: Selector
    others: tuple[Selected, ...] = ()
    """The objects that it does not store, because the filter selects them, or another outer stream has them.
    Empty if the server excludes them."""


class _Part(NamedTuple):
    """Objects that no branch of a filter selects, as far as its branches have been looked at."""

    labels: tuple[LabelRequirement, ...] = ()
    terms: tuple[FieldTerm, ...] = ()
    names: tuple[str, ...] | None = None
    failing: tuple[Selector, ...] = ()
    """The branches of which they fail a requirement that metadata shows."""


def outer_streams(filter_: Branches, *, joined: bool = False) -> tuple[Outer, ...]:
    """Return the outer streams of a filter, in each of its namespaces; or those that all namespaces share.

    >>> [str(each.selector) for each in outer_streams(Selector('app in (web,www)', namespaces=['shop']))]
    ["labels='app notin (web,www)', namespaces=['shop']"]
    """
    named = tuple(sorted({name for each in filter_.branches for name in each.namespaces or ()}))
    spaces: list[tuple[str, ...] | None] = [named] if joined else [(each,) for each in named]
    if any(branch.namespaces is None for branch in filter_.branches):
        spaces = [None]
    elif not named:
        return ()
    return tuple(each for namespaces in spaces for each in _in(namespaces, filter_))


def require_splittable(filter_: Branches) -> None:
    """Raise DeclarationError for a filter that takes too many outer streams."""
    outer_streams(filter_)


def _in(namespaces: tuple[str, ...] | None, filter_: Branches) -> Iterator[Outer]:
    """Yield the streams of the objects in these namespaces that a filter does not select.

    Such an object fails each branch: a requirement that its metadata shows, or else one of its fields, which
    the server alone sees. There is one stream for each combination of these.
    """
    within = [
        each
        for each in filter_.branches
        if namespaces is None or each.namespaces is None or not set(namespaces).isdisjoint(each.namespaces)
    ]
    parts = [_Part()]
    for branch in within:
        parts = [each for part in parts for each in _failing(part, branch, namespaces)]
        if len(parts) > MOST_PARTS:
            raise DeclarationError(
                f"outside='metadata' needs more than {MOST_PARTS} watches of metadata for a filter with"
                " these fields",
                remedy="Declare fewer alternatives with fields",
            )
    for part in parts:
        labels, terms, others = part.labels, part.terms, part.failing
        opposites = [_opposite(each, namespaces) for each in others]
        if sum(len(each.names or ()) for each in others) <= MOST_NAMES and None not in opposites:
            known = [each for each in opposites if each is not None]
            labels += tuple(requirement for requirements, _ in known for requirement in requirements)
            terms += tuple(term for _, each in known for term in each)
            others = ()
        yield Outer(
            make_selector(
                LabelSelector(tuple(dict.fromkeys(labels))) if labels else None,
                FieldSelector(tuple(dict.fromkeys(terms))) if terms else None,
                part.names,
                namespaces,
            ),
            tuple(map(_selected, others)),
        )


def _failing(part: _Part, branch: Selector, namespaces: tuple[str, ...] | None) -> Iterator[_Part]:
    """Yield the objects of a part that fail a branch, and can exist."""
    if _size(branch) > 0 or not _is_everywhere(branch, namespaces):
        yield part._replace(failing=(*part.failing, branch))
    labels, names, terms = (*part.labels, *branch.requirements), part.names, (*part.terms,)
    if branch.names is not None:
        names = tuple(each for each in branch.names if names is None or each in names)
    terms += _metadata_terms(branch)
    for term in branch.terms:
        if term.label in _KEYS:
            continue
        failed = FieldTerm(term.label, term.value, not term.equal)
        if names != () and _can_exist(labels, (*terms, failed)):
            yield part._replace(labels=labels, terms=(*terms, failed), names=names)
        terms += (term,)  # An object that fails several fields is in the stream of the first.


def _can_exist(labels: tuple[LabelRequirement, ...], terms: tuple[FieldTerm, ...]) -> bool:
    selector = make_selector(LabelSelector(labels) if labels else None, FieldSelector(terms))
    try:
        selector.require_satisfiable()
    except ConflictingSelectors:
        return False
    return True


def _metadata_terms(branch: Selector) -> tuple[FieldTerm, ...]:
    return tuple(term for term in branch.terms if term.label in _KEYS)


def _size(branch: Selector) -> int:
    """Return the number of requirements that metadata shows, besides the namespaces."""
    return len(branch.requirements) + len(_metadata_terms(branch)) + (branch.names is not None)


def _is_everywhere(branch: Selector, namespaces: tuple[str, ...] | None) -> bool:
    """Return True if a branch is confined to no namespaces, or to all of these."""
    return branch.namespaces is None or (namespaces is not None and set(namespaces) <= set(branch.namespaces))


def _opposite(
    branch: Selector, namespaces: tuple[str, ...] | None
) -> tuple[tuple[LabelRequirement, ...], tuple[FieldTerm, ...]] | None:
    """Return what selects the objects that fail a branch by their metadata; None if no selector does."""
    if _size(branch) != 1 or not _is_everywhere(branch, namespaces):
        return None
    if branch.names is not None:
        return (), tuple(FieldTerm("metadata.name", name, equal=False) for name in branch.names)
    for term in _metadata_terms(branch):
        return (), (FieldTerm(term.label, term.value, not term.equal),)
    (requirement,) = branch.requirements
    operator = _OPPOSITES.get(requirement.operator)
    if operator is None:
        return None
    return (LabelRequirement(requirement.key, operator, requirement.values),), ()  # type: ignore[arg-type]  # Of the table.


def _selected(branch: Selector) -> Selected:
    return Selected(
        None if branch.namespaces is None else frozenset(branch.namespaces),
        None if branch.names is None else frozenset(branch.names),
        branch.requirements,
        _metadata_terms(branch),
    )
