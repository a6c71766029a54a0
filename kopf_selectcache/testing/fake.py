"""A cache for unit tests, without a server, sockets or a running loop: objects and filters in, the same reads
out.

It is the real cache without its transport: objects are in an embedded API, the real list/watch protocol fills
real stores through the declared filters, and the verdicts are those of production. So objects that a handler
could not see in a cluster are hidden in its test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, TypeVar, cast

import kopf

from kopf_selectcache.cache.blocking import ThreadReads
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.request import running_loop
from kopf_selectcache.client.fetcher import Fetcher
from kopf_selectcache.client.resolving import Kinds
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.client.writer import Writer
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.informer.claims import Claims
from kopf_selectcache.informer.ending import Ending
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.memo import Memo
from kopf_selectcache.informer.names import InformersByName
from kopf_selectcache.informer.retries import Retries
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.selectors.signatures import check_call
from kopf_selectcache.settings.options import SelectCacheSettings, settings_of
from kopf_selectcache.testing._fake_cluster import OfflineCluster
from kopf_selectcache.testing._fake_informer import FakeInformer, InProcess, OfReads
from kopf_selectcache.testing._fake_objects import with_own

_T = TypeVar("_T")
Obj = Mapping[str, Any]


def _miscalled(what: str, *, remedy: str) -> TypeError:
    return TypeError(f"{what}. {remedy}")


class FakeCache(Cache):
    """A cache of those of the given objects that the declared selectors select.

        cache = FakeCache([pod('web-1', app='web'), pod('db-1', app='db')], {'v1/pods': 'app=web'})
        cache.get('pods', 'web-1', 'shop')      # the pod
        cache.get('pods', 'db-1', 'shop')       # OutsideFilter, as in production
        await cache.fetch('pods', 'db-1', 'shop')   # asks the server; here: the objects

    Instead of the selectors, give the settings that your startup handler has configured; `namespaces` are
    those of `kopf run -n`. The objects keep their uid and times. `cluster` has all
    of them, and changes them, in any thread: `cache.cluster.create(...)`, `.patch(...)`, `.delete(...)`; the
    cache follows before the call returns. Missing namespaces and definitions of custom resources are
    created.

    `own` is the handler's own object. It replaces the object of its name in the list, or is deleted if
    `deleted` is true.
    """

    @check_call(_miscalled, "FakeCache")
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
        super().__init__(cast("Runtime", _Runtime(settings, self.cluster, within)), thread_reads=_ThreadReads)


class _Runtime:
    """The dependencies of a cache. The loop is that of the test, whichever runs now."""

    def __init__(
        self, settings: SelectCacheSettings, cluster: OfflineCluster, namespaces: tuple[str, ...] | None
    ) -> None:
        self.settings = settings
        self.transport = InProcess(cluster)
        self.ending = Ending()  # It never ends.
        self.memo = Memo()
        claims = Claims()
        self.informers: dict[KindKey, Informer] = {}
        self.names = InformersByName(self.informers, self.ending)
        fakes = [
            FakeInformer(
                key,
                settings.selectors.cached(key),
                settings,
                self.transport,
                namespaces=namespaces,
                claims=claims,
                resolved=self.names.forget,
            )
            for key in settings.selectors
        ]
        self.informers.update(zip(settings.selectors, (each.informer for each in fakes), strict=True))
        for fake in fakes:
            cluster.follow(fake.follow)
        self.fetches = Fetcher(cast("Transport", OfReads(cluster)), per_second=float("inf"))
        self.retries = _at_once()
        self.writer = Writer(
            OfReads(cluster), clock=self.retries.clock, sleep=self.retries.sleep, chance=self.retries.chance
        )
        self.kinds = Kinds(self.fetches)

    @property
    def quick(self) -> dict[KindKey, Informer]:
        return self.names.quick

    def informer(self, key: KindKey) -> Informer:
        return self.names.informer(key)

    async def resolve(self, key: KindKey) -> Resource:
        return await self.kinds.resolve(key)

    async def wait_started(self) -> None:
        """Return at once: all that a read needs exists."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """No loop runs in a sync test; that differs from being called on the loop."""
        return running_loop() or cast("asyncio.AbstractEventLoop", self)


def _at_once() -> Retries:
    """Return retries that do not wait: their clock advances by the requested sleep."""
    slept = [0.0]

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    return Retries(clock=lambda: sum(slept), sleep=sleep, chance=lambda: 0.5)


class _ThreadReads(ThreadReads):
    """In a test there is no other thread whose loop could do the work."""

    def _run(self, method: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        if running_loop() is not None:
            return super()._run(method, call)  # It refuses, as in production.

        async def waited() -> _T:
            return await call()

        return asyncio.run(waited())


def _declared(selectors: Mapping[Any, Any] | kopf.OperatorSettings | None) -> SelectCacheSettings:
    if isinstance(selectors, kopf.OperatorSettings):
        return settings_of(selectors)
    if selectors is not None and not isinstance(selectors, Mapping):
        raise TypeError(
            "FakeCache takes the filters as a dict, such as {'v1/pods': 'app=web'}, or the operator's"
            f" settings, and was given a {type(selectors).__name__}"
        )
    settings = SelectCacheSettings()
    settings.selectors.update(selectors or {})
    return settings


def _confinement(namespaces: Collection[str] | None) -> tuple[str, ...] | None:
    return None if namespaces is None else Selector(namespaces=namespaces).namespaces
