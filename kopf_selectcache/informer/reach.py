"""Reach: brings quiet streams to the version that the other streams of their group have reached.

A *group* is the streams that could hold the same objects. While they are at different versions, an object
that has left one of them may be in another (contract 12). Most streams reach the others within a second, by
their own events. A quiet one learns of its progress from a bookmark, about once a minute. Meanwhile it is
*probed*: a list of its metadata, exactly as of the newest version of the group, shows that it has nothing to
report (`core.store.probe`). The same version for all keeps two quiet streams from chasing each other. So
are streams whose first lists have come at different versions: nothing can be read before they meet.

One list is under way at a time, and lists take at most a tenth of the time. Streams of more than `LARGE`
objects wait for their bookmark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.protocol.machine import Probed
from kopf_selectcache.core.protocol.query import exactly, not_older_than
from kopf_selectcache.core.reasons import MetricReason
from kopf_selectcache.core.redact import printable
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.probe import Listed, Probe
from kopf_selectcache.core.store.record import is_number, is_older
from kopf_selectcache.core.store.substore import Substore
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.settings.planner import Stream

from ._metadata_lists import metadata_as_of
from ._versions import refuses_version
from .environment import Environment
from .reflector import Reflector

SOON = 1.0
"""Seconds that streams get to reach each other by themselves; also the pause between two rounds."""

REST = 10.0
"""Minimum pause after a round, as a multiple of its duration: lists take at most a tenth of the time."""

LARGE = 5_000
"""Maximum of objects of a stream that is listed."""

_FAILURES = (Refused, Unreachable, Garbled)

_Probes: TypeAlias = dict[Reflector, tuple[int, Probe]]
"""The probe of each stream, and the number of lists of the stream before it."""


class Prober:
    """Brings the streams of one filter to one version, as far as leaves and first answers wait for that."""

    def __init__(
        self, union: Union, reflectors: Sequence[Reflector], resource: Resource, *, environment: Environment
    ) -> None:
        self._union = union
        self._reflectors: dict[Substore, Reflector] = dict(zip(union.substores, reflectors, strict=True))
        self._resource = resource
        self._environment = environment
        self._is_wanted = asyncio.Event()
        self._has_moved = asyncio.Event()
        self._probes: _Probes = {}
        """The lists that departures and first answers wait for, and that have not counted yet."""
        self._ordered: _Probes = {}
        """Those that `reach` waits for."""
        self._earliest = 0.0
        """The earliest time of the next list of `reach`, after a failure."""
        self._vain = 0
        """The number of rounds in a row in which no probe has counted."""
        self._failures = 0

    def look(self) -> None:
        """Note a change of a substore."""
        if self._union.awaits_streams:
            self._is_wanted.set()
        if self._probes or self._ordered:
            self._has_moved.set()

    async def run(self) -> None:
        """Probe until cancelled."""
        self.look()
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            pause, self._vain = SOON, 0
            while self._union.awaits_streams:
                await self._wait(self._probes, pause)
                pause = max(SOON, await self._round())
            self._probes.clear()

    async def reach(self, version: str) -> None:
        """Bring all streams to a version, whatever their size, until cancelled. A stream that cannot jump yet
        is listed once it can, and a list that fails is repeated.
        """
        clock, chance, failures = self._environment.clock, self._environment.chance, 0
        self._ordered.clear()
        while True:
            await self._wait(self._ordered, max(0.0, self._earliest - clock()))
            for substore, reflector in self._reflectors.items():
                is_behind = reflector.substore is substore and is_older(substore.version, version)
                if not is_behind or not reflector.can_jump or reflector in self._ordered:
                    continue
                try:
                    await self._probe(reflector, version, self._ordered)
                    failures = 0
                except _FAILURES as error:
                    self._earliest = clock() + delay(failures, chance(), at_least=_at_least(error))
                    failures += 1
                    break
            else:
                await self._wait(self._ordered, SOON)

    async def _wait(self, probes: _Probes, seconds: float) -> None:
        """Wait, and let probes count meanwhile."""
        end = asyncio.ensure_future(self._environment.sleep(seconds))
        end.add_done_callback(lambda _: self._has_moved.set())
        try:
            self._evaluate(probes)
            while not end.done():
                await self._has_moved.wait()
                self._has_moved.clear()
                self._evaluate(probes)
        finally:
            end.cancel()

    async def _round(self) -> float:
        """Probe the streams that leaves wait for; return the seconds until the next round."""
        began, asked = self._environment.clock(), False
        for substore, version in self._union.awaited.items():
            reflector = self._reflectors[substore]
            if not reflector.can_jump or not is_number(substore.version) or reflector.writer.held() > LARGE:
                continue
            asked = True
            try:
                await self._probe(reflector, version, self._probes)
            except _FAILURES as error:  # The next request would fail as well.
                self._failures += 1
                return delay(self._failures - 1, self._environment.chance(), at_least=_at_least(error))
        self._failures = 0
        self._vain += asked
        # Lists that do not count are repeated less and less: the watches have something to report.
        pause = delay(self._vain, self._environment.chance()) if self._vain > 1 else 0.0
        return max(pause, REST * (self._environment.clock() - began))

    async def _probe(self, reflector: Reflector, version: str, probes: _Probes) -> None:
        """List the metadata of a stream as of a version; without one, of the present state. Raise Refused,
        Unreachable or Garbled.
        """
        lists = reflector.lists
        found, listed = await self._list(reflector.stream, version)
        if not is_number(found) or is_older(found, version or reflector.substore.version):
            raise Garbled(f"a list of version {printable(found, 50)} came, which is older than was asked for")
        probes[reflector] = lists, Probe(reflector.substore, found, listed)
        self._evaluate(probes)

    async def _list(self, stream: Stream, version: str) -> tuple[str, Listed]:
        resource, environment = self._resource, self._environment
        if not version:
            return await metadata_as_of(stream, resource, {}, environment=environment)
        try:
            return await metadata_as_of(
                stream, resource, exactly(version), version=version, environment=environment
            )
        except Refused as refused:
            # The server may not have lists as of a version, or may have forgotten it.
            if not refuses_version(refused.refusal) or refused.refusal.retry_after is not None:
                raise
        return await metadata_as_of(stream, resource, not_older_than(version), environment=environment)

    def _evaluate(self, probes: _Probes) -> None:
        """Let the probes count whose streams hold what was listed, and drop those that are over."""
        for reflector, (lists, probe) in list(probes.items()):
            if not reflector.can_jump or reflector.lists != lists:
                del probes[reflector]  # A stream that was listed meanwhile knows better.
            elif probe.is_over:
                del probes[reflector]
                if probe.has_missed():
                    reflector.relist(MetricReason.MISSED)
            elif probe.counts():
                del probes[reflector]
                self._vain = 0
                reflector.writer.take(Probed(probe.version))


def _at_least(error: Exception) -> float:
    """Return the seconds for which the server wants to be left alone."""
    return (error.refusal.retry_after or 0.0) if isinstance(error, Refused) else 0.0
