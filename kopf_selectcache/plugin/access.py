"""`current`: the cache of the running handler; and `cache_of`: that for code that is no handler, such as
background tasks, threads and startup code.

Such code may get its cache before the runtime exists, in startup handlers for example. Until then reads raise
NotSynced.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import wrap_future
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar, cast, overload

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, NotSynced, ReadError, own_loop, require
from kopf_selectcache.cache.access import current_cache, of_class
from kopf_selectcache.cache.blocking import refuse_thread
from kopf_selectcache.cache.cache import AnyCache, Cache, SyncCache
from kopf_selectcache.informer.environment import Ending, Memo, ended
from kopf_selectcache.informer.informers import InformersByName, Runtime
from kopf_selectcache.settings.options import SelectCacheSettings, settings_of

from .handlers import ABOVE_THE_FUNCTION
from .operator import (
    EARLY_ACTIVITIES,
    Operator,
    expect_operator,
    last_operator_of,
    operator_of,
    request_launch,
    shared_settings_error,
)

_T = TypeVar("_T")
_C = TypeVar("_C", bound=AnyCache)

_activity_task: ContextVar[asyncio.Task[Any] | None] = ContextVar("selectcache_activity_task", default=None)
"""The task in which Kopf calls the handlers of such an activity. Tasks that the handlers create inherit the
variable, so the task is compared."""


@overload
def current() -> AnyCache: ...
@overload
def current(of: type[_C], /) -> _C: ...
def current(of: type[Any] | None = None, /) -> Any:
    """Return the cache of the running handler, for the functions and methods that it calls.

    class Shop:
        def pods(self):
            return selectcache.current().list_cached('pods', namespace=self.namespace)

        def settings(self):     # called by sync handlers, or in threads
            return selectcache.current(selectcache.SyncCache).fetch('configmaps', self.name)

    It is the object that the handler gets as `cache`; with a class, one of that class: `Cache` for async
    functions, `SyncCache` for threads. Without one, type checkers see the reads that never wait. Tasks that
    the handler starts, its sub-handlers, Kopf's threads and those of `asyncio.to_thread` have it, too.
    Everywhere else it raises a ReadError that says what to do.
    """
    fits = of is None or (isinstance(of, type) and issubclass(of, AnyCache))
    require(fits, ReadError, "selectcache.current()", "it", of, "selectcache.Cache or selectcache.SyncCache")
    if (cache := current_cache.get()) is not None:
        return cache if of is None else of_class(cache, of)
    call, activity, handler = "selectcache.current()", _early_activity(), _kopf.handler_var.get(None)
    if activity is not None:
        if _is_called_by_handler(_kopf.settings_var.get()):
            raise _too_early(activity, remedy="In a task that it starts, use selectcache.cache_of(settings)")
    elif handler is not None:
        what = f"{call} needs with_cache on {handler}"
        raise ReadError(what, remedy=ABOVE_THE_FUNCTION)
    remedy = (
        "Pass the cache as an argument\nIn an executor of your own, run"
        " contextvars.copy_context().run\nOutside of"
        " handlers, use selectcache.cache_of(settings)"
    )
    raise ReadError(f"{call} only works in a handler", remedy=remedy)


def cache_of(settings: kopf.OperatorSettings) -> Cache:
    """Return the cache of the operator with these settings, for code that is no handler.

    @kopf.on.startup()
    async def begin(settings: kopf.OperatorSettings, **_):
        asyncio.create_task(report(selectcache.cache_of(settings)))

    async def report(cache: selectcache.Cache):
        await cache.wait_synced()
        print(cache.count('pods', labels='app=web'))

    Its reads raise NotSynced until the operator has logged in and the kind is synced, and ReadError when the
    operator has ended. `wait_synced` waits for both, except inside a startup or login handler, which it would
    wait for: there it raises DeclarationError. Reads are safe in any thread; threads wait with
    `cache.blocking.wait_synced()`.
    """
    is_settings, wanted = isinstance(settings, kopf.OperatorSettings), "the settings of a startup handler"
    require(is_settings, DeclarationError, "cache_of()", "settings", settings, wanted)
    settings_of(settings)  # Something else may have been assigned to settings.selectcache.
    if operator_of(settings) is None:
        request_launch(settings)
    late = _LateRuntime(settings)
    return _LateCache(cast("Runtime", late))


def note_activity(activity: _kopf.Activity) -> None:
    """Note the current task, in which Kopf is about to call the handlers of an activity."""
    if activity in EARLY_ACTIVITIES and own_loop() is not None:
        _activity_task.set(asyncio.current_task())


def _early_activity() -> _kopf.Activity | None:
    """Return the early activity whose handler, or a task or thread of it, is running now; else None."""
    cause = _kopf.cause_var.get(None)
    return (
        cause.activity
        if isinstance(cause, _kopf.ActivityCause) and cause.activity in EARLY_ACTIVITIES
        else None
    )


def _is_of(executor: Executor) -> bool:
    """Return True if the running thread belongs to an executor: Kopf runs sync handlers in its own,
    `asyncio.to_thread` in that of the loop.

    `executor._threads` does not help: a thread appears there only after it has begun to work.
    """
    return threading.current_thread().name.startswith(f"{getattr(executor, '_thread_name_prefix', None)}_")


_ASSIGNED = "settings.selectcache.selectors[...]"

_IN_TIME = {
    "declare": f"In a startup handler, write: {_ASSIGNED} = ...",
    "undeclare": f"In a startup handler, write: del {_ASSIGNED}",
    "plan": "Call it in a task or thread that the handler starts",
    "changes": "Call it in a task that the handler starts",
    "wait_synced": "Call it in a task or thread that the handler starts",
}
"""The remedies of calls that would wait for the handler that makes them, by their verbs."""


def _refuse_to_wait(activity: _kopf.Activity, verb: str) -> DeclarationError:
    # A ReadError would make Kopf retry the handler every minute.
    handler = f"{EARLY_ACTIVITIES[activity]} handler"
    what = f"cache.{verb}() can't be called in a {handler}, because it would wait for that handler to end"
    return DeclarationError(what, remedy=_IN_TIME[verb])


class TooEarly(NotSynced, kopf.PermanentError):
    """A startup handler reads. Kopf would call it again every minute, and the operator would never start."""

    is_for_kopf = True


def _too_early(
    activity: _kopf.Activity,
    remedy: str = "Read in handlers of objects, or in a task that calls wait_synced() first",
) -> NotSynced:
    what = f"a {EARLY_ACTIVITIES[activity]} handler can't read caches, which start after startup and login"
    # Kopf hangs after a permanent error of a login handler.
    error = TooEarly if activity is _kopf.Activity.STARTUP else NotSynced
    return error(what, remedy=remedy)


def _is_called_by_handler(settings: kopf.OperatorSettings) -> bool:
    """Return True if the running code is an early handler itself, and no task or thread that it started."""
    if own_loop() is None:
        return _is_of(settings.execution.executor)
    return asyncio.current_task() is _activity_task.get()


class _LateRuntime:
    """Stands for the runtime of an operator, which may not exist yet."""

    def __init__(self, settings: kopf.OperatorSettings) -> None:
        self.memo = Memo()
        self._settings = settings
        # Where the caller is known to belong to an operator, another one with the same settings is told
        # apart.
        self._vault = _kopf.vault_var.get(None) if _kopf.settings_var.get(None) is settings else None
        self._operator: Operator | None = None
        self._runtime: Runtime | None = None
        self._ending = Ending()  # Of reads that began to wait before there was a runtime.
        self._no_names = InformersByName(self._ending)

    def operator(self) -> Operator:
        """Return the operator, which stays the same; raise NotSynced if none has started."""
        if self._operator is None:
            found = last_operator_of(self._settings)
            if found is None or (found.task.done() and found.vault is not self._vault):
                if (activity := _early_activity()) is not None and _is_called_by_handler(self._settings):
                    raise _too_early(activity)
                if found is not None and self._vault is None:
                    raise ended()
                if activity is _kopf.Activity.STARTUP:
                    what = "no cache is synced, because the startup handlers are still running"
                    remedy = "To wait for it, in a task that none of them awaits: await cache.wait_synced()"
                    raise NotSynced(what, remedy=remedy)
                what = "no cache is synced, because no operator has started with these settings yet"
                raise NotSynced(what, remedy="To wait for it: await cache.wait_synced()")
            if self._vault is not None and found.vault is not self._vault:
                raise shared_settings_error(ReadError)
            self._operator = found
        return self._operator

    def _operator_if_any(self) -> Operator | None:
        try:
            return self.operator()
        except NotSynced:
            return None

    def _now(self) -> Runtime:
        if self._runtime is None:
            self._runtime = self.operator().runtime
        return self._runtime

    async def wait_started(self, verb: str) -> Runtime:
        """Return the runtime once it exists; raise the error if it cannot be created."""
        activity = _early_activity()
        if activity is not None and asyncio.current_task() is _activity_task.get():
            raise _refuse_to_wait(activity, verb)
        while (operator := self._operator_if_any()) is None:
            await wrap_future(expect_operator(self._settings))
        if operator.task.get_loop() is not asyncio.get_running_loop():
            raise refuse_thread("wait_synced")
        await operator.logged_in()
        runtime = self._now()
        runtime.ending.include(self._ending)
        return runtime

    def unended_handlers(self) -> str:
        """Return the early handlers that have not ended, of which one has started the running task and may
        wait for it: `startup` or `login`; empty if there is none.
        """
        activity = _early_activity()
        if activity is None or (activity is _kopf.Activity.STARTUP and self._operator_if_any() is not None):
            return ""
        return EARLY_ACTIVITIES[activity]

    def refuse_own_handler(self, verb: str) -> None:
        """Raise DeclarationError if the running thread is that of an early handler."""
        activity = _early_activity()
        if activity is not None and _is_of(self._settings.execution.executor):
            raise _refuse_to_wait(activity, verb)

    def wait_launched(self, timeout: float | None) -> None:
        """Wait in a thread until the operator is launched, so that its loop is known."""
        self.refuse_own_handler("wait_synced")
        timeout = self.settings.sync_timeout if timeout is None else timeout
        with suppress(TimeoutError):  # The read then raises its own error.
            while self._operator_if_any() is None:
                expect_operator(self._settings).result(timeout)

    @property
    def names(self) -> InformersByName:
        return self._runtime.names if self._runtime is not None else self._no_names

    @property
    def ending(self) -> Ending:
        return self._runtime.ending if self._runtime is not None else self._ending

    @property
    def settings(self) -> SelectCacheSettings:
        return self._runtime.settings if self._runtime is not None else settings_of(self._settings)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The operator's loop; before it is known, the running loop of the caller, and None in a thread."""
        operator = self._operator_if_any()
        return (
            operator.task.get_loop()
            if operator is not None
            else own_loop() or cast("asyncio.AbstractEventLoop", self)
        )

    def __getattr__(self, name: str) -> Any:
        """Return what only the runtime has."""
        return getattr(self._now(), name)


class _LateCache(Cache):
    @property
    def blocking(self) -> SyncCache:
        return _LateSyncCache(self)


class _LateSyncCache(SyncCache):
    """The same for threads: there is no loop before the operator is launched."""

    def wait_synced(self, timeout: float | None = None, *, at_least: Mapping[str, Any] | None = None) -> None:
        cast("_LateRuntime", self._runtime).wait_launched(timeout)
        super().wait_synced(timeout, at_least=at_least)

    def _run(self, method: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        late = cast("_LateRuntime", self._runtime)
        if method in _IN_TIME and own_loop() is None:
            late.refuse_own_handler(method)
        self._waits = late.operator().waits
        return super()._run(method, call)
