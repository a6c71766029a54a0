"""`Cache`: the reads that handlers call. Each is served from one snapshot, or raises a `ReadError`:
`OutsideFilter` if the filter does not cover the request, `NotFound` only if absence is proved.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, overload

from kopf_selectcache._errors import IN_CALLBACK, IN_SYNC_HANDLER, ReadError, require
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.index_spec import Function
from kopf_selectcache.core.store.projection import Path
from kopf_selectcache.informer.audit import Audit
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.kind_keys import AnyKey, AnyName
from kopf_selectcache.settings.declaration import Declared

from . import _server_reads, changes, declaring, introspection, own_writes
from .blocking import Threaded, ThreadWaits, awaited, in_thread, run_in_thread
from .declaring import ChangePlan, DeclareOptions, plan, records_call_site
from .formats.formats import RAISE, As, AsView, C, Else, Made
from .formats.views import BodyView, Objects
from .introspection import Explanation, Info, info_of
from .live import Live, SyncLive
from .matcher import (
    ChangesOptions,
    Explained,
    Fetch,
    FetchOptions,
    FetchSelection,
    GoneOptions,
    Name,
    Obj,
    Predicate,
    WaitOptions,
)
from .misuse import explain_call
from .reads import PinnedReads, Reads
from .request import Request, with_options
from .snapshots import Access, informer_of
from .why import Why
from .why import why as explain_standing

_T = TypeVar("_T")


class AnyCache(Reads):
    """All that never waits, in `Cache` and `SyncCache`. It is safe in any thread."""

    _calls = ""
    """The way in which remedies write its awaited calls; empty if that depends on the place."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        own: Mapping[str, Any] | None = None,
        deleted: bool = False,
        departed: str | None = None,
        waits: ThreadWaits | None = None,
    ) -> None:
        # `own` is the body that the handler was called with: reads show that object at least as new.
        # `deleted` is True if it was called with a deletion. `departed` is the uid of an object that may be
        # gone although it is cached. `waits` are those of the handler's threads, so that they can be ended.
        self._runtime = runtime
        self._access = Access(
            runtime, own, (waits if waits is not None else ThreadWaits()).run, deleted=deleted
        )
        self._departed = departed
        self._waits = waits
        self._place = ""  # The file and line of a call, see `declaring.records_call_site`.

    # ---- Own writes.

    @explain_call
    def remember(self, obj: object) -> None:
        """Show an object as another client has just received it, in all reads, until the watch has passed it.

            cache.remember(api.create_namespaced_config_map(namespace, config))

        An object that the filter does not select is not shown, one of a kind without a cache is ignored. A
        cache remembers up to 10,000 own writes that the watch has not reported, or 64 MiB of them.
        """
        own_writes.remember(self._runtime, "cache.remember()", obj)

    @explain_call
    def forget(self, obj: object) -> None:
        """Hide an object, by its uid, that another client of this operator has just deleted.

            api.delete_namespaced_config_map(name, namespace)
            cache.forget(config)

        Call it only if the object is gone: one that waits for finalizers still exists.
        """
        own_writes.remember(self._runtime, "cache.forget()", obj, deleted=True)

    # ---- The cache itself.

    @explain_call
    def info(self, kind: AnyKey) -> Info:
        """Return the present filter and where its values come from, the state, the age, the version and the
        number of objects of a cache, and the memory that it takes.

            info = cache.info('pods')
            print(info)                  # pods with labels='app=web': 3 objects, 2 s old, synced
            print(info.filter, info.age, info.origins[0])
        """
        return info_of(informer_of(self._runtime, Request(verb="info", kind=kind)))

    @explain_call
    def snapshot(self, *kinds: AnyKey) -> PinnedReads:
        """Return reads of several kinds, each of one generation, whatever the watches report meanwhile.

            with cache.snapshot('pods', 'configmaps') as now:
                pods, configs = now.list('pods', labels='app=web'), now.list_cached('configmaps')
                print(now.versions)

        They have no order between kinds. Reads after the `with` raise ReadError.
        """
        return PinnedReads(self._access, kinds, type(self))

    @explain_call
    def explain(self, kind: AnyKey, **options: Unpack[Explained]) -> Explanation:
        """Return if the filter covers a read, why not, and how the cache and the server would answer it.

        print(cache.explain('pods', labels='app in (web,db)'))
        """
        request = self._access.requests.several("explain", kind, options)
        informer = informer_of(self._runtime, request)
        answer = partial(
            introspection.explain,
            age=lambda: informer.state.age(request.selector),
            divided=informer.declared.divided,
        )
        return self._access.read(request, answer)

    if not TYPE_CHECKING:  # Checkers report attributes that there are not.

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise introspection.no_such_read(self, name)

        def __getitem__(self, _: object) -> NoReturn:
            raise introspection.no_container("cache[...]")

        def __iter__(self) -> NoReturn:
            raise introspection.no_container("`for` over a cache")

    def __contains__(self, _: object) -> NoReturn:
        raise introspection.no_container("`in`")

    def __repr__(self) -> str:
        return introspection.describe(type(self), self._runtime)


class Cache(AnyCache):
    """The caches of one operator, as one handler sees them. Reads are safe in any thread; those that are
    awaited, on the operator's loop.
    """

    _prefix = ""
    """Precedes the names of its methods in messages."""

    @property
    def blocking(self) -> SyncCache:
        """The same cache for threads of your own, where nothing is awaited."""
        return SyncCache(self)

    @property
    def live(self) -> Live:
        """Reads and writes of the API server itself."""
        return Live(self._runtime, self._access)

    # ---- Reads that may ask the server.

    @overload
    async def fetch(
        self, kind: AnyName, name: Name, *, default: Else = RAISE, as_: None = None, **options: Unpack[Fetch]
    ) -> Obj | Else: ...
    @overload
    async def fetch(
        self, kind: AnyKey, name: Name, *, default: Else = RAISE, as_: AsView, **options: Unpack[Fetch]
    ) -> BodyView | Else: ...
    @overload
    async def fetch(
        self, kind: type[C], name: Name, *, default: Else = RAISE, as_: None = None, **options: Unpack[Fetch]
    ) -> C | Else: ...
    @overload
    async def fetch(
        self, kind: AnyKey, name: Name, *, default: Else = RAISE, as_: As[Made], **options: Unpack[Fetch]
    ) -> Made | Else: ...
    @awaited
    async def fetch(
        self,
        kind: AnyKey,
        name: Name,
        *,
        namespace: str | None = None,
        default: Any = RAISE,
        as_: Any = None,
        **options: Unpack[FetchOptions],
    ) -> Any:
        """Return one object, from the cache if it is cached or proved absent there, and else from the server.

            if await cache.fetch('configmaps', name, namespace=namespace, default=None) is None:
                create_config(name, namespace)

        The kind need not be declared. Answers of the server are not stored. `keep=`, `drop=` and `transform=`
        of the declaration apply to them as well, unless `whole=True` asks for whole objects. With `timeout=`,
        transient failures are retried for that many seconds; then the last one is raised.
        """
        request = self._access.requests.one(
            "fetch", kind, name, namespace, default=default, as_=as_, **options
        )
        return await self._access.retry(request, partial(_server_reads.fetch, self._access))

    @awaited
    async def is_deleted(
        self,
        kind: AnyKey,
        name: Name,
        *,
        namespace: str | None = None,
        max_age: float | None = None,
        **options: Unpack[GoneOptions],
    ) -> bool:
        """Return whether an object that departed is really deleted: True, or False if it merely left the
        filter.

            if await cache.is_deleted('jobs', name, namespace=namespace, uid=uid):
                release(uid)

        Unless all watches hold an object with this uid, or of the name, the server is asked. It is not asked
        either if the cache proves the absence, and `at_least=` is the object with this uid. An object with a
        deletionTimestamp still exists. The kind need not be declared. `timeout=` is that of `fetch`.
        """
        request = self._access.requests.one("is_deleted", kind, name, namespace, max_age=max_age, **options)
        return await self._access.retry(
            request, partial(_server_reads.is_deleted, self._access, self._departed)
        )

    @overload
    async def fetch_list(
        self, kind: AnyName, *, as_: None = None, **options: Unpack[FetchSelection]
    ) -> Objects[Obj]: ...
    @overload
    async def fetch_list(
        self, kind: AnyKey, *, as_: AsView, **options: Unpack[FetchSelection]
    ) -> Objects[BodyView]: ...
    @overload
    async def fetch_list(
        self, kind: type[C], *, as_: None = None, **options: Unpack[FetchSelection]
    ) -> builtins.list[C]: ...
    @overload
    async def fetch_list(
        self, kind: AnyKey, *, as_: As[Made], **options: Unpack[FetchSelection]
    ) -> builtins.list[Made]: ...
    @awaited
    async def fetch_list(self, kind: AnyKey, *, as_: Any = None, **options: Unpack[FetchSelection]) -> Any:
        """Return all objects that there are, from the cache if it holds them all, and else from the server.

            claims = await cache.fetch_list('persistentvolumeclaims', namespace=namespace)

        The kind need not be declared. Nothing is remembered. With `whole=True` the server is asked where only
        a part of each object is kept. With `timeout=`, transient failures are retried for that many seconds.
        """
        request = self._access.requests.several("fetch_list", kind, {"as_": as_, **options})
        return await self._access.retry(request, partial(_server_reads.fetch_list, self._access))

    # ---- Waits.

    @awaited
    async def wait_synced(
        self,
        timeout: float | None = None,  # Its end names a reason.  # noqa: ASYNC109
        *,
        at_least: Mapping[str, Any] | None = None,
    ) -> None:
        """Wait until each declared kind is synced; raise why one is not. The default is `sync_timeout`.

            await cache.wait_synced(at_least=body)      # in a daemon: its kind is as new as its body is now

        With `at_least`, the kind of that object is at least as new as the object; else Stale is raised.
        """
        request = with_options(Request(verb="wait_synced"), {"timeout": timeout})
        await changes.wait_synced(self._runtime, request, at_least)

    @overload
    async def wait_for(
        self, kind: AnyName, predicate: Predicate, *, as_: None = None, **options: Unpack[WaitOptions]
    ) -> Obj: ...
    @overload
    async def wait_for(
        self, kind: AnyKey, predicate: Predicate, *, as_: AsView, **options: Unpack[WaitOptions]
    ) -> BodyView: ...
    @overload
    async def wait_for(
        self, kind: type[C], predicate: Predicate, *, as_: None = None, **options: Unpack[WaitOptions]
    ) -> C: ...
    @overload
    async def wait_for(
        self, kind: AnyKey, predicate: Predicate, *, as_: As[Made], **options: Unpack[WaitOptions]
    ) -> Made: ...
    @awaited
    async def wait_for(
        self, kind: AnyKey, predicate: Predicate, *, as_: Any = None, **options: Unpack[WaitOptions]
    ) -> Any:
        """Wait until a cached object that matches satisfies the predicate, and return it as it was then.

            pod = await cache.wait_for('pods', is_ready, namespace=namespace, timeout=60)

        The predicate gets dicts with every `as_`. It is called for the cached objects first, then for each
        change. Raises TimeoutError after `timeout` seconds, if there is one. With `at_least=` it waits for
        that version first, so that no older state satisfies it, and raises Stale if it is not reached.
        """
        request = self._access.requests.several("wait_for", kind, {"as_": as_, **options})
        return await changes.wait_for(self._access, request, predicate)

    @explain_call
    def changes(
        self, kind: AnyKey, *, initial: bool = True, **options: Unpack[ChangesOptions]
    ) -> AsyncIterator[Change]:
        """Yield each change of the cached objects that match, until the operator or the daemon ends.

            async for change in cache.changes('jobs', labels='app=web'):
                print(change.cause, change.namespace, change.name)

        Existing objects come first (unless `initial=False`), and in resyncs. With `at_least=` they are those
        of a version or later: the iterator waits for it. Changes of one object are joined until they are
        read. If those of more than 1,000 objects wait, they are dropped, and `resumed` comes with all present
        objects. The iterator does not pause with Kopf. In a daemon with `with_cache` it ends with the daemon.
        """
        request = self._access.requests.several("changes", kind, options)
        require(isinstance(initial, bool), ReadError, "cache.changes()", "initial", initial, "True or False")
        return changes.follow(self._access, request, initial=initial, waits=self._waits)

    @awaited
    async def wait_deleted(
        self, kind: AnyKey, name: Name, *, namespace: str | None = None, **options: Unpack[GoneOptions]
    ) -> None:
        """Wait until an object does not exist any more. `uid=` and `at_least=` are those of `is_deleted`.

            await cache.live.delete('jobs', name, namespace=namespace)
            await cache.wait_deleted('jobs', name, namespace=namespace, timeout=60)

        Raises TimeoutError after `timeout` seconds, if there is one. An object that is not in the cache is
        asked for every 1 to 30 seconds.
        """
        request = self._access.requests.one("wait_deleted", kind, name, namespace, **options)
        await changes.wait_deleted(
            self._access, request, partial(_server_reads.is_deleted, self._access, self._departed)
        )

    @awaited
    async def why(self, kind: AnyKey, name: Name, *, namespace: str | None = None, ask: bool = True) -> Why:
        """Return why an object is cached or not: the requirements that it fails, and the state of the cache.

            print(await cache.why('pods', 'db-1', namespace=namespace))

        Unless `ask=False`, the server is asked for the metadata of an object that is not cached.
        """
        request = self._access.requests.one("why", kind, name, namespace)
        return await explain_standing(self._access, request, ask=ask)

    # ---- Kinds that come and go.

    @awaited
    async def declare(
        self,
        kind: AnyKey,
        filter: Declared,  # The name is that of `Cached`.  # noqa: A002
        *,
        replace: bool = False,
        **options: Unpack[DeclareOptions],
    ) -> None:
        """Cache one more kind, and return when it is synced. Options are those of `Cached`, and `timeout`.

            await cache.declare('v1/configmaps', 'app=web', keep=['data'])
            await cache.declare('v1/configmaps', 'app in (web,db)', replace=True)

        The same declaration again changes nothing. Another one raises DeclarationError, unless `replace=True`
        changes the filter and the options that are given: reads see the old filter or the new one. If that
        fails or is cancelled, the old one stays. A new kind that fails or is late is not declared.
        """
        await declaring.declare(self._runtime, kind, filter, options, replace=replace)

    @awaited
    # The name is that of `Cached`.
    async def plan(self, kind: AnyKey, filter: Declared, **options: Unpack[DeclareOptions]) -> ChangePlan:  # noqa: A002
        """Return what `declare(..., replace=True)` would do: `print(await cache.plan('pods', 'app=web'))`."""
        return await plan(self._access, kind, filter, options)

    @records_call_site
    @awaited
    async def undeclare(self, kind: AnyKey) -> None:
        """Cache a kind no more. Its reads raise NotDeclared with the time and the line of this call.

        await cache.undeclare('v1/configmaps')
        """
        await declaring.remove(self._runtime, kind, self._place)

    @awaited
    async def add_index(self, /, kind: AnyKey, **indexes: Path | Function) -> None:
        """Index all objects, also later ones, by a path or a function; return when the index is complete.

            await cache.add_index('pods', image=images)
            pods = cache.list_cached('pods', index={'image': 'nginx:1'})

        Unlike a declared index, it sees only the stored part of each object: other paths raise NotKept. An
        index that exists is not added again. Define functions outside of the handler: lambdas in it differ.
        """
        work = partial(introspection.add_indexes, indexes=indexes)
        await self._access.work(Request(verb="add_index", kind=kind), work)

    @awaited
    async def audit(self, kind: AnyKey) -> Audit:
        """Compare the cached objects with a list of the server, now; relist at once if they differ.

        if not (found := await cache.audit('pods')):
            logger.warning('the cache of pods: %s', found)
        """
        return await self._access.work(Request(verb="audit", kind=kind), _server_reads.audit)


class SyncCache(AnyCache, Threaded):
    """The caches of one operator, as a sync handler sees them: the methods of `Cache`, without `await`.

    @kopf.timer('example.com', 'v1', 'webapps', interval=60)
    @selectcache.with_cache
    def check(cache: selectcache.SyncCache, name, namespace, **_):
        config = cache.fetch('configmaps', name, namespace=namespace)
        cache.live.patch('configmaps', 'report', {'data': {'n': '1'}}, namespace=namespace)

    What async handlers await runs on the operator's loop, while the thread of the handler waits for it.
    """

    _calls = IN_SYNC_HANDLER

    fetch = in_thread(Cache.fetch)
    fetch_list = in_thread(Cache.fetch_list)
    is_deleted = in_thread(Cache.is_deleted)
    wait_synced = in_thread(Cache.wait_synced)
    wait_for = in_thread(Cache.wait_for)
    wait_deleted = in_thread(Cache.wait_deleted)
    why = in_thread(Cache.why)
    declare = in_thread(Cache.declare)
    plan = in_thread(Cache.plan)
    undeclare = in_thread(Cache.undeclare)
    add_index = in_thread(Cache.add_index)
    audit = in_thread(Cache.audit)

    def __init__(self, cache: Cache) -> None:
        vars(self).update(vars(cache))
        self._awaited = cache

    @property
    def live(self) -> SyncLive:
        """Reads and writes of the API server itself."""
        return SyncLive(self._awaited.live, self)

    def _run(self, method: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        waits = self._waits if self._waits is not None else ThreadWaits()
        return run_in_thread(self._runtime, waits, method, call)


class CallbackCache(SyncCache):
    """The cache of a plain function that runs on the operator's loop, such as `when=` and `map=`: it has the
    reads that never wait.
    """

    _calls = IN_CALLBACK

    def _run(self, method: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:  # noqa: ARG002  # It is that of the base class.
        raise ReadError(
            f"cache.{method}() would block the operator's event loop, on which this function runs",
            remedy="Use reads that answer at once, such as cache.get(...), or ask in the handler",
        )
