"""A cache for unit tests, without a server, sockets or a running loop: objects and filters in, the same reads
out.

It is the real cache without its transport: objects are in an embedded API, the real list/watch protocol fills
real stores through the declared filters, and the verdicts are those of production. So objects that a handler
could not see in a cluster are hidden in its test.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import kopf

from kopf_selectcache._errors import for_thread, own_loop
from kopf_selectcache.cache.access import as_current
from kopf_selectcache.cache.cache import Cache, SyncCache
from kopf_selectcache.client.discovery import Kinds
from kopf_selectcache.client.fetcher import Fetcher
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.client.writer import Writer
from kopf_selectcache.core.selection.kinds import KindKey, Resource
from kopf_selectcache.errors import ReadError
from kopf_selectcache.informer.environment import Ending, Environment, Extensions, Memo, Retries
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import InformersByName, Removal, Runtime, close, withdrawn
from kopf_selectcache.informer.namespaces import Follower, NamespacesByLabel
from kopf_selectcache.informer.state import Division, Undivided
from kopf_selectcache.informer.streams import Claims
from kopf_selectcache.selectors.kind_keys import assigned, called
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.selectors.signatures import check_call, miscalled
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import SelectCacheSettings, settings_of

from ._fake_cluster import OfflineCluster
from ._fake_informer import FakeInformer, Faulty, InProcess
from ._fake_objects import with_own

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
        super().__init__(cast("Runtime", _Runtime(settings, self.cluster, within)))

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


class _Runtime:
    """The dependencies of a cache. The loop is that of the test, whichever runs now."""

    def __init__(
        self, settings: SelectCacheSettings, cluster: OfflineCluster, namespaces: tuple[str, ...] | None
    ) -> None:
        self.settings = settings
        self.division: Division = Undivided()  # One replica has all.
        self._served, faulty = InProcess(cluster), Faulty(cluster)
        self.transport = faulty
        self.ending = Ending()  # It never ends.
        self.memo = Memo()
        self.names = InformersByName(self.ending)
        self._cluster, self._namespaces, self._claims = cluster, namespaces, Claims()
        self._fakes: dict[Informer, FakeInformer] = {}
        self._followers: dict[Follower, FakeInformer] = {}
        self.namespaces = NamespacesByLabel(self._follow, self._unfollow)
        for key in settings.selectors:
            self._make(key, settings.effective(key), assigned(key))
        self.fetches = Fetcher(cast("Transport", faulty), per_second=float("inf"))
        retries = self.retries = _at_once()
        logger = logging.getLogger("kopf_selectcache")
        self.environment = Environment(
            settings, cast("Transport", faulty), logger, retries.chance, retries.clock, retries.sleep
        )
        self.extensions = Extensions(self)
        self.writer = Writer(faulty, clock=retries.clock, sleep=retries.sleep, chance=retries.chance)
        self.kinds = Kinds(self.fetches)

    @property
    def informers(self) -> Mapping[KindKey, Informer]:
        return self.names.informers

    def informer(self, key: KindKey) -> Informer:
        return self.names.informer(key)

    def declare(self, key: KindKey, cached: Cached) -> Informer:
        """List and watch a kind; raise the state that its cache would be in if that fails."""
        return self._make(key, cached, called(key))

    def _make(self, key: KindKey, cached: Cached, line: str) -> Informer:
        try:
            fake = FakeInformer(
                key,
                cached,
                self.settings,
                self._served,
                namespaces=self._namespaces,
                claims=self._claims,
                resolved=self.names.forget,
                line=line,
                followed=self.namespaces,
            )
        except Exception:
            self._claims.release(key)
            raise
        self._fakes[fake.informer] = fake
        self.names.add(key, fake.informer)
        self._cluster.follow(fake.follow)
        return fake.informer

    def _follow(self, label: LabelSelector) -> Follower:
        declared = Cached(Selector(label))
        fake = FakeInformer(
            "v1/namespaces",
            declared,
            self.settings,
            self._served,
            namespaces=None,
            claims=Claims(),
            resolved=lambda: None,
            line=f"namespaces={label!r}",
            deliver=lambda listener: listener,
        )
        self._followers[fake.informer] = fake
        self._cluster.follow(fake.follow, is_first=True)
        return fake.informer

    def _unfollow(self, follower: Follower) -> None:
        self._cluster.unfollow(self._followers.pop(follower).follow)

    def namespaces_for(self, *_: object) -> tuple[str, ...] | None:
        """Return the namespaces of filters that name none."""
        return self._namespaces

    async def change(self, _: KindKey, informer: Informer, cached: Cached, *, timeout: float) -> None:  # noqa: ASYNC109  # As that of Runtime.
        """Change what is declared of a kind."""
        await self._fakes[informer].change(cached, timeout=timeout, within=self._prepared(informer, cached))
        self._fakes[informer].follow()
        informer.wake_readers()

    @asynccontextmanager
    async def _prepared(self, informer: Informer, cached: Cached) -> AsyncIterator[None]:
        async with self.namespaces.known(cached.chosen_filter, timeout=None):
            try:
                yield
            finally:
                informer.chosen.use(informer.declared.chosen_filter)

    async def remove(self, informer: Informer, place: str) -> None:
        removal = Removal.now(self.names.key_of(informer), informer, place, datetime.now(UTC))
        self._end(informer, removal.error, removal)

    async def withdraw(self, informer: Informer) -> None:
        key = self.names.key_of(informer)
        self._end(informer, lambda: withdrawn(key))

    def _end(
        self, informer: Informer, error: Callable[[], ReadError], removal: Removal | None = None
    ) -> None:
        self._claims.release(self.names.key_of(informer))
        self.names.discard(informer, removal)
        close(informer, error)
        self._cluster.unfollow(self._fakes.pop(informer).follow)
        informer.chosen.end()
        informer.swapper.drop()

    async def resolve(self, key: KindKey) -> Resource:
        return await self.kinds.resolve(key)

    async def wait_started(self, _: str) -> _Runtime:
        """Return it at once: all that a read needs exists."""
        return self

    @staticmethod
    def now() -> datetime:
        return datetime.now(UTC)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """No loop runs in a sync test; that differs from being called on the loop."""
        return own_loop() or cast("asyncio.AbstractEventLoop", self)

    @staticmethod
    def is_running() -> bool:
        return False

    def call_soon_threadsafe(self, _: Callable[[], object]) -> None:
        """Do nothing: without a loop, a recorder writes no Events."""


def _at_once() -> Retries:
    """Return retries that do not wait: their clock advances by the requested sleep."""
    slept = [0.0]

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    return Retries(clock=lambda: sum(slept), sleep=sleep, chance=lambda: 0.5)


class _SyncCache(SyncCache):
    """In a test there is no other thread whose loop could do the work."""

    def _run(self, method: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        if own_loop() is not None:
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
