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
        self._probes: dict[Reflector, Probe] = {}
        """The lists that have not counted yet."""
        self._vain = 0
        """The number of rounds in a row in which no probe has counted."""
        self._failures = 0

    def look(self) -> None:
        """Note a change of a substore."""
        if self._union.awaits_streams:
            self._is_wanted.set()
        if self._probes:
            self._has_moved.set()

    async def run(self) -> None:
        """Probe until cancelled."""
        self.look()
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            pause, self._vain = SOON, 0
            while self._union.awaits_streams:
                await self._wait(pause)
                pause = max(SOON, await self._round())
            self._probes.clear()

    async def reach(self, version: str) -> None:
        """List each stream that is behind a version now, whatever its size, and let the lists count until
        cancelled. Raise Refused, Unreachable or Garbled.
        """
        for substore, reflector in self._reflectors.items():
            if reflector.substore is substore and reflector.can_jump and is_older(substore.version, version):
                await self._probe(reflector, version)
        while True:
            await self._has_moved.wait()
            self._has_moved.clear()
            self._evaluate()

    async def _wait(self, seconds: float) -> None:
        """Wait, and let probes count meanwhile."""
        end = asyncio.ensure_future(self._environment.sleep(seconds))
        end.add_done_callback(lambda _: self._has_moved.set())
        try:
            while not end.done():
                await self._has_moved.wait()
                self._has_moved.clear()
                self._evaluate()
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
                await self._probe(reflector, version)
            except _FAILURES as error:  # The next request would fail as well.
                self._failures += 1
                at_least = error.refusal.retry_after if isinstance(error, Refused) else None
                return delay(self._failures - 1, self._environment.chance(), at_least=at_least or 0.0)
        self._failures = 0
        self._vain += asked
        # Lists that do not count are repeated less and less: the watches have something to report.
        pause = delay(self._vain, self._environment.chance()) if self._vain > 1 else 0.0
        return max(pause, REST * (self._environment.clock() - began))

    async def _probe(self, reflector: Reflector, version: str) -> None:
        """List the metadata of a stream as of a version; without one, of the present state. Raise Refused,
        Unreachable or Garbled.
        """
        lists = reflector.lists
        found, listed = await self._list(reflector.stream, version)
        if not is_number(found) or is_older(found, version or reflector.substore.version):
            raise Garbled(f"a list of version {printable(found, 50)} came, which is older than was asked for")
        if reflector.lists == lists:  # Else the stream was listed meanwhile, and knows better.
            self._probes[reflector] = Probe(reflector.substore, found, listed)
            self._evaluate()

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

    def _evaluate(self) -> None:
        """Let the probes count whose streams hold what was listed, and drop those that are over."""
        for reflector, probe in list(self._probes.items()):
            if not reflector.can_jump:
                del self._probes[reflector]
            elif probe.is_over:
                del self._probes[reflector]
                if probe.has_missed():
                    reflector.relist(MetricReason.MISSED)
            elif probe.counts():
                del self._probes[reflector]
                self._vain = 0
                reflector.writer.take(Probed(probe.version))
