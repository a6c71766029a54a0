"""The informer of a fake cache: the real protocol on an API that answers at once. It starts no task and never
waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from time import monotonic
from typing import Any, NoReturn, TypeVar, cast

from kopf_selectcache._errors import own_loop
from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.client.reading import Refused, seconds_to_wait
from kopf_selectcache.client.transport import JSON, Transport, Warned
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.decoder import read_refusal
from kopf_selectcache.core.protocol.machine import (
    PATIENCE,
    Due,
    Input,
    List,
    Lost,
    Opened,
    Start,
    Wait,
    Watch,
)
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.errors import Missing, ReadError
from kopf_selectcache.informer.environment import Environment
from kopf_selectcache.informer.filter_change import FilterChange
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.namespaces import NamespacesByLabel
from kopf_selectcache.informer.reflector import Reflector
from kopf_selectcache.informer.stream_writer import failure_of
from kopf_selectcache.informer.streams import Claims
from kopf_selectcache.settings.declaration import Cached, named
from kopf_selectcache.settings.options import SelectCacheSettings

from ._fake_cluster import OfflineCluster
from .api.request import Answer, Request
from .api.watching import Watch as Watched

_T = TypeVar("_T")


class FakeInformer:
    """Feed an informer from the embedded API without a task: each change is applied within the call that
    makes it.
    """

    def __init__(
        self,
        key: KindKey,
        declared: Cached,
        settings: SelectCacheSettings,
        transport: InProcess,
        *,
        namespaces: tuple[str, ...] | None,
        claims: Claims,
        resolved: Callable[[], object],
        line: str,
        followed: NamespacesByLabel | None = None,
        deliver: Callable[[Callable[[Any], object]], Callable[[Any], object]] | None = None,
    ) -> None:
        environment = Environment(
            settings.of_kind(declared),
            cast("Transport", transport),
            logging.getLogger(__name__),
            chance=lambda: 0.5,
            clock=monotonic,
            sleep=lambda _: asyncio.sleep(0),  # All streams receive each change at once.
        )
        self.informer = informer = Informer(
            key,
            declared,
            environment=environment,
            namespaces=namespaces,
            claims=claims,
            resolved=resolved,
            deliver=deliver or _on_its_loop,
            line=line,
            followed=followed,
        )
        informer.filter_change = FilterChange(
            informer.swapper, replace(environment, sleep=self._hurry), self._begin
        )
        informer.swapper.packing = None  # Training takes a thread.
        self._served = transport
        self._streams: list[_FakeStream] = []
        try:
            with named(key):
                self._start()
        except NotServed as error:
            raise Missing(
                f"{error}, and no object tells what it is",
                remedy="Add its CustomResourceDefinition to the objects of the fake cache",
            ) from None
        if not all(each.is_open for each in self._streams):
            raise informer.state.part().error or ReadError(
                informer.state.message, remedy=informer.state.remedy
            )

    def follow(self) -> None:
        """Apply all changes so far; if the watch has ended, resolve the kind again."""
        if not all(each.is_open for each in self._streams):
            try:
                self._start()
            except NotServed as error:
                self.informer.state.resolving.fail(error)
            return
        for each in self._streams:
            each.hurry()
        if self.informer.chosen.is_outdated and self.informer.filter_change.is_idle:
            self._exchange()
        if self.informer.state.union.unconfirmed:  # All streams receive each change at once.
            for each in self._streams:
                each.hurry()

    async def change(
        self,
        declared: Cached,
        *,
        timeout: float,  # As that of FilterChange.  # noqa: ASYNC109
        within: AbstractAsyncContextManager[None],
    ) -> None:
        """Change what is declared, with streams that answer at once."""
        try:
            await self.informer.filter_change.change(declared, timeout=timeout, within=within)
        finally:
            self.informer.swapper.packing = None
            self._streams = [
                each for each in self._streams if each.reflector in self.informer.state.reflectors
            ]

    async def _hurry(self, _: float) -> None:
        """Let all streams progress, instead of a wait for that."""
        self._hurry_all()
        await asyncio.sleep(0.01)  # If that was not enough, another change is under way.

    def _exchange(self) -> None:
        """Change the filter to the namespaces that have the label now."""
        informer, swapper = self.informer, self.informer.swapper
        prepared = swapper.prepare(informer.declared)
        assert prepared is not None, "there is a present state"
        swapper.inherit_writes(prepared)
        for each in prepared.new:
            each.index(tuple(prepared.state.indexes.values()))
            self._begin(each)
        self._hurry_all()
        assert prepared.is_synced, "its streams wait"
        swapper.swap(prepared)
        self._streams = [each for each in self._streams if each.reflector in informer.state.reflectors]
        informer.wake_readers()

    def _hurry_all(self) -> None:
        for each in self._streams:
            each.hurry()

    def _begin(self, reflector: Reflector) -> None:
        """Start a new stream."""
        stream = _FakeStream(reflector, self._served)
        self._streams.append(stream)
        stream.start()

    def _start(self) -> None:
        self._streams = []
        self.informer.mark_resolving()
        self.informer.swapper.begin(_at_once(self.informer.resolve()))
        self.informer.mark_resolved()
        self._streams = [_FakeStream(each, self._served) for each in self.informer.state.reflectors]
        for each in self._streams:
            each.start()


def _on_its_loop(listener: Callable[[Any], object]) -> Callable[[Any], object]:
    """Call the listener on its current loop, from the thread of the change."""
    loop = own_loop()

    def call(argument: object) -> None:
        if loop is None or loop is own_loop():
            listener(argument)
        else:
            with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                loop.call_soon_threadsafe(listener, argument)

    return call


class _FakeStream:
    """Execute the commands of a stream writer at once."""

    def __init__(self, reflector: Reflector, served: InProcess) -> None:
        self.reflector = reflector
        self._writer = reflector.writer
        self._served = served
        self._watch: Watched | None = None

    @property
    def is_open(self) -> bool:
        return self._watch is not None

    def start(self) -> None:
        """List, and open the watch."""
        self._take(Start())

    def follow(self) -> None:
        """Apply all changes so far."""
        watch = self._watch
        if watch is None:
            return
        for line in watch.lines():
            self._take(self.reflector.requests.checked.reader.line(line.rstrip(b"\n")))
        if watch.ended and watch is self._watch:
            self._take(Lost("the watch ended", lived=True))

    def hurry(self) -> None:
        """Receive a bookmark now, instead of within a minute."""
        if self._watch is not None:
            self._watch.bookmark()
        self.follow()

    def _take(self, input_: Input) -> None:
        """Run the protocol until it waits for the next event."""
        match self._writer.take(input_):
            case List() as command:
                self._take(self._answer(command))
            case Watch() as command:
                self._open(command)
            case Wait(failures) if failures < PATIENCE and self.reflector.condition.error() is None:
                self._take(Due())  # Waiting changes nothing here.
            case Wait():
                self._watch = None

    def _answer(self, command: List) -> Input:
        """Return a page, or the failure of the request."""
        try:
            request, requests = self._request(command.query()), self.reflector.requests
            return requests.checked.reader.page(self._served.ask(*request, requests.list_accept))
        except (Refused, Garbled) as error:
            return failure_of(error)

    def _open(self, command: Watch) -> None:
        try:
            request = self._request(command.query())
            self._watch = self._served.stream(*request, self.reflector.requests.watch_accept)
        except Refused as refused:
            self._take(refused.refusal)
        else:
            self._take(Opened())
            self.follow()

    def _request(self, query: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        """Return the path and the query of a request."""
        stream = self.reflector.stream
        return stream.path(self.reflector.resource), {**stream.query(), **query}


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
        most: int | None = None,  # The signature of Transport.  # noqa: ARG002
    ) -> bytes:  # All responses are in memory.
        return self.ask(path, query, accept)

    def ask(self, path: str, query: Mapping[str, str], accept: str = JSON) -> bytes:
        answer = self._ask(path, query, accept)
        assert isinstance(answer, Answer), "only watches are something else"
        return _body_of(answer)

    def stream(self, path: str, query: Mapping[str, str], accept: str = JSON) -> Watched:
        answer = self._ask(path, query, accept)
        if isinstance(answer, Answer):
            raise Refused(read_refusal(answer.code, answer.body))
        return answer

    def _ask(self, path: str, query: Mapping[str, str], accept: str) -> Answer | Watched:
        return self._cluster.answer(self._request(path, query, accept))

    def _request(self, path: str, query: Mapping[str, str], accept: str) -> Request:
        return Request(
            "GET", path, query, {"authorization": f"Bearer {self._cluster.token}", "accept": accept}
        )


class Faulty(InProcess):
    """The same for the requests of reads and writes, with faults."""

    def ask(self, path: str, query: Mapping[str, str], accept: str = JSON) -> bytes:
        return _body_of(self._cluster.answer_read(self._request(path, query, accept)))

    def watch(self, path: str, query: Mapping[str, str], **_: object) -> NoReturn:
        raise AssertionError(f"a read or a write opens no watch: {path} {query}")

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        content_type: str = JSON,
        warned: Warned | None = None,
    ) -> bytes:
        headers = {
            "authorization": f"Bearer {self._cluster.token}",
            "accept": JSON,
            "content-type": content_type,
        }
        answer = self._cluster.answer_write(Request(method, path, query, headers, body))
        if warned is not None and "Warning" in answer.headers:
            warned(answer.headers["Warning"])
        return _body_of(answer)


def _body_of(answer: Answer) -> bytes:
    if answer.code not in (200, 201, 202):
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
