"""The cache of one declared kind, kept: carries out what the protocol commands, and feeds it what comes.

It never dies: whatever goes wrong is waited for and tried again, and told in the health of the feed that it concerns.
It never awaits handlers. Time and chance are functions, handed in; only silence is measured by the loop itself.
"""
from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from time import monotonic
from typing import TypeAlias

from .core.backoff import delay
from .core.fields import Key, Kind, find
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
from .errors import ConflictingSelectors, NotSelectable, StateError
from .health import Condition, Health
from .keys import likely
from .observe import Counts
from .queries import listing, selecting, watching
from .selector import Comparisons, Selector
from .settings import SelectCacheSettings
from .transport import Refused, Transport, Unreachable

Claims: TypeAlias = "dict[tuple[str, str], Feed]"
"""Which feed keeps which resource, by API version and plural: several keys may turn out to mean the same."""

LIVED = 60.0
"""A stream that was open for so many seconds was a good one, even if it had nothing to say."""


class Feed:
    """The cache of one declared kind: its store, and the task that keeps it."""

    def __init__(
        self, key: Key, declared: Selector, *, settings: SelectCacheSettings, transport: Transport,
        namespaces: tuple[str, ...] | None, chance: Callable[[], float], logger: logging.Logger,
        clock: Callable[[], float] = monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        claims: Claims | None = None,
    ) -> None:
        self.key = key if isinstance(key, str) else "/".join(key)
        """As it was declared, for messages."""
        self.resource: Resource | None = None
        """None until the cluster has been asked what the key means."""
        self.filter = declared
        """As declared; once the resource is known, with the namespaces that the operator is confined to."""
        self.store = Store()
        self.comparisons = Comparisons()
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
        self._claims = claims if claims is not None else {}
        self._heard: float | None = None
        self._listeners: list[Callable[[Change | None], None]] = []
        self._condition = Condition(
            self, sync_timeout=settings.sync_timeout, clock=clock, logger=logger, unreadable=lambda: self._notify(None))

    def __str__(self) -> str:
        return str(self.resource) if self.resource is not None else self.key

    def age(self) -> float | None:
        """Return the seconds since the server last confirmed what is held; None before the first complete list."""
        return None if self._heard is None or not self.store.version else self._clock() - self._heard

    @property
    def kind(self) -> Kind | None:
        """What is cached, as far as it is known: of a built-in kind before the cluster is asked."""
        return self.resource.kind if self.resource is not None else find(self._key)

    @property
    def health(self) -> Health:
        """How the cache is doing."""
        return self._condition.health

    @property
    def trouble(self) -> str:
        """What is in the way, as a sentence without its full stop; empty if nothing is."""
        return self._condition.trouble

    @property
    def remedy(self) -> str:
        """The one thing to change."""
        return self._condition.remedy

    @property
    def synced(self) -> bool:
        """Whether the cache holds what the server had, and follows."""
        return self.health is Health.SYNCED

    def unreadable(self) -> StateError | None:
        """Return the error that reads must raise, since the cache cannot be kept; None if it can be."""
        return self._condition.error()

    async def settled(self) -> None:
        """Wait until the feed is synced, or has said why it is not."""
        await self._condition.settled()

    def subscribe(self, listener: Callable[[Change | None], None]) -> Callable[[], None]:
        """Call the listener, on the loop's thread, with each change, and with None when reads must raise; return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _notify(self, change: Change | None) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception:   # It is the listener's trouble alone.
                self._logger.exception("Somebody who is told of changes in the cache of %s failed.", self)

    # ---- Keeping it.

    async def run(self) -> None:
        """Keep the cache until cancelled. A mistake of ours costs a relist, never the operator."""
        while True:
            try:
                await self._follow(await self._resolved())
            except Exception as error:
                self._logger.exception("The cache of %s stumbled over a mistake of its own, and starts again.", self)
                self._condition.mistaken(error)
                await self._sleep(delay(6, self._chance()))

    async def _resolved(self) -> Resource:
        """Ask until the cluster knows the kind, and the filter fits it."""
        failures = 0
        self._asking = "get"
        while True:
            try:
                resource = await resolve(self._transport, self._key)
                self._claim(resource)
                self.resource = resource
                self.filter = self._confined(resource)
            except NotServed as error:
                meant = f"Did you mean {meant!r}? If not, install" if (meant := likely(self._key)) is not None else "Install"
                self._condition.missing(str(error), f"{meant} its definition, or correct the key; it is looked for again and again")
            except (ConflictingSelectors, NotSelectable) as error:
                self._condition.rejected(error.what, error.remedy)
            except Refused as error:
                self._told(error.refusal)
            except (Unreachable, Garbled) as error:
                self._told(Lost(str(error), garbled=isinstance(error, Garbled)))
            else:
                return resource
            await self._sleep(delay(failures, self._chance(), slow=self.unreadable() is not None))
            failures += 1

    def _claim(self, resource: Resource) -> None:
        """Raise ConflictingSelectors if another key was found to mean the same: one of the filters would never be read."""
        for claimed in [each for each, feed in self._claims.items() if feed is self]:
            del self._claims[claimed]   # It was served in another version before.
        other = self._claims.setdefault((resource.api_version, resource.kind.plural), self)
        if other is not self:
            raise ConflictingSelectors(
                f"{self.key} and {other.key} are both {resource}", remedy=f"Declare them once: remove settings.selectcache.selectors[{self._key!r}]")

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
                self._notify(change)
        return command

    async def _waited(self, command: Wait) -> AsyncGenerator[Input, None]:
        # There is no hurry where only a person can help; while that is not certain, there is.
        slow = command.slow and self.unreadable() is not None
        await self._sleep(delay(command.failures, self._chance(), at_least=command.at_least, slow=slow))
        yield Due()

    async def _inputs(self, command: List | Watch, resource: Resource, reader: Reader) -> AsyncGenerator[Input, None]:
        self._asking = "list" if isinstance(command, List) else "watch"
        namespaces, asked = self.filter.namespaces, self._clock()
        path = resource.path(namespaces[0] if namespaces is not None else None)
        try:
            if isinstance(command, List):
                self.counts.lists += 1
                yield reader.page(await self._transport.get(path, self._query() | listing(command, self._settings.page_limit)))
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
                chunks = await stack.enter_async_context(self._transport.watch(path, self._query() | watching(command)))
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
        return selecting(self.filter)

    def _told(self, trouble: Refusal | Lost | Silent | None) -> None:
        if trouble is None:
            self._condition.well()
            return
        self._why = _reason(trouble)
        self.counts.failures[self._why] += 1
        self._condition.troubled(trouble, verb=self._asking)


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
