"""StreamFactory: creates the streams of one informer, for its present state or for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kopf_selectcache.core.store.change import Change
from kopf_selectcache.core.store.projection import METADATA_ONLY
from kopf_selectcache.core.store.siblings import SiblingPacking
from kopf_selectcache.core.store.substore import Substore
from kopf_selectcache.settings.planner import Stream

from ._list_version import SharedVersion
from ._messages import Subject
from ._watch_errors import WatchErrors
from .environment import Environment
from .health import Condition
from .memory import Share
from .metrics import Counts
from .reflector import Reflector
from .state import InformerState
from .stream_writer import StreamWriter

PAGES_AT_ONCE = 20
"""Maximum of streams of one informer that list at the same time. A filter over 100 namespaces has 100
streams."""


class StreamFactory:
    """The dependencies that all streams of one informer share."""

    def __init__(self, environment: Environment, counts: Counts) -> None:
        self._environment = environment
        self._counts = counts
        self._turns = asyncio.Semaphore(PAGES_AT_ONCE)
        self._comparing = asyncio.Semaphore(PAGES_AT_ONCE)

    def make(
        self,
        stream: Stream,
        substore: Substore,
        shared_version: SharedVersion | None,
        state: InformerState,
        *,
        packing: SiblingPacking | None,
        share: Share,
        new_condition: Callable[[Subject], Condition],
        notify: Callable[[Sequence[Change]], None],
    ) -> Reflector:
        """Return the reflector that writes to a substore of the union of this state."""
        assert state.resource is not None, "planned before it was resolved"
        writer = StreamWriter(
            stream,
            state.resource,
            state.union,
            substore,
            own_writes=state.own_writes,
            new_condition=new_condition,
            clock=self._environment.clock,
            counts=self._counts,
            logger=self._environment.logger,
            notify=notify,
        )
        if (on_watch_error := self._environment.settings.on_watch_error) is not None:
            writer.failed = WatchErrors(on_watch_error, self._environment.logger).report
        return Reflector(
            stream,
            writer,
            state.resource,
            environment=self._environment,
            counts=self._counts,
            projection=METADATA_ONLY if stream.is_outside else state.projection,
            packing=None if stream.is_outside else packing,
            share=share,
            all_kept=state.union.writing,
            shared_version=shared_version,
            turns=self._turns,
            comparing=self._comparing,
        )
