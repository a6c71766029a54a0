"""Runtime: creates and runs the informers of one operator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

from kopf_selectcache.client.fetcher import Fetcher
from kopf_selectcache.client.resolving import Kinds
from kopf_selectcache.client.transport import WritingTransport
from kopf_selectcache.client.writer import Writer
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.settings.options import SelectCacheSettings

from ._loop_monitor import LoopMonitor
from .claims import Claims
from .ending import Ending
from .environment import Environment
from .informer import Informer
from .memo import Memo
from .memory import Budget
from .names import InformersByName
from .retries import Retries


class Runtime:
    """The informers of one operator, and the objects that they share."""

    def __init__(
        self,
        settings: SelectCacheSettings,
        transport: WritingTransport,
        *,
        namespaces: tuple[str, ...] | None,
        chance: Callable[[], float],
        logger: logging.Logger,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.settings = settings
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.ending = Ending()
        self.memo = Memo()
        """Memoised requests of reads, by their usual arguments."""
        claims, environment, budget = (
            Claims(),
            Environment(settings, transport, logger, chance, clock, sleep),
            Budget(settings.max_bytes),
        )
        informers: dict[KindKey, Informer] = {}
        self.informers: Mapping[KindKey, Informer] = informers
        self.names = InformersByName(informers, self.ending)
        for key in settings.selectors:
            informers[key] = Informer(
                key,
                settings.selectors.cached(key),
                environment=environment,
                namespaces=namespaces,
                claims=claims,
                resolved=self.names.forget,
                budget=budget,
            )
        self.fetches = Fetcher(
            transport, per_second=settings.fetch_per_second, clock=clock, sleep=sleep, chance=chance
        )
        self.retries = Retries(clock, sleep, chance)
        self.writer = Writer(transport, clock=clock, sleep=sleep, chance=chance)
        self.kinds = Kinds(self.fetches, clock=clock, sleep=sleep, chance=chance)
        self.pulse = LoopMonitor(self.after_gap, logger=logger)

    @property
    def quick(self) -> dict[KindKey, Informer]:
        """The informers found by key. Reads look here first."""
        return self.names.quick

    def informer(self, key: KindKey) -> Informer:
        """Return the informer of this kind, by any of its names; see `InformersByName`."""
        return self.names.informer(key)

    async def resolve(self, key: KindKey) -> Resource:
        """Return the resource of a key in this cluster; ask for each key only once."""
        return await self.kinds.resolve(key)

    async def wait_started(self) -> None:
        """Return at once: a runtime exists once the operator has logged in. `background` waits for that."""

    def end(self) -> None:
        """Make all reads raise from now on, and cancel those that wait. Call it on the operator's loop."""
        self.ending.end()
        # The order matters: the lookup takes the dict before it checks `ending`, so it cannot fill the new
        # dict.
        self.names.forget()

    def after_gap(self, seconds: float) -> None:
        """Open all watches again if the loop was blocked for at least the idle timeout of connections."""
        if seconds >= self.settings.idle_timeout:
            for informer in self.informers.values():
                informer.resume()

    async def run(self) -> None:
        """Run all informers until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pulse.run(), name="selectcache: pulse")
            for informer in self.informers.values():
                group.create_task(informer.run(), name=f"selectcache: {informer.key}")
