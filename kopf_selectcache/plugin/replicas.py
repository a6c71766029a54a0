"""Kopf's own handlers in a replica: they are called for the keys that it owns (`sharding.shards`).

The feeds of Kopf's watchers leave out the objects of other replicas. What waits in Kopf's queues when a range
goes is dropped here, right before Kopf would call handlers: their patches, and the daemons that they start,
are those of a run of the key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache.core.assignment.records import LABEL
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.store.record import ObjectKey, Record

from .knowledge import key_of

if TYPE_CHECKING:
    from kopf_selectcache.sharding.shards import Shards

_logger = logging.getLogger("kopf_selectcache")


class Gain:
    """Keys that this replica has got. Their handlers wait until Kopf's indices have all of their objects."""

    def __init__(self, has: Callable[[ObjectKey], bool], feeds: Iterable[Fed]) -> None:
        self.has = has
        """Returns True for these keys."""
        self._missing: set[object] = {feed for feed in feeds if feed.is_indexed}
        """The feeds that have not told Kopf of all objects, and the uids of those that aren't indexed yet."""
        self.is_indexed = asyncio.Event()
        self.drop(None)

    def add(self, feed: Fed, uid: str) -> None:
        """Note that Kopf is told of an object."""
        if feed in self._missing:
            self._missing.add(uid)

    def drop(self, each: Fed | str | None) -> None:
        """Note that a feed has told Kopf of all objects, or that one is indexed."""
        self._missing.discard(each)
        if not self._missing:
            self.is_indexed.set()


class _Indexed:
    """Holds up a run of Kopf's processor until everything is indexed (its `ToggleSet`)."""

    def __init__(self, gains: Iterable[Gain], started: Any, then: Callable[[], Awaitable[None]]) -> None:
        """`started` is the one of its start: Kopf would wait for that alone. `then` waits for the rest."""
        self._gains, self._started, self._then = gains, started, then

    async def drop_toggle(self, toggle: tuple[str, Any]) -> None:
        uid, started = toggle
        for gain in self._gains:
            gain.drop(uid)
        if self._started is not None and started is not None:
            await self._started.drop_toggle(started)  # Kopf would call no handler at all else.

    async def wait_for(self, state: bool) -> None:  # As Kopf calls it.  # noqa: FBT001
        if self._started is not None:
            await self._started.wait_for(state)
        for gain in self._gains:
            await gain.is_indexed.wait()
        await self._then()


class Fed(Protocol):
    """The feed of one of Kopf's watchers."""

    @property
    def is_indexed(self) -> bool:
        """True if the kind has an index."""

    def replay(self, gain: Gain) -> None:
        """Tell Kopf of the objects of keys, as if a list had them."""

    def forget(self, has: Callable[[ObjectKey], bool]) -> Iterable[Record]:
        """Forget, and return, the objects that Kopf was told of."""


class KopfHandlers:
    """Kopf's own handlers of an operator (`sharding.shards.Handling`)."""

    def __init__(self, settings: kopf.OperatorSettings, shards: Shards) -> None:
        self.shards = shards
        self._settings = settings
        self._feeds: list[Fed] = []
        self._gains: list[Gain] = []
        """Those that aren't indexed yet."""
        self._runs: dict[asyncio.Task[Any], tuple[ObjectKey, str, asyncio.Event | None]] = {}
        """The runs of Kopf's processor, each with its key, its uid, and what wakes it."""
        self._outdated: set[str] = set()
        """The uids of objects whose runs have outlived a term: what waits behind them is from that term."""
        self._left: dict[asyncio.Task[Any], tuple[ObjectKey, str]] = {}
        """The daemons of objects that Kopf has forgotten, each with the uid of its object."""
        self._stopping: set[asyncio.Task[None]] = set()
        """What cancels daemons after their time."""

    @contextmanager
    def feeding(self, feed: Fed) -> Iterator[None]:
        """Have a feed follow the ranges meanwhile."""
        self._feeds.append(feed)
        try:
            yield
        finally:
            self._feeds.remove(feed)
            for gain in self._gains:
                gain.drop(feed)

    # ---- Events.

    async def process(
        self,
        processor: Callable[..., Coroutine[Any, Any, str | None]],
        *,
        raw_event: Any,
        stream_pressure: asyncio.Event | None = None,
        resource_indexed: Any = None,
        operator_indexed: Any = None,
        **_: Any,
    ) -> str | None:
        """Have Kopf process an event, unless another replica handles its key. Of what the replicas themselves
        write, Kopf is not told: its annotations would not last.
        """
        key, uid = key_of(raw_event["object"])
        if raw_event["type"] in (None, "ADDED", "DELETED"):  # It was told of in this term, or is gone.
            self._outdated.discard(uid)
        elif raw_event["type"] == "MODIFIED" and uid in self._outdated:
            return None
        is_theirs = LABEL in (raw_event["object"]["metadata"].get("labels") or {})
        self._gains = [gain for gain in self._gains if not gain.is_indexed.is_set()]
        gains = [gain for gain in self._gains if gain.has(key)]
        indexed = _Indexed(gains, operator_indexed, partial(self._until_stopped, key, uid))
        toggle = uid, resource_indexed
        processor = partial(processor, operator_indexed=indexed, resource_indexed=toggle)
        with nullcontext(False) if is_theirs else self.shards.run_of(key) as is_handled:
            if is_handled:
                run = asyncio.create_task(processor(), name=f"selectcache: run of {uid}")
                self._runs[run] = key, uid, stream_pressure
                run.add_done_callback(self._runs.pop)
                try:
                    return await run
                except asyncio.CancelledError:
                    worker = asyncio.current_task()
                    assert worker is not None, "it is the task of a worker"
                    if worker.cancelling() or not run.cancelling():
                        for gain in self._gains:
                            gain.drop(uid)
                        raise  # Kopf ends, or the kind has gone.
                _logger.info(
                    "The run of Kopf's handlers of %(key)s was cancelled: this replica does not handle it any"
                    " more.",
                    {"key": printable_name(*key)},
                )
        await indexed.drop_toggle(toggle)
        if raw_event["type"] == "DELETED":
            self._forget(key, uid)  # Kopf does not come to it.
        return None

    async def _until_stopped(self, key: ObjectKey, uid: str) -> None:
        """Wait for the daemons of an earlier term."""
        if left := {task for task, (_, of) in self._left.items() if of == uid}:
            _logger.info(
                "Kopf's handlers of %(key)s wait for a daemon of the object that has not ended since it was"
                " stopped.",
                {"key": printable_name(*key)},
            )
            await asyncio.wait(left)  # Kopf does not start a daemon that still runs.

    # ---- Ranges that come and go.

    def replay(self, has: Callable[[ObjectKey], bool]) -> None:
        self.forget(has)  # It is from an earlier term.
        self._outdated.update(uid for key, uid, _ in self._runs.values() if has(key))
        gain = Gain(has, self._feeds)
        self._gains.append(gain)
        for feed in self._feeds:
            feed.replay(gain)

    def forget(self, has: Callable[[ObjectKey], bool]) -> None:
        for feed in self._feeds:
            for record in feed.forget(has):
                self._forget((record.namespace, record.name), record.uid)

    def _forget(self, key: ObjectKey, uid: str) -> None:
        parts = _kopf.parts_of(self._settings)
        assert parts is not None, "it has handled objects"
        for daemon in parts.memos.daemons_of(uid):
            self._end(daemon)
            self._left[daemon.task] = key, uid
            daemon.task.add_done_callback(self._left.pop)
        parts.forget(*key, uid)

    def running(self, has: Callable[[ObjectKey], bool]) -> set[asyncio.Task[Any]]:
        found = {task for tasks in (self._runs, self._left) for task, (key, *_) in tasks.items() if has(key)}
        return found.union(daemon.task for daemon, key in self._daemons() if has(key))

    def release(self, has: Callable[[ObjectKey], bool]) -> None:
        for daemon, key in self._daemons():
            if has(key):
                self._end(daemon)
        for key, _, pressure in self._runs.values():
            if has(key) and pressure is not None:
                pressure.set()

    def _end(self, daemon: _kopf.Daemon) -> None:
        if (stopping := _kopf.end_daemon(self._settings, daemon)) is not None:
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)

    def _daemons(self) -> Iterator[tuple[_kopf.Daemon, ObjectKey]]:
        if (parts := _kopf.parts_of(self._settings)) is not None:
            for body, daemon in parts.memos.daemons():
                yield daemon, key_of(body)[0]
