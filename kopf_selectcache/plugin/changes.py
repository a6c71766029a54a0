"""Calls the handlers of changes (`selectcache.on.change`) of one operator.

Each handler has a subscription of the informer of its kind, a work queue of the objects that have changes,
and a worker, which runs one call of an object at a time, and up to `settings.queueing.worker_limit` in all.
Kopf executes the handler, with its retries, timeout and errors. None is called while Kopf pauses the operator
for another one (peering), or while a cache is not synced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, NotDeclared, NotSynced, ReadError, SelectCacheError
from kopf_selectcache.cache.changes import Subscription
from kopf_selectcache.cache.errors import OutsideFilter
from kopf_selectcache.cache.formats.views import Views
from kopf_selectcache.cache.request import Request
from kopf_selectcache.core.protocol.messages import delay
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.changes import Change, ChangeCause, PendingChanges
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.reactions.engine import RunAgain
from kopf_selectcache.reactions.queue import Run
from kopf_selectcache.selectors.object_key import Key

from .brake import Caller
from .calls import RETRY_SECONDS, Attempts, HandlerCalls, resolved
from .on import ChangeHandler, change_handlers
from .operator import Operator

if TYPE_CHECKING:
    from kopf_selectcache.sharding.shards import Shards

_logger = logging.getLogger("kopf_selectcache")


@dataclass
class ChangeArguments(_kopf.Cause):
    """The arguments of a handler of changes. `logger` is in the base class."""

    change: Change

    @property
    def _kwargs(self) -> dict[str, Any]:
        change = self.change
        old, new = change.old, change.new
        body = change.body if new is None else new
        record, meta = change.record, body.metadata
        return {
            "logger": self.logger,
            "cause": change.cause,
            "filter_changed": change.filter_changed,
            "initial": change.initial,
            "known_by": change.known_by,
            "old": old,
            "new": new,
            "body": body,
            "name": record.name,
            "namespace": record.namespace or None,
            "uid": record.uid,
            "meta": meta,
            "spec": body.spec,
            "status": body.status,
            "labels": meta.labels,
            "annotations": meta.annotations,
        }


async def deliver_changes(
    operator: Operator, runtime: Runtime, registry: _kopf.OperatorRegistry | None
) -> None:
    """Call the handlers of changes of a registry until cancelled."""
    async with asyncio.TaskGroup() as group:
        for handler in change_handlers(registry):
            delivery = _ChangeRunner(handler, operator, runtime)
            group.create_task(delivery.run(), name=f"selectcache: {handler.id}")


@dataclass(slots=True)
class _PendingCall:
    """A change whose call is still to be made, or made again."""

    change: Change
    attempts: Attempts
    since: float
    """The time from which on it only waits for its turn: the handler has no part in that."""
    is_braked: bool = False
    """True if the brake delays it, until the object changes again."""


class _ChangeCalls(HandlerCalls):
    """The calls of one handler with the changes of one informer: what a key of its queue runs."""

    def __init__(
        self, handler: ChangeHandler, operator: Operator, runtime: Runtime, resource: Resource
    ) -> None:
        super().__init__(handler, operator, runtime, resource)
        self._handler = handler
        self.subscription: Subscription
        """Brings the changes. Set it before the first key runs."""
        self.pending = PendingChanges(causes=handler.causes)
        self.pending.added = self._add
        self._waiting: dict[Key, _PendingCall] = {}
        self._lost = 0
        """The departures of which the log has said that they are lost."""

    def _add(self, pair: ObjectKey, change: Change, is_ready: bool) -> None:  # noqa: FBT001  # As it is called.
        key = Key(pair[1], namespace=pair[0] or None)
        if key in self.brake.rows:
            self.brake.hear(key, change.version)
        # Further changes do not shorten the delay after an error.
        if is_ready or ((waiting := self._waiting.get(key)) is not None and waiting.is_braked):
            self.queue.add(key)
        if self.pending.lost >= 2 * self._lost + 1:
            self._lost = self.pending.lost
            _logger.warning(
                "%(handler)s is too slow. Missed departures so far: %(count)s.",
                {"handler": str(self._handler), "count": self._lost},
            )

    def add(self, shards: Shards, change: Change) -> None:
        """Take a change in. What comes and goes with a range of keys is no change of its objects."""
        if not change.filter_changed or shards.handles(change.key):
            self.pending.add(change)

    def known(self) -> Collection[Key]:
        return [Key.stored(pair) for pair in self.pending.keys()]  # It is no dict.  # noqa: SIM118

    def add_again(self, has: Callable[[ObjectKey], bool]) -> None:
        for key in self.known():
            if has(key.pair):
                self.queue.add(key)
        if self._handler.initial:
            self.subscription.replay(has)

    def forget_key(self, key: Key, *, keeps_departures: bool) -> None:
        self._waiting.pop(key, None)
        if self._handler.initial or not keeps_departures:  # Else nobody calls it with the present object.
            self.pending.drop(key.pair, keeps_departures=keeps_departures)

    async def run(self, run: Run) -> RunAgain | None:
        """Call the handler once, with the next change of an object."""
        key, now = run.key, self._clock()
        waiting = self._waiting.get(key)
        if waiting is not None and now < waiting.since:  # It was added just before that call began.
            return RunAgain(waiting.since - now)
        self._waiting.pop(key, None)
        change = self.pending.take(key.pair)
        if change is None:
            self._finish(key)
            return None
        if waiting is not None and self._continues(waiting, change, now):
            attempts = waiting.attempts
        else:
            attempts = Attempts(now, self._clock)
        callers: list[Caller] = [(key, "" if change.after is None else change.after.version)]
        if key in self.brake.rows:
            callers += self.brake.heard(key)
            if pause := self.brake.pause(key, callers):
                self._waiting[key] = _PendingCall(change, attempts, now, is_braked=True)
                return RunAgain(pause)
        seconds = await self._execute(key, change, callers, attempts)
        if seconds is None:
            self._finish(key)
            return None
        self._waiting[key] = _PendingCall(change, attempts, self._clock() + seconds)
        return RunAgain(seconds)

    def _finish(self, key: Key) -> None:
        if self.pending.finish(key.pair):
            self.queue.add(key)

    def _continues(self, waiting: _PendingCall, change: Change, now: float) -> bool:
        """Return True if a change continues the attempts of the one before: it is the same, or was joined in
        time.
        """
        attempts, timeout = waiting.attempts, self._handler.timeout
        attempts.begun += now - waiting.since
        is_over = timeout is not None and attempts.runtime.total_seconds() >= timeout
        return change is waiting.change or not (change.after is None or is_over)

    async def _execute(
        self, key: Key, change: Change, callers: Collection[Caller], attempts: Attempts
    ) -> float | None:
        """Call the handler once; return None if that was the last call for the change, else the seconds until
        the next.
        """
        given = structs.replace(change, views=Views(self._resource))
        try:
            with self.brake.watching(key, callers):
                _, logger = self.identify(key, change.record.uid)
                outcome = await self.execute(ChangeArguments(logger, given), attempts)
        except Exception:
            _logger.exception("A call of %(handler)s is made again.", {"handler": str(self._handler)})
            return RETRY_SECONDS
        return None if outcome.final else outcome.delay or 0.0


class _ChangeRunner:
    """The calls of one handler."""

    def __init__(self, handler: ChangeHandler, operator: Operator, runtime: Runtime) -> None:
        self._handler, self._operator, self._runtime = handler, operator, runtime
        self._reported: type[Exception] | None = None
        """The class of the last error that was logged."""
        self._has_followed = False
        self._is_excluded = False
        """True if the cache had nothing for the handler, until its filter or options changed."""

    async def run(self) -> None:
        """Call the handler with each change until cancelled. A bug in this package starts it again."""
        failures = 0
        while True:
            changed = self._runtime.names.changed
            try:
                await self._deliver()
            except NotDeclared as error:
                await self._wait_until_declared(error)
                self._reported, self._is_excluded = None, False
                continue
            except NotSynced:
                pass  # The cluster has not said yet what some key means.
            except (ReadError, DeclarationError) as error:
                self._report(error, logging.INFO if self._may_be_labelled(error) else logging.ERROR)
                self._is_excluded = True
                await changed.wait()  # Another filter may hold what the handler follows.
                continue
            except Exception:
                _logger.exception("The calls of %(handler)s start again.", {"handler": str(self._handler)})
            retries = self._runtime.retries
            await retries.sleep(delay(failures, retries.chance()))
            failures += 1

    async def _wait_until_declared(self, error: NotDeclared) -> None:
        """Wait until the kind is declared, for the first time or again; log the error if it is not yet."""
        while True:
            changed = self._runtime.names.changed
            with suppress(NotSynced):  # It is not known yet what a new key means: that is waited for later.
                try:
                    self._runtime.informer(self._handler.kind)
                except NotDeclared:
                    self._report(error, logging.INFO if self._has_followed else logging.WARNING)
                    await changed.wait()
                    continue
            return

    def _may_be_labelled(self, error: Exception) -> bool:
        """Return True if the filter will hold what the handler follows once a namespace gains a label."""
        declared = self._runtime.informer(self._handler.kind).declared
        return isinstance(error, OutsideFilter) and bool(declared.namespace_labels)

    def _report(self, error: SelectCacheError, level: int = logging.ERROR, failing: str = "") -> None:
        """Log once why the handler is not called: for an object, or at all."""
        if self._reported is not type(error):
            self._reported = type(error)
            _logger.log(
                level,
                "%(handler)s is not called%(objects)s: %(error)s",
                {
                    "handler": str(self._handler),
                    "objects": f" for {failing} and objects like it" if failing else "",
                    "error": error.line,
                },
            )

    async def _deliver(self) -> None:
        handler, operator = self._handler, self._operator
        informer, resource = await resolved(operator, handler.kind)
        request = Request(
            verb="changes",
            kind=handler.kind,
            selector=handler.selector,
            where=handler.where,
            form=handler.form,
            is_plain=handler.where is None and handler.form is None,
        )
        calls = _ChangeCalls(handler, operator, self._runtime, resource)
        begins_later, looked = self._is_excluded, asyncio.Event()
        subscription = Subscription(
            informer,
            request,
            calls.pending.add if operator.shards is None else partial(calls.add, operator.shards),
            initial=handler.initial or begins_later,
            filter_changed=begins_later,
            look=looked.set,
        )
        calls.subscription, self._is_excluded = subscription, False
        if ChangeCause.RESYNC in handler.causes and not (informer.declared.resync or self._has_followed):
            _logger.warning(
                "%(handler)s is never called for a resync, because %(resource)s are declared without"
                " resync=.",
                {"handler": str(handler), "resource": str(informer)},
            )
        self._has_followed = True
        async with calls.working() as working:
            try:
                try:
                    await self._watch(informer, subscription, looked, working)
                finally:
                    subscription.close()
            except ReadError:  # There will be no further changes: calls that run now go on to their ends.
                await calls.worker.stop()
                raise

    async def _watch(
        self,
        informer: Informer,
        subscription: Subscription,
        looked: asyncio.Event,
        working: asyncio.Task[None],
    ) -> None:
        """Wait for the end of the kind, or for an error for which the handler is not called at all; raise it.
        Log errors of single objects.
        """
        while True:
            look = asyncio.create_task(looked.wait())
            try:
                await informer.ending.limit(
                    asyncio.wait({working, look}, return_when=asyncio.FIRST_COMPLETED)
                )
            finally:
                look.cancel()
            if working.done():
                working.result()
            looked.clear()
            if subscription.error is not None:
                if not subscription.failing:  # What is cached has changed.
                    raise subscription.error
                self._report(subscription.error, failing=subscription.failing)
                subscription.error = None
