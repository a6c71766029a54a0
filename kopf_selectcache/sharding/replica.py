"""Replica: one process of an operator that has several, as its settings say; and if it is ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING

from kopf_selectcache.core.assignment.replica import WORKS, Options, Timing
from kopf_selectcache.informer.informers import Runtime, wall
from kopf_selectcache.settings.sharding import Sharding

from .coordinator import Coordinator
from .shards import Shards, Static

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Replica:
    """The ranges of this process, and what keeps them."""

    def __init__(self, sharding: Sharding, runtime: Runtime, grace: float) -> None:
        """Runs of a range that goes to another replica have `grace` seconds before they are cancelled."""
        found = sharding.found()
        self._port, self._logger = found.ready_port, runtime.environment.logger
        self.coordinator: Coordinator | None = None
        if found.static is not None:
            self.shards = Shards(
                ownership=Static(*found.static), by=found.by, name=str(found.static[0]), grace=grace
            )
        else:
            self.coordinator = Coordinator(
                Options(found.pod, token_hex(4), found.by, timing=timing_of(found.lease)),
                group=found.name,
                namespace=found.namespace,
                transport=runtime.transport,
                clock=wall,
                sleep=asyncio.sleep,
                now=runtime.now,
                logger=self._logger,
            )
            self.shards = self.coordinator.ranges = Shards(
                ownership=self.coordinator, by=found.by, name=found.pod, grace=grace
            )
            self.coordinator.follow(runtime)

    def report(self) -> dict[str, object]:
        """Return what this replica does, for people."""
        if self.coordinator is None:
            return {"condition": "its ranges never move"}
        found = self.coordinator.status()
        return {
            "condition": found.condition,
            "identity": found.identity,
            "replicas": list(found.members),
            "ranges": f"{len(found.acting)} of {self.shards.ranges}",
            "unowned": list(found.unowned),
        }

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics for Prometheus, in any thread."""
        # prometheus_client is an optional dependency.
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        if self.coordinator is None:
            return
        found = self.coordinator.status()
        for name, text, value in (
            ("replicas", "Replicas that are alive, as far as this one knows.", len(found.members)),
            ("ranges", "Ranges of keys that this replica handles.", len(found.acting)),
            (
                "unowned_ranges",
                "Ranges of keys that nobody handles.",
                len(found.unowned),
            ),
        ):
            yield GaugeMetricFamily(f"kopf_selectcache_sharding_{name}", text, value=value)
        for name, text, value in (
            ("moves", "Ranges that this replica has begun to handle.", self.coordinator.moves),
            ("requests", "Requests for the coordination of replicas.", self.coordinator.requests),
        ):
            yield CounterMetricFamily(f"kopf_selectcache_sharding_{name}", text, value=value)

    async def run(self) -> None:
        """Divide the work with other replicas until cancelled, or until this one has left."""
        async with readiness(self._port, self.problem, self._logger):
            await (asyncio.Event().wait() if self.coordinator is None else self.coordinator.run())

    def problem(self) -> str:
        """Return why this replica is not ready: it does not do its part, or nobody does some part."""
        if self.coordinator is None:
            return ""
        found = self.coordinator.status()
        if found.condition == WORKS and found.unowned:
            return f"{len(found.unowned)} of {self.shards.ranges} ranges have no owner"
        return "" if found.condition == WORKS else found.condition

    @property
    def has_begun(self) -> bool:
        """True if it may have something to give to others."""
        return self.coordinator is not None and self.coordinator.requests > 0

    def leave(self) -> None:
        """Give all ranges to others."""
        if self.coordinator is not None:
            self.coordinator.leave()


def timing_of(lease: float) -> Timing:
    """Return the times that fit the length of a Lease."""
    share = lease / Timing().lease
    default = Timing()
    return Timing(
        lease, *(each * share for each in (default.renew, default.margin, default.write, default.retry))
    )


# ---- Ready: tells the kubelet by HTTP whether a replica does its part.

REQUEST_SECONDS = 5.0
"""The longest that a request may take to come."""


@asynccontextmanager
async def readiness(
    port: int | None, problem: Callable[[], str], logger: logging.Logger
) -> AsyncIterator[None]:
    """Answer the requests to a port meanwhile: with 200, or with 503 and the problem if there is one."""
    server: asyncio.Server | None = None
    if port is not None:
        try:
            server = await asyncio.start_server(partial(_answer, problem), port=port)
        except OSError as error:
            logger.error(  # The replica works without it.  # noqa: TRY400
                "Nobody can ask this replica whether it is ready: port %(port)s can't be used: %(error)s."
                " Give another one: Sharding(ready_port=...).",
                {"port": port, "error": error.strerror},
            )
    try:
        yield
    finally:
        if server is not None:
            server.close()


async def _answer(
    problem: Callable[[], str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    with closing(writer), suppress(OSError, EOFError, asyncio.LimitOverrunError):
        async with asyncio.timeout(REQUEST_SECONDS):
            await reader.readuntil(b"\r\n\r\n")
        found = problem()
        body = f"{found or 'ready'}\n".encode()
        head = (
            f"HTTP/1.1 {'503 Service Unavailable' if found else '200 OK'}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        writer.write("\r\n".join((*head, "", "")).encode() + body)
        await writer.drain()
