"""What reads came to, remembered beside the filter that they were compared with: an operator has a few dozen
reads, again and again.

Nothing is remembered by the process: what a cache knows goes with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.selectors.selector import AnyOf, Selector, Verdict

from .matcher import Match

Pairs: TypeAlias = tuple[tuple[str, str], ...]


class Comparisons:
    """What comparing the filter of one cache with requests came to."""

    def __init__(self, *, remembered: int = 1024) -> None:
        self.covers = lru_cache(remembered)(_covers)
        self.excludes = lru_cache(remembered)(_excludes)
        self.matches = lru_cache(remembered)(_matches)


def _covers(declared: Selector | AnyOf, request: Selector, kind: Kind | None) -> Verdict:
    """Say whether the filter covers what is asked for."""
    return declared.covers(request, kind=kind)


def _excludes(declared: Selector | AnyOf, request: Selector, kind: Kind | None) -> bool:
    """Whether nothing of what is asked for can be held, though there may be such objects."""
    return declared.disjoint(request, kind=kind) and request.contradiction(kind=kind) is None


def _matches(
    declared: Selector | AnyOf, request: Selector, resource: Resource, indexes: tuple[Indexed, ...] = ()
) -> Match:
    """Return what an object must be like to be what is asked for. `indexes` are those of paths; only fields
    need them.
    """
    return Match.of(request, None, resource, declared, indexes=indexes)


def requests(*, remembered: int = 1024) -> Callable[[str | Pairs | None, str | None], Selector]:
    """Return what makes requests of what reads usually are given: labels, as text or as pairs, and a
    namespace.
    """
    return lru_cache(remembered)(_request)


def _request(label: str | Pairs | None, namespace: str | None) -> Selector:
    return Selector(
        dict(label) if isinstance(label, tuple) else label,
        namespaces=[namespace] if namespace is not None else None,
    )
