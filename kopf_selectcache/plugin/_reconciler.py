"""Runs the reconcilers (`selectcache.reconcile`) of one operator.

Each has a work queue, the sources that add keys to it, and a worker. They start after the caches: sources
first, then the worker once the sources are synced; they stop in reverse. A call has the object as the cache
has it then, not as it was in a change. Kopf executes the handler, with its retries, timeout and errors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, NotSynced, ReadError, SelectCacheError
from kopf_selectcache.cache.access import require_stored
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.informer.environment import let_end
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.reactions.engine import Worker
from kopf_selectcache.reactions.mapping import ITSELF, Owner
from kopf_selectcache.reactions.predicates import AnyPredicate
from kopf_selectcache.reactions.queue import WorkQueue, WorkQueues
from kopf_selectcache.reactions.sources import Channel, Kind, Source, SyncingSource

from ._calls import CALLS_AT_ONCE, UTC_NOW, calling_with_cache, resolved, until_callable
from ._change_arguments import formed_request
from ._key_records import KeyRecords, OwnPatches
from ._reconcile_calls import Calls
from ._sharding import divided, if_handled
from .finalizers import Cleanup
from .operator import Operator
from .reconcile import Reconciler, Watch, reconcilers

_logger = logging.getLogger("kopf_selectcache")


async def run_reconcilers(
    operator: Operator,
    runtime: Runtime,
    registry: _kopf.OperatorRegistry | None,
    *,
    now: Callable[[], datetime] = UTC_NOW,
) -> None:
    """Run the reconcilers of a registry until cancelled."""
    kopfs = operator.settings.persistence.finalizer
    handlers = [replace(each, finalizer=kopfs) if each.kopfs else each for each in reconcilers(registry)]
    if not handlers:
        return
    if any(each.has_finalizer for each in handlers):
        from ._finalizer_checks import check_declared  # Few operators need it.  # noqa: PLC0415

        runtime.check_declared = partial(check_declared, handlers, runtime)
    parts = _kopf.parts_of(operator.settings)
    if parts is not None:
        parts.allow_events()
    memos = _kopf.Memos() if parts is None else parts.memos
    async with asyncio.TaskGroup() as group:
        for handler in handlers:
            runner = _Runner(handler, handlers, operator, runtime, registry, parts, memos, now)
            group.create_task(runner.run(), name=f"selectcache: {handler.id}")


class _Runner:
    """Runs one reconciler."""

    def __init__(
        self,
        handler: Reconciler,
        handlers: Sequence[Reconciler],
        operator: Operator,
        runtime: Runtime,
        registry: _kopf.OperatorRegistry | None,
        parts: _kopf.OperatorParts | None,
        memos: _kopf.Memos,
        now: Callable[[], datetime],
    ) -> None:
        self._registry = registry
        self._handler, self._handlers, self._operator, self._runtime = handler, handlers, operator, runtime
        self._parts, self._memos, self._now = parts, memos, now
        self._reported: tuple[type[Exception], str] | None = None
        """The last error that was logged."""
        called = calling_with_cache(handler.fn, operator, runtime, handler.form)
        self._called = replace(handler, fn=called)

    async def run(self) -> None:
        """Run the reconciler until cancelled, and start it again after failures."""
        failures, retries = 0, self._runtime.retries
        while True:
            try:
                with suppress(NotSynced):  # The cluster has not said yet what some key means.
                    await self._run()
            except (ReadError, DeclarationError) as error:
                self._report(error)
            except BaseException as error:  # A function in watches= may raise anything.
                let_end(error)
                _logger.exception("%(handler)s starts again.", {"handler": str(self._handler)})
            await retries.sleep(delay(failures, retries.chance()))
            failures += 1

    def _report(self, error: SelectCacheError) -> None:
        """Log once why the reconciler does not run."""
        if self._reported != (reported := (type(error), error.line)):
            self._reported = reported
            _logger.error(
                "%(handler)s does not run: %(error)s", {"handler": str(self._handler), "error": error.line}
            )

    async def _run(self) -> None:
        handler, operator, retries = self._handler, self._operator, self._runtime.retries
        await operator.gate(None, None, fresh=False)
        resource = await self._resource()
        queue = WorkQueue(clock=retries.clock, chance=retries.chance)
        kopfs = operator.settings.persistence.finalizer
        if handler.has_finalizer:
            from ._finalizer_checks import check_resource  # As above.  # noqa: PLC0415

            declared = self._runtime.informer(handler.kind).declared
            check_resource(handler, declared, resource, kopfs, self._registry)
        records = KeyRecords()
        cleanup = Cleanup(
            handler, self._handlers, self._runtime, resource, records, kopfs=kopfs, registry=self._registry
        )
        calls = Calls(
            self._called,
            operator,
            self._runtime,
            self._parts,
            self._memos,
            self._now,
            queue,
            resource,
            records,
            cleanup,
        )
        limit = handler.limit or operator.settings.queueing.worker_limit or CALLS_AT_ONCE
        worker = Worker(
            queue,
            if_handled(operator.shards, calls),
            limit=limit,
            sleep=retries.sleep,
            clock=retries.clock,
            logger=_logger,
            gate=partial(until_callable, operator, self._parts),
        )
        async with AsyncExitStack() as stack:
            stack.enter_context(self._runtime.extensions.get(WorkQueues).running(str(handler.id), queue))
            syncing = list[SyncingSource]()
            for source, predicates in self._sources(resource, calls.own):
                source.bind(Cache(self._runtime))
                await source.start(queue, predicates)
                stack.push_async_callback(source.stop)
                if isinstance(source, SyncingSource):
                    syncing.append(source)
            for source in syncing:
                await source.wait_synced()
            self._reported = None
            stack.enter_context(divided(operator.shards, worker, calls))
            forgetting = asyncio.create_task(calls.forget_removed())
            working = asyncio.create_task(worker.run(), name=f"selectcache: {handler.id}: worker")
            try:
                await asyncio.wait({working})
                working.result()
            finally:
                forgetting.cancel()
                await worker.stop(deadline=operator.settings.queueing.exit_timeout)
                if not queue.is_finished:  # A run resists.
                    working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    async def _resource(self) -> Resource:
        """Return the resource of the reconciled kind, once it is known."""
        informer, resource = await resolved(self._operator, self._handler.kind)
        if (form := self._handler.form) is not None:
            require_stored(
                formed_request(self._handler, form, str(informer)), resource, informer.state.projection
            )
        return resource

    def _sources(
        self, resource: Resource, own: OwnPatches
    ) -> Iterator[tuple[Source, Sequence[AnyPredicate]]]:
        """Yield each source with the predicates of its start. Start it before the next one is made: a channel
        waits for each of its sources.
        """
        handler, retries = self._handler, self._runtime.retries
        times: dict[str, Any] = {"sleep": retries.sleep, "chance": retries.chance}
        yield Kind(handler.kind, **times), [own]
        for watch in handler.owns:
            owner = Owner(
                resource.kind.group,
                resource.kind.kind,
                controller=watch.controller,
                namespaced=resource.kind.namespaced is not False,
            )
            yield _source_of(watch, owner, times), handler.predicates
        for watch in handler.watches:
            yield _source_of(watch, watch.map or ITSELF, times), handler.predicates


def _source_of(watch: Watch, mapping: Any, times: Mapping[str, Any]) -> Source:
    if watch.kind is not None:
        cache = watch.cache() if callable(watch.cache) else watch.cache
        return Kind(watch.kind, cache=cache, map=mapping, predicates=watch.predicates, **times)
    if isinstance(watch.what, Channel):
        return watch.what.source(map=mapping, predicates=watch.predicates, **times)
    assert callable(watch.what), "it was checked"
    source = watch.what()
    if not isinstance(source, Source):
        raise DeclarationError(
            f"a function in watches= returned {type(source).__name__}", remedy="Return a source"
        )
    return source
