"""Calls of handlers: in Kopf's threads, and with plain JSON in their patches, since Kopf cannot write the
objects and views of a cache. `HandlerCalls` makes those of handlers that the caches call.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, InvalidObject, NotSynced, ReadError, tell_kopf
from kopf_selectcache.cache.access import as_current, of_class
from kopf_selectcache.cache.blocking import STOPPED, ThreadWaits
from kopf_selectcache.cache.cache import AnyCache, Cache, SyncCache
from kopf_selectcache.cache.formats.formats import Form
from kopf_selectcache.cache.formats.given import plain
from kopf_selectcache.cache.formats.views import record_of
from kopf_selectcache.cache.misuse import explain_attribute
from kopf_selectcache.core.redact import function_name, printable_name
from kopf_selectcache.core.selection.kinds import KindKey, Resource
from kopf_selectcache.core.store.changes import ChangeCause
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.informer.environment import let_end
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.reactions.engine import RunAgain, Worker
from kopf_selectcache.reactions.queue import Run, WorkQueue
from kopf_selectcache.selectors.object_key import Key

from .brake import Brake, Chains
from .caches import STOPPING
from .operator import Operator

if TYPE_CHECKING:
    from kopf_selectcache.sharding.shards import Shards

_logger = logging.getLogger("kopf_selectcache")


def make_plain(patch: object) -> InvalidObject | None:
    """Make plain JSON of a patch in place, and see to it that its functions leave plain JSON.

    Members that cannot be written are taken out, and the error of the first one is returned: Kopf applies the
    patch of a failed handler, too, and a timer whose patch cannot be written would never run again.
    """
    if not isinstance(patch, kopf.Patch):
        return None
    found: InvalidObject | None = None
    for name, part in tuple(patch.items()):
        try:
            patch[name] = plain("the patch", part, name)
        except InvalidObject as error:
            found = found or error
            patch[name] = _writable(part)
    patch.fns[:] = [each if isinstance(each, _Plain) else _Plain(each) for each in patch.fns]
    return found


def _writable(part: object) -> dict[str, Any]:
    """Return the members that can be written."""
    made: dict[str, Any] = {}
    for key, value in part.items() if isinstance(part, Mapping) else ():
        with suppress(InvalidObject):
            made |= plain("", {key: value})
    return made


@dataclass(frozen=True)
class _Plain:
    """A function of a patch that leaves plain JSON, or the object as it was: no timer survives an error."""

    function: Callable[[Any], object]

    def __call__(self, obj: Any) -> None:
        before = copy.deepcopy(obj)
        self.function(obj)
        try:
            for name, part in tuple(obj.items()):
                obj[name] = plain(f"{function_name(self.function)}() of patch.fns", part, name)
        except InvalidObject as error:
            obj.clear()
            obj.update(before)
            _logger.error("A part of the patch is not applied: %(error)s", {"error": error.line})  # noqa: TRY400  # It is no bug.


Function: TypeAlias = Callable[..., Any]

RETRY_SECONDS = 5.0
"""Seconds until a handler is retried that read an unsynced cache for which it did not wait."""


ORIGINAL = "__selectcache__"  # The attribute of a wrapper with the function.
KINDS = "__selectcache_kinds__"  # The attribute of a wrapper with the kinds that it waits for.


async def call(
    target: Function,
    operator: Operator,
    kwargs: dict[str, Any],
    waits: ThreadWaits,
    stopper: _kopf.DaemonStopper | None = None,
    *,
    is_async: bool,
) -> Any:
    """Call a function as Kopf would have called it, and make plain JSON of its patch. Kopf applies that after
    an error, too.
    """
    try:
        if is_async:
            result = await target(**kwargs)
        else:
            result = await _call_in_thread(target, operator, kwargs, waits, stopper)
            refuse_coroutine(target, result)
    except Exception as error:
        explain_attribute(error)
        if (wrong := make_plain(kwargs.get("patch"))) is not None:
            kwargs["logger"].error("A part of the patch is not applied: %(error)s", {"error": wrong.line})
        raise
    if (wrong := make_plain(kwargs.get("patch"))) is not None:
        raise wrong
    return result


async def _call_in_thread(
    target: Function,
    operator: Operator,
    kwargs: dict[str, Any],
    waits: ThreadWaits,
    stopper: _kopf.DaemonStopper | None = None,
) -> Any:
    """Call a sync function in one of Kopf's threads. If the handler is cancelled, its waits for caches end.

    Kopf waits for its threads even if it cancels their handlers, at its end or because a daemon has not
    stopped in time.
    """

    def begin(**kwargs: Any) -> Any:
        waits.check()  # It may have waited for a thread up to the end of its handler.
        return target(**kwargs)

    call = asyncio.create_task(_kopf.invoke(begin, settings=operator.settings, kwargs=kwargs))
    stop = asyncio.create_task(stopper.async_event.wait()) if stopper is not None else None
    cancelled: asyncio.CancelledError | None = None
    try:
        while not call.done():
            awaited = {call} if stop is None or stop.done() else {call, stop}
            try:
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError as cancellation:
                cancelled = cancellation
                waits.end("the operator, or its handler, is being stopped")
            if stop is not None and stop.done():
                waits.end(STOPPED)
    finally:
        if stop is not None:
            stop.cancel()
    if cancelled is not None:
        with suppress(asyncio.CancelledError):
            call.exception()  # Retrieved, so that asyncio does not warn.
        raise cancelled
    return call.result()


def refuse_coroutine(fn: Function, result: object) -> None:
    """Raise DeclarationError if a function returned a coroutine, and Kopf does not see that it is async."""
    if inspect.iscoroutine(result):
        result.close()
        raise DeclarationError(
            f"{id_of(undecorated(fn))} is a plain function that returned a coroutine, and nobody awaits it",
            remedy=f"Write async def; or, in a decorator, functools.wraps\nIn when=: {NOT_ASYNC}",
        )


def id_of(fn: Function) -> str:
    """Return the id that Kopf would give a handler; for an object, which needs `id=`, that of its class."""
    try:
        return _kopf.get_callable_id(fn)
    except ValueError:
        return type(fn).__qualname__


def kinds_of(fn: Any) -> tuple[KindKey, ...] | None:
    """Return the kinds that a function reads which has `with_cache`, None for all; none for others."""
    while isinstance(fn, partial):
        fn = fn.func
    return getattr(fn, KINDS) if hasattr(fn, ORIGINAL) else ()


def undecorated(fn: Any) -> Any:
    """Return the function in a partial, or in a wrapper of `with_cache`."""
    while isinstance(fn, partial) or hasattr(fn, ORIGINAL):
        fn = fn.func if isinstance(fn, partial) else getattr(fn, ORIGINAL)
    return fn


NOT_ASYNC = "Write a plain function, and await in the handler instead"

CALLS_AT_ONCE = 100
"""Calls of one handler that run at the same time, unless `settings.queueing.worker_limit` is set."""


@dataclass(frozen=True)
class CacheHandler(_kopf.Handler):
    """A handler that the caches call. Kopf executes it as it executes its own."""

    noun: ClassVar[str]

    form: Form | None

    def __str__(self) -> str:
        return f"{self.noun} {self.id!r}"


@dataclass
class Attempts:
    """The calls for one change or key, as Kopf counts them."""

    begun: float
    clock: Callable[[], float]
    retries: int = 0
    started: datetime = field(default_factory=partial(datetime.now, UTC))

    @property
    def awakened(self) -> bool:
        return True

    @property
    def runtime(self) -> timedelta:
        return timedelta(seconds=self.clock() - self.begun)


class HandlerCalls(ABC):
    """The calls of one handler for the keys of its queue. One key has one call at a time.

    In a replica they follow its ranges (`sharding.shards.Handling`).
    """

    def __init__(
        self, handler: CacheHandler, operator: Operator, runtime: Runtime, resource: Resource
    ) -> None:
        self._operator, self._runtime, self._resource = operator, runtime, resource
        self._type = {"apiVersion": resource.api_version, "kind": resource.kind.kind}
        self._parts = _kopf.parts_of(operator.settings)
        self._clock = runtime.retries.clock
        is_async = _kopf.is_async_fn(handler.fn)
        called = partial(_call_with_cache, handler.fn, is_async, operator, runtime, handler.form)
        self._called = replace(handler, fn=called)
        self.queue = WorkQueue(clock=self._clock, chance=runtime.retries.chance)
        self.brake = Brake(str(handler), str(resource), self._clock, runtime.extensions.get(Chains))
        self.worker: Worker
        """Runs the keys. It is set by `working`."""
        self._has_dropped = False
        """True once the log has said that what is sent for keys of other replicas is dropped."""

    @abstractmethod
    async def run(self, run: Run) -> RunAgain | None:
        """Call the handler for a key."""

    @abstractmethod
    def known(self) -> Collection[Key]:
        """Return the keys of which something is known."""

    @abstractmethod
    def add_again(self, has: Callable[[ObjectKey], bool]) -> None:
        """Call the handler for those keys, and for their departures that were kept."""

    @abstractmethod
    def forget_key(self, key: Key, *, keeps_departures: bool) -> None:
        """Forget what is known of a key that another replica handles."""

    def identify(self, key: Key, uid: str | None) -> tuple[Any, _kopf.ObjectLogger]:
        """Return the object of a call as Kopf names it, and its logger."""
        # A dict, since Kopf reads it often.
        metadata = {"name": key.name, "uid": uid, "namespace": key.namespace}
        identity: Any = {**self._type, "metadata": metadata}
        return identity, _kopf.ObjectLogger(body=identity, settings=self._operator.settings)

    async def execute(self, arguments: _kopf.Cause, attempts: Attempts) -> Any:
        """Have Kopf call the handler once; return the outcome."""
        outcome = await _kopf.execute_handler_once(
            settings=self._operator.settings,
            handler=self._called,
            cause=arguments,
            state=attempts,
            extra_context=nullcontext,
        )
        attempts.retries += not outcome.final
        return outcome

    @asynccontextmanager
    async def working(self, limit: int | None = None) -> AsyncIterator[asyncio.Task[None]]:
        """Call the handler meanwhile, for up to `limit` keys at the same time; yield the task that does."""
        operator, retries = self._operator, self._runtime.retries
        shards, queueing = operator.shards, operator.settings.queueing
        self.worker = Worker(
            self.queue,
            self.run if shards is None else partial(self._run_if_handled, shards),
            limit=limit or queueing.worker_limit or CALLS_AT_ONCE,
            sleep=retries.sleep,
            clock=self._clock,
            logger=_logger,
            gate=self._until_callable,
        )
        name = f"selectcache: {self._called.id}: worker"
        with nullcontext() if shards is None else shards.handling(self):  # A range waits for its calls.
            working = asyncio.create_task(self.worker.run(), name=name)
            try:
                yield working
            finally:
                # At the end of the operator they have the time that Kopf gives handlers.
                await self.worker.stop(deadline=queueing.exit_timeout if operator.is_stopping else 0)
                working.cancel()  # A run may resist.
                await asyncio.gather(working, return_exceptions=True)

    def _until_callable(self) -> Coroutine[Any, Any, None] | None:
        """Return what waits until the operator is not paused, and all caches are synced or have failed; None
        if handlers may be called now.
        """
        parts = self._parts
        if self._operator.unsettling.is_settled and not (parts is not None and parts.is_paused()):
            return None
        return self._wait_until_callable()

    async def _wait_until_callable(self) -> None:
        if self._parts is not None:
            await self._parts.wait_until_resumed()
        await self._operator.gate(None, None, fresh=False)

    # ---- Other replicas.

    async def _run_if_handled(self, shards: Shards, run: Run) -> RunAgain | None:
        """Run a key if this replica handles it. Of others, keep the departures if this replica may get them,
        and forget the rest.
        """
        pair = run.key.pair
        with shards.run_of(pair) as is_handled:
            try:
                if is_handled:
                    return await self.run(run)
            except asyncio.CancelledError:
                if shards.handles(pair):
                    raise
                _logger.info(
                    "The run of %(key)s was cancelled: this replica does not handle it any more.",
                    {"key": printable_name(*pair)},
                )
        sent = [cause.source for cause in run.causes if cause.event == ChangeCause.SENT]
        if sent and not self._has_dropped:
            self._has_dropped = True
            _logger.info(
                "What %(source)s sends here for keys of other replicas is dropped, such as %(key)s, which"
                " replica %(owner)s handles. Send it in each replica.",
                {"source": sent[0], "key": printable_name(*pair), "owner": shards.owner_of(pair) or "?"},
            )
        self.forget_key(run.key, keeps_departures=shards.keeps(pair))
        return None

    def running(self, has: Callable[[ObjectKey], bool]) -> set[asyncio.Task[None]]:
        return self.worker.running(has)

    def release(self, has: Callable[[ObjectKey], bool]) -> None:  # Nothing to do.  # noqa: B027
        """Runs of ours end by themselves."""

    def replay(self, has: Callable[[ObjectKey], bool]) -> None:
        self.forget(has, keeps_departures=True)  # It is from an earlier term.
        self.add_again(has)

    def forget(self, has: Callable[[ObjectKey], bool], *, keeps_departures: bool = False) -> None:
        for key in self.known():
            if has(key.pair):
                self.forget_key(key, keeps_departures=keeps_departures)


async def resolved(operator: Operator, kind: KindKey) -> tuple[Informer, Resource]:
    """Return the informer of a kind and its resource, once that is known."""
    informer = await operator.informer(kind)
    await informer.wait_until_settled()
    if informer.state.resource is None:
        completed = asyncio.Event()
        end = informer.subscribe(lambda _: None, completed.set)
        try:
            await informer.ending.limit(completed.wait())
        finally:
            end()
    assert informer.state.resource is not None, "it was waited for"
    return informer, informer.state.resource


def _begin(fn: Callable[..., Any], operator: Operator, /, **kwargs: Any) -> Any:
    """Call a sync function, unless it got its thread only after the operator had begun to stop."""
    if operator.is_stopping:
        raise kopf.TemporaryError(STOPPING, delay=RETRY_SECONDS)
    return fn(**kwargs)


def _make(form: Form, kwargs: dict[str, Any]) -> None:
    """Replace the views among the arguments by objects in a form: one for each view."""
    made: dict[int, Any] = {}
    for name in ("body", "old", "new"):
        if (view := kwargs.get(name)) is not None:
            if id(view) not in made:
                made[id(view)] = form.make(record_of(view), None)
            kwargs[name] = made[id(view)]


async def _call_with_cache(
    fn: Callable[..., Any],
    is_async: bool,  # By position, since all names are those of arguments.  # noqa: FBT001
    operator: Operator,
    runtime: Runtime,
    form: Form | None,
    /,
    **kwargs: Any,
) -> Any:
    """Call the user's function as Kopf would, with objects in its form. A read that must wait for a cache is
    tried again.
    """
    waits, called = operator.waits, fn
    cache: AnyCache = operator.cache
    if not is_async:  # The waits of a thread end with its handler.
        waits, called = ThreadWaits(waits), partial(_begin, fn, operator)
        cache = of_class(Cache(runtime, waits=waits), SyncCache)
    kwargs |= {"cache": cache, "events": operator.recorder}
    try:
        if form is not None:
            _make(form, kwargs)
        with as_current(cache):
            return await call(called, operator, kwargs, waits, is_async=is_async)
    except ReadError as error:
        if not isinstance(error, NotSynced) and not operator.is_end(error):
            tell_kopf(error)
            raise
        raise kopf.TemporaryError(error.line, delay=RETRY_SECONDS) from error
    except Exception as error:
        tell_kopf(error)
        raise
    except BaseException as error:
        let_end(error)
        # Kopf repeats calls that raise an Exception, and no others.
        raise RuntimeError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error
