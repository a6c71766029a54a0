"""The waiting reads for sync handlers, which run in threads: each waits for the operator's loop to do the work."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .core.fields import Key
from .errors import ReadError
from .matching import Field, Label, Namespaces, Obj, Objects, SortBy, Where

if TYPE_CHECKING:
    from .cache import Cache

_T = TypeVar("_T")
_D = TypeVar("_D")


class Blocking:
    """`cache.blocking`: what is awaited in async handlers, for sync ones."""

    def __init__(self, cache: Cache, loop: asyncio.AbstractEventLoop) -> None:
        self._cache = cache
        self._loop = loop

    @overload
    def fetch(self, kind: Key, name: str, namespace: str | None = None) -> Obj: ...
    @overload
    def fetch(self, kind: Key, name: str, namespace: str | None = None, *, default: _D) -> Obj | _D: ...
    def fetch(self, kind: Key, name: str, namespace: str | None = None, **default: Any) -> Any:
        """Return one object, from the cache or else from the server: `cache.fetch` for sync handlers.

            config = cache.blocking.fetch('configmaps', name, namespace, default=None)
        """
        return self._run("fetch", lambda: self._cache.fetch(kind, name, namespace, **default))

    def fetch_list(
        self, kind: Key, *, namespace: Namespaces = None, label: Label = None, field: Field = None,
        names: Collection[str] | None = None, where: Where | None = None, sort_by: SortBy | None = None,
        limit: int | None = None,
    ) -> Objects:
        """Return objects, from the cache or else from the server: `cache.fetch_list` for sync handlers.

            secrets = cache.blocking.fetch_list('secrets', namespace=namespace, field='type=kubernetes.io/tls')
        """
        return self._run("fetch_list", lambda: self._cache.fetch_list(
            kind, namespace=namespace, label=label, field=field, names=names, where=where, sort_by=sort_by, limit=limit))

    def wait_synced(self, timeout: float | None = None) -> None:
        """Wait until each declared kind is synced: `cache.wait_synced` for sync handlers.

            cache.blocking.wait_synced(timeout=10)
        """
        self._run("wait_synced", lambda: self._cache.wait_synced(timeout))

    def wait_for(
        self, kind: Key, predicate: Callable[[Obj], object], *, namespace: Namespaces = None,
        label: Label = None, field: Field = None, timeout: float | None = None,
    ) -> Obj:
        """Wait until a held object satisfies the predicate, and return it: `cache.wait_for` for sync handlers.

            pod = cache.blocking.wait_for('pods', is_ready, namespace=namespace, label={'app': name}, timeout=60)
        """
        return self._run("wait_for", lambda: self._cache.wait_for(
            kind, predicate, namespace=namespace, label=label, field=field, timeout=timeout))

    def _run(self, method: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run the call on the operator's loop, and wait for it here."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            raise ReadError(
                f"cache.blocking.{method}() was called on the thread of the operator's event loop, "
                "and would stop it for good",
                remedy=f"Write: await cache.{method}(...)",
            )
        if not self._loop.is_running():
            raise ReadError(
                f"cache.blocking.{method}() was called while the operator's event loop does not run",
                remedy="Call it while the operator is up, such as in its handlers",
            )
        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()
