"""Access of higher layers to the operator of a cache, to the cache of the running handler, and to the checks
of reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kopf_selectcache.informer.extensions import Extensions

from ._checks import require_stored
from .cache import Cache

__all__ = ["as_current", "current_cache", "extensions_of", "require_stored"]

current_cache: ContextVar[Cache | None] = ContextVar("selectcache_current_cache", default=None)
"""The cache of the running handler, in its threads and tasks as well."""


@contextmanager
def as_current(cache: Cache) -> Iterator[None]:
    """Have a cache be that of the running handler. Tasks that begin meanwhile keep it."""
    token = current_cache.set(cache)
    try:
        yield
    finally:
        current_cache.reset(token)


def extensions_of(cache: Cache) -> Extensions:
    """Return the objects that higher layers keep for the operator of a cache."""
    return cache._runtime.extensions  # Users of the cache do not see it.  # noqa: SLF001
