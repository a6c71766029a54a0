"""A cache for unit tests, without a server, sockets or a running loop: objects and filters in, the same reads out.

It is the real thing but for the transport: objects live in an embedded API, the real list/watch protocol fills real
stores through the declared filters, and the verdicts are those of production. So what a handler could not see in a
cluster, it cannot see in its test.
"""
from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kopf_selectcache.blocking import Blocking
from kopf_selectcache.cache import Cache
from kopf_selectcache.checking import running_loop
from kopf_selectcache.core.fields import Key, parse_key
from kopf_selectcache.core.protocol import Idle, Input, Known, List, Opened, Start, State, Wait, Watch, step
from kopf_selectcache.core.wire import Reader, read_refusal
from kopf_selectcache.discovery import NotServed, resolve
from kopf_selectcache.errors import Missing, ReadError
from kopf_selectcache.fetching import Fetches
from kopf_selectcache.resolving import Kinds
from kopf_selectcache.runner import Feed, Runtime
from kopf_selectcache.selector import Selector
from kopf_selectcache.settings import SelectCacheSettings, settings_of
from kopf_selectcache.testing.api.calls import Answer, Request
from kopf_selectcache.testing.api.watching import Watch as Stream
from kopf_selectcache.testing.cluster import EmbeddedCluster
from kopf_selectcache.transport import JSON, Refused

if TYPE_CHECKING:
    import kopf

_T = TypeVar("_T")
Obj = Mapping[str, Any]


class FakeCache(Cache):
    """A cache that holds, of these objects, what the declared selectors let through.

        cache = FakeCache([pod('web-1', app='web'), pod('db-1', app='db')], {'v1/pods': 'app=web'})
        cache.get('pods', 'web-1', 'shop')      # the pod
        cache.get('pods', 'db-1', 'shop')       # OutsideFilter, as in production
        await cache.fetch('pods', 'db-1', 'shop')   # asks the server; here: the objects

    Instead of the selectors, give the settings that your startup handler has configured. `cluster` has all objects, and
    changes them: `cache.cluster.create(...)`, `.patch(...)`, `.delete(...)`; the cache follows before the call returns.
    What needs defining, namespaces and custom resources, is defined where it is missing.
    """

    def __init__(
        self, objects: Iterable[Obj] = (), selectors: Mapping[Any, Any] | kopf.OperatorSettings | None = None, *,
        own: Obj | None = None, deleted: bool = False,
    ) -> None:
        settings = _declared(selectors)
        self.cluster = EmbeddedCluster(random=random.Random(0), tls=False)   # noqa: S311  # The same uids each time.
        for obj in objects:
            _provide(self.cluster, obj, settings.selectors)
            self.cluster.create(obj)
        super().__init__(cast("Runtime", _Runtime(settings, self.cluster)), own=own, deleted=deleted)
        self.blocking = _Blocking(self._of_sync(), self._runtime.loop)


class _Runtime:
    """What a cache needs of its runtime; but its loop is that of the test, whichever runs now."""

    feed = Runtime.feed
    resolve = Runtime.resolve

    def __init__(self, settings: SelectCacheSettings, cluster: EmbeddedCluster) -> None:
        self.settings = settings
        self.transport = _InProcess(cluster)
        self.feeds = {key: _Feed(key, declared, settings, self.transport) for key, declared in settings.selectors.items()}
        self.fetches = Fetches(self.transport, per_second=float("inf"))
        self.kinds = Kinds(self.fetches)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """None runs in a sync test; that is not the same as being on it."""
        return running_loop() or cast("asyncio.AbstractEventLoop", self)


class _Feed(Feed):
    """Follows the embedded API without a task: each change is taken in within the call that made it."""

    def __init__(self, key: Key, declared: Selector, settings: SelectCacheSettings, transport: _InProcess) -> None:
        super().__init__(
            key, declared, settings=settings, transport=transport, namespaces=None, chance=lambda: 0.5,
            logger=logging.getLogger(__name__))
        try:
            self.resource = _at_once(resolve(transport, key))
        except NotServed as error:
            raise Missing(
                f"{error}, and no object tells what it is",
                remedy="Give the fake cache its CustomResourceDefinition, among the objects") from None
        self.filter = self._confined(self.resource)
        self._served = transport
        self._reader = Reader(self.resource.api_version, self.resource.kind.kind)
        self._state: State = Idle(Known(streaming=False))
        self._take(Start())

    def _take(self, input_: Input) -> None:
        """Run the protocol until it waits for the next event."""
        assert self.resource is not None, "found before the protocol starts"
        stepped = step(self._state, input_)
        self._state = stepped.state
        match self._carried_out(stepped.effects):
            case List() as command:
                for answer in _all(self._inputs(command, self.resource, self._reader)):
                    self._take(answer)
            case Watch(version):
                self._follow_stream(self._served.stream(
                    self.resource.path(*self.filter.namespaces or ()), self._query() | {"resourceVersion": version}))
            case Wait():
                raise self.unreadable() or ReadError(self.trouble, remedy=self.remedy)

    def _follow_stream(self, stream: Stream) -> None:
        def take() -> None:
            for line in stream.lines():
                self._take(self._reader.line(line.rstrip(b"\n")))
        self._take(Opened())
        stream.on_ready(take)


class _InProcess:
    """A transport without sockets."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    async def get(self, path: str, query: Mapping[str, str], *, accept: str = JSON) -> bytes:
        answer = self._ask(path, query, accept)
        assert isinstance(answer, Answer), "only watches are something else"
        if answer.code != 200:
            raise Refused(read_refusal(answer.code, answer.body))
        return answer.body

    def stream(self, path: str, query: Mapping[str, str]) -> Stream:
        answer = self._ask(path, {**query, "watch": "true"}, JSON)
        assert isinstance(answer, Stream), answer
        return answer

    def watch(self, path: str, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError(f"a fake feed takes the stream itself: {path} {query}")

    def _ask(self, path: str, query: Mapping[str, str], accept: str) -> Answer | Stream:
        headers = {"authorization": f"Bearer {self._cluster.token}", "accept": accept}
        return self._cluster.api.answer(Request("GET", path, query, headers))


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


# ---- What is declared, and what must be there before an object can be.


def _declared(selectors: Mapping[Any, Any] | kopf.OperatorSettings | None) -> SelectCacheSettings:
    if selectors is not None and not isinstance(selectors, Mapping):
        return settings_of(selectors)
    settings = SelectCacheSettings()
    for key, declared in (selectors or {}).items():
        settings.selectors[key] = declared
    return settings


def _provide(cluster: EmbeddedCluster, obj: Obj, keys: Iterable[Key]) -> None:
    """Define an object's kind and namespace, where they are missing."""
    namespace = obj.get("metadata", {}).get("namespace")
    if not any(served.kind == obj.get("kind") and served.api_version == obj.get("apiVersion") for served in cluster.api.kinds):
        cluster.create(_definition(obj, keys))
    if namespace and not any(key[1] == namespace for key in cluster.api.history.keys(("", "namespaces"))):
        cluster.namespace(namespace)


def _definition(obj: Obj, keys: Iterable[Key]) -> dict[str, Any]:
    """Make the definition of a custom resource from one of its objects; its plural is what a declaration calls it."""
    kind = str(obj["kind"])
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    guessed = f"{kind.lower()}s"
    names = {name for _, _, name in map(parse_key, keys)}
    plural = next((name for name in names if name.startswith(kind.lower()[:-1]) and name not in (kind, kind.lower())), guessed)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group, "scope": "Namespaced" if obj["metadata"].get("namespace") else "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        }}
