"""Sources: the origins of changes that have keys run. A kind of the operator's caches or of others, one
informer, or a channel for what happens outside of the cluster.

A source maps what it sees to keys, and adds them to a queue. Users may write their own: a subclass of
`Source`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, cast

from kopf_selectcache._errors import DeclarationError, NotDeclared, NotSynced, ReadError, StateError, require
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.changes import Subscription
from kopf_selectcache.cache.request import Request
from kopf_selectcache.cache.snapshots import informer_of, require_readable
from kopf_selectcache.core.protocol.messages import delay
from kopf_selectcache.core.store.changes import Change, require_mapping
from kopf_selectcache.informer.informer import Informer as KindInformer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.kind_keys import AnyKey, text_of
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.selectors.signatures import is_async

from .engine import Deliveries, deliver_change
from .mapping import ITSELF, AnyMapping, mapping_of
from .predicates import AnyPredicate, Obj, all_of
from .queue import WorkQueue

CHANNEL_EVENTS = 1024
"""The events that one source of a channel holds at most: that of controller-runtime."""

FOLLOW_SECONDS = 10.0
"""Seconds after which a source whose `follow` has not returned is warned of."""

_logger = logging.getLogger("kopf_selectcache")


class Source(ABC):
    """Reports changes, and adds the keys that they are mapped to. It is started once, for one queue.

        class Ticks(Source):
            async def follow(self, deliveries):
                tick = selectcache.Change.sent({'metadata': {'name': 'all'}})
                self.timer = asyncio.create_task(repeat(lambda: deliveries.deliver(tick, 'all')))

            async def unfollow(self):
                self.timer.cancel()

        @selectcache.reconcile('example.com/v1/webapps', watches=[Ticks])
        async def reconcile(name, **_): ...

    Give the class in `watches=`, or a function that makes a source: each start of the operator needs a new
    one. `follow` returns after it has started a task, because the reconciler is not called before. The task
    handles its own errors. If `follow` fails, the reconciler starts again, with a new source. A class with an
    `__init__` calls `super().__init__()` in it.

    `map` makes the keys: a function of an object, or a mapping; the object itself by default. A change is
    dropped unless all `predicates` admit it, those of the source and those that are given at its start. What
    is sent has no labels and no `old`, so `labelled(...)`, `updated` and the like drop it.
    """

    def __init__(
        self,
        *,
        map: AnyMapping = ITSELF,  # As in the declaration of a handler.  # noqa: A002
        predicates: Collection[AnyPredicate] = (),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._mapping = mapping_of(map)
        self._predicate = all_of(predicates)
        self._sleep, self._chance = sleep, chance
        self._deliveries: Deliveries | None = None
        self.cache: Cache | None = None
        """The caches that a mapping function is given."""

    def __str__(self) -> str:
        return type(self).__name__

    def bind(self, cache: Cache) -> None:
        """Give the caches of the operator, for mapping functions. Call it before the start."""
        self.cache = cache

    async def start(self, queue: WorkQueue, predicates: Iterable[AnyPredicate] = ()) -> None:
        """Add keys to this queue from now on. Raise DeclarationError if it was started before."""
        if not hasattr(self, "_deliveries"):
            raise DeclarationError(
                f"the source {type(self).__name__} lacks what Source.__init__() sets",
                remedy="Call super().__init__() in its __init__()",
            )
        check_source(type(self))
        if self._deliveries is not None:
            raise DeclarationError(
                f"the source {self} was started already", remedy="Make one for each handler"
            )
        if self._mapping.needs_cache and self.cache is None:
            raise DeclarationError(
                f"map= of the source {self} needs a cache", remedy="Call bind(cache) first"
            )
        self._deliveries = Deliveries(
            queue,
            all_of([self._predicate], predicates),
            self._mapping,
            self.cache,
            source=str(self),
            sleep=self._sleep,
            chance=self._chance,
            logger=_logger,
        )
        try:
            await self._begin(self._deliveries)
        except BaseException:
            self._deliveries = None
            raise

    async def _begin(self, deliveries: Deliveries) -> None:
        """Call `follow`, and warn if it does not return: what is started after it waits."""
        warning = asyncio.create_task(self._warn_of_follow())
        try:
            await self.follow(deliveries)
        finally:
            warning.cancel()

    async def _warn_of_follow(self) -> None:
        await self._sleep(FOLLOW_SECONDS)
        _logger.warning(
            "The source %(source)s has not returned from follow(). Put its loop into a task.",
            {"source": str(self)},
        )

    async def stop(self) -> None:
        """Add no more keys. It cannot be started again."""
        if self._deliveries is not None:
            await self.unfollow()
            await self._deliveries.close()

    @abstractmethod
    async def follow(self, deliveries: Deliveries) -> None:
        """Start to call `deliveries.deliver(change, name)` with each change, on the event loop, and return.

        Changes of one name are joined while an async mapping runs.
        """

    async def unfollow(self) -> None:
        """End what `follow` has started."""
        return


def check_source(source: type[Source]) -> None:
    """Raise DeclarationError for a class without an async `follow`, or another method of its base class."""
    missing = sorted(source.__abstractmethods__)
    if is_async(source.follow) and not missing:
        return
    name = missing[0] if missing else "follow"
    raise DeclarationError(
        f"the source {source.__name__} has {f'no {name}()' if missing else 'a follow() that is not async'}",
        remedy=f"Write: async def {name}(...)",
    )


class SyncingSource(Source):
    """A source with a first list. Workers begin when all of these are synced."""

    @abstractmethod
    async def wait_synced(self, timeout: float | None = None) -> None:  # It ends the wait.  # noqa: ASYNC109
        """Wait until the keys of all present objects are in the queue."""


class _InformerSource(Source):
    """Follows informers: the base of `Kind` and `Informer`."""

    async def _begin(self, deliveries: Deliveries) -> None:
        await self.follow(deliveries)  # It may wait until the caches are started.

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._subscription: Subscription | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def _subscribe(
        self, informer: KindInformer, deliveries: Deliveries, synced: Callable[[], object] = lambda: None
    ) -> None:
        lost = next((path for path in deliveries.paths if not informer.state.projection.stores(path)), None)
        if lost is not None:
            raise DeclarationError(
                f"the source {self} reads {'.'.join(lost)!r}, which the cache does not store",
                remedy="Remove it from drop=, or add it to keep=",
            )
        self._subscription = Subscription(
            informer,
            None,
            partial(deliver_change, informer, deliveries),
            look=lambda: synced() if informer.is_complete else None,
            keep=deliveries.keep,
        )

    def _close_subscription(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _start_task(self, task: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(task, name=f"selectcache: source {self}"))

    async def unfollow(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._close_subscription()


class Kind(_InformerSource, SyncingSource):
    """The objects of a declared kind, of the operator's caches or of others.

        Kind('pods', map=Owner('example.com', 'WebApp'), predicates=[generation_changed])
        Kind('configmaps', cache=await caches.start(), map=lambda obj: [Key(obj['data']['app'])])

    `cache` has the kind if that is not the operator's: caches of another cluster, or of other filters. A kind
    that nobody has declared raises NotDeclared at the start. One that is removed later is followed again
    when it is declared again; objects that depart meanwhile are not reported.
    """

    def __init__(
        self,
        kind: AnyKey,
        *,
        cache: Cache | None = None,
        map: AnyMapping = ITSELF,  # As in the declaration of a handler.  # noqa: A002
        predicates: Collection[AnyPredicate] = (),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(map=map, predicates=predicates, sleep=sleep, chance=chance)
        require(
            isinstance(cache, Cache | None), DeclarationError, "Kind()", "cache", cache, "a cache, or None"
        )
        self._kind = kind
        self._read = cache
        self._request = Request(verb="changes", kind=kind, selector=Selector())
        self._runtime: Runtime | None = None  # Set by the start.
        self._synced = asyncio.Event()
        """Set once the keys of all present objects are in the queue."""

    def __str__(self) -> str:
        return self._kind if isinstance(self._kind, str) else text_of(cast("Any", self._kind))

    def bind(self, cache: Cache) -> None:
        """Give the caches of the operator. A cache that the source was created with stays."""
        super().bind(cache)
        if self._read is None:
            self._read = cache

    async def follow(self, deliveries: Deliveries) -> None:
        runtime = self._runtime = await self._find_runtime()
        with suppress(NotSynced):  # The cluster may not have answered yet what the name means.
            self._subscribe(informer_of(runtime, self._request), deliveries, self._synced.set)
        self._start_task(self._keep_following(runtime, deliveries))

    async def _find_runtime(self) -> Runtime:
        if self._read is None:
            raise DeclarationError(
                f"the source {self} needs a cache", remedy="Call bind(cache), or give cache="
            )
        access = self._read._access  # Of the same package.  # noqa: SLF001
        return await access.runtime.wait_started("changes")

    async def _keep_following(self, runtime: Runtime, deliveries: Deliveries) -> None:
        """Subscribe to each informer that the kind has, one after the other, until the caches end."""
        failures = 0
        with suppress(ReadError):  # The caches have ended.
            while True:
                changed = runtime.names.changed
                try:
                    informer = informer_of(runtime, self._request)
                    if self._subscription is None:
                        self._subscribe(informer, deliveries, self._synced.set)
                    failures = 0
                    await runtime.ending.limit(informer.ending.limit(_wait_for_ever()))
                except NotDeclared as error:
                    self._close_subscription()
                    _logger.info(
                        "The source %(source)s waits until its kind is declared: %(error)s",
                        {"source": str(self), "error": error.line},
                    )
                    await runtime.ending.limit(changed.wait())
                except NotSynced:
                    await self._sleep(delay(failures, self._chance()))
                    failures += 1
                except DeclarationError as error:
                    _logger.error(  # The message is for people, as at the start.  # noqa: TRY400
                        "The source %(source)s does not work: %(error)s",
                        {"source": str(self), "error": error.line},
                    )
                    await runtime.ending.limit(changed.wait())

    async def wait_synced(self, timeout: float | None = None) -> None:  # It ends the wait.  # noqa: ASYNC109
        """Wait until the keys of all present objects are in the queue. Raise the error of the cache if it
        cannot be read, or is not synced within `timeout` seconds; by default
        `settings.selectcache.sync_timeout`.
        """
        runtime = self._runtime
        if runtime is None:
            raise DeclarationError(f"the source {self} was not started", remedy="Call start() first")
        timeout = runtime.settings.sync_timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout):
                await self._wait_synced(runtime)
        except TimeoutError:
            require_readable(informer_of(runtime, self._request), self._request, after=timeout)
            raise

    async def _wait_synced(self, runtime: Runtime) -> None:
        while not self._synced.is_set():
            try:
                informer = informer_of(runtime, self._request)
                await informer.ending.limit(informer.wait_until_settled())
                require_readable(informer, self._request)
            except NotSynced:
                await self._sleep(delay(0, self._chance()))
            except StateError as error:
                if not error.transient:
                    raise
                await self._sleep(delay(0, self._chance()))
            else:
                await informer.ending.limit(self._synced.wait())


async def _wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


class Informer(_InformerSource):
    """The objects of one informer, which is given itself; for instance one of `Caches.informers`. Unlike
    `Kind`, it does not wait until that is synced, and ends with it.
    """

    def __init__(
        self,
        informer: KindInformer,
        *,
        map: AnyMapping = ITSELF,  # As in the declaration of a handler.  # noqa: A002
        predicates: Collection[AnyPredicate] = (),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(map=map, predicates=predicates, sleep=sleep, chance=chance)
        fits = isinstance(informer, KindInformer)
        require(fits, DeclarationError, "Informer()", "informer", informer, "one of Caches.informers")
        self._informer = informer

    def __str__(self) -> str:
        return str(self._informer)

    async def follow(self, deliveries: Deliveries) -> None:
        self._subscribe(self._informer, deliveries)


class Channel:
    """Events from outside of the cluster, such as calls of a webhook. Each source of it receives all of them.

        pushes = Channel('pushes')
        source = pushes.source(map=lambda push: [Key(push['app'], namespace=push['namespace'])])
        ...
        await pushes.send({'namespace': 'shop', 'app': 'web'})

    A source holds up to `size` events from its creation on, also before it is started. If one is full, `send`
    waits. An event is any mapping; without `map=` it is an object, of which the metadata has the key.
    """

    def __init__(self, name: str = "channel", *, size: int = CHANNEL_EVENTS) -> None:
        require(isinstance(name, str), DeclarationError, "Channel()", "name", name, "a text")
        fits = isinstance(size, int) and size >= 1
        require(fits, DeclarationError, "Channel()", "size", size, "a number of events, at least 1")
        self._name, self.size = name, size
        self._lock = Lock()
        self._sources: list[_ChannelSource] = []
        self._senders: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        """The loops and events of senders that wait for room."""

    def __str__(self) -> str:
        return self._name

    def source(
        self,
        *,
        map: AnyMapping = ITSELF,  # As in the declaration of a handler.  # noqa: A002
        predicates: Collection[AnyPredicate] = (),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> Source:
        """Return a source of the events that are sent from now on."""
        source = _ChannelSource(self, map=map, predicates=predicates, sleep=sleep, chance=chance)
        with self._lock:
            self._sources.append(source)
        return source

    async def send(self, event: Obj) -> None:
        """Send an event to all sources, once all of them have room."""
        require_mapping("an event", event)
        room = asyncio.Event()
        while not self._put(event, (asyncio.get_running_loop(), room)):
            await room.wait()
            room.clear()

    def send_nowait(self, event: Obj) -> None:
        """Send an event to all sources, in any thread. Raise `asyncio.QueueFull` if one has no room; then
        none receives it.
        """
        require_mapping("an event", event)
        if not self._put(event, None):
            raise asyncio.QueueFull(f"the channel {self} has no room: {self.size} events wait for a source")

    def _put(self, event: Obj, sender: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None) -> bool:
        with self._lock:
            if any(len(source.events) >= self.size for source in self._sources):
                if sender is not None:
                    self._senders.append(sender)
                return False
            for source in self._sources:
                source.events.append(event)
            sources = tuple(self._sources)
        for source in sources:
            source.wake()
        return True

    def take(self, source: _ChannelSource) -> Obj | None:
        """Return the next event of a source, None if there is none, and let senders go on."""
        with self._lock:
            event = source.events.popleft() if source.events else None
        if event is not None:
            self._wake_senders()
        return event

    def leave(self, source: _ChannelSource) -> None:
        """Stop waiting for this source."""
        with self._lock:
            self._sources.remove(source)
        self._wake_senders()

    def _wake_senders(self) -> None:
        with self._lock:
            senders, self._senders = self._senders, []
        for loop, room in senders:
            _call(loop, room.set)


class _ChannelSource(Source):
    """A source of the events of a channel."""

    def __init__(self, channel: Channel, **options: Any) -> None:
        super().__init__(**options)
        self._channel = channel
        self.events: deque[Obj] = deque()
        """The events that wait. The lock of the channel guards it."""
        self._arrived = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return str(self._channel)

    def wake(self) -> None:
        """Take the events that have arrived. Called in any thread."""
        if self._loop is not None:
            _call(self._loop, self._arrived.set)

    async def follow(self, deliveries: Deliveries) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._receive(deliveries), name=f"selectcache: source {self}")

    async def _receive(self, deliveries: Deliveries) -> None:
        count = 0
        while True:
            self._arrived.clear()
            while len(deliveries) < self._channel.size and (event := self._channel.take(self)) is not None:
                # A number of its own: events of one object may differ in what they are about.
                count += 1
                deliveries.deliver(Change.sent(event), count)
            if len(deliveries) < self._channel.size:
                await self._arrived.wait()
            else:
                deliveries.ended.clear()
                await deliveries.ended.wait()

    async def unfollow(self) -> None:
        self._channel.leave(self)
        assert self._task is not None, "it was started"
        self._task.cancel()
        await asyncio.wait({self._task})


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # The loop is closed: nobody waits there.
        loop.call_soon_threadsafe(function)
