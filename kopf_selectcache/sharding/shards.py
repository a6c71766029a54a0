"""Shards: which keys this replica handles, until when it may write for them, and which keys it caches.

Handlers run for a key while this replica owns its range. Each run keeps the term under which it began, and
each of its writes is checked against that (`client.fence.fenced`): so a run that outlives its range writes
nothing, whoever it calls, and to whichever cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Protocol

from kopf_selectcache.client.fence import Fence, fenced
from kopf_selectcache.core.assignment.rendezvous import RANGES, desired_owners, range_of_key
from kopf_selectcache.core.assignment.replica import Term
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.informer.environment import end_within

_logger = logging.getLogger("kopf_selectcache")

CANCELLED_SECONDS = 5.0
"""Seconds for the runs that were cancelled."""


MOST_KEYS = 1 << 18
"""The number of keys whose range is remembered: 100 bytes each. To hash them takes ten times as long."""


class Ownership(Protocol):
    """Which ranges this replica owns, and until when."""

    def term_of(self, range_: int) -> Term | None:
        """Return the term of a range for which new runs may begin; None if there may be none."""

    def time_left(self, range_: int, term: Term) -> float:
        """Return the seconds within which a write must be over; 0.0 if it must not be sent."""

    def owner_of(self, range_: int) -> str:
        """Return the name of the replica that owns a range; empty if there is none."""

    @property
    def is_member(self) -> bool:
        """True while this replica may get ranges."""


class Handling(Protocol):
    """The runs of one handler."""

    def replay(self, has: Callable[[ObjectKey], bool]) -> None:
        """Run all keys of a range, and those that have departed since it is warm."""

    def forget(self, has: Callable[[ObjectKey], bool]) -> None:
        """Forget all that is known of the keys of a range."""

    def running(self, has: Callable[[ObjectKey], bool]) -> set[asyncio.Task[Any]]:
        """Return the runs of the keys of a range."""

    def release(self, has: Callable[[ObjectKey], bool]) -> None:
        """Ask those runs of the keys of a range to end that would go on forever, or that sleep."""


class DividedCaches(Protocol):
    """The caches of the operator, of which some are divided."""

    def look_at_division(self) -> None:
        """Note that `Shards.caches_namespace` has changed."""

    async def wait_divided(self, has: Callable[[str], bool]) -> None:
        """Wait until the divided caches serve the namespaces for which a function returns True."""


class Static:
    """The ranges of one of a fixed number of replicas: they never move."""

    is_member = True

    def __init__(self, index: int, count: int, *, ranges: int = RANGES) -> None:
        self._me, self._term = str(index), Term("static", 0)
        self._owners = desired_owners(frozenset(map(str, range(count))), ranges)

    def term_of(self, range_: int) -> Term | None:
        return self._term if self._owners[range_] == self._me else None

    def time_left(self, range_: int, term: Term) -> float:
        return inf if term == self.term_of(range_) else 0.0

    def owner_of(self, range_: int) -> str:
        return self._owners[range_]


async def _reached(_: str) -> None:
    """Nothing is cached."""


class Shards:
    """The ranges of this replica (`Ranges` of its coordinator). Used on the loop, but for the questions."""

    def __init__(
        self,
        *,
        ownership: Ownership,
        by: str = "namespace",
        name: str = "replica",
        ranges: int = RANGES,
        grace: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Runs of a range that goes have `grace` seconds until they are cancelled. `name` is that of this
        replica in the audit log.
        """
        self.ownership = ownership
        self.ranges = ranges
        self._name, self._grace, self._sleep = name, grace, sleep
        self._handling: list[Handling] = []
        self.cached = frozenset(each for each in range(ranges) if ownership.term_of(each) is not None)
        """The ranges whose keys are cached: those that are warm or being warmed, held or drained."""
        self.caches: DividedCaches | None = None
        """The caches that follow the ranges; None if none is divided."""
        self.reach: Callable[[str], Coroutine[Any, Any, None]] = _reached
        """Returns once the caches have all that the server had at a version."""
        self._fences: dict[int, tuple[Term, Fence]] = {}
        """The term and the fence of the runs of each range."""
        self._by = by
        self._range_of_key: dict[ObjectKey, int] = {}

    # ---- Questions. In any thread.

    def range_of(self, key: ObjectKey) -> int:
        """Return the range of a key."""
        if self._by == "namespace" and key[0]:
            key = (key[0], "")
        if (found := self._range_of_key.get(key)) is None:
            if len(self._range_of_key) >= MOST_KEYS:
                self._range_of_key.clear()
            found = self._range_of_key[key] = range_of_key(*key, self._by, self.ranges)
        return found

    def caches_namespace(self, namespace: str) -> bool:
        """Return True if divided caches of this replica have a namespace, or will once it is warm."""
        return self.range_of((namespace, "")) in self.cached

    def owner_of(self, key: ObjectKey) -> str:
        """Return the name of the replica that handles a key; empty if none does."""
        return self.ownership.owner_of(self.range_of(key))

    def handles(self, key: ObjectKey) -> bool:
        """Return True if this replica may begin a run for a key now."""
        return self.ownership.term_of(self.range_of(key)) is not None

    def keeps(self, key: ObjectKey) -> bool:
        """Return True if what happens to a key is kept until this replica handles it: nobody else may be
        told of it, since the owner of a range that moves gives no new work. Without a Lease, nobody knows
        when that would be.
        """
        return self.ownership.is_member and self.range_of(key) in self.cached

    @contextmanager
    def run_of(self, key: ObjectKey) -> Iterator[bool]:
        """Run for a key in this context; yield False if another replica handles it."""
        range_ = self.range_of(key)
        term = self.ownership.term_of(range_)
        if term is None:
            yield False
        else:
            with fenced(self._fence(range_, term)):
                yield True

    def _fence(self, range_: int, term: Term) -> Fence:
        known = self._fences.get(range_)
        if known is None or known[0] != term:
            known = self._fences[range_] = (
                term,
                Fence(
                    lambda: self.ownership.time_left(range_, term),
                    sender=f"{self._name} range={range_} epoch={term.epoch}",
                ),
            )
        return known[1]

    # ---- Handlers.

    @contextmanager
    def handling(self, handling: Handling) -> Iterator[None]:
        """Have the runs of a handler follow the ranges meanwhile."""
        self.add(handling)
        try:
            yield
        finally:
            self._handling.remove(handling)

    def add(self, handling: Handling) -> None:
        """Have the runs of a handler follow the ranges from now on."""
        self._handling.append(handling)

    # ---- Ranges that come and go.

    async def warm(self, range_: int) -> None:
        self._cache(self.cached | {range_})
        if self.caches is not None:
            await self.caches.wait_divided(lambda namespace: self.range_of((namespace, "")) == range_)

    def cool(self, ranges: Collection[int]) -> None:
        for each in self._handling:
            each.forget(lambda key: self.range_of(key) in ranges)
        self._cache(self.cached.difference(ranges))

    def _cache(self, ranges: frozenset[int]) -> None:
        self.cached = ranges
        if self.caches is not None:
            self.caches.look_at_division()

    def start(self, ranges: Collection[int]) -> None:
        for each in self._handling:
            try:
                each.replay(lambda key: self.range_of(key) in ranges)
            except Exception:  # Other handlers must run.
                _logger.exception("A handler does not run all keys that this replica has got.")

    async def drain(self, range_: int) -> bool:
        ending = asyncio.create_task(self._end(range_), name=f"selectcache: end range {range_}")
        try:
            has_ended = not await end_within({ending}, self._sleep(self._grace))
        finally:
            ending.cancel()
        if not has_ended:
            # A thread can't be cancelled: it may go on, but its writes are refused from now on.
            await end_within(self._cancel(range_), self._sleep(CANCELLED_SECONDS))
        # A task that a run has started may still write, and the server may execute what it has not answered.
        known = self._fences.pop(range_, None)
        is_answered = known is None or known[1].close()
        return has_ended and is_answered

    def stop(self, range_: int) -> None:
        self._cancel(range_)  # It stays warm until it is cooled: this replica may get it again.

    async def _end(self, range_: int) -> None:
        while running := self._running(range_):
            self._release(range_)
            await asyncio.wait(running)  # One of Kopf's runs may start a daemon before it ends.

    def _release(self, range_: int) -> None:
        for each in self._handling:
            each.release(lambda key: self.range_of(key) == range_)

    def _running(self, range_: int) -> set[asyncio.Task[Any]]:
        return {
            task
            for each in self._handling
            for task in each.running(lambda key: self.range_of(key) == range_)
            if not task.done()
        }

    def _cancel(self, range_: int) -> set[asyncio.Task[Any]]:
        self._release(range_)
        running = self._running(range_)
        for task in running:
            task.cancel()
        return running
