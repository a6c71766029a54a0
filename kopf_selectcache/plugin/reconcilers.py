"""Runs the reconcilers (`selectcache.reconcile`) of one operator.

Each has a work queue, the sources that add keys to it, and a worker. They start after the caches: sources
first, then the worker once the sources are synced; they stop in reverse. A call has the object as the cache
has it then, not as it was in a change; each object that departed has a call of its own. Kopf executes the
handler, with its retries, timeout and errors. Its patch is applied, and what that causes alone makes no call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import (
    DeclarationError,
    NotDeclared,
    NotSynced,
    ReadError,
    SelectCacheError,
    ServerError,
    StateError,
)
from kopf_selectcache.cache.access import require_stored
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.formats.views import BodyView
from kopf_selectcache.cache.own_writes import informers_of
from kopf_selectcache.cache.request import Request
from kopf_selectcache.cache.snapshots import open_snapshot
from kopf_selectcache.core.protocol.messages import delay
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.informer.environment import let_end
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.reactions.engine import RunAgain
from kopf_selectcache.reactions.mapping import ITSELF, Owner
from kopf_selectcache.reactions.predicates import AnyPredicate, all_of
from kopf_selectcache.reactions.queue import Cause, Priority, Run, WorkQueues
from kopf_selectcache.reactions.sources import Channel, Kind, Source, SyncingSource
from kopf_selectcache.selectors.object_key import Key

from .brake import Caller
from .calls import RETRY_SECONDS, Attempts, HandlerCalls, resolved
from .on import formed_request
from .operator import Operator
from .patches import (
    Departure,
    KeyRecord,
    KeyRecords,
    OwnPatches,
    Patcher,
    is_terminating,
    log_refused,
    version_of,
)
from .reconcile import (
    DELETING,
    Cleanup,
    ConcernsFinalizer,
    Reconciler,
    Watch,
    check_declared,
    check_resource,
    keep_finalizer,
    may_stay,
    reconcilers,
    seconds_of,
)

_logger = logging.getLogger("kopf_selectcache")


@dataclass
class ReconcileArguments(_kopf.Cause):
    """The arguments of a reconciler. `logger` is in the base class."""

    body: BodyView
    patch: Any
    memo: Any
    causes: tuple[Cause, ...]
    key: Key
    uid: str
    deleted: bool
    deleting: bool

    @property
    def _kwargs(self) -> dict[str, Any]:
        body, meta = self.body, self.body.metadata
        return {
            "logger": self.logger,
            "body": body,
            "patch": self.patch,
            "memo": self.memo,
            "causes": self.causes,
            "deleted": self.deleted,
            "deleting": self.deleting,
            "name": self.key.name,
            "namespace": self.key.namespace,
            "uid": self.uid,
            "meta": meta,
            "spec": body.spec,
            "status": body.status,
            "labels": meta.labels,
            "annotations": meta.annotations,
        }


class ReconcileCalls(HandlerCalls):
    """The calls of one reconciler for the keys of its queue."""

    def __init__(
        self,
        handler: Reconciler,
        operator: Operator,
        runtime: Runtime,
        resource: Resource,
        memos: _kopf.Memos,
        records: KeyRecords,
        cleanup: Cleanup,
    ) -> None:
        super().__init__(handler, operator, runtime, resource)
        self._handler, self._memos, self._records, self._cleanup = handler, memos, records, cleanup
        self._kind = handler.kind
        others = all_of(handler.predicates, handler.primary.predicates)
        if handler.finalizer is not None:
            others = ConcernsFinalizer(handler.finalizer) | others
        self.own = OwnPatches(records, self._call_again, self._note_departure, others)
        """Drops the changes that the patches of the calls have caused."""
        self._patcher = Patcher(
            runtime, resource, self._informer, self.own, f"a patch of {handler}", self._warn_of_lost
        )
        self._warned: set[str] = set()
        """The paths, the results and the places of keys of which the log has warned."""

    async def forget_removed(self) -> None:
        """Forget the memos and departures of all objects whenever their kind is removed, until cancelled: it
        reports nothing until it is declared again.
        """
        while True:
            changed = self._runtime.names.changed
            with suppress(NotSynced):
                try:
                    self._informer()
                except NotDeclared:
                    self._memos.forget_all(self._resource)
                    self._records.forget_departures()
            await changed.wait()

    # ---- Changes.

    def _call_again(self, key: Key, change: Change) -> None:
        self.queue.add(key, cause=Cause(change.cause, str(self._resource), key, version=change.version))

    def _note_departure(self, key: Key, change: Change) -> None:
        body = change.old
        assert isinstance(body, BodyView), "it departs from a cache"
        departure = Departure(body, change.cause == ChangeCause.DELETED)
        self._records[key].departures[str(body.metadata.uid)] = departure
        self._call_again(key, change)  # No predicate keeps it from its last run.

    def _warn_of_lost(self, key: Key, paths: list[str]) -> None:
        for path in paths:
            if self._is_first(path):
                _logger.warning(
                    "The server ignored %(path)s in three patches of %(resource)s %(object)s by %(handler)s."
                    " Its schema may not have that field.",
                    {**self._names, "path": path, "object": printable_name(*key.pair)},
                )

    def _warn_of_leftover(self, key: Key, body: BodyView) -> None:
        if (left := self._cleanup.leftover_of(body)) is None:
            return
        parts = {**self._names, "name": left, "object": printable_name(*key.pair)}
        if self._handler.finalizer is None:
            _logger.warning(
                "%(resource)s %(object)s can't be deleted: it has the finalizer %(name)s, which no handler of"
                " this operator removes. If an earlier version added it, add finalizer= to %(handler)s:"
                " finalizer=True runs a cleanup with deleting=True, finalizer=False removes it. If another"
                " operator uses it, do nothing.",
                parts,
            )
        else:
            _logger.warning(
                "%(resource)s %(object)s can't be deleted: it has the finalizer %(name)s, which no handler of"
                " this operator removes. If an earlier version added it, run: selectcache finalizers remove"
                " %(resource)s --all. If another operator uses it, do nothing.",
                parts,
            )

    def _is_first(self, about: str) -> bool:
        """Return True for the first warning about something."""
        is_first = about not in self._warned
        self._warned.add(about)
        return is_first

    @property
    def _names(self) -> dict[str, str]:
        return {"handler": str(self._handler), "resource": str(self._resource)}

    # ---- ReconcileCalls.

    def add_again(self, has: Callable[[ObjectKey], bool]) -> None:
        for key in self._present():
            if has(key.pair):
                cause = Cause(ChangeCause.ENTERED, str(self._resource), key)
                self.queue.add(key, priority=Priority.INITIAL, cause=cause)
        for key, record in self._records.items():
            if has(key.pair) and record.departures:
                self.queue.add(key, cause=Cause(ChangeCause.LEFT, str(self._resource), key))

    def _present(self) -> list[Key]:
        # By the resource: while another kind is not resolved, no kind may be found by its name.
        informers = informers_of(self._runtime, self._resource)
        return [Key.stored(each.key) for informer in informers for each in informer.state.store.records()[0]]

    def known(self) -> Collection[Key]:
        return {*self._records, *self._present()}

    def forget_key(self, key: Key, *, keeps_departures: bool) -> None:
        record = self._records.pop(key, None)
        uids = set[str]() if record is None else {*record.departures}
        for informer in informers_of(self._runtime, self._resource):
            if (present := informer.state.store.get(*key.pair)[0]) is not None:
                uids.add(present.uid)
        for uid in uids:
            self._memos.release(uid)
        if record is not None and record.departures and keeps_departures:
            self._records[key] = KeyRecord(departures=record.departures)

    async def run(self, run: Run) -> RunAgain | None:
        key = run.key
        if seconds := self.brake.pause(key, _callers(run)):
            for cause in run.causes:
                self.queue.add_after(key, seconds, priority=run.priority, cause=cause)
            return None
        try:
            body = self._read(key)
            record = self._records.get(key)
            if record is not None and (record.departures or body is None):
                again = await self._run_departures(key, record, body, run)
                if again is not None:
                    return again
            return None if body is None else await self._run_present(key, body, run)
        except NotSynced:  # A cache lists again, or cannot.
            return RunAgain(RETRY_SECONDS)
        except NotDeclared:  # The kind is removed. Once it is declared again, all its objects are listed.
            return None
        finally:
            self._records.tidy(key)

    def _informer(self) -> Informer:
        # The lookups that reads remember come first.
        return self._runtime.names.quick.get(self._kind) or self._runtime.informer(self._kind)

    def _read(self, key: Key) -> BodyView | None:
        """Return the object of a key as the cache has it, with own writes; None if it has none. Raise
        NotSynced if the cache cannot be read.
        """
        if (key.namespace is not None) is not self._resource.kind.namespaced:
            place = "cluster-scoped" if key.namespace is None else "in a namespace"
            if self._is_first(place):
                _logger.warning(
                    "%(handler)s is not called for a key that is %(place)s, because %(resource)s never are."
                    " Correct map=.",
                    {**self._names, "place": place},
                )
            return None
        request = Request(verb="get", kind=self._kind, name=key.name, namespace=key.namespace)
        try:
            snapshot = open_snapshot(self._informer(), request, None, deleted=False)
        except StateError as error:  # The cache has logged it, for all of its objects.
            raise NotSynced(error.what, remedy=error.remedy) from error
        record, _ = snapshot.get(key.namespace or "", key.name)
        return BodyView(record) if record is not None and record.stored else None

    async def _run_departures(
        self, key: Key, record: KeyRecord, body: BodyView | None, run: Run
    ) -> RunAgain | None:
        """Call the handler for the objects of a key that are gone."""
        record.forget_object()
        for uid, departure in list(record.departures.items()):
            present = None if body is None else body.metadata.uid
            if present != uid:
                departure.is_gone = departure.is_gone or present is not None
                if self._handler.deleted and not departure.is_gone:  # It may exist, outside of the filter.
                    departure.is_gone = await Cache(self._runtime).is_deleted(self._kind, key, uid=uid)
                if self._handler.deleted and departure.is_gone:
                    again = await self._call(key, uid, departure.body, run)
                    if again is not None:
                        return again
                self._memos.release(uid)
            record.forget_departure(uid)
        return None

    async def _run_present(self, key: Key, body: BodyView, run: Run) -> RunAgain | None:
        """Call the handler for an object that there is. If it has a finalizer, put that on before."""
        finalizers: list[str] = body["metadata"].get("finalizers") or []
        if finalizers:
            self._warn_of_leftover(key, body)
        if (kopfs := self._cleanup.released) in finalizers:
            return await self._change_finalizers(key, body, run, kopfs, self._patcher.remove_finalizer)
        name = self._handler.finalizer
        if name is None:
            return await self._call(key, "", body, run)
        if name in finalizers:
            return await self._call(key, DELETING if is_terminating(body) else "", body, run)
        if is_terminating(body):  # Nothing was done for it, or nothing is left to do.
            return None
        if self._is_about_to_leave(body):
            return RunAgain(RETRY_SECONDS)
        return await self._change_finalizers(key, body, run, name, self._add_finalizer)

    async def _add_finalizer(self, key: Key, body: BodyView, name: str) -> bool:
        with self._cleanup.adding(body.metadata.uid):
            return await self._patcher.add_finalizer(key, body, name)

    def _is_about_to_leave(self, body: BodyView) -> bool:
        """Return True if the filter is being narrowed past an object: a finalizer would stay on it."""
        filter_ = self._informer().filter_change.next_filter
        return filter_ is not None and not may_stay(filter_, body["metadata"])

    async def _change_finalizers(
        self, key: Key, body: BodyView, run: Run, name: str, change: Callable[..., Awaitable[bool]]
    ) -> RunAgain | None:
        """Put a finalizer on an object, or take it off, and then call the handler with the new object."""
        refused: ServerError | StateError | None = None
        with self.brake.watching(key, _callers(run)):
            try:
                is_done = await change(key, body, name)
            except (ServerError, StateError) as error:
                is_done, refused = False, error
        if not is_done:
            return self._retry_patch(key, "", refused)
        newer = self._read(key)  # It has the answer, or what came after it.
        if newer is not None and is_terminating(body) and version_of(newer) == version_of(body):
            return None  # That was the last finalizer: the object is gone, and its departure will come.
        return None if newer is None else await self._run_present(key, newer, run)

    async def _call(self, key: Key, phase: str, body: BodyView, run: Run) -> RunAgain | None:
        """Call the handler once, and apply its patch; return when to call it again. The phase is empty,
        DELETING, or the uid of a departed object.
        """
        deleted, record = phase not in ("", DELETING), self._records.get(key)
        attempts = None if record is None else record.attempts.get(phase)
        attempts = attempts or Attempts(self._clock(), self._clock)
        uid = body["metadata"].get("uid")
        (identity, logger), patch = self.identify(key, uid), _kopf.Patch(body)
        memo = await self._memos.recall(identity, self._resource)
        arguments = ReconcileArguments(
            logger, body, patch, memo, run.causes, key, uid, deleted, phase == DELETING
        )
        if record is not None:
            record.cleaned = ""
        with self.brake.watching(key, _callers(run)):
            outcome = await self.execute(arguments, attempts)
            if not outcome.final:
                self._records[key].attempts[phase] = attempts
            elif record is not None:
                record.attempts.pop(phase, None)
            is_over = phase == DELETING and outcome.final and seconds_of(outcome.result) is None
            # As Kopf does it: also after an error.
            try:
                is_applied = deleted or await self._apply(key, arguments, outcome.exception, is_over=is_over)
                refused = None
            except (ServerError, StateError) as error:
                is_applied, refused = False, error
        if is_applied and not outcome.final:
            return RunAgain(outcome.delay or 0.0)
        if not is_applied:
            return self._retry_patch(key, phase, refused, outcome.delay or 0.0)
        if (record := self._records.get(key)) is not None:
            record.unapplied.pop(phase, None)
        return self._again_after(outcome.result)

    async def _apply(
        self, key: Key, arguments: ReconcileArguments, error: BaseException | None, *, is_over: bool
    ) -> bool:
        """Apply the patch of a call, and take the finalizer off if this was the last cleanup and it is over;
        return False if the call must be repeated. The error is that of the call.
        """
        body, name = arguments.body, self._handler.finalizer
        if name is not None:
            keep_finalizer(arguments.patch, name)
        newest = await self._patcher.apply(key, body, arguments.patch, is_exact=is_over)
        if newest is None or name is None or not is_over:
            return newest is not None
        is_released = not self._cleanup.end(key, body.metadata.uid) or await self._patcher.remove_finalizer(
            key, newest, name
        )
        if error is not None and is_released:
            self._report_given_up(arguments, name)
        return is_released

    def _report_given_up(self, arguments: ReconcileArguments, name: str) -> None:
        names = {**self._names, "name": name}
        arguments.logger.error(
            "%(handler)s has failed permanently, so the finalizer %(name)s is removed.",
            names,
            extra={"k8s_skip": True},  # It is an event of its own.
        )
        message = "{handler} has failed permanently, so the finalizer {name} is removed."
        with suppress(LookupError):  # The operator posts no events.
            kopf.warn(arguments.body, reason="FinalizerReleased", message=message.format_map(names))

    def _retry_patch(
        self, key: Key, phase: str, refused: ServerError | StateError | None, at_least: float = 0.0
    ) -> RunAgain:
        unapplied = self._records[key].unapplied
        failures = unapplied[phase] = unapplied.get(phase, -1) + 1
        asked = None if refused is None else refused.retry_after
        seconds = delay(failures, self._runtime.retries.chance(), at_least=asked or 0.0)
        seconds = max(seconds, at_least)
        if refused is not None:
            log_refused(refused, seconds)
        return RunAgain(seconds)

    def _again_after(self, result: object) -> RunAgain | None:
        seconds = seconds_of(result)
        if seconds is None and result is not None and self._is_first("result"):
            _logger.warning(
                "%(handler)s returned %(type)s, which is ignored. Return nothing, or the seconds until the"
                " next call.",
                {**self._names, "type": type(result).__name__},
            )
        return None if seconds is None else RunAgain(seconds)


def _callers(run: Run) -> list[Caller]:
    return [(cause.obj, cause.version) for cause in run.causes]


# ---- The reconcilers of one operator.


async def run_reconcilers(
    operator: Operator, runtime: Runtime, registry: _kopf.OperatorRegistry | None
) -> None:
    """Run the reconcilers of a registry until cancelled."""
    kopfs = operator.settings.persistence.finalizer
    handlers = [replace(each, finalizer=kopfs) if each.kopfs else each for each in reconcilers(registry)]
    if any(each.has_finalizer for each in handlers):
        runtime.check_declared = partial(check_declared, handlers, runtime)
    parts = _kopf.parts_of(operator.settings)
    memos = _kopf.Memos() if parts is None else parts.memos
    async with asyncio.TaskGroup() as group:
        for handler in handlers:
            runner = _ReconcilerRunner(handler, handlers, operator, runtime, registry, memos)
            group.create_task(runner.run(), name=f"selectcache: {handler.id}")


class _ReconcilerRunner:
    """Runs one reconciler."""

    def __init__(
        self,
        handler: Reconciler,
        handlers: Sequence[Reconciler],
        operator: Operator,
        runtime: Runtime,
        registry: _kopf.OperatorRegistry | None,
        memos: _kopf.Memos,
    ) -> None:
        self._handler, self._handlers, self._operator, self._runtime = handler, handlers, operator, runtime
        self._registry, self._memos = registry, memos
        self._reported: tuple[type[Exception], str] | None = None
        """The last error that was logged."""

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
        handler, operator, runtime = self._handler, self._operator, self._runtime
        await operator.gate(None, None, fresh=False)
        resource = await self._resource()
        kopfs = operator.settings.persistence.finalizer
        if handler.has_finalizer:
            declared = runtime.informer(handler.kind).declared
            check_resource(handler, declared, resource, kopfs, self._registry)
        records = KeyRecords()
        cleanup = Cleanup(
            handler, self._handlers, runtime, resource, records, kopfs=kopfs, registry=self._registry
        )
        calls = ReconcileCalls(handler, operator, runtime, resource, self._memos, records, cleanup)
        async with AsyncExitStack() as stack:
            stack.enter_context(runtime.extensions.get(WorkQueues).running(str(handler.id), calls.queue))
            syncing = list[SyncingSource]()
            for source, predicates in self._sources(resource, calls.own):
                source.bind(Cache(runtime))
                await source.start(calls.queue, predicates)
                stack.push_async_callback(source.stop)
                if isinstance(source, SyncingSource):
                    syncing.append(source)
            for source in syncing:
                await source.wait_synced()
            self._reported = None
            working = await stack.enter_async_context(calls.working(handler.limit))
            forgetting = asyncio.create_task(calls.forget_removed())
            try:
                await asyncio.wait({working})
                working.result()
            finally:
                forgetting.cancel()

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
