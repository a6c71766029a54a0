"""A runtime to read from, without its network: real stores and selectors, filled by hand; a server that
answers as told."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property, wraps
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from kopf_selectcache.cache.blocking import ThreadWaits
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.fetcher import Fetcher
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource, find
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.claims import OwnWrites
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.projection import ALL, Projection
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.errors import StateError
from kopf_selectcache.informer.environment import Ending, Memo, Retries
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.metrics import Counts
from kopf_selectcache.informer.state import Derived, ReadablePart
from kopf_selectcache.selectors.kind_keys import not_declared
from kopf_selectcache.selectors.selector import Branches, Selector
from kopf_selectcache.settings.options import SelectCacheSettings

Test = Callable[..., Coroutine[Any, Any, None]]
Obj = dict[str, Any]


def builtin(key: str) -> Kind:
    kind = find(key)
    assert kind is not None
    return kind


PODS = Resource(builtin("pods"), "v1")
NODES = Resource(builtin("nodes"), "v1")
JOBS = Resource(builtin("jobs"), "v1")


def pod(
    name: str, namespace: str = "ns", *, version: str = "5", uid: str = "", owner: str = "", **labels: str
) -> Obj:
    metadata: Obj = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": version,
        "labels": labels,
    }
    if owner:
        metadata["ownerReferences"] = [{"uid": owner}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running"},
    }


def node(name: str, **labels: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "resourceVersion": "5", "labels": labels},
    }


class _State(SimpleNamespace):
    """The state of a fake informer, which has the rest."""

    @property
    def ready(self) -> Store | None:
        ready: Store | None = self.informer.ready
        return ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self.informer, name)


class FakeInformer:
    """The cache of one kind, synced as of version 10 once it is told to hold something."""

    def __init__(
        self, declared: Branches, resource: Resource | None, key: str, projection: Projection = ALL
    ) -> None:
        self.key = key
        self.ending = Ending()
        self.projection = projection
        self.indexes: dict[str, Indexed] = {}
        self.environment = SimpleNamespace(clock=lambda: 0.0, sleep=lambda _: asyncio.sleep(0))
        self.filter = declared
        self.declared = SimpleNamespace(origins_for=lambda _: (), outside=None, divided="")
        self.resource = resource
        self.store = Store()
        self.own_writes = OwnWrites()
        self._state = _State(parts=())
        self.counts = Counts()
        self.health, self.message = Health.SYNCED, ""
        self.remedy = ""
        self.error: StateError | None = None
        self.listeners: list[Callable[[Change | None], None]] = []
        self.settling = asyncio.Event()
        self.subscribed = asyncio.Event()
        self.unsubscribed = asyncio.Event()

    def __str__(self) -> str:
        return self.key

    def hold(self, *objects: Obj, version: str = "10") -> FakeInformer:
        self.store.begin()
        for obj in objects:
            self.put(obj)
        self.tell(self.store.commit(version))
        self.settling.set()
        return self

    @cached_property
    def reader(self) -> Reader:
        assert self.resource is not None
        return Reader.of(self.resource, self.projection)

    def put(self, obj: Obj) -> None:
        self.tell(self.store.put(self.reader.record(msgspec.json.encode(obj))))

    def leave(self, obj: Obj) -> None:
        self.tell(self.store.leave(self.reader.record(msgspec.json.encode(obj))))

    def fail(self, error: StateError | None) -> None:
        """Become unreadable, or be told to have without being."""
        self.error = error
        self.tell([None])

    def tell(self, changes: Sequence[Change | None]) -> None:
        for change in changes:
            for listener in tuple(self.listeners):
                listener(change)

    has_several_streams = False

    @property
    def pending_writes(self) -> SimpleNamespace:
        return SimpleNamespace(subscribe=lambda _listener: lambda: None)

    @property
    def state(self) -> Any:
        """The parts that reads look at, with an empty cell when a part has been replaced."""
        parts = self.resource, self.filter, self.projection, self.indexes, self.store, self.own_writes
        if list(map(id, self._state.parts)) != list(map(id, parts)):
            self._state = _State(
                parts=parts,
                resource=self.resource,
                filter=self.filter,
                projection=self.projection,
                indexes=self.indexes,
                store=self.store,
                own_writes=self.own_writes,
                informer=self,
                derived=Derived(),
                followed=(),
                lost=frozenset(),
                plan=None,
                union=SimpleNamespace(
                    has_one_epoch=True, is_alone=True, is_unconfirmed=lambda _: False, unconfirmed=()
                ),
            )
        return self._state

    @property
    def ready(self) -> Store | None:
        return self.store if self.error is None and self.resource is not None and self.store.version else None

    def age(self, _: Selector | None = None) -> float | None:
        return 1.5

    def streams_for(self, _: Selector | None = None) -> tuple[Any]:
        """The one stream, which was never compared with a list."""
        uncompared, substore = SimpleNamespace(as_of=""), SimpleNamespace(epoch=0, listed="")
        stream = SimpleNamespace(version=self.store.version, comparison=uncompared, substore=substore)
        stream.goal = lambda goal: goal
        return (stream,)

    def part(self, _: Selector | None = None) -> ReadablePart:
        return ReadablePart(self.error, self.store, self.message, self.remedy)

    async def wait_until_settled(self, _: Selector | None = None) -> None:
        await self.settling.wait()

    def subscribe(self, listener: Callable[[Change | None], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        self.subscribed.set()

        def unsubscribe() -> None:
            self.listeners.remove(listener)
            self.unsubscribed.set()

        return unsubscribe


class Server:
    """A transport that answers by path, and remembers what was asked. `pause()` holds its answers back."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Obj | Exception]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.accepted: list[str] = []
        self.going = asyncio.Event()
        self.going.set()

    def answer(self, path: str, *answers: Obj | Refusal | Exception) -> None:
        """Give these answers, one after the other, the last again and again."""
        self.answers[path] = [
            Refused(answer) if isinstance(answer, Refusal) else answer for answer in answers
        ]

    async def get(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        accept: str = "application/json",
        most: int | None = None,
    ) -> bytes:  # As transports are called.
        self.accepted.append(accept)
        self.asked.append((path, dict(query)))
        await self.going.wait()
        answers = self.answers.get(path, [Refused(Refusal(404, "NotFound"))])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return msgspec.json.encode(answer)

    def watch(
        self, path: str, query: Mapping[str, str], **_: object
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"a read never watches: {path} {query}")


class Names:
    """The informers found by key."""

    def __init__(self) -> None:
        self.quick: dict[KindKey, FakeInformer] = {}


class Environment:
    """One operator. Its clock stands still, unless somebody sleeps."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = cast("asyncio.AbstractEventLoop", loop or SimpleNamespace(is_running=lambda: False))
        self.settings = SelectCacheSettings()
        self.server = self.transport = Server()
        self.time = 0.0
        self.slept: list[float] = []
        self.fetches = Fetcher(
            self.server, per_second=self.settings.fetch_per_second, clock=lambda: self.time, sleep=self.sleep
        )
        self.retries = Retries(clock=lambda: self.time, sleep=self.sleep, chance=lambda: 1.0)
        self.informers: dict[KindKey, FakeInformer] = {}
        self.ending = Ending()
        self.names = Names()
        # Nobody logs open snapshots.
        unlogged = SimpleNamespace(add=lambda *_: None, discard=lambda _: None)
        self.extensions = SimpleNamespace(get=lambda _: unlogged)
        self.memo = Memo()
        self.resources: dict[KindKey, Resource | Exception] = {}

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds

    def declare(
        self,
        declared: Branches | str = "",
        resource: Resource | None = PODS,
        key: str = "pods",
        projection: Projection = ALL,
    ) -> FakeInformer:
        declared = Selector(declared or None) if isinstance(declared, str) else declared
        self.informers[key] = FakeInformer(declared, resource, key, projection)
        return self.informers[key]

    def informer(self, key: KindKey) -> FakeInformer:
        for declared, informer in self.informers.items():
            if declared == key or find(declared) is find(key) is not None:
                self.names.quick[key] = informer
                return informer
        raise not_declared(key, self.informers)

    async def wait_started(self, _: str) -> None:
        pass

    async def resolve(self, key: KindKey) -> Resource:
        found = self.resources[key]
        if isinstance(found, Exception):
            raise found
        return found

    def cache(
        self,
        *,
        own: Mapping[str, Any] | None = None,
        deleted: bool = False,
        departed: str | None = None,
        waits: ThreadWaits | None = None,
    ) -> Cache:
        return Cache(cast("Runtime", self), own=own, deleted=deleted, departed=departed, waits=waits)


def reading(
    declared: Branches | str,
    *objects: Obj,
    resource: Resource = PODS,
    key: str = "pods",
    projection: Projection = ALL,
) -> Cache:
    """Make the cache of one kind that holds these objects."""
    environment = Environment()
    environment.declare(declared, resource, key, projection).hold(*objects)
    return environment.cache()


def begin_with(
    *names: str, make: Callable[[], AbstractAsyncContextManager[Sequence[Any]]]
) -> Callable[[Test], Test]:
    """Return a decorator that gives a test the arguments of these names, new ones for each row of a table."""

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @wraps(test)
        async def begun(**others: Any) -> None:
            async with make() as values:
                given = dict(zip(names, values, strict=True))
                await test(**{name: given[name] for name in names if name in signature.parameters}, **others)

        left = [each for each in signature.parameters.values() if each.name not in names]
        begun.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return begun

    return decorate


@asynccontextmanager
async def _operator() -> AsyncIterator[tuple[Environment]]:
    yield (Environment(asyncio.get_running_loop()),)


with_environment = begin_with("environment", make=_operator)
"""Gives a test an operator whose event loop is that of the test."""


def names(objects: Sequence[Obj]) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in objects)
