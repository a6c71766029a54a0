"""Scope: the filter of a cache, and where its values come from."""

from __future__ import annotations

from dataclasses import dataclass

from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector
from kopf_selectcache.settings.precedence import Origin


@dataclass(frozen=True, slots=True, eq=False)
class Scope(Branches):
    """The result of `cache.scope`: compares as its filter does."""

    filter: Selector | AnyOf
    origins: tuple[Origin, ...]
    """The level that each value comes from: a namespace of the kind, the kind, or the defaults."""

    @property
    def branches(self) -> tuple[Selector, ...]:
        return self.filter.branches

    def __str__(self) -> str:
        return str(self.filter)

    def __eq__(self, other: object) -> bool:
        return self.filter == (other.filter if isinstance(other, Scope) else other)

    def __hash__(self) -> int:
        return hash(self.filter)


def scope_of(informer: Informer) -> Scope:
    """Return the scope of an informer."""
    return Scope(informer.filter, informer.declared.origins_for(informer.resource))
