"""A cache for unit tests, without a server, sockets or a running loop: objects and filters in, the same reads
out.

It is the real cache without its transport: objects are in an embedded API, the real list/watch protocol fills
real stores through the declared filters, and the verdicts are those of production. So objects that a handler
could not see in a cluster are hidden in its test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import kopf

from kopf_selectcache import Cache, SelectCacheSettings, Selector, SyncCache, settings_of
from kopf_selectcache.cache.access import as_current, for_thread
from kopf_selectcache.selectors.signatures import check_call, miscalled

from ._fake_cluster import OfflineCluster
from ._fake_objects import with_own
from ._fake_runtime import Held
from ._own_loop import running_loop

if TYPE_CHECKING:
    from kopf_selectcache.informer.informers import Runtime

_T = TypeVar("_T")
Obj = Mapping[str, Any]


class FakeCache(Cache):
    """A cache of those of the given objects that the declared selectors select.

        cache = FakeCache([pod('web-1', app='web'), pod('db-1', app='db')], {'v1/pods': 'app=web'})
        cache.get('pods', 'web-1', namespace='shop')      # the pod
        cache.get('pods', 'db-1', namespace='shop')       # OutsideFilter, as in production
        await cache.fetch('pods', 'db-1', namespace='shop')   # asks the server; here: the objects

    Instead of the selectors, give the settings that your startup handler has configured; `namespaces` are
    those of `kopf run -n`. The objects keep their uid and times. `cluster` has all
    of them, and changes them, in any thread: `cache.cluster.create(...)`, `.patch(...)`, `.delete(...)`; the
    cache follows before the call returns. Missing namespaces and definitions of custom resources are
    created.

    `own` is the handler's own object. It replaces the object of its name in the list, or is deleted if
    `deleted` is true.
    """

    @check_call(miscalled, "FakeCache")
    def __init__(
        self,
        objects: Iterable[Obj] = (),
        selectors: Mapping[Any, Any] | kopf.OperatorSettings | None = None,
        *,
        namespaces: Collection[str] | None = None,
        own: Obj | None = None,
        deleted: bool = False,
    ) -> None:
        settings = _declared(selectors)
        within = _confinement(namespaces)
        given, gone = with_own(objects, own, deleted=deleted)
        self.cluster = OfflineCluster()
        self.cluster.fill(given, settings.selectors, gone=gone)
        held = Held(settings, self.cluster, within)
        held.check()
        self.cluster.follow = held.follow_changes
        super().__init__(cast("Runtime", held))

    @property
    def blocking(self) -> SyncCache:
        """The same cache for sync handlers, and for threads: `handler(cache=fake.blocking, ...)`."""
        return _SyncCache(self)

    def as_current(self) -> AbstractContextManager[None]:
        """Have `selectcache.current()` return this cache, as in a handler.

        with cache.as_current():
            assert WebApp('web').is_ready()
        """
        return as_current(self)


class _SyncCache(SyncCache):
    """In a test there is no other thread whose loop could do the work."""

    def _run(self, method: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        if running_loop() is not None:
            return super()._run(method, call)  # It refuses, as in production.

        async def waited() -> _T:
            with for_thread():
                return await call()

        return asyncio.run(waited())


def _declared(selectors: Mapping[Any, Any] | kopf.OperatorSettings | None) -> SelectCacheSettings:
    if isinstance(selectors, kopf.OperatorSettings):
        return settings_of(selectors)
    if selectors is not None and not isinstance(selectors, Mapping):
        raise TypeError(
            "FakeCache takes the filters as a dict, such as {'v1/pods': 'app=web'}, or the operator's"
            f" settings, not a {type(selectors).__name__}"
        )
    settings = SelectCacheSettings()
    settings.selectors.update(selectors or {})
    return settings


def _confinement(namespaces: Collection[str] | None) -> tuple[str, ...] | None:
    return None if namespaces is None else Selector(namespaces=namespaces).namespaces
