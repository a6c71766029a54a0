"""A cache for unit tests, without a server, sockets or a running loop: objects and filters in, the same reads out.

It is the real thing but for the transport: objects live in an embedded API, the real list/watch protocol fills real
stores through the declared filters, and the verdicts are those of production. So what a handler could not see in a
cluster, it cannot see in its test.
"""
from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, TypeVar, cast

import kopf

from kopf_selectcache.blocking import Blocking
from kopf_selectcache.cache import Cache
from kopf_selectcache.checking import running_loop
from kopf_selectcache.core.fields import Key
from kopf_selectcache.core.protocol import (
    PATIENCE,
    Due,
    Idle,
    Input,
    Known,
    List,
    Lost,
    Opened,
    Start,
    State,
    Wait,
    Watch,
    step,
)
from kopf_selectcache.core.store import Change
from kopf_selectcache.core.wire import Reader, read_refusal
from kopf_selectcache.discovery import NotServed, resolve
from kopf_selectcache.errors import DeclarationError, Missing, ReadError
from kopf_selectcache.feed import Claims, Feed
from kopf_selectcache.fetching import Fetches
from kopf_selectcache.keys import text_of
from kopf_selectcache.resolving import Kinds
from kopf_selectcache.runner import Runtime
from kopf_selectcache.selector import Selector
from kopf_selectcache.settings import SelectCacheSettings, settings_of
from kopf_selectcache.testing.api.calls import Answer, Request
from kopf_selectcache.testing.api.watching import Watch as Stream
from kopf_selectcache.testing.offline import OfflineCluster
from kopf_selectcache.transport import JSON, Refused

_T = TypeVar("_T")
Obj = Mapping[str, Any]


class FakeCache(Cache):
    """A cache that holds, of these objects, what the declared selectors let through.

        cache = FakeCache([pod('web-1', app='web'), pod('db-1', app='db')], {'v1/pods': 'app=web'})
        cache.get('pods', 'web-1', 'shop')      # the pod
        cache.get('pods', 'db-1', 'shop')       # OutsideFilter, as in production
        await cache.fetch('pods', 'db-1', 'shop')   # asks the server; here: the objects

    Instead of the selectors, give the settings that your startup handler has configured; `namespaces` are those of
    `kopf run -n`. The objects keep the uid and the times that they are given with. `cluster` has all of them, and changes
    them, in any thread: `cache.cluster.create(...)`, `.patch(...)`, `.delete(...)`; the cache follows before the call
    returns. What needs defining, namespaces and custom resources, is defined where it is missing.
    """

    def __init__(
        self, objects: Iterable[Obj] = (), selectors: Mapping[Any, Any] | kopf.OperatorSettings | None = None, *,
        namespaces: Collection[str] | None = None, own: Obj | None = None, deleted: bool = False,
    ) -> None:
        settings = _declared(selectors)
        within = _confinement(namespaces, settings.selectors)
        self.cluster = OfflineCluster()
        self.cluster.fill(objects, settings.selectors)
        super().__init__(cast("Runtime", _Runtime(settings, self.cluster, within)), own=own, deleted=deleted)
        self.blocking = _Blocking(self._of_sync(), self._runtime.loop)


class _Runtime:
    """What a cache needs of its runtime; but its loop is that of the test, whichever runs now."""

    feed = Runtime.feed
    resolve = Runtime.resolve

    def __init__(self, settings: SelectCacheSettings, cluster: OfflineCluster, namespaces: tuple[str, ...] | None) -> None:
        self.settings = settings
        self.transport = _InProcess(cluster)
        claims: Claims = {}
        self.feeds = {
            key: _Feed(key, declared, settings, self.transport, namespaces=namespaces, claims=claims)
            for key, declared in settings.selectors.items()
        }
        for feed in self.feeds.values():
            cluster.follow(feed.follow)
        self.fetches = Fetches(self.transport, per_second=float("inf"))
        self.kinds = Kinds(self.fetches)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """None runs in a sync test; that is not the same as being on it."""
        return running_loop() or cast("asyncio.AbstractEventLoop", self)


class _Feed(Feed):
    """Follows the embedded API without a task: what has changed is taken in within the call that changed it."""

    def __init__(
        self, key: Key, declared: Selector, settings: SelectCacheSettings, transport: _InProcess, *,
        namespaces: tuple[str, ...] | None, claims: Claims,
    ) -> None:
        super().__init__(
            key, declared, settings=settings, transport=transport, namespaces=namespaces, chance=lambda: 0.5,
            logger=logging.getLogger(__name__), claims=claims)
        self._served = transport
        self._stream: Stream | None = None
        self._state: State = Idle(Known())
        try:
            self._begin()
        except NotServed as error:
            raise Missing(
                f"{error}, and no object tells what it is",
                remedy="Give the fake cache its CustomResourceDefinition, among the objects") from None
        if self._stream is None:
            raise self.unreadable() or ReadError(self.trouble, remedy=self.remedy)

    def follow(self) -> None:
        """Take in what has happened since; where the watch has ended, look what is served now."""
        if self._stream is None:
            try:
                self._begin()
            except NotServed as error:
                self._condition.missing(str(error), "Create its definition")
            return
        stream = self._stream
        for line in stream.lines():
            self._take(self._reader.line(line.rstrip(b"\n")))
        if stream.ended and stream is self._stream:
            self._take(Lost("the watch ended", lived=True))

    def subscribe(self, listener: Callable[[Change | None], None]) -> Callable[[], None]:
        """Call the listener on the loop where it is now, in whichever thread the change is made."""
        loop = running_loop()

        def told(change: Change | None) -> None:
            if loop is None or loop is running_loop():
                listener(change)
            else:
                with suppress(RuntimeError):   # The loop is closed: nobody waits any more.
                    loop.call_soon_threadsafe(listener, change)
        return super().subscribe(told)

    def _begin(self) -> None:
        resource = _at_once(resolve(self._served, self._key))
        self._claim(resource)
        self.resource, self.filter = resource, self._confined(resource)
        self._reader = Reader(resource.api_version, resource.kind.kind)
        self._state = Idle(Known())
        self._take(Start())

    def _take(self, input_: Input) -> None:
        """Run the protocol until it waits for the next event."""
        stepped = step(self._state, input_)
        self._state = stepped.state
        match self._carried_out(stepped.effects):
            case List() as command:
                assert self.resource is not None, "found before the protocol starts"
                for answer in _all(self._inputs(command, self.resource, self._reader)):
                    self._take(answer)
            case Watch(version):
                self._open(version)
            case Wait(failures) if failures < PATIENCE and self.unreadable() is None:
                self._take(Due())   # Nothing gets better here by waiting.
            case Wait():
                self._stream = None

    def _open(self, version: str) -> None:
        assert self.resource is not None, "found before the protocol starts"
        path = self.resource.path(self.filter.namespaces[0] if self.filter.namespaces is not None else None)
        try:
            self._stream = self._served.stream(path, self._query() | {"resourceVersion": version})
        except Refused as refused:
            self._take(refused.refusal)
        else:
            self._take(Opened())
            self.follow()


class _InProcess:
    """A transport without sockets."""

    def __init__(self, cluster: OfflineCluster) -> None:
        self._cluster = cluster

    async def get(self, path: str, query: Mapping[str, str], *, accept: str = JSON) -> bytes:
        answer = self._ask(path, query, accept)
        assert isinstance(answer, Answer), "only watches are something else"
        if answer.code != 200:
            raise Refused(read_refusal(answer.code, answer.body))
        return answer.body

    def stream(self, path: str, query: Mapping[str, str]) -> Stream:
        answer = self._ask(path, {**query, "watch": "true"}, JSON)
        if isinstance(answer, Answer):
            raise Refused(read_refusal(answer.code, answer.body))
        return answer

    def watch(self, path: str, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError(f"a fake feed takes the stream itself: {path} {query}")

    def _ask(self, path: str, query: Mapping[str, str], accept: str) -> Answer | Stream:
        headers = {"authorization": f"Bearer {self._cluster.token}", "accept": accept}
        return self._cluster.answer(Request("GET", path, query, headers))


class _Blocking(Blocking):
    """In a test there is no other thread whose loop could do the work."""

    def _run(self, method: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        if (here := running_loop()) is not None:
            self._loop = here
            return super()._run(method, call)   # It refuses, as in production.

        async def waited() -> _T:
            return await call()
        return asyncio.run(waited())


def _at_once(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run what never has to wait for anything."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast("_T", end.value)
    raise AssertionError(f"{coroutine} waits, and nothing here is worth waiting for")


def _all(generator: AsyncGenerator[_T, None]) -> Iterator[_T]:
    while True:
        try:
            yield _at_once(anext(generator))
        except StopAsyncIteration:
            return


def _declared(selectors: Mapping[Any, Any] | kopf.OperatorSettings | None) -> SelectCacheSettings:
    if isinstance(selectors, kopf.OperatorSettings):
        return settings_of(selectors)
    if selectors is not None and not isinstance(selectors, Mapping):
        raise TypeError(
            "FakeCache takes the filters as a dict, such as {'v1/pods': 'app=web'}, or the operator's settings, "
            f"and was given a {type(selectors).__name__}")
    settings = SelectCacheSettings()
    settings.selectors.update(selectors or {})
    return settings


def _confinement(namespaces: Collection[str] | None, selectors: Mapping[Key, Selector]) -> tuple[str, ...] | None:
    if namespaces is None:
        return None
    exact = Selector(namespaces=namespaces).namespaces
    if exact is not None and len(exact) > 1 and (open_ones := [key for key, each in selectors.items() if each.namespaces is None]):
        raise DeclarationError(
            f"the operator watches several namespaces, and those to cache {text_of(open_ones[0])} in are not known",
            remedy=f"Declare one: settings.selectcache.selectors[{open_ones[0]!r}] = Selector(..., namespaces=['...'])")
    return exact
