"""Special values of selectors and options: UNSET, EVERYTHING and ALL_OTHERS. Each has a type of its own, so
that none is confused with an empty text, list or dict.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement


class _Named(Enum):
    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


class Unset(_Named):
    """The type of `UNSET`: nothing is assigned, so that the next level decides."""

    UNSET = "unset"


class Everything(_Named):
    """The type of `EVERYTHING`: no restriction, in spite of the next levels. It is a label selector and a
    field selector without requirements.
    """

    EVERYTHING = "everything"

    @property
    def requirements(self) -> tuple[LabelRequirement, ...]:
        return ()

    @property
    def terms(self) -> tuple[FieldTerm, ...]:
        return ()


class AllOthers(_Named):
    """The type of `ALL_OTHERS`: every namespace without an entry of its own."""

    ALL_OTHERS = "all others"


UNSET: Final = Unset.UNSET
"""No value: the next level decides."""

EVERYTHING: Final = Everything.EVERYTHING
"""No restriction, in spite of the defaults: of a selector, of `namespaces` and of `keep`."""

ALL_OTHERS: Final = AllOthers.ALL_OTHERS
"""In `namespaces`: every namespace without an entry of its own."""
