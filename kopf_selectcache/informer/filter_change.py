"""Filter change: replaces the filter and the options of one informer in one step, while it is read.

Groups of streams that both filters have are kept. All others are synced beside the present ones. Then the
streams that end are held for a moment, until the next ones are as new (`reach`), and the state of the
informer is replaced in one assignment. A change that fails, is cancelled, or is overtaken by a newer one
leaves the present state as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field

from kopf_selectcache._errors import NotSynced, SelectCacheError, StateError, Superseded
from kopf_selectcache.core.redact import clipped, counted
from kopf_selectcache.selectors.selector import Branches
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan

from .background import IndexFailed
from .environment import Environment
from .health import Health
from .log import context_of, warn_of_needless
from .swap import PreparedState, Swapper

HELD_SECONDS = 5.0
"""The most seconds that streams which end are held. Their store does not move meanwhile."""

PREVIOUS = "The previous filter is still in use: try the change again"
"""The last way out of an error of a change."""

HOLD_AGAIN_SECONDS = 2.0
"""Seconds until they are held again, if the next streams were not as new."""


class Restarted(Exception):
    """The informer has dropped its store, or the server was restored: all is prepared anew."""


@dataclass(eq=False)
class _Attempt:
    """One change, and the number of calls that wait for it."""

    declared: Cached
    within: AbstractAsyncContextManager[None]
    task: asyncio.Task[None] = field(init=False)
    waiting: int = 0
    overtaken_by: Cached | None = None
    end: str = "its call was cancelled"
    """The reason for which it ends, if it is cancelled."""
    has_begun: bool = False
    """True if the log says that it has begun."""
    prepared: PreparedState | None = None
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
                f" to {clipped(self.overtaken_by.filter)}",
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

    def __init__(self, swapper: Swapper, environment: Environment) -> None:
        self._swapper = swapper
        self._informer = swapper.informer
        self._environment = environment
        self._turn = asyncio.Lock()
        self._latest: _Attempt | None = None
        self.prepared: PreparedState | None = None
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
        within: AbstractAsyncContextManager[None] | None = None,
    ) -> None:
        """Replace the filter and the options. Raise the error of a stream that cannot be synced, NotSynced
        after the timeout, and Superseded if another change came before the step. Equal changes are one.

        The change runs within `within`. It counts as under way before that is entered: whatever a change
        has to wait for first, the order of the calls decides which filter is in force in the end.
        """
        attempt = self._latest
        if attempt is None or attempt.declared != declared:
            attempt = self._begin(declared, within or nullcontext())
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

    def _begin(self, declared: Cached, within: AbstractAsyncContextManager[None]) -> _Attempt:
        former, attempt = self._latest, _Attempt(declared, within)
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
            async with attempt.within, self._turn:
                await self._change(attempt, await self._find_plan(attempt.declared))
        except BaseException as error:
            self._log_failure(attempt, error)
            raise
        finally:
            self._forget(attempt)

    async def _find_plan(self, declared: Cached) -> Plan | None:
        """Return the streams of a declaration, and warn of what they do not need; None if they must be
        planned later.
        """
        resource = self._informer.state.resource
        if resource is None:
            return None
        planned = await self._swapper.resolver.find_plan(declared, resource)
        warn_of_needless(self._informer, planned.needless, logger=self._environment.logger)
        return None if planned.joined else planned  # The resource may have changed while that was asked.

    def interrupt(self) -> None:
        """Note that the informer has dropped its store."""
        if self.prepared is not None:
            prepared, self.prepared = self.prepared, None
            prepared.moved.set()

    async def _change(self, attempt: _Attempt, planned: Plan | None) -> None:
        while True:
            prepared = self._swapper.prepare(attempt.declared, planned)
            planned = None
            if prepared is None:
                self._log_beginning(attempt)
                await self._swapper.replace(attempt.declared)
                self._log_end()
                return
            self.prepared = attempt.prepared = prepared
            has_changed = False
            try:
                self._log_beginning(attempt, prepared)
                self._swapper.inherit_writes(prepared)
                await self._sync(prepared)
                await self._swapper.index(prepared)
                while not await self._step(prepared):
                    await self._environment.sleep(HOLD_AGAIN_SECONDS * (0.5 + self._environment.chance()))
                has_changed = True
            except Restarted:
                continue
            else:
                self._log_end()
                return
            finally:
                self.prepared = None
                if not has_changed:
                    unsynced = (each for each in prepared.new if each.condition.health is not Health.SYNCED)
                    self.unsynced = frozenset(filter(None, (each.stream.namespace for each in unsynced)))
                    await self._swapper.discard(prepared)

    def _log_beginning(self, attempt: _Attempt, prepared: PreparedState | None = None) -> None:
        attempt.has_begun = True
        if not self._environment.logger.isEnabledFor(logging.INFO):
            return
        filter_ = attempt.declared.filter if prepared is None else prepared.state.filter
        context = context_of(self._informer)
        self._environment.logger.info(
            "The filter of %(resource)s is being changed to %(filter)s: %(streams)s.",
            {
                "resource": context["resource"],
                "filter": clipped(filter_),
                "streams": "all watches are new" if prepared is None else str(prepared.split),
            },
            extra=context,
        )

    def _log_failure(self, attempt: _Attempt, error: BaseException) -> None:
        """Log that a change was given up, if the log says that it has begun."""
        if isinstance(error, asyncio.CancelledError):
            reason = attempt.end
        elif isinstance(error, SelectCacheError):
            reason = error.what
        else:
            reason = error.why if isinstance(error, IndexFailed) else type(error).__name__
        if attempt.has_begun:
            self._environment.logger.info(
                "The filter of %(resource)s was not changed to %(filter)s: %(reason)s. It stays at"
                " %(former)s.",
                {
                    "resource": str(self._informer),
                    "filter": clipped(attempt.declared.filter),
                    "reason": reason,
                    "former": clipped(self._informer.state.filter),
                },
                extra=context_of(self._informer),
            )

    def _log_end(self) -> None:
        if not self._environment.logger.isEnabledFor(logging.INFO):
            return
        number, context = self._informer.state.held(), context_of(self._informer)
        self._environment.logger.info(
            "The filter of %(resource)s is now %(filter)s, with %(objects)s.",
            context | {"objects": counted(number, "object")},
            extra=context,
        )

    async def _sync(self, prepared: PreparedState) -> None:
        """Run the new streams until all lists are complete."""
        moved = prepared.moved  # Tasks of streams outlive the change, and must not hold the former store.
        for each in prepared.new:
            task = prepared.tasks[each] = self._swapper.tasks.start(each)
            task.add_done_callback(lambda _: moved.set())
        if not prepared.state.union.is_alone:
            prepared.probing = self._swapper.tasks.start_beside("probes", prepared.prober.run)
        await self._wait(prepared, lambda: prepared.is_synced)

    async def _step(self, prepared: PreparedState) -> bool:
        """Hold the streams that end, and replace the state once the next one is as new; return False if that
        takes too long.
        """
        await self._reach(prepared)  # Without haste, so that little is left to do.
        for each in prepared.split.ended:
            each.hold()
        expiry = asyncio.ensure_future(self._environment.sleep(HELD_SECONDS))
        expiry.add_done_callback(lambda _: prepared.moved.set())
        try:
            await self._reach(prepared, until=expiry.done)
            if not prepared.is_new_enough:
                return False
            prepared.share.check()
            self._check(prepared)
            self._swapper.swap(prepared)
            return True
        finally:
            expiry.cancel()
            for each in prepared.split.ended:
                each.release()

    async def _reach(self, prepared: PreparedState, *, until: Callable[[], bool] = lambda: False) -> None:
        """Bring the new streams to the version that readers have seen by now."""
        version = prepared.swap.seen
        if prepared.swap.has_reached(version):
            return
        reaching = asyncio.ensure_future(prepared.prober.reach(version))
        reaching.add_done_callback(lambda _: prepared.moved.set())
        try:
            await self._wait(
                prepared, lambda: prepared.swap.has_reached(version) or reaching.done() or until()
            )
        finally:
            reaching.cancel()
            await asyncio.wait([reaching])  # Raises only if this task is cancelled.
        if not reaching.cancelled():
            reaching.result()  # It ends by a bug only.

    async def _wait(self, prepared: PreparedState, until: Callable[[], bool]) -> None:
        while True:
            self._check(prepared)
            if until():
                return
            prepared.moved.clear()
            await prepared.moved.wait()

    def _check(self, prepared: PreparedState) -> None:
        """Raise if the change must end."""
        if self.prepared is not prepared or prepared.swap.is_outdated:
            raise Restarted
        if (error := prepared.error()) is not None:
            raise error
        if prepared.share.excess is not None:
            raise self._swapper.oversized(prepared)

    def _unfinished(self, attempt: _Attempt, timeout: float) -> SelectCacheError:
        if attempt.prepared is None and (
            unknown := self._swapper.resolver.chosen.unknown(attempt.declared, timeout)
        ):
            attempt.end = unknown.what
            return unknown
        conditions = [each.condition for each in (attempt.prepared.new if attempt.prepared else ())]
        if (error := next(filter(None, (each.error() for each in conditions)), None)) is not None:
            attempt.end = error.what
            return _of_change(error, attempt.declared)
        failing = next((each for each in conditions if each.message), None)
        if failing is not None:
            why, remedy = failing.message, failing.remedy
        else:
            new = attempt.prepared.new if attempt.prepared else ()
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
