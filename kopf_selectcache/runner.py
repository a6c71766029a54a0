"""The async shell: carries out what the protocol commands, feeds it what comes, and tells how each cache is doing.

It never dies: whatever goes wrong is waited for and tried again, and told in the health of the feed that it concerns.
It never awaits handlers. Time and chance are functions, handed in; only silence is measured by the loop itself.
"""
from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from enum import Enum
from time import monotonic

from .core.backoff import delay
from .core.fields import Key, find, parse_key
from .core.problems import Garbled
from .core.protocol import (
    Abandon,
    Begin,
    Commit,
    Due,
    Effect,
    Idle,
    Input,
    Known,
    Leave,
    List,
    Lost,
    Opened,
    Progress,
    Put,
    Silent,
    Start,
    State,
    Told,
    Wait,
    Watch,
    Watching,
    step,
)
from .core.resources import Resource
from .core.store import Change, Store
from .core.wire import Bookmark, Event, Lines, Reader, Refusal
from .discovery import NotServed, resolve
from .errors import ConflictingSelectors, Forbidden, Missing, NotSelectable, Rejected, StateError
from .fetching import Fetches
from .keys import not_declared
from .observe import Counts
from .resolving import Kinds
from .selector import Comparisons, Selector
from .settings import SelectCacheSettings
from .texts import FieldSelector
from .transport import Refused, Transport, Unreachable

LIVED = 60.0
"""A stream that was open for so many seconds was a good one, even if it had nothing to say."""


class Health(Enum):
    """How the cache of one kind is doing."""

    SYNCING = "syncing"
    """Its first complete list has not come yet, or is not followed yet."""
    SYNCED = "synced"
    """It holds what the server had, and follows."""
    FORBIDDEN = "forbidden"
    """A right is missing."""
    MISSING = "missing"
    """The cluster does not serve the kind."""
    REJECTED = "rejected"
    """The cluster refuses the selector."""


_UNREADABLE: Mapping[Health, type[StateError]] = {
    Health.FORBIDDEN: Forbidden, Health.MISSING: Missing, Health.REJECTED: Rejected,
}


class Feed:
    """The cache of one declared kind: its store, and the task that keeps it."""

    def __init__(
        self, key: Key, declared: Selector, *, settings: SelectCacheSettings, transport: Transport,
        namespaces: tuple[str, ...] | None, chance: Callable[[], float], logger: logging.Logger,
        clock: Callable[[], float] = monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.key = key if isinstance(key, str) else "/".join(key)
        """As it was declared, for messages."""
        self.resource: Resource | None = None
        """None until the cluster has been asked what the key means."""
        self.filter = declared
        """As declared; once the resource is known, with the namespaces that the operator is confined to."""
        self.store = Store()
        self.comparisons = Comparisons()
        self.health = Health.SYNCING
        self.trouble = ""
        """What is in the way, as a sentence without its full stop; empty if nothing is."""
        self.remedy = ""
        """The one thing to change."""
        self.counts = Counts()
        self._why = "first"
        self._key = key
        self._settings = settings
        self._transport = transport
        self._namespaces = namespaces
        self._chance = chance
        self._logger = logger
        self._asking = "get"
        """The verb of the request that is under way: `get` to find out what the cluster serves."""
        self._clock = clock   # Asked for an age, it must answer in any thread.
        self._sleep = sleep
        self._settled = asyncio.Event()
        self._heard: float | None = None
        self._listeners: list[Callable[[Change | None], None]] = []

    def __str__(self) -> str:
        return str(self.resource) if self.resource is not None else self.key

    def age(self) -> float | None:
        """Return the seconds since the server last confirmed what is held; None before the first complete list."""
        return None if self._heard is None or not self.store.version else self._clock() - self._heard

    def unreadable(self) -> StateError | None:
        """Return the error that reads must raise, since the cache cannot be kept; None if it can be."""
        error = _UNREADABLE.get(self.health)
        return error(self.trouble, remedy=self.remedy) if error is not None else None

    @property
    def synced(self) -> bool:
        """Whether the cache holds what the server had, and follows."""
        return self.health is Health.SYNCED

    async def settled(self) -> None:
        """Wait until the feed is synced, or has said why it is not."""
        await self._settled.wait()

    def subscribe(self, listener: Callable[[Change | None], None]) -> Callable[[], None]:
        """Call the listener, on the loop's thread, with each change, and with None when reads must raise; return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # ---- Keeping it.

    async def run(self) -> None:
        """Keep the cache until cancelled. A mistake of ours costs a relist, never the operator."""
        while True:
            try:
                await self._follow(await self._resolved())
            except Exception as error:
                self._logger.exception("The cache of %s stumbled over a mistake of its own, and starts again.", self)
                self.trouble = f"{self}: a mistake of kopf_selectcache itself, {type(error).__name__}"
                self.remedy = "Report it, with the traceback in the operator's log"
                await self._sleep(delay(6, self._chance()))

    async def _resolved(self) -> Resource:
        """Ask until the cluster knows the kind, and the filter fits it."""
        failures = 0
        self._asking = "get"
        while True:
            try:
                self.resource = await resolve(self._transport, self._key)
                self.filter = self._confined(self.resource)
            except NotServed as error:
                self._tell(Health.MISSING, str(error), "Install its definition, or correct the key; it is looked for again and again")
            except (ConflictingSelectors, NotSelectable) as error:
                self._tell(Health.REJECTED, error.what, error.remedy)
            except Refused as error:
                self._told(error.refusal)
            except (Unreachable, Garbled) as error:
                self._told(Lost(str(error)))
            else:
                return self.resource
            await self._sleep(delay(failures, self._chance(), slow=self.health is not Health.SYNCING))
            failures += 1

    def _confined(self, resource: Resource) -> Selector:
        """Return the filter within the namespaces that the operator watches, if it names none itself."""
        declared = self.filter
        if resource.kind.namespaced and declared.namespaces is None and self._namespaces is not None:
            declared = Selector(declared.label, field=declared.field, names=declared.names, namespaces=self._namespaces)
        if resource.kind.namespaced is False and declared.namespaces is not None:
            raise ConflictingSelectors(
                f"{resource} are cluster-scoped, and have no namespace", remedy="Declare their filter without namespaces=")
        declared.require_satisfiable(kind=resource.domains)
        return declared

    async def _follow(self, resource: Resource) -> None:
        """Run the protocol: each input gives effects, the last of which may say where the next inputs come from.

        Return when the cluster does not serve the resource any more: it may come back in another version.
        """
        reader = Reader(resource.api_version, resource.kind.kind)
        state: State = Idle(Known(streaming=self._settings.initial == "stream"))
        source = _just(Start())
        missing = False
        while True:
            command = None
            async with aclosing(source):
                async for input_ in source:
                    stepped = step(state, input_)
                    state = stepped.state
                    command = self._carried_out(stepped.effects)
                    missing = missing or (isinstance(input_, Refusal) and input_.code == 404)
                    if isinstance(state, Watching) and isinstance(input_, Bookmark) and input_.version == self.store.version:
                        self._heard = self._clock()
                    if command is not None:
                        break
            assert command is not None, f"nothing to do in {state}"
            if missing and not isinstance(command, Wait):
                return
            source = self._waited(command) if isinstance(command, Wait) else self._inputs(command, resource, reader)

    def _carried_out(self, effects: tuple[Effect, ...]) -> List | Watch | Wait | None:
        """Apply the deltas to the store, and return the command that the next inputs come of, if there is one."""
        command: List | Watch | Wait | None = None
        for effect in effects:
            changes: list[Change] = []
            match effect:
                case List() | Watch() | Wait():
                    command = effect
                case Begin():
                    self.store.begin()
                case Put(record):
                    changes = self.store.put(record)
                case Leave(record):
                    changes = self.store.leave(record)
                case Commit(version, restored):
                    if self.store.version:
                        self.counts.relists[self._why] += 1
                    self._heard = self._clock()
                    changes = self.store.commit(version)
                    if restored:
                        self._logger.warning("The server of %s went back to an older state; its cache started anew.", self)
                case Abandon():
                    self.store.abandon()
                case Progress(version):
                    self._heard = self._clock()
                    self.store.progress(version)
                case Told(trouble):
                    self._told(trouble)
                case _:
                    pass   # To close is what happens to every source when the next command comes.
            for change in changes:
                for listener in tuple(self._listeners):
                    listener(change)
        return command

    async def _waited(self, command: Wait) -> AsyncGenerator[Input, None]:
        await self._sleep(delay(command.failures, self._chance(), at_least=command.at_least, slow=command.slow))
        yield Due()

    async def _inputs(self, command: List | Watch, resource: Resource, reader: Reader) -> AsyncGenerator[Input, None]:
        self._asking = "list" if isinstance(command, List) else "watch"
        namespaces, asked = self.filter.namespaces, self._clock()
        path = resource.path(namespaces[0] if namespaces is not None else None)
        try:
            if isinstance(command, List):
                self.counts.lists += 1
                yield reader.page(await self._transport.get(path, self._query() | _listing(command, self._settings.page_limit)))
            else:
                self.counts.watches += 1
                async with aclosing(self._watched(path, command, reader)) as messages:
                    async for message in messages:
                        yield message
        except Refused as refused:
            yield refused.refusal
        except Unreachable as lost:
            yield Lost(str(lost), lived=self._clock() - asked > LIVED)
        except Garbled as garbled:
            yield Lost(str(garbled), garbled=True)
        except TimeoutError:
            yield Silent()

    async def _watched(self, path: str, command: Watch, reader: Reader) -> AsyncGenerator[Input, None]:
        """Read a watch to its end; raise Refused, Unreachable, Garbled, or TimeoutError if nothing comes any more."""
        idle, lines, filling = self._settings.idle_timeout, Lines(), command.initial
        async with AsyncExitStack() as stack:
            # Servers accept a watch before they have anything to say.
            async with asyncio.timeout(idle):
                chunks = await stack.enter_async_context(self._transport.watch(path, self._query() | _watching(command)))
            yield Opened()
            opened = self._clock()
            while (chunk := await _next(chunks, within=idle)) is not None:
                for line in lines.feed(chunk):
                    message = reader.line(line)
                    self.counts.events += isinstance(message, Event)
                    filling = filling and not (isinstance(message, Bookmark) and message.complete)
                    yield message
                if filling and self._clock() - opened > self._settings.request_timeout:
                    # It may go on for ever without saying that the initial state is complete.
                    raise TimeoutError
                # A busy stream never has to wait for its next chunk, and would keep the loop to itself.
                await asyncio.sleep(0)
            yield reader.rest(lines.rest) or Lost("the watch ended", lived=self._clock() - opened > LIVED)

    def _query(self) -> dict[str, str]:
        """Return the filter as a query."""
        query = {}
        if self.filter.label is not None and self.filter.requirements:
            query["labelSelector"] = str(self.filter.label)
        fields = [str(term) for term in self.filter.terms]
        if self.filter.names is not None:
            fields.append(str(FieldSelector.from_dict({"metadata.name": self.filter.names[0]})))
        if fields:
            query["fieldSelector"] = ",".join(fields)
        return query

    # ---- Telling how it is.

    def _told(self, trouble: Refusal | Lost | Silent | None) -> None:
        if trouble is not None:
            self._why = _reason(trouble)
            self.counts.failures[self._why] += 1
        where = f" in the namespace {self.filter.namespaces[0]}" if self.filter.namespaces else ""
        match trouble:
            case None:
                self._tell(Health.SYNCED if self.store.version else Health.SYNCING, "", "")
            case Refusal(403) if self._asking == "get":
                self._tell(Health.FORBIDDEN, f"{self}: the operator may not ask what the cluster serves: {trouble.message}",
                           "Bind it to the ClusterRole system:discovery")
            case Refusal(403):
                known = self.resource.kind if self.resource is not None else find(self._key)
                rule = f"apiGroups: [{known.group!r}], resources: [{known.plural!r}]" if known is not None else f"the resource {self}"
                self._tell(
                    Health.FORBIDDEN, f"{self}: the operator may not {self._asking} them{where}: {trouble.message}",
                    f"Grant it the verbs list and watch{where}: {rule}",
                )
            case Refusal(404):
                self._tell(Health.MISSING, f"{self}: the cluster does not serve them", "Install their definition")
            case Refusal(400) | Refusal(422):
                self._tell(
                    Health.REJECTED, f"{self}: the server refuses the filter {self.filter}: {trouble.message}",
                    "Declare a selector that the server supports for this kind",
                )
            case Refusal(405):
                self._tell(Health.REJECTED, f"{self}: the server does not let anybody {self._asking} them",
                           "Do not declare them, but ask the server: await cache.fetch(...)")
            case Lost(lived=True):
                pass   # Servers end every watch after a while.
            case _ if self.health in _UNREADABLE:
                pass   # What only a person can help with still stands: nobody has said otherwise.
            case Refusal():
                self._tell(self.health, f"{self}: the server answers {trouble.code} {trouble.reason}".rstrip(), "It is asked again")
            case Lost(why):
                self._tell(self.health, f"{self}: {why}", "The server is asked again")
            case _:   # Silent.
                self._tell(self.health, f"{self}: the server has fallen silent", "It is asked again")

    def _tell(self, health: Health, trouble: str, remedy: str) -> None:
        """Take a change in, and log it once."""
        before, was_in_trouble = self.health, bool(self.trouble)
        self.health, self.trouble, self.remedy = health, trouble, remedy
        if health is not before and self.unreadable() is not None:
            for listener in tuple(self._listeners):
                listener(None)
        if health is not Health.SYNCING:
            self._settled.set()
        if health is Health.SYNCED and before is not Health.SYNCED:
            self._logger.info("The cache of %s holds %d objects with %s.", self, len(self.store.records()[0]), self.filter)
        elif health is not before or (trouble and not was_in_trouble):
            self._logger.warning("%s. %s.", trouble, remedy)
        elif was_in_trouble and not trouble:
            self._logger.info("The cache of %s follows the server again.", self)


class Runtime:
    """All caches of one operator."""

    def __init__(
        self, settings: SelectCacheSettings, transport: Transport, *, namespaces: tuple[str, ...] | None,
        chance: Callable[[], float], logger: logging.Logger,
        clock: Callable[[], float] = monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.settings = settings
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.feeds: Mapping[Key, Feed] = {
            key: Feed(
                key, declared, settings=settings, transport=transport, namespaces=namespaces, chance=chance, logger=logger,
                clock=clock, sleep=sleep)
            for key, declared in settings.selectors.items()
        }
        self.fetches = Fetches(transport, per_second=settings.fetch_per_second, clock=clock, sleep=sleep)
        self.kinds = Kinds(self.fetches, clock=clock)

    def feed(self, key: Key) -> Feed:
        """Return the feed of this kind, by whichever of its names."""
        for declared, feed in self.feeds.items():
            if declared == key or _means(key, feed):
                return feed
        raise not_declared(key, self.feeds)

    async def resolve(self, key: Key) -> Resource:
        """Return what a key means in this cluster, asking for each but once."""
        return await self.kinds.resolve(key)

    async def run(self) -> None:
        """Keep all caches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for feed in self.feeds.values():
                group.create_task(feed.run(), name=f"selectcache: {feed.key}")


def _reason(trouble: Refusal | Lost | Silent) -> str:
    """Name a trouble in a word, one of few: it becomes a label of metrics."""
    match trouble:
        case Refusal(code):
            return str(code) if 100 <= code < 600 else "refused"
        case Lost(garbled=True):
            return "garbled"
        case _:
            return type(trouble).__name__.lower()


async def _next(chunks: AsyncIterator[bytes], *, within: float) -> bytes | None:
    async with asyncio.timeout(within):
        return await anext(chunks, None)


async def _just(input_: Input) -> AsyncGenerator[Input, None]:
    yield input_


def _listing(command: List, limit: int) -> dict[str, str]:
    query = {} if command.whole else {"limit": str(limit)}
    if command.token:
        query["continue"] = command.token
    if command.not_older_than:
        query |= {"resourceVersion": command.not_older_than, "resourceVersionMatch": "NotOlderThan"}
    return query


def _watching(command: Watch) -> dict[str, str]:
    query = {"watch": "true", "allowWatchBookmarks": "true"}
    if command.version:
        query["resourceVersion"] = command.version
    if command.initial:
        query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    return query


def _means(key: Key, feed: Feed) -> bool:
    """Whether the key names the kind of the feed, as the cluster has it, or as Kubernetes itself does."""
    if feed.resource is None:
        return (known := find(key)) is not None and known is find(feed.key)
    group, version, name = parse_key(key)
    kind = feed.resource.kind
    return name in kind.names and group in (None, kind.group) and version in (None, feed.resource.version)
