"""Replicas in one process, beside an embedded API server. Their clock goes on when none of them has anything
to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import count

import kopf
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.assignment.replica import Options
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.sharding.coordinator import Coordinator
from kopf_selectcache.testing import EmbeddedCluster

GROUP, NAMESPACE = "webapps", "operators"

IDLE_TURNS = 200
STEP = 0.5


class Clock:
    """A clock of several replicas."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._numbers = count()
        self._sleeping: list[tuple[float, int, asyncio.Future[None]]] = []

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heappush(self._sleeping, (self.now + seconds, next(self._numbers), future))
        await future

    def advance(self, seconds: float) -> None:
        self.now += seconds
        while self._sleeping and self._sleeping[0][0] <= self.now:
            future = heappop(self._sleeping)[2]
            if not future.done():
                future.set_result(None)


class Log:
    """Who acts on which range, and what went wrong."""

    def __init__(self) -> None:
        self.acting: dict[int, str] = {}
        self.overlaps: list[str] = []
        self.lines: list[str] = []

    def begin(self, who: str, range_: int) -> None:
        self.lines.append(f"{who} +{range_}")
        if range_ in self.acting:
            self.overlaps.append(f"{range_}: {self.acting[range_]} and {who}")
        self.acting[range_] = who

    def end(self, who: str, range_: int) -> None:
        self.lines.append(f"{who} -{range_}")
        if self.acting.get(range_) == who:
            del self.acting[range_]

    def of(self, who: str) -> set[int]:
        return {range_ for range_, each in self.acting.items() if each == who}


class Acting:
    """The ranges of one replica, in a log."""

    def __init__(self, who: str, log: Log) -> None:
        self.who, self.log = who, log

    async def warm(self, range_: int) -> None:
        await asyncio.sleep(0)

    def cool(self, ranges: Collection[int]) -> None:
        """It has nothing to drop."""

    async def reach(self, version: str) -> None:
        """It has no caches."""

    def start(self, ranges: Collection[int]) -> None:
        for range_ in ranges:
            self.log.begin(self.who, range_)

    async def drain(self, range_: int) -> bool:
        await asyncio.sleep(0)
        self.log.end(self.who, range_)
        return True

    def stop(self, range_: int) -> None:
        self.log.end(self.who, range_)


class Replica:
    def __init__(self, coordinator: Coordinator, tasks: list[asyncio.Task[None]]) -> None:
        self.coordinator, self.tasks = coordinator, tasks

    def kill(self) -> None:
        for task in self.tasks:
            task.cancel()


class Fleet:
    """The replicas of one operator."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster, self.clock, self.log = cluster, Clock(), Log()
        self.replicas: dict[str, Replica] = {}
        self.vaults: list[Vault] = []
        self._numbers = count()

    def start(self, name: str, *, ranges: int = 64, token: str = "") -> Replica:
        settings = SelectCacheSettings(audit_interval=0)
        vault = Vault(
            {"login": kopf.ConnectionInfo(server=self.cluster.url, token=token or self.cluster.token)}
        )
        transport = KopfTransport(vault, request_timeout=60.0)
        logger = logging.getLogger("kopf_selectcache")
        runtime = Runtime(settings, transport, namespaces=None, chance=lambda: 0.5, logger=logger)
        coordinator = Coordinator(
            Options(name, f"process{next(self._numbers)}", ranges=ranges),
            group=GROUP,
            namespace=NAMESPACE,
            transport=transport,
            clock=self.clock.time,
            sleep=self.clock.sleep,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            logger=logger,
        )
        coordinator.ranges = Acting(name, self.log)
        coordinator.follow(runtime)
        tasks = [asyncio.create_task(runtime.run()), asyncio.create_task(coordinator.run())]
        self.vaults.append(vault)
        self.replicas[name] = Replica(coordinator, tasks)
        return self.replicas[name]

    def kill(self, name: str) -> None:
        """End a replica at once. What it acts on is over with its process."""
        self.replicas.pop(name).kill()
        for range_ in self.log.of(name):
            self.log.end(name, range_)

    async def until(self, condition: Callable[[], object]) -> None:
        """Let everything go on until something is so."""
        idle = 0
        while not condition():
            await asyncio.sleep(0)
            for task in [task for each in self.replicas.values() for task in each.tasks if task.done()]:
                task.result()
            coordinators = [each.coordinator for each in self.replicas.values()]
            idle = 0 if any(each.under_way for each in coordinators) else idle + 1
            if idle >= IDLE_TURNS:
                idle = 0
                self.clock.advance(STEP)

    def owned(self) -> dict[str, int]:
        """Return the number of ranges that each replica acts on."""
        return {name: len(self.log.of(name)) for name in self.replicas}


@asynccontextmanager
async def fleet() -> AsyncIterator[Fleet]:
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        cluster.namespace(NAMESPACE)
        found = Fleet(cluster)
        try:
            yield found
        finally:
            tasks = [task for each in found.replicas.values() for task in each.tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for vault in found.vaults:
                await vault.close()
