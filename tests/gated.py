"""An operator of which a test is Kopf: it calls handlers with bodies, over an embedded cluster, on a clock
that the test moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any
from unittest.mock import patch

import kopf
from kopf._cogs.clients.auth import vault_var
from kopf._cogs.structs.credentials import Vault
from kopf._core.engines.posting import settings_var

from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.reach import Comparison
from kopf_selectcache.plugin.operator import Operator, launch
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Fault, Refuse, Silence
from kopf_selectcache.testing.faults.injector import Planned
from kopf_selectcache.testing.request_log import Asked
from tests.faults.environment import connections_closed, until

_SILENT = Silence()
_REFUSED = Refuse(503)
_LOOKS, _PAUSE = 300, 0.01
"""How often, with real seconds between, the clock looks for an answer or the end of a thread. After that they
count as withheld. Of a process that stands still, one look is lost, and not all."""


class Clock:
    """A clock that moves when the test moves it, and wakes those whose sleep is over then."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleeping: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._requests: set[asyncio.Future[Any]] = set()

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Let `move_until` wait for the end of this block before it moves the clock."""
        request: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests.add(request)
        try:
            yield
        finally:
            self._requests.discard(request)
            request.cancel()

    @contextmanager
    def standing_for_threads(self) -> Iterator[None]:
        """Let `move_until` wait within this block for what the loop runs in threads, too."""
        loop = asyncio.get_running_loop()
        run_in_executor = loop.run_in_executor

        def run(*args: Any) -> asyncio.Future[Any]:
            running = run_in_executor(*args)
            self._requests.add(running)
            running.add_done_callback(self._requests.discard)
            return running

        with patch.object(loop, "run_in_executor", run):
            yield

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._sleeping, (self.now + seconds, next(self._numbers), future))
        await future

    async def move(self, seconds: float) -> None:
        """Move the clock, and let everything go on that waited for that."""
        await settle()
        end = self.now + seconds
        while self._sleeping and self._sleeping[0][0] <= end:
            self.now, _, future = heappop(self._sleeping)
            if not future.done():
                future.set_result(None)
            await settle()
        self.now = end
        await settle()

    async def move_until(self, condition: Any, *, step: float = 0.5, most: float = 600.0) -> None:
        """Move the clock until something is so, for ten minutes of its time at most."""
        end = self.now + most
        while not condition():
            assert self.now < end, "waited in vain"
            for _ in range(300):  # Sockets are not as fast as this clock.
                await asyncio.sleep(0)
                if condition():
                    return
            if not await self.wait_for_answers():
                await self.move(step)

    async def wait_for_answers(self) -> bool:
        """Wait until a request is answered, if one is under way; return False if none is, or if the server
        withholds the answers: what waits for them needs the clock."""
        if not self._requests:
            return False
        for _ in range(_LOOKS):
            done, _under_way = await asyncio.wait(
                self._requests, timeout=_PAUSE, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return True
        self._requests.clear()
        return False


class _Transport(KopfTransport):
    """A transport whose requests the clock waits for; for watches, which stay open, until they are."""

    def __init__(self, vault: Vault, clock: Clock) -> None:
        super().__init__(vault, request_timeout=60.0, clock=lambda: clock.now, sleep=clock.sleep)
        self._standing = clock.standing

    async def get(self, *args: Any, **kwargs: Any) -> bytes:
        with self._standing():
            return await super().get(*args, **kwargs)

    async def send(self, *args: Any, **kwargs: Any) -> bytes:
        with self._standing():
            return await super().send(*args, **kwargs)

    @asynccontextmanager
    async def watch(self, *args: Any, **kwargs: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async with AsyncExitStack() as open_ones:
            with self._standing():
                stream = await open_ones.enter_async_context(super().watch(*args, **kwargs))
            yield stream


def count_openings(comparison: Comparison) -> Callable[[], int]:
    """Return a function that returns how many watches of the stream were opened since."""
    opened, was_opened = 0, comparison.open

    def open_() -> None:
        nonlocal opened
        opened += 1
        was_opened()

    comparison.open = open_  # type: ignore[method-assign]
    return lambda: opened


async def settle() -> None:
    """Let everything go on that needs nothing from outside, and what is on its way over sockets a little."""
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass
class Gated:
    """One operator."""

    cluster: EmbeddedCluster
    operator: Operator
    clock: Clock
    kind: str

    @property
    def informer(self) -> Informer:
        return self.operator.runtime.informer(self.kind)

    @property
    def cache(self) -> Cache:
        return Cache(self.operator.runtime)

    async def cut(self, fault: Fault = _SILENT) -> Planned:
        """End all watches, and let the fault happen to those that come next."""
        planned = self.cluster.faults.add(fault, verb="watch", resource="pods")
        openings = [count_openings(each.comparison) for each in self.informer.state.reflectors]
        self.cluster.cut("watch", "pods")
        if fault != _REFUSED:
            await self.clock.move_until(
                lambda: all(
                    each.comparison.is_open and opened()
                    for each, opened in zip(self.informer.state.reflectors, openings, strict=True)
                )
            )
        else:
            await self.clock.move_until(
                lambda: (
                    planned.hits
                    and not any(each.comparison.is_open for each in self.informer.state.reflectors)
                )
            )
        return planned

    async def catch_up(self) -> None:
        """Send a bookmark, which shows that each watch has caught up."""
        self.cluster.bookmark()
        await until(lambda: all(each.comparison.has_caught_up for each in self.informer.state.reflectors))

    async def compared(self, times: int = 1) -> None:
        """Wait until `times` lists for comparisons were answered and processed."""
        await until(lambda: sum(asked.code == 200 for asked in self.comparisons()) >= times)
        for _ in range(20):
            await settle()

    def comparisons(self) -> list[Asked]:
        """Return the lists that watches were compared with. Lists of an informer are not as new as a version
        here."""
        return [
            asked
            for asked in self.cluster.requests
            if asked.verb == "list"
            and asked.query.get("resourceVersionMatch") == "NotOlderThan"
            and "fieldSelector" not in asked.query
        ]


@asynccontextmanager
async def gated(
    declared: Any,
    *objects: Mapping[str, Any],
    kind: str = "pods",
    namespaces: tuple[str, ...] | None = None,
    **options: Any,
) -> AsyncIterator[Gated]:
    """Run the caches of an operator whose handlers the test calls. They are synced, and each watch is
    open."""
    cluster, clock = EmbeddedCluster(tls=False), Clock()
    settings = kopf.OperatorSettings()
    settings.peering.clusterwide = True
    own = settings_of(settings)
    own.audit_interval = 0
    for name, value in options.items():
        setattr(own, name, value)
    own.selectors[kind] = declared
    with cluster.in_thread(), clock.standing_for_threads():
        for namespace in ("shop", "infra"):
            cluster.namespace(namespace)
        cluster.create(*objects)
        vault = Vault({"login": kopf.ConnectionInfo(server=cluster.url, token=cluster.token)})
        tokens = settings_var.set(settings), vault_var.set(vault)

        def make_runtime(_: kopf.OperatorSettings, **__: Any) -> Runtime:
            return Runtime(
                own,
                _Transport(vault, clock),
                namespaces=namespaces,
                chance=lambda: 1.0,
                logger=logging.getLogger("kopf_selectcache"),
                clock=lambda: clock.now,
                sleep=clock.sleep,
                rest=clock.sleep,
            )

        try:
            operator = launch(settings, make_runtime=make_runtime)
            try:
                environment = Gated(cluster, operator, clock, kind)
                await operator.gate(None, None)
                await until(
                    lambda: all(each.comparison.is_open for each in environment.informer.state.reflectors)
                )
                yield environment
            finally:
                operator.task.cancel()
                await asyncio.wait({operator.task})
                await vault.close()
            await connections_closed()  # Not after a failure, which may leave a request that nothing answers.
        finally:
            settings_var.reset(tokens[0])
            vault_var.reset(tokens[1])
