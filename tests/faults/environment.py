"""An operator's caches in front of a scripted server: the real runner, transport and vault. Time passes when
they wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import kopf
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.transport import MAX_BYTES, KopfTransport
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.informer.health import Failure
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.declaration import Declared
from kopf_selectcache.settings.options import SelectCacheSettings

from .hurried import HurriedLoop
from .server import Server


def run(test: Coroutine[Any, Any, None], *, seconds: float = 180) -> None:
    """Run a test on a loop of its own, until its connections are closed. A wait that never ends is ended
    here, and a failure, not a measurement."""

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await test
        assert await reached(lambda: not open_connections()), "the test leaves connections open"

    asyncio.run(bounded())


def hurry(test: Coroutine[Any, Any, None]) -> None:
    """Run a test of a timeout on a loop whose time passes only when nothing else is left to do: the timeout
    ends what never comes, and nothing that a busy machine has not come to yet."""

    async def bounded() -> None:
        async with asyncio.timeout(3600):
            await test
            await connections_closed()

    with asyncio.Runner(loop_factory=partial(HurriedLoop, idle_turns=1000)) as runner:
        runner.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    """Let everything go on until something is so."""
    # What is waited for happens on sockets: there is no event for it.
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def reached(condition: Callable[[], object]) -> bool:
    """Let everything go on until something is so; return False if it never is."""
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            await until(condition)
    return bool(condition())


async def connections_closed() -> None:
    """Wait until the loop of the caller has no connection any more: those with TLS are closed a moment after
    their session."""
    await until(lambda: not open_connections())


def open_connections() -> int:
    """Return the number of connections of the running loop."""
    # It has its own wake-up pipe, too.
    return len(asyncio.get_running_loop()._selector.get_map()) - 1  # type: ignore[attr-defined]


async def nothing_left(before: set[asyncio.Task[Any]], *servers: Server) -> None:
    """Check that no task is left but these and those of servers."""
    for _ in range(10):  # Kopf leaves a generator of its vault to the loop to close.
        await asyncio.sleep(0)
    left = asyncio.all_tasks().difference(before, *(server.tasks for server in servers))
    assert not left, f"tasks are left: {left}"


@dataclass
class Time:
    """A clock that goes on when somebody sleeps, or is told to."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        """Let time pass between the tries of one request."""
        self.now += seconds
        await asyncio.sleep(0)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Environment:
    """One operator."""

    def __init__(self, server: Server, runtime: Runtime, time: Time, vault: Vault) -> None:
        self.server = server
        self.runtime = runtime
        self.time = time
        self.vault = vault
        self.cache = Cache(runtime)

    @property
    def informer(self) -> Informer:
        return self.runtime.informer("pods")

    def names(self) -> list[str]:
        """Return what a reader sees: the names, with their versions."""
        return sorted(
            f"{pod['metadata']['name']}@{pod['metadata']['resourceVersion']}"
            for pod in self.cache.list("pods", labels="app=web")
        )

    async def holds(self, *names: str) -> None:
        """Wait until readers see exactly this."""
        await until(lambda: self.informer.state.store.version and self.names() == sorted(names))

    async def synced(self) -> None:
        """Wait until all is well."""
        await until(lambda: self.informer.state.is_synced and not self.informer.state.message)

    def failure(self) -> Failure | None:
        """Return the failure of the first stream."""
        return self.informer.state.reflectors[0].condition.failure

    def code(self) -> int | None:
        """Return the status of the refusal that the first stream failed by; None for another failure."""
        failure = self.failure()
        return failure.code if isinstance(failure, Refusal) else None

    async def watched(self, times: int) -> None:
        """Wait until this number of watches has been requested."""
        await until(lambda: len(self.server.pods.watched) >= times)

    async def listed(self, times: int) -> None:
        """Wait until this number of pages has been requested."""
        await until(lambda: len(self.server.pods.listed) >= times)


@asynccontextmanager
async def operating(
    server: Server,
    *,
    vault: Vault | None = None,
    selectors: Mapping[str, Declared] | None = None,
    namespaces: tuple[str, ...] | None = None,
    request_timeout: float = 60.0,
    chance: float = 1.0,
    **options: Any,
) -> AsyncIterator[Environment]:
    """Keep caches in front of the server, for the code within the block; afterwards nothing of them is
    left."""
    vault = Vault({"login": kopf.ConnectionInfo(server=server.url)}) if vault is None else vault
    async with keeping(
        vault,
        selectors or {"pods": "app=web"},
        namespaces=namespaces,
        request_timeout=request_timeout,
        chance=chance,
        servers=[server],
        **options,
    ) as (runtime, time):
        yield Environment(server, runtime, time, vault)


@asynccontextmanager
async def keeping(
    vault: Vault,
    selectors: Mapping[Any, Any],
    *,
    namespaces: tuple[str, ...] | None = None,
    request_timeout: float = 60.0,
    servers: Collection[Server] = (),
    page_bytes: int = MAX_BYTES,
    chance: float = 1.0,
    **options: Any,
) -> AsyncIterator[tuple[Runtime, Time]]:
    """Keep caches with these credentials; afterwards nothing is left but what was there before, and
    servers."""
    # Time passes as fast as it is slept: audits would never end.
    declared = SelectCacheSettings(request_timeout=request_timeout, **{"audit_interval": 0, **options})
    declared.selectors.update(selectors)
    object.__setattr__(declared, "page_bytes", lambda: page_bytes)  # It may be less than can be assigned.
    time = Time()
    runtime = Runtime(
        declared,
        KopfTransport(
            vault, request_timeout=request_timeout, clock=time.clock, sleep=time.pause, max_bytes=page_bytes
        ),
        namespaces=namespaces,
        chance=lambda: chance,
        logger=logging.getLogger("kopf_selectcache"),
        clock=time.clock,
        sleep=time.sleep,
    )
    before = asyncio.all_tasks()
    task = asyncio.create_task(runtime.run())
    try:
        yield runtime, time
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled(), "the runtime ended before it was told to"
        await vault.close()
        await nothing_left(before, *servers)
