"""Access of higher layers to the operator of a cache, to the cache of the running handler, and to checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar, cast

from kopf_selectcache._errors import WRITTEN, for_thread
from kopf_selectcache.informer.environment import Extensions

from ._checks import require_stored
from .cache import AnyCache, Cache, CallbackCache, SyncCache

__all__ = [
    "as_current",
    "current_cache",
    "extensions_of",
    "for_thread",
    "in_callback",
    "of_class",
    "require_stored",
]

_C = TypeVar("_C", bound=AnyCache)

current_cache: ContextVar[AnyCache | None] = ContextVar("selectcache_current_cache", default=None)
"""The cache of the running handler, in its threads and tasks as well."""


@contextmanager
def as_current(cache: AnyCache) -> Iterator[None]:
    """Have a cache be that of the running handler. Tasks that begin meanwhile keep it."""
    calls = WRITTEN.set(getattr(cache, "_calls", ""))  # Tests may give an object of their own.
    token = current_cache.set(cache)
    try:
        yield
    finally:
        current_cache.reset(token)
        WRITTEN.reset(calls)


def of_class(cache: AnyCache, wanted: type[_C]) -> _C:
    """Return a cache as one of a class: for async code, or for threads."""
    if isinstance(cache, wanted):
        return cache
    other = cache.blocking if isinstance(cache, Cache) else getattr(cache, "_awaited", None)
    return cast("_C", other)


def in_callback(cache: AnyCache) -> SyncCache:
    """Return a cache for a function that runs on the event loop, and that nobody awaits."""
    return CallbackCache(of_class(cache, Cache))


def extensions_of(cache: AnyCache) -> Extensions:
    """Return the objects that higher layers keep for the operator of a cache."""
    return cache._runtime.extensions  # Users of the cache do not see it.  # noqa: SLF001
