"""The informer of a fake cache: the real protocol on an API that answers at once. It starts no task and never
waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar, cast

from kopf_selectcache.cache.checks import running_loop
from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.client.transport import JSON, Refused, Transport, seconds_to_wait
from kopf_selectcache.core.protocol.decoder import read_refusal
from kopf_selectcache.core.protocol.machine import (
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
from kopf_selectcache.core.protocol.query import watching
from kopf_selectcache.core.selection.kinds import Key
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.store import Cause, Change
from kopf_selectcache.core.store.substore import Branch
from kopf_selectcache.errors import Missing, ReadError
from kopf_selectcache.informer.claims import Claims
from kopf_selectcache.informer.environment import World
from kopf_selectcache.informer.health import Condition
from kopf_selectcache.informer.informer import Feed
from kopf_selectcache.informer.list_version import AgreedVersion
from kopf_selectcache.informer.phrase import Phrase
from kopf_selectcache.informer.reflector import Listwatch
from kopf_selectcache.settings.declaration import Cached, named
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.settings.planner import Plan, Stream
from kopf_selectcache.testing._fake_cluster import OfflineCluster
from kopf_selectcache.testing.api.request import Answer, Request
from kopf_selectcache.testing.api.watching import Watch as Watched

_T = TypeVar("_T")


class OfflineFeed(Feed):
    """Follow the embedded API without a task: each change is applied within the call that makes it."""

    def __init__(
        self,
        key: Key,
        declared: Cached,
        settings: SelectCacheSettings,
        transport: InProcess,
        *,
        namespaces: tuple[str, ...] | None,
        claims: Claims,
        resolved: Callable[[], object],
    ) -> None:
        world = World(
            settings,
            cast("Transport", transport),
            logging.getLogger(__name__),
            chance=lambda: 0.5,
            clock=monotonic,
            sleep=asyncio.sleep,
        )
        super().__init__(key, declared, world=world, namespaces=namespaces, claims=claims, resolved=resolved)
        self.packing = None  # Training takes a thread.
        self._served = transport
        self._lines: list[_Listwatch] = []
        try:
            with named(key):
                self._start()
        except NotServed as error:
            raise Missing(
                f"{error}, and no object tells what it is",
                remedy="Give the fake cache its CustomResourceDefinition, among the objects",
            ) from None
        if not all(each.open for each in self._lines):
            raise self.part().error or ReadError(self.trouble, remedy=self.remedy)

    def follow(self) -> None:
        """Apply all changes so far; if the watch has ended, resolve the kind again."""
        if not all(each.open for each in self._lines):
            self._resolving = True
            try:
                self._start()
            except NotServed as error:
                self._conditions[0].missing(
                    Phrase("%(problem)s", problem=error), Phrase("Create its definition")
                )
            return
        for each in self._lines:
            each.follow()
        if self._merging.doubts:  # All branches receive each change at once.
            for each in self._lines:
                each.hurry()

    def subscribe(self, listener: Callable[[Change | None], None]) -> Callable[[], None]:
        """Call the listener on its current loop, from the thread of the change."""
        loop = running_loop()

        def told(change: Change | None) -> None:
            if loop is None or loop is running_loop():
                listener(change)
            else:
                with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                    loop.call_soon_threadsafe(listener, change)

        return super().subscribe(told)

    def _start(self) -> None:
        self._begin(_at_once(self._planned()))
        self._resolving = False
        for each in self._lines:
            each.start()

    def _begin(self, planned: Plan, *, cause: Cause = Cause.REPLACED) -> None:
        self._lines = []
        super()._begin(planned, cause=cause)

    def _listwatch(
        self,
        stream: Stream,
        branch: Branch,
        condition: Condition,
        agreed: AgreedVersion | None,
        resource: Resource,
    ) -> Listwatch:
        made = _Listwatch(
            stream,
            branch,
            condition,
            resource,
            world=self._world,
            counts=self.counts,
            notify=self._taken_in,
            projection=self.projection,
            agreed=agreed,
        )
        made.served = self._served
        self._lines.append(made)
        return made


class _Listwatch(Listwatch):
    """Receive the present objects, and return."""

    served: InProcess
    _watch: Watched | None = None
    _state: State

    @property
    def open(self) -> bool:
        return self._watch is not None

    def start(self) -> None:
        """List, and open the watch."""
        self._state = Idle(Known())
        self._take(Start())

    def follow(self) -> None:
        """Apply all changes so far."""
        watch = self._watch
        if watch is None:
            return
        for line in watch.lines():
            self._take(self._checked.reader.line(line.rstrip(b"\n")))
        if watch.ended and watch is self._watch:
            self._take(Lost("the watch ended", lived=True))

    def hurry(self) -> None:
        """Receive a bookmark now, instead of within a minute."""
        if self._watch is not None:
            self._watch.bookmark()
        self.follow()

    def _take(self, input_: Input) -> None:
        """Run the protocol until it waits for the next event."""
        stepped = step(self._state, input_)
        self._state = stepped.state
        match self._carried_out(stepped.effects):
            case List() as command:
                for answer in _all(self._inputs(command)):
                    self._take(answer)
            case Watch() as command:
                self._open(command)
            case Wait(failures) if failures < PATIENCE and self.condition.error() is None:
                self._take(Due())  # Waiting changes nothing here.
            case Wait():
                self._watch = None

    def _open(self, command: Watch) -> None:
        try:
            self._watch = self.served.stream(
                self.stream.path(self.resource), self.stream.query() | watching(command)
            )
        except Refused as refused:
            self._take(refused.refusal)
        else:
            self._take(Opened())
            self.follow()


class InProcess:
    """A transport without sockets. Instead of `watch`, which would have to wait, it has `stream`."""

    def __init__(self, cluster: OfflineCluster) -> None:
        self._cluster = cluster

    async def get(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        accept: str = JSON,
        most: int | None = None,  # The signature is that of Transport.  # noqa: ARG002
    ) -> bytes:  # All responses are in memory.
        answer = self._ask(path, query, accept)
        assert isinstance(answer, Answer), "only watches are something else"
        return _body_of(answer)

    def stream(self, path: str, query: Mapping[str, str]) -> Watched:
        answer = self._ask(path, query, JSON)
        if isinstance(answer, Answer):
            raise Refused(read_refusal(answer.code, answer.body))
        return answer

    def _ask(self, path: str, query: Mapping[str, str], accept: str) -> Answer | Watched:
        return self._cluster.answer(self._request(path, query, accept))

    def _request(self, path: str, query: Mapping[str, str], accept: str) -> Request:
        return Request(
            "GET", path, query, {"authorization": f"Bearer {self._cluster.token}", "accept": accept}
        )


class OfReads(InProcess):
    """The same for requests of reads, with faults."""

    async def get(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        accept: str = JSON,
        most: int | None = None,  # The signature is that of Transport.  # noqa: ARG002
    ) -> bytes:  # All responses are in memory.
        return _body_of(self._cluster.answer_read(self._request(path, query, accept)))


def _body_of(answer: Answer) -> bytes:
    if answer.code != 200:
        raise Refused(read_refusal(answer.code, answer.body, retry_after=seconds_to_wait(answer.headers)))
    return answer.body


def _at_once(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits, though it may yield to others: here are none."""
    try:
        while coroutine.send(None) is None:
            pass
    except StopIteration as end:
        return cast("_T", end.value)
    raise AssertionError(f"{coroutine} waits, and nothing here is worth waiting for")


def _all(generator: AsyncGenerator[_T, None]) -> Iterator[_T]:
    while True:
        try:
            yield _at_once(anext(generator))
        except StopAsyncIteration:
            return
