"""Filter change: replaces the filter and the options of one informer in one step, while it is read.

Groups of streams that both filters have are kept. All others are synced beside the present ones. Then the
streams that end are held for a moment, until the next ones are as new (`reach`), and the state of the
informer is replaced in one assignment. A change that fails, is cancelled, or is overtaken by a newer one
leaves the present state as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field

from kopf_selectcache._errors import NotSynced, SelectCacheError, StateError, Superseded
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.selectors.selector import Branches
from kopf_selectcache.settings.declaration import Cached

from ._exchange import Changed, Exchange, Next
from .environment import Environment
from .health import Health
from .index_builder import Failed
from .log import context_of
from .reflector import Reflector

HELD = 5.0
"""The most seconds that streams which end are held. Their store does not move meanwhile."""

PREVIOUS = "The previous filter is still in use: try the change again"
"""The last way out of an error of a change."""

BETWEEN = 2.0
"""Seconds until they are held again, if the next streams were not as new."""


class Restarted(Exception):
    """The informer has dropped its store, or the server was restored: all is prepared anew."""


@dataclass(eq=False)
class _Attempt:
    """One change, and the number of calls that wait for it."""

    declared: Cached
    prepared: AbstractAsyncContextManager[None]
    task: asyncio.Task[None] = field(init=False)
    waiting: int = 0
    overtaken_by: Cached | None = None
    end: str = "its call was cancelled"
    """The reason for which it ends, if it is cancelled."""
    has_begun: bool = False
    """True if the log says that it has begun."""
    following: Next | None = None
    has_overtaken: bool = False
    """True if it has overtaken another one. Once it has begun, it is not overtaken itself: under a steady
    stream of changes none would ever be complete."""

    @property
    def may_be_overtaken(self) -> bool:
        return not (self.has_overtaken and self.has_begun)

    def overtake(self, by: Cached) -> None:
        """End it, because there is a newer one."""
        self.overtaken_by = by
        self.end = f"a newer change came, to {clipped(by.filter)}"
        self.task.cancel()

    def result(self) -> None:
        """Raise the error of the change."""
        if self.overtaken_by is not None:
            raise Superseded(
                f"the filter was not changed to {clipped(self.declared.filter)}, because it was then changed"
                " to"
                f" {clipped(self.overtaken_by.filter)}",
                remedy="Read with the newer filter\nChange it again",
            )
        try:
            self.task.result()
        except StateError as error:
            raise _of_change(error, self.declared) from None


class FilterChange:
    """The changes of one informer. One is under way at a time. A newer one overtakes it; if it has overtaken
    one itself, the newer one waits for it.
    """

    def __init__(
        self,
        informer: Changed,
        environment: Environment,
        start: Callable[[Reflector], asyncio.Task[None] | None],
    ) -> None:
        self._informer = informer
        self._exchange = Exchange(informer, environment)
        self._environment = environment
        self._start = start
        self._turn = asyncio.Lock()
        self._latest: _Attempt | None = None
        self.following: Next | None = None
        """The next state; None if the filter does not change."""
        self.unsynced: frozenset[str] = frozenset()
        """The namespaces of the new streams that were not synced when the last change was given up."""

    @property
    def is_idle(self) -> bool:
        """True if no change is under way."""
        return self._latest is None

    @property
    def next_filter(self) -> Branches | None:
        """The filter of the latest change, from its call on; None if no change is under way."""
        return None if self._latest is None else self._latest.declared.filter

    async def change(
        self,
        declared: Cached,
        *,
        timeout: float,  # Its end names a reason.  # noqa: ASYNC109
        prepared: AbstractAsyncContextManager[None] | None = None,
    ) -> None:
        """Replace the filter and the options. Raise the error of a stream that cannot be synced, NotSynced
        after the timeout, and Superseded if another change came before the step. Equal changes are one.

        The change runs inside `prepared`. It counts as under way before that is entered: whatever a change
        has to wait for first, the order of the calls decides which filter is in force in the end.
        """
        attempt = self._latest
        if attempt is None or attempt.declared != declared:
            attempt = self._begin(declared, prepared or nullcontext())
        attempt.waiting += 1
        try:
            done, _ = await asyncio.wait({attempt.task}, timeout=timeout)
            error = None if done else self._unfinished(attempt, timeout)
        finally:
            attempt.waiting -= 1
            if not attempt.waiting and not attempt.task.done():
                self._forget(attempt)
                attempt.task.cancel()
                await asyncio.wait({attempt.task})
        if error is not None:
            raise error
        attempt.result()

    def _begin(self, declared: Cached, prepared: AbstractAsyncContextManager[None]) -> _Attempt:
        former, attempt = self._latest, _Attempt(declared, prepared)
        if former is not None and former.may_be_overtaken:
            former.overtake(declared)
            attempt.has_overtaken = True
        self._latest = attempt
        attempt.task = asyncio.create_task(
            self._run(attempt), name=f"selectcache: {self._informer}, change of the filter"
        )
        attempt.task.add_done_callback(_retrieve)
        return attempt

    def _forget(self, attempt: _Attempt) -> None:
        self._latest = None if self._latest is attempt else self._latest

    async def _run(self, attempt: _Attempt) -> None:
        try:
            async with attempt.prepared, self._turn:
                if (resource := self._informer.state.resource) is not None:
                    await self._informer.look_at_rights(attempt.declared, resource)
                await self._change(attempt)
        except BaseException as error:
            self._log_failure(attempt, error)
            raise
        finally:
            self._forget(attempt)

    def interrupt(self) -> None:
        """Note that the informer has dropped its store."""
        if self.following is not None:
            following, self.following = self.following, None
            following.moved.set()

    async def _change(self, attempt: _Attempt) -> None:
        while True:
            following = self._exchange.prepare(attempt.declared)
            if following is None:
                self._log_beginning(attempt)
                await self._exchange.replace(attempt.declared)
                self._log_end()
                return
            self.following = attempt.following = following
            has_changed = False
            try:
                self._log_beginning(attempt, following)
                self._exchange.inherit_writes(following)
                await self._sync(following)
                await self._exchange.index(following)
                while not await self._step(following):
                    await self._environment.sleep(BETWEEN * (0.5 + self._environment.chance()))
                has_changed = True
            except Restarted:
                continue
            else:
                self._log_end()
                return
            finally:
                self.following = None
                if not has_changed:
                    unsynced = (each for each in following.new if each.condition.health is not Health.SYNCED)
                    self.unsynced = frozenset(filter(None, (each.stream.namespace for each in unsynced)))
                    await self._exchange.discard(following)

    def change_at_once(self, declared: Cached, hurry: Callable[[], None]) -> None:
        """Replace the filter without a wait: `start` lists each new stream before it returns, and `hurry`
        brings all streams to the present version.
        """
        self.following = following = self._exchange.prepare(declared)
        assert following is not None, "there is no present state"
        try:
            self._exchange.inherit_writes(following)
            for each in following.new:
                each.index(tuple(following.state.indexes.values()))
                self._start(each)
            hurry()
            assert following.is_synced, "its streams wait"
            self._exchange.exchange(following)
        finally:
            self.following = None

    def _log_beginning(self, attempt: _Attempt, following: Next | None = None) -> None:
        attempt.has_begun = True
        filter_ = attempt.declared.filter if following is None else following.state.filter
        self._environment.logger.info(
            "The filter of %(resource)s is being changed to %(filter)s: %(streams)s.",
            {
                "resource": str(self._informer),
                "filter": clipped(filter_),
                "streams": "all watches are new" if following is None else str(following.split),
            },
            extra=context_of(self._informer),
        )

    def _log_failure(self, attempt: _Attempt, error: BaseException) -> None:
        """Log that a change was given up, if the log says that it has begun."""
        if isinstance(error, asyncio.CancelledError):
            reason = attempt.end
        elif isinstance(error, SelectCacheError):
            reason = error.what
        else:
            reason = error.why if isinstance(error, Failed) else type(error).__name__
        if attempt.has_begun:
            self._environment.logger.info(
                "The filter of %(resource)s was not changed to %(filter)s: %(reason)s. It stays at"
                " %(former)s.",
                {
                    "resource": str(self._informer),
                    "filter": clipped(attempt.declared.filter),
                    "reason": reason,
                    "former": clipped(self._informer.filter),
                },
                extra=context_of(self._informer),
            )

    def _log_end(self) -> None:
        number = self._informer.held()
        self._environment.logger.info(
            "The filter of %(resource)s is now %(filter)s, with %(objects)s.",
            {
                "resource": str(self._informer),
                "filter": clipped(self._informer.filter),
                "objects": f"{number:,} object{'' if number == 1 else 's'}",
            },
            extra=context_of(self._informer),
        )

    async def _sync(self, following: Next) -> None:
        """Run the new streams until all lists are complete."""
        moved = following.moved  # Tasks of streams outlive the change, and must not hold the former store.
        for each in following.new:
            each.index(tuple(following.state.indexes.values()))
            task = self._start(each)
            if task is not None:
                following.tasks[each] = task
                task.add_done_callback(lambda _: moved.set())
        if not following.state.union.is_alone:
            following.probing = self._informer.tasks.start_probing(following.prober.run)
        await self._wait(following, lambda: following.is_synced)

    async def _step(self, following: Next) -> bool:
        """Hold the streams that end, and replace the state once the next one is as new; return False if that
        takes too long.
        """
        await self._reach(following)  # Without haste, so that little is left to do.
        for each in following.split.ended:
            each.hold()
        expiry = asyncio.ensure_future(self._environment.sleep(HELD))
        expiry.add_done_callback(lambda _: following.moved.set())
        try:
            await self._reach(following, until=expiry.done)
            if not following.is_new_enough:
                return False
            following.share.check()
            self._check(following)
            self._exchange.exchange(following)
            return True
        finally:
            expiry.cancel()
            for each in following.split.ended:
                each.release()

    async def _reach(self, following: Next, *, until: Callable[[], bool] = lambda: False) -> None:
        """Bring the new streams to the version that readers have seen by now."""
        version = following.swap.seen
        reaching = asyncio.ensure_future(following.prober.reach(version))
        reaching.add_done_callback(lambda _: following.moved.set())
        try:
            await self._wait(
                following, lambda: following.swap.has_reached(version) or reaching.done() or until()
            )
        finally:
            reaching.cancel()
            await asyncio.wait([reaching])  # Raises only if this task is cancelled.
        if not reaching.cancelled():
            reaching.result()  # It ends by a bug only.

    async def _wait(self, following: Next, until: Callable[[], bool]) -> None:
        while True:
            self._check(following)
            if until():
                return
            following.moved.clear()
            await following.moved.wait()

    def _check(self, following: Next) -> None:
        """Raise if the change must end."""
        if self.following is not following or following.swap.is_outdated:
            raise Restarted
        if (error := following.error()) is not None:
            raise error
        if following.share.excess is not None:
            raise self._exchange.oversized(following)

    def _unfinished(self, attempt: _Attempt, timeout: float) -> SelectCacheError:
        if attempt.following is None and (
            unknown := self._informer.chosen.unknown(attempt.declared, timeout)
        ):
            attempt.end = unknown.what
            return unknown
        conditions = [each.condition for each in (attempt.following.new if attempt.following else ())]
        if (error := next(filter(None, (each.error() for each in conditions)), None)) is not None:
            attempt.end = error.what
            return _of_change(error, attempt.declared)
        failing = next((each for each in conditions if each.message), None)
        if failing is not None:
            why, remedy = failing.message, failing.remedy
        else:
            new = attempt.following.new if attempt.following else ()
            lists = ", ".join(str(each.filter) for each in new if not each.version)
            why = f"the list of {clipped(lists)} is missing" if lists else "a list is missing"
            if new and not lists:
                why = "the watches have not reached the same version"
            remedy = "Wait longer: timeout=..."
        attempt.end = f"it is not complete after {timeout:g} s: {why}"
        return NotSynced(
            f"the filter was not changed to {clipped(attempt.declared.filter)} after {timeout:g} s: {why}",
            remedy="\n".join([*_ways(remedy), PREVIOUS]),
        )


def _of_change(error: StateError, declared: Cached) -> StateError:
    """Return the error of a new stream as that of the change."""
    failed = copy(error)
    failed.what = f"the filter was not changed to {clipped(declared.filter)}: {error.what}"
    failed.remedy = "\n".join([*_ways(error.remedy), PREVIOUS])
    return failed


def _ways(remedy: str) -> list[str]:
    """Return the ways out, without those of a cache that goes on and cannot be read."""
    return [way for way in remedy.splitlines() if not way.startswith(("The cache keeps", "Meanwhile, "))]


def _retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve the error: the last call that waited may have been cancelled."""
    if not task.cancelled():
        task.exception()
