"""All objects of a split cache: those that its filter selects, and those outside of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kopf_selectcache import OutsideFilter
from kopf_selectcache.cache.reads import Reads


def on_both_sides(reads: Reads, kind: str, **options: Any) -> int:
    """Return how many objects there are, wherever they are."""
    outside, inside = reads.list_outside(kind, **options), 0
    with suppress(OutsideFilter):  # The filter selects none of them.
        inside = len(reads.list_cached(kind, **options))
    return inside + len(outside)
