"""Precedence: which of the levels at which an option may be declared decides. Pure.

The levels, the first that is not UNSET decides:

1. the kind's entry of the namespace   Cached(..., namespaces={'shop': 'tier=gold'})
2. the kind                            selectors['v1/pods'] = 'app=web'
3. the default entry of the namespace  defaults.namespaces = {'shop': 'team=a'}
4. the defaults                        defaults.labels = 'managed'

An empty value and EVERYTHING are set: both end the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kopf_selectcache.core.redact import clipped, function_name
from kopf_selectcache.selectors.special_values import UNSET, AllOthers

Place = str | AllOthers
"""A namespace, or all others."""


class Level(StrEnum):
    """The level at which a value is declared, in the order of precedence."""

    ENTRY = "the kind's entry of the namespace"
    KIND = "the kind"
    DEFAULT_ENTRY = "the default entry of the namespace"
    DEFAULTS = "the defaults"
    SETTINGS = "settings.selectcache"
    """Below the defaults: the option of the same name, which has a value always."""
    NOWHERE = "nowhere"
    """The value is UNSET."""


def first_set(values: Mapping[Level, object]) -> tuple[Any, Level]:
    """Return the value of the first level that has one, and that level.

    >>> first_set({Level.DEFAULTS: 'managed', Level.KIND: '', Level.ENTRY: UNSET})
    ('', <Level.KIND: 'the kind'>)
    >>> first_set({Level.DEFAULTS: UNSET})
    (UNSET, <Level.NOWHERE: 'nowhere'>)
    """
    for level in Level:
        if (value := values.get(level, UNSET)) is not UNSET:
            return value, level
    return UNSET, Level.NOWHERE


def written(value: object) -> str:
    """Return a value as users write it; of a function, its name alone."""
    if callable(value):
        return function_name(value)
    return repr(value) if isinstance(value, str) else str(value)


@dataclass(frozen=True, slots=True, repr=False)
class Origin:
    """The level that one value of a cache comes from.

    >>> print(Origin('labels', 'app=web', Level.KIND, ('blog', 'shop')))
    labels='app=web' in blog, shop: from the kind
    """

    option: str
    value: object
    """UNSET if no level has one."""
    level: Level
    namespaces: tuple[Place, ...] = ()
    """The namespaces that the value is for; empty for the whole cache."""

    def __str__(self) -> str:
        if self.level is Level.NOWHERE:
            return f"{self.option}={UNSET}"
        value = clipped(written(self.value), 200)
        if not self.namespaces:
            return f"{self.option}={value}: from {self.level}"
        places = clipped(", ".join(map(str, self.namespaces)), 200)
        return f"{self.option}={value} in {places}: from {self.level}"

    def __repr__(self) -> str:
        return f"<Origin {self}>"
