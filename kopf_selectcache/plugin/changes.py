"""Calls the handlers of changes (`selectcache.on.change`) of one operator.

Each handler has a subscription of the informer of its kind. Changes of one object are handled one at a time;
of different objects at the same time, up to `settings.queueing.worker_limit`. Kopf executes the handler, with
its retries, timeout and errors. None is called while Kopf pauses the operator for another one (peering), or
while a cache is not synced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec import structs

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, NotDeclared, NotSynced, ReadError, SelectCacheError
from kopf_selectcache.cache.changes import Subscription
from kopf_selectcache.cache.errors import OutsideFilter
from kopf_selectcache.cache.formats.views import Views
from kopf_selectcache.cache.request import Request
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.store.change import Change, ChangeCause
from kopf_selectcache.informer.environment import end_within, sleep_until
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.object_key import Key

from ._brake import Brake, Caller, Chains
from ._calls import CALLS_AT_ONCE, Attempts, call_with_cache, is_callable, wait_until_callable
from .handlers import RETRY
from .on import ChangeHandler, change_handlers
from .operator import Operator

_logger = logging.getLogger("kopf_selectcache")


@dataclass
class ChangeArguments(_kopf.Cause):
    """The arguments of a handler of changes. `logger` is in the base class."""

    change: Change

    @property
    def _kwargs(self) -> dict[str, Any]:
        change = self.change
        body = change.body
        return {
            "logger": self.logger,
            "cause": change.cause,
            "filter_changed": change.filter_changed,
            "initial": change.initial,
            "known_by": change.known_by,
            "old": change.old,
            "new": change.new,
            "body": body,
            "name": change.name,
            "namespace": change.namespace,
            "uid": change.uid,
            "meta": body.metadata,
            "spec": body.spec,
            "status": body.status,
            "labels": body.metadata.labels,
            "annotations": body.metadata.annotations,
        }


async def deliver_changes(
    operator: Operator,
    runtime: Runtime,
    registry: _kopf.OperatorRegistry | None,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Call the handlers of changes of a registry until cancelled."""
    handlers = list(change_handlers(registry))
    if not handlers:
        return
    parts = _kopf.parts_of(operator.settings)
    if parts is not None:
        parts.allow_events()
    async with asyncio.TaskGroup() as group:
        for handler in handlers:
            delivery = _Delivery(handler, operator, runtime, parts, now)
            group.create_task(delivery.run(), name=f"selectcache: {handler.id}")


class _Delivery:
    """The calls of one handler."""

    def __init__(
        self,
        handler: ChangeHandler,
        operator: Operator,
        runtime: Runtime,
        parts: _kopf.OperatorParts | None,
        now: Callable[[], datetime],
    ) -> None:
        self._handler = handler
        self._operator = operator
        self._runtime = runtime
        self._limit = asyncio.Semaphore(operator.settings.queueing.worker_limit or CALLS_AT_ONCE)
        self._entered: set[asyncio.Task[None]] = set()
        """The calls that have one of the places of the limit."""
        self._parts = parts
        self._now = now
        self._reported: type[Exception] | None = None
        """The class of the last error that was logged."""
        self._has_followed = False
        self._is_excluded = False
        """True if the cache had nothing for the handler, until its filter or options changed."""
        self._is_ending = False
        called = partial(call_with_cache, handler.fn, operator, runtime, handler.form)
        self._called = replace(handler, fn=called)
        self._brake = Brake(str(handler), "", runtime.retries.clock, runtime.extensions.get(Chains))
        self._slowed: dict[Key, asyncio.Event] = {}
        """The objects whose calls the brake delays. Set by their further changes."""

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

    async def _informer(self) -> Informer:
        """Return the informer of the kind, once its resource is known."""
        informer = await self._operator.informer(self._handler.kind)
        await informer.wait_until_settled()
        if informer.resource is None:
            completed = asyncio.Event()
            end = informer.subscribe(lambda _: None, completed.set)
            try:
                await informer.ending.limit(completed.wait())
            finally:
                end()
        return informer

    async def _deliver(self) -> None:
        self._is_ending = False
        handler = self._handler
        informer = await self._informer()
        request = Request(
            verb="changes",
            kind=handler.kind,
            selector=handler.selector,
            where=handler.where,
            form=handler.form,
            is_plain=handler.where is None and handler.form is None,
        )
        begins_later = self._is_excluded
        subscription = Subscription(
            informer,
            request,
            initial=handler.initial or begins_later,
            filter_changed=begins_later,
            causes=handler.causes,
        )
        self._is_excluded = False
        subscription.queue.heard = self._hear
        self._brake.resource = str(informer.resource)
        if ChangeCause.RESYNC in handler.causes and not (informer.declared.resync or self._has_followed):
            _logger.warning(
                "%(handler)s is never called for a resync, because %(resource)s are declared without"
                " resync=.",
                {"handler": str(handler), "resource": str(informer)},
            )
        calls: set[asyncio.Task[None]] = set()
        lost = 0
        self._has_followed = True
        try:
            while True:
                await informer.ending.limit(subscription.news.wait())
                subscription.news.clear()
                if subscription.error is not None:
                    if not subscription.failing:  # What is cached has changed.
                        raise subscription.error
                    self._report(subscription.error, failing=subscription.failing)
                    subscription.error = None
                while True:
                    if subscription.queue.lost >= 2 * lost + 1:
                        lost = subscription.queue.lost
                        _logger.warning(
                            "%(handler)s is too slow: it has missed %(count)s departures so far.",
                            {"handler": str(handler), "count": lost},
                        )
                    if not subscription.queue:
                        break
                    await informer.ending.limit(self._enter())
                    if not subscription.queue or informer.ending.reached:
                        self._limit.release()
                        break
                    call = self._begin(subscription.queue.take(), subscription, informer)
                    calls.add(call)
                    call.add_done_callback(calls.discard)
        except ReadError:  # There will be no further changes: calls that run now go on to their ends.
            self._is_ending = True
            subscription.close()
            await asyncio.gather(*(calls & self._entered), return_exceptions=True)
            raise
        finally:
            self._is_ending = True
            await self._end(calls)

    async def _end(self, calls: set[asyncio.Task[None]]) -> None:
        """Cancel calls. At the end of the operator those that run have the time that Kopf gives handlers."""
        if self._operator.is_stopping:
            for call in calls - self._entered:
                call.cancel()
            sleep = self._runtime.retries.sleep(self._operator.settings.queueing.exit_timeout)
            await end_within(calls & self._entered, sleep)
        for call in tuple(calls):
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _enter(self) -> None:
        """Wait until all caches are synced and the operator is not paused, and take one of the places."""
        while True:
            await wait_until_callable(self._operator, self._parts)
            await self._limit.acquire()
            if is_callable(self._operator, self._parts):
                return
            self._limit.release()

    def _begin(self, change: Change, subscription: Subscription, informer: Informer) -> asyncio.Task[None]:
        """Begin the calls for a change, in the place that was taken."""
        call = asyncio.create_task(self._handle(change, subscription, informer))
        self._entered.add(call)
        call.add_done_callback(self._leave)
        return call

    def _leave(self, call: asyncio.Task[None]) -> None:
        """Give back the place of a call, if it has one."""
        if call in self._entered:
            self._entered.discard(call)
            self._limit.release()

    async def _handle(self, change: Change, subscription: Subscription, informer: Informer) -> None:
        """Call the handler for a change, again after errors. The call has a place."""
        queue, retries = subscription.queue, self._runtime.retries
        call = asyncio.current_task()
        assert call is not None, "it runs in a task"
        attempts = self._attempts()
        try:
            while True:
                key = _key_of(change)
                slowed = self._brake.pause(key, self._callers(change))
                pause = slowed or await self._execute(change, informer, attempts)
                if pause is None or self._is_ending:
                    return  # The handler may have turned its cancellation into an error.
                self._leave(call)
                since = retries.clock()
                if slowed:
                    await self._sleep_slowed(key, slowed)
                else:
                    await retries.sleep(pause)
                    since = retries.clock()
                await self._enter()
                self._entered.add(call)
                renewed = queue.renew(change)
                if renewed is None:
                    return
                attempts.retries += not slowed
                attempts.begun += retries.clock() - since  # The handler had no part in this wait.
                if renewed is not change and (renewed.after is None or self._has_timed_out(attempts)):
                    attempts = self._attempts()
                change = renewed
        finally:
            queue.finish(change.key)
            subscription.news.set()

    async def _sleep_slowed(self, key: Key, seconds: float) -> None:
        """Wait until the brake lets an object be called, or the object changes again."""
        self._slowed[key] = heard = asyncio.Event()
        try:
            await sleep_until(heard, self._runtime.retries.sleep(seconds))
        finally:
            del self._slowed[key]

    def _hear(self, change: Change) -> None:
        caller = _caller_of(change)
        self._brake.hear(*caller)
        if (slowed := self._slowed.get(caller[0])) is not None:
            slowed.set()

    def _callers(self, change: Change) -> list[Caller]:
        """Return a change with those that are joined with it."""
        caller = _caller_of(change)
        return [caller, *self._brake.heard(caller[0])]

    def _has_timed_out(self, attempts: Attempts) -> bool:
        timeout = self._handler.timeout
        return timeout is not None and attempts.runtime.total_seconds() >= timeout

    async def _execute(self, change: Change, informer: Informer, attempts: Attempts) -> float | None:
        """Call the handler once; return None if that was the last call for the change, else the seconds until
        the next.
        """
        key = _key_of(change)
        try:
            with self._brake.watching(key, self._callers(change)):
                outcome = await _kopf.execute_handler_once(
                    settings=self._operator.settings,
                    handler=self._called,
                    cause=self._arguments(change, informer),
                    state=attempts,
                )
        except Exception:
            _logger.exception("A call of %(handler)s is made again.", {"handler": str(self._handler)})
            return RETRY
        return None if outcome.final else outcome.delay or 0.0

    def _attempts(self) -> Attempts:
        clock = self._runtime.retries.clock
        return Attempts(self._now(), clock(), clock)

    def _arguments(self, change: Change, informer: Informer) -> ChangeArguments:
        resource = informer.resource
        assert resource is not None, "it has objects"
        given = structs.replace(change, views=Views(resource))
        logger = _kopf.ObjectLogger(body=given.body, settings=self._operator.settings)
        return ChangeArguments(logger, given)


def _caller_of(change: Change) -> tuple[Key, str]:
    return _key_of(change), "" if change.after is None else change.after.version


def _key_of(change: Change) -> Key:
    namespace, name = change.key
    return Key(name, namespace=namespace or None)
