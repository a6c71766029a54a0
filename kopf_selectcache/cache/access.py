"""Access of higher layers to the operator of a cache."""

from __future__ import annotations

from kopf_selectcache.informer.extensions import Extensions

from .cache import Cache


def extensions_of(cache: Cache) -> Extensions:
    """Return the objects that higher layers keep for the operator of a cache."""
    return cache._runtime.extensions  # Users of the cache do not see it.  # noqa: SLF001
