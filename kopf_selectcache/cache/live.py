"""`Live`: reads and writes of the API server, as `cache.live`.

Reads are never answered from the cache. A write whose answer is lost is not repeated blindly: it is settled
by a read, or raises OutcomeUnknown.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, overload

from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.kind_keys import AnyKey, AnyName

from . import _server_reads, writes
from ._write_errors import (
    AnyOptions,
    ApplyOptions,
    Changes,
    Edit,
    EnsureOptions,
    Patch,
    PatchType,
    Propagation,
    ReplaceOptions,
    Update,
    WriteOptions,
)
from .blocking import Threaded, awaited, in_thread
from .errors import NotFound
from .formats.formats import RAISE, As, AsView, C, Else, Given, Made
from .formats.views import BodyView, Objects
from .introspection import no_such_write
from .matcher import Ask, LiveOptions, LiveSelection, Name, Obj
from .server_writes import request_of
from .snapshots import Access

_T = TypeVar("_T")


class Live:
    """Reads and writes of the API server, for one handler. Awaited on the operator's loop.

    Every write takes `dry_run=True`, `field_manager=`, and `timeout=`: the seconds for all of its tries, by
    default 30.
    """

    _prefix = "live."

    if not TYPE_CHECKING:  # Checkers report attributes that there are not.

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise no_such_write(name)

    def __init__(self, runtime: Runtime, access: Access) -> None:
        self._runtime = runtime
        self._access = access

    @overload
    async def get(
        self, kind: AnyName, name: Name, *, default: Else = RAISE, as_: None = None, **options: Unpack[Ask]
    ) -> Obj | Else: ...
    @overload
    async def get(
        self, kind: AnyKey, name: Name, *, default: Else = RAISE, as_: AsView, **options: Unpack[Ask]
    ) -> BodyView | Else: ...
    @overload
    async def get(
        self, kind: type[C], name: Name, *, default: Else = RAISE, as_: None = None, **options: Unpack[Ask]
    ) -> C | Else: ...
    @overload
    async def get(
        self, kind: AnyKey, name: Name, *, default: Else = RAISE, as_: As[Made], **options: Unpack[Ask]
    ) -> Made | Else: ...
    @awaited
    async def get(
        self,
        kind: AnyKey,
        name: Name,
        *,
        namespace: str | None = None,
        default: Any = RAISE,
        as_: Any = None,
        **options: Unpack[LiveOptions],
    ) -> Any:
        """Return one object as the server has it now; raise NotFound if it is absent.

            pod = await cache.live.get('pods', 'web-1', namespace=namespace)

        The kind need not be declared. The object is whole, also where only a part of each is kept. With
        `timeout=`, transient failures are retried for that many seconds; then the last one is raised.
        """
        request = self._access.requests.one(
            "live.get", kind, name, namespace, default=default, as_=as_, **options
        )
        try:
            return await self._access.retry(
                request, lambda request: _server_reads.fetch_object(self._runtime, request)
            )
        except NotFound:
            if default is RAISE:
                raise
            return default

    @overload
    async def list(
        self, kind: AnyName, *, as_: None = None, **options: Unpack[LiveSelection]
    ) -> Objects[Obj]: ...
    @overload
    async def list(
        self, kind: AnyKey, *, as_: AsView, **options: Unpack[LiveSelection]
    ) -> Objects[BodyView]: ...
    @overload
    async def list(
        self, kind: type[C], *, as_: None = None, **options: Unpack[LiveSelection]
    ) -> builtins.list[C]: ...
    @overload
    async def list(
        self, kind: AnyKey, *, as_: As[Made], **options: Unpack[LiveSelection]
    ) -> builtins.list[Made]: ...
    @awaited
    async def list(self, kind: AnyKey, *, as_: Any = None, **options: Unpack[LiveSelection]) -> Any:
        """Return all objects that there are on the server now.

            pods = await cache.live.list('pods', namespace=namespace, labels='app=web')

        The kind need not be declared. The objects are whole.
        """
        request = self._access.requests.several("live.list", kind, {"as_": as_, **options})
        return await self._access.retry(
            request, lambda request: _server_reads.fetch_objects(self._runtime, request)
        )

    # ---- Writes.

    @overload
    async def create(
        self, obj: Mapping[str, Any], *, as_: None = None, **options: Unpack[WriteOptions]
    ) -> Obj: ...
    @overload
    async def create(self, obj: Given, *, as_: None = None, **options: Unpack[WriteOptions]) -> Given: ...
    @overload
    async def create(self, obj: object, *, as_: AsView, **options: Unpack[WriteOptions]) -> BodyView: ...
    @overload
    async def create(self, obj: object, *, as_: As[Made], **options: Unpack[WriteOptions]) -> Made: ...
    @awaited
    async def create(self, obj: object, *, as_: Any = None, **options: Unpack[WriteOptions]) -> Any:
        """Create an object, and return it as the server has it.

            job = await cache.live.create({'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {...}, ...})

        The object is a dict, a body, or an object of kubernetes or pykube; then one of its class is returned.
        AlreadyExists is raised if there is an object of this name, OutcomeUnknown if the server's answer was
        lost and anybody may have created it: `ensure` returns the object in both cases.
        """
        return await writes.create(self._runtime, obj, as_, options)

    @overload
    async def replace(
        self, obj: Mapping[str, Any], *, as_: None = None, **options: Unpack[ReplaceOptions]
    ) -> Obj: ...
    @overload
    async def replace(self, obj: Given, *, as_: None = None, **options: Unpack[ReplaceOptions]) -> Given: ...
    @overload
    async def replace(self, obj: object, *, as_: AsView, **options: Unpack[ReplaceOptions]) -> BodyView: ...
    @overload
    async def replace(self, obj: object, *, as_: As[Made], **options: Unpack[ReplaceOptions]) -> Made: ...
    @awaited
    async def replace(
        self, obj: object, *, subresource: str = "", as_: Any = None, **options: Unpack[WriteOptions]
    ) -> Any:
        """Replace an object as a whole, and return it as the server has it.

            job['spec']['suspend'] = True
            job = await cache.live.replace(job)

        With a `metadata.resourceVersion`, Conflict is raised if the object has changed since it was read.
        Objects of which the cache keeps only a part are refused: they would lose the rest. With
        `subresource='status'`, the server replaces the status alone.
        """
        return await writes.replace_object(self._runtime, obj, as_, options, subresource=subresource)

    @overload
    async def patch(
        self, kind: AnyName, name: Name, changes: Changes, *, as_: None = None, **options: Unpack[Patch]
    ) -> Obj: ...
    @overload
    async def patch(
        self, kind: AnyKey, name: Name, changes: Changes, *, as_: AsView, **options: Unpack[Patch]
    ) -> BodyView: ...
    @overload
    async def patch(
        self, kind: type[C], name: Name, changes: Changes, *, as_: None = None, **options: Unpack[Patch]
    ) -> C: ...
    @overload
    async def patch(
        self, kind: AnyKey, name: Name, changes: Changes, *, as_: As[Made], **options: Unpack[Patch]
    ) -> Made: ...
    @awaited
    async def patch(
        self,
        kind: AnyKey,
        name: Name,
        changes: Changes,
        *,
        namespace: str | None = None,
        type: PatchType = "merge",  # As kubectl calls it.  # noqa: A002
        subresource: str = "",
        as_: Any = None,
        **options: Unpack[WriteOptions],
    ) -> Any:
        """Change a part of an object, and return the object as the server has it.

            await cache.live.patch('jobs', name, {'spec': {'suspend': True}}, namespace=namespace)
            await cache.live.patch('jobs', name, {'status': {...}}, namespace=namespace, subresource='status')

        `type='json'` takes a list of operations, `type='strategic'` merges lists of built-in kinds by their
        keys. A `metadata.resourceVersion` in the changes is a precondition.
        """
        request = request_of("live.patch", kind, name, namespace, as_)
        return await writes.patch(
            self._runtime, request, changes, options, type_=type, subresource=subresource
        )

    @overload
    async def apply(
        self, obj: Mapping[str, Any], *, as_: None = None, **options: Unpack[ApplyOptions]
    ) -> Obj: ...
    @overload
    async def apply(self, obj: Given, *, as_: None = None, **options: Unpack[ApplyOptions]) -> Given: ...
    @overload
    async def apply(self, obj: object, *, as_: AsView, **options: Unpack[ApplyOptions]) -> BodyView: ...
    @overload
    async def apply(self, obj: object, *, as_: As[Made], **options: Unpack[ApplyOptions]) -> Made: ...
    @awaited
    async def apply(
        self,
        obj: object,
        *,
        force: bool = False,
        as_: Any = None,
        **options: Unpack[WriteOptions],
    ) -> Any:
        """Apply an object on the server's side: create it, or set the fields that it names.

            await cache.live.apply({**named, 'spec': {'replicas': 3}}, field_manager='web-operator')

        Conflict is raised if other field managers own some of the fields; `force=True` takes these over.
        """
        return await writes.apply(self._runtime, obj, as_, options, force=force)

    @awaited
    async def delete(
        self,
        kind: AnyKey,
        name: Name,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        version: str | None = None,
        propagation: Propagation = "background",
        grace_period: int | None = None,
        **options: Unpack[AnyOptions],
    ) -> None:
        """Delete an object; raise NotFound if it is absent.

            await cache.live.delete('jobs', name, namespace=namespace, uid=uid)

        With `uid=` or `version=`, Conflict is raised for another object of the name, or another version. With
        a uid, a deletion whose answer is lost can be repeated. An object with finalizers stays until they are
        removed.
        """
        request = request_of("live.delete", kind, name, namespace, None)
        await writes.delete(
            self._runtime,
            request,
            options,
            uid=uid,
            version=version,
            propagation=propagation,
            grace_period=grace_period,
        )

    @overload
    async def update(
        self, kind: AnyName, name: Name, function: Edit, *, as_: None = None, **options: Unpack[Update]
    ) -> Obj: ...
    @overload
    async def update(
        self, kind: AnyKey, name: Name, function: Edit, *, as_: AsView, **options: Unpack[Update]
    ) -> BodyView: ...
    @overload
    async def update(
        self, kind: type[C], name: Name, function: Edit, *, as_: None = None, **options: Unpack[Update]
    ) -> C: ...
    @overload
    async def update(
        self, kind: AnyKey, name: Name, function: Edit, *, as_: As[Made], **options: Unpack[Update]
    ) -> Made: ...
    @awaited
    async def update(
        self,
        kind: AnyKey,
        name: Name,
        function: Edit,
        *,
        namespace: str | None = None,
        subresource: str = "",
        as_: Any = None,
        **options: Unpack[WriteOptions],
    ) -> Any:
        """Read an object, change it by a function, and replace it; again if it has changed meanwhile.

            def suspend(job):
                job['spec']['suspend'] = True

            await cache.live.update('jobs', name, suspend, namespace=namespace)

        The function is given a dict of its own, and changes it or returns another one. It may be called
        several times. Nothing is written if nothing has changed. With `subresource='scale'`, the function is
        given the Scale. OutcomeUnknown is raised if an answer was lost and the function, called once more,
        would change something.
        """
        request = request_of("live.update", kind, name, namespace, as_)
        return await writes.update(self._runtime, request, function, options, subresource=subresource)

    @overload
    async def ensure(
        self, obj: Mapping[str, Any], *, as_: None = None, **options: Unpack[EnsureOptions]
    ) -> Obj: ...
    @overload
    async def ensure(self, obj: Given, *, as_: None = None, **options: Unpack[EnsureOptions]) -> Given: ...
    @overload
    async def ensure(self, obj: object, *, as_: AsView, **options: Unpack[EnsureOptions]) -> BodyView: ...
    @overload
    async def ensure(self, obj: object, *, as_: As[Made], **options: Unpack[EnsureOptions]) -> Made: ...
    @awaited
    async def ensure(
        self, obj: object, *, adopt: bool = False, as_: Any = None, **options: Unpack[WriteOptions]
    ) -> Any:
        """Create an object, or return the one of its name.

            secret = await cache.live.ensure(secret_for(host))

        HiddenByFilter is raised if the declared filter does not select the existing object. With
        `adopt=True`, missing labels of the filter and missing ownerReferences of the given object are added
        to it, unless it has changed since it was read. An object that another controller owns is never
        changed: AlreadyExists is raised.
        """
        return await writes.ensure(self._runtime, obj, as_, options, adopt=adopt)


class SyncLive(Threaded):
    """The same for threads. The function of `update` is called on the operator's loop."""

    _prefix = "live."

    get = in_thread(Live.get)
    list = in_thread(Live.list)
    create = in_thread(Live.create)
    replace = in_thread(Live.replace)
    patch = in_thread(Live.patch)
    apply = in_thread(Live.apply)
    delete = in_thread(Live.delete)
    update = in_thread(Live.update)
    ensure = in_thread(Live.ensure)

    def __init__(self, live: Live, cache: Threaded) -> None:
        self._awaited = live
        self._cache = cache

    def _run(self, method: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        return self._cache._run(method, call)  # Of the same class.  # noqa: SLF001

    if not TYPE_CHECKING:  # As above.
        __getattr__ = Live.__getattr__
