"""The runtime of a fake cache: that of an operator, with a transport that answers at once and a `sleep` that
hurries.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, cast
from weakref import WeakSet, ref

from kopf_selectcache import Cached, SelectCacheSettings
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import JSON, Warned
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.errors import Missing
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime

from ._fake_cluster import OfflineCluster
from ._own_loop import OwnLoop, running_loop
from .api.request import Answer, Request
from .api.watching import Watch


class FakeRuntime(Runtime):
    """The caches of an operator that needs no loop: each change is applied within the call that makes it."""

    def __init__(
        self,
        settings: SelectCacheSettings,
        cluster: OfflineCluster,
        namespaces: tuple[str, ...] | None,
        loop: OwnLoop,
    ) -> None:
        self._own, self._running = loop, InProcess(cluster, loop)
        super().__init__(
            settings,
            self._running,
            namespaces=namespaces,
            chance=lambda: 0.5,
            logger=logging.getLogger("kopf_selectcache"),
            clock=loop.clock,
            sleep=loop.sleep,
        )
        for informer in self.informers.values():
            self._tell_outside(informer)

    def _tell_outside(self, informer: Informer) -> None:
        """Call subscribers as code of the test, on its loop."""
        subscribe = informer.subscribe

        def subscribe_outside(
            listener: Callable[[Any], object],
            completed: Callable[[], object] = lambda: None,
            keep: Callable[[Any], object] = lambda _: True,
        ) -> Callable[[], None]:
            outside = self._own.outside
            return subscribe(
                cast("Any", outside(listener)), partial(outside(lambda _: completed()), None), outside(keep)
            )

        informer.subscribe = subscribe_outside  # type: ignore[method-assign]

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """That of the test, whichever runs now."""
        running = running_loop()
        if running is not None and not self._own.is_current:
            self._own.home = running
        return running or cast("asyncio.AbstractEventLoop", _NoLoop())

    @loop.setter
    def loop(self, _: asyncio.AbstractEventLoop) -> None:
        """Ignore the one that it was made on."""

    def settle(self) -> None:
        """Return once all caches follow the cluster."""
        self._own.settle(
            lambda: all(
                each.is_current and each.filter_change.is_idle and not each.chosen.is_outdated
                for each in self.all_informers
            )
        )

    def check(self) -> None:
        """Raise why a kind cannot be cached."""
        for informer in self.informers.values():
            error = informer.state.part().error
            if isinstance(error, Missing):
                raise Missing(
                    f"{error.what}, and no object tells what it is",
                    remedy="Add its CustomResourceDefinition to the objects of the fake cache",
                )
            if error is not None:
                self._own.run(informer.resolve())  # It raises what is wrong with the declaration.
                raise error

    def follow_changes(self) -> None:
        """Apply all changes of the cluster so far."""
        self._running.bookmark()
        for informer in self.informers.values():
            informer.look_again()
        self.settle()

    def declare(self, key: KindKey, cached: Cached) -> Informer:
        async def declare() -> Informer:
            return super(FakeRuntime, self).declare(key, cached)

        informer = self._own.run(declare())
        self.settle()
        self._tell_outside(informer)
        return informer

    async def change(self, key: KindKey, informer: Informer, cached: Cached, *, timeout: float) -> None:  # noqa: ASYNC109  # As that of Runtime.
        task = self._own.start(super().change(key, informer, cached, timeout=timeout))
        await asyncio.sleep(0)  # Another call may overtake it.
        self._own.finish(task)
        self.settle()

    async def remove(self, informer: Informer, place: str) -> None:
        self._own.run(super().remove(informer, place))

    async def withdraw(self, informer: Informer) -> None:
        self._own.run(super().withdraw(informer))


class Held:
    """A runtime as reads hold it. Its own tasks hold the runtime, and not this; so they end once nobody can
    read any more.
    """

    def __init__(
        self, settings: SelectCacheSettings, cluster: OfflineCluster, namespaces: tuple[str, ...] | None
    ) -> None:
        loop = OwnLoop()

        async def start() -> tuple[FakeRuntime, asyncio.Task[None]]:
            runtime = FakeRuntime(settings, cluster, namespaces, loop)
            return runtime, loop.create_task(runtime.run())

        self._runtime, running = loop.run(start())
        end_unused()
        _RUNNING[ref(self)] = loop, running
        self.names = self._runtime.names  # Each read takes it.
        self._runtime.settle()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


_RUNNING: dict[ref[Held], tuple[OwnLoop, asyncio.Task[None]]] = {}
"""The runtimes that have not ended: state of the process, on purpose. Code that makes a `FakeCache` gives it
nothing by which it could find those before it. Without a holder, the garbage collector would close their
coroutines, which must be cancelled and awaited.
"""


def end_unused(*, also_used: bool = False) -> None:
    """End the runtimes that nobody holds. Call it where another one begins. The garbage collector must not
    call it: that runs in any thread, even within a step of another loop.
    """
    for held, (loop, running) in tuple(_RUNNING.items()):
        if (also_used or held() is None) and _RUNNING.pop(held, None) is not None:
            running.cancel()
            with suppress(asyncio.CancelledError):
                loop.finish(running)


atexit.register(end_unused, also_used=True)


class _NoLoop:
    """The loop of an operator in a sync test."""

    def is_running(self) -> bool:
        return False

    def call_soon_threadsafe(self, _: object) -> None:
        """Do nothing: without a loop, a recorder writes no Events."""


class InProcess:
    """A transport without sockets, which answers at once. Reads and writes meet the faults of the cluster."""

    def __init__(self, cluster: OfflineCluster, loop: OwnLoop) -> None:
        self._cluster, self._loop = cluster, loop
        self._watches = WeakSet[Watch]()

    def bookmark(self) -> None:
        """Send a bookmark to all watches, instead of within a minute."""
        for each in list(self._watches):
            each.bookmark()

    async def get(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        accept: str = JSON,
        most: int | None = None,  # All answers are in memory.  # noqa: ARG002
    ) -> bytes:
        request = self._request("GET", path, query, accept=accept)
        if not self._loop.is_current:
            return _body_of(self._cluster.answer_read(request))
        answer = self._cluster.answer(request)
        assert isinstance(answer, Answer), "only watches are something else"
        return _body_of(answer)

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        answer = self._cluster.answer(self._request("GET", path, query, accept=accept))
        if isinstance(answer, Answer):
            raise Refused.of(answer.code, answer.body, answer.headers)
        self._watches.add(answer)
        try:
            yield _chunks(answer)
        finally:
            answer.close()

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        content_type: str = JSON,
        warned: Warned | None = None,
    ) -> bytes:
        request = self._request(method, path, query, body, **{"content-type": content_type})
        answer = self._cluster.answer_write(request)
        if warned is not None and "Warning" in answer.headers:
            warned(answer.headers["Warning"])
        return _body_of(answer)

    def _request(
        self, method: str, path: str, query: Mapping[str, str], body: bytes = b"", **headers: str
    ) -> Request:
        of_all = {"authorization": f"Bearer {self._cluster.token}", "accept": JSON}
        return Request(method, path, query, {**of_all, **headers}, body)


async def _chunks(watch: Watch) -> AsyncIterator[bytes]:
    has_some = asyncio.Event()
    watch.on_ready(has_some.set)
    while not watch.ended or has_some.is_set():
        await has_some.wait()
        has_some.clear()
        yield b"".join(watch.lines())


def _body_of(answer: Answer) -> bytes:
    if answer.code not in (200, 201, 202):
        raise Refused.of(answer.code, answer.body, answer.headers)
    return answer.body
