"""`with_cache`: makes handlers wait for the caches, and passes `cache` to them.

Kopf awaits handlers, but calls callbacks such as `when=` synchronously: those cannot wait and must not raise.
Both get the cache with their own object laid over it. No wait holds a thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple, TypeVar, overload

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import (
    DeclarationError,
    NotDeclared,
    NotSynced,
    ReadError,
    Stale,
    call_of,
    own_loop,
    require,
    tell_kopf,
)
from kopf_selectcache.cache.access import as_current, in_callback, of_class
from kopf_selectcache.cache.blocking import ThreadWaits
from kopf_selectcache.cache.cache import AnyCache, Cache, SyncCache
from kopf_selectcache.cache.formats.given import plain
from kopf_selectcache.selectors.kind_keys import AnyKey, checked_key
from kopf_selectcache.selectors.signatures import check_call, is_async

from .calls import (
    KINDS,
    NOT_ASYNC,
    ORIGINAL,
    RETRY_SECONDS,
    Function,
    call,
    id_of,
    refuse_coroutine,
    undecorated,
)
from .narrowing import narrowed
from .operator import EARLY_ACTIVITIES, Kinds, Operator, launch, operator_of, shared_settings_error

_R = TypeVar("_R")

_WRAPPERS = "__selectcache_wrappers__"  # The attribute of a function with its wrappers.

_VALUES = ("labels", "annotations", "value", "old", "new")
"""The arguments of decorators that take values, or functions of values."""


_PASSED = {"cache": "a cache", "events": "events"}
"""The arguments that handlers get from `with_cache`."""

ABOVE_THE_FUNCTION = "Put @selectcache.with_cache between the function and Kopf's decorators"
_ALSO_DECORATED = (
    "Decorate the handler, and a single function for when= that calls the others:"
    " when=selectcache.with_cache(...)"
)


class _Waiting(NamedTuple):
    """The kinds that a handler waits for."""

    kinds: Kinds
    fresh: bool
    """True if the kind of its object must be as new as that."""


@overload
def with_cache(fn: Callable[..., _R], /) -> Callable[..., _R]: ...
@overload
def with_cache(
    *, kinds: Collection[AnyKey] = ..., fresh: bool = ...
) -> Callable[[Callable[..., _R]], Callable[..., _R]]: ...
@check_call(DeclarationError, "with_cache")
def with_cache(fn: Any = None, /, *, kinds: Collection[AnyKey] | None = None, fresh: bool = True) -> Any:
    """Pass `cache` to a handler, which waits until all kinds declared at the start, or these, can be read.

    @kopf.on.create('example.com', 'v1', 'webapps')
    @selectcache.with_cache
    async def create(cache: selectcache.Cache, namespace, name, **_):
        pods = cache.list_cached('pods', namespace=namespace, labels={'instance': name})

    It stands below Kopf's decorator, and serves all handlers of objects, async and sync, and callbacks such
    as `when=`. Waiting holds no thread, and uses up neither `retries=` nor `timeout=`. A kind that cannot be
    kept, for a missing permission for example, is not waited for: its reads raise why. The kind of the
    handled object is at least as new as its body, unless `fresh=False`: see "Order" in docs/reads.md.
    Without waiting, `cache` is passed to probe and cleanup handlers; startup and login handlers cannot have
    it. A call that passes `cache` itself, as in a unit test, is a call of the plain function. An index named
    `cache` is hidden. Handlers of objects can take `events` as well, the operator's `Recorder`, unless an
    index has that name.
    """
    is_list = isinstance(kinds, Collection) and not isinstance(kinds, str)
    require(kinds is None or is_list, DeclarationError, "with_cache()", "kinds", kinds, "a list of kinds")
    require(isinstance(fresh, bool), DeclarationError, "with_cache()", "fresh", fresh, "True or False")
    kinds = None if kinds is None else tuple(map(checked_key, kinds))
    waiting = _Waiting(kinds, fresh)
    return partial(_decorated, waiting=waiting) if fn is None else _decorated(fn, waiting=waiting)


def _decorated(fn: Any, *, waiting: _Waiting) -> Any:
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(_decorated(fn.__func__, waiting=waiting))
    if isinstance(fn, MethodType):
        return MethodType(_decorated(fn.__func__, waiting=waiting), fn.__self__)
    is_function = callable(fn) and not isinstance(fn, type)
    require(is_function, DeclarationError, "with_cache()", "the handler", fn, "a function")
    refuse_async_object(fn, "with_cache()")
    if is_decorated(fn):
        raise DeclarationError(f"{id_of(fn)} is decorated with with_cache twice", remedy="Decorate it once")
    registry = kopf.get_default_registry()
    registered = (
        *_kopf.activity_handlers(registry),
        *_kopf.watching_handlers(registry),
        *_kopf.admission_handlers(registry),
    )
    if any(handler.fn is fn for handler in registered):
        raise _above_kopf(id_of(fn))
    # One wrapper for one function: Kopf calls a function that is registered twice only once for each event.
    made = vars(fn).setdefault(_WRAPPERS, {}) if hasattr(fn, "__dict__") else {}
    key = (
        id(fn),
        waiting,
    )  # functools.wraps shares the attributes with other functions. The wrapper keeps the id from reuse.
    if key not in made:
        made[key] = _wrapper(fn, waiting)
    return made[key]


def _above_kopf(handler: str) -> DeclarationError:
    return DeclarationError(
        f"{handler} would be called without a cache, because with_cache is above Kopf's decorator",
        remedy=ABOVE_THE_FUNCTION,
    )


def _wrapper(fn: Function, waiting: _Waiting) -> Function:
    """Return the wrapper of a function. Kopf takes it for an async handler, also for a sync function, because
    it waits. Kopf calls it for callbacks as well.
    """

    async def as_kopf_sees_it(**_: Any) -> None:
        """Stand for the function where Kopf follows `__wrapped__`, for the id of a handler and the check if
        it is async.
        """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "cache" in kwargs and not isinstance(kwargs["cache"], kopf.Index):
            return _call_directly(fn, args, kwargs)
        if "retry" in kwargs:  # Kopf passes it to handlers, and not to callbacks.
            return _handle(fn, waiting, args, kwargs)
        try:
            cache = cache_for(fn, _cache_for_callback(kwargs))
            return _call_plain(fn, cache, args, kwargs | {"cache": cache})
        except (ReadError, DeclarationError):
            if "resource" not in kwargs:
                raise  # A direct call of the user's code.
            # An error of `when=` would drop the event for all handlers. The handler itself waits, evaluates
            # `when=` again, and raises then.
            return True

    vars(wrapper)["__wrapped__"] = as_kopf_sees_it
    for function in (wrapper, as_kopf_sees_it):
        function.__qualname__ = id_of(fn)
        function.__name__ = (
            function.__qualname__ if _is_lambda(fn) else function.__qualname__.rpartition(".")[2]
        )
        function.__module__ = getattr(fn, "__module__", None) or __name__
        function.__doc__ = getattr(fn, "__doc__", None)
        with suppress(TypeError, ValueError):
            vars(function)["__signature__"] = inspect.signature(fn)
    vars(wrapper)[ORIGINAL], vars(wrapper)[KINDS] = fn, waiting.kinds
    return wrapper


def _call_directly(fn: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function with the cache that a test, or another function, gives it."""
    cache = kwargs["cache"]
    if isinstance(cache, AnyCache):
        cache = kwargs["cache"] = cache_for(fn, cache)

    async def call_async() -> Any:
        with as_current(cache):
            return await fn(*args, **kwargs)

    return call_async() if _kopf.is_async_fn(fn) else _call_plain(fn, cache, args, kwargs)


def _call_plain(fn: Function, cache: AnyCache, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a function such as `when=` at once, whose answer counts as it is: a coroutine would be true."""
    with as_current(cache):
        result = fn(*args, **kwargs)
    if not _kopf.is_async_fn(fn):
        refuse_coroutine(fn, result)
    return result


def for_handler(fn: Function, cache: Cache) -> AnyCache:
    """Return the cache as a handler can use it, which Kopf calls in a thread unless it is async."""
    return cache if _kopf.is_async_fn(fn) else of_class(cache, SyncCache)


def cache_for(fn: Function, cache: AnyCache) -> AnyCache:
    """Return the cache as a function can use it: an async one, one in a thread, or one on the loop that
    nobody awaits, such as `when=`.
    """
    if _kopf.is_async_fn(fn):
        return of_class(cache, Cache)
    return of_class(cache, SyncCache) if own_loop() is None else in_callback(cache)


async def _handle(fn: Function, waiting: _Waiting, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return await _wait_and_call(fn, waiting, args, kwargs)
    except Exception as error:
        tell_kopf(error)
        raise


async def _wait_and_call(
    fn: Function, waiting: _Waiting, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Wait for the caches, and call the function as Kopf would have called it."""
    cause, handler = _kopf.cause_var.get(None), _kopf.handler_var.get(None)
    operator = _operator()
    target = partial(fn, *args)
    if isinstance(cause, _kopf.ActivityCause):
        return await _act(target, operator, cause, kwargs)
    stopper = cause.stopper if isinstance(cause, _kopf.DaemonCause) else None
    try:
        try:
            if await operator.gate(
                waiting.kinds, cause, fresh=waiting.fresh, since=kwargs["runtime"].total_seconds()
            ):
                return None
        except Stale as error:
            raise kopf.TemporaryError(error.line, delay=RETRY_SECONDS) from error
        except NotDeclared as error:
            raise _awaiting(error, is_retried=not isinstance(cause, _kopf.WatchingCause)) from error
        waits = ThreadWaits(operator.waits, stopped=None if stopper is None else stopper.async_event)
        cache = for_handler(fn, _cache_for(operator, cause, waits))
        # Before the caches were synced, the wrapper of `when=` returned True without a call.
        when: Any = getattr(handler, "when", None)
        if cause is not None and is_decorated(when) and not when(**cause.kwargs | {"cache": cache}):
            if isinstance(cause, _kopf.DaemonCause) and isinstance(handler, _kopf.DaemonHandler):
                await cause.stopper.async_event.wait()  # Kopf never restarts a daemon that has returned.
            return None
        kwargs["cache"] = cache
        kwargs.setdefault("events", operator.recorder)  # An index with this name stays.
        is_async = _kopf.is_async_fn(target)
        if stopper is not None and not is_async:
            kwargs["stopped"] = stopper.sync_waiter  # Kopf passed the waiter for async handlers.
        with as_current(cache):
            result = await call(target, operator, kwargs, waits, stopper, is_async=is_async)
            if isinstance(cause, _kopf.ChangingCause) and not _kopf.subexecuted_var.get(True):
                await kopf.execute()  # Kopf would call the sub-handlers after this, without a current cache.
        if isinstance(handler, _kopf.IndexingHandler) or isinstance(cause, _kopf.WebhookCause):
            return result
        return plain("the returned value", result)  # Kopf stores it in the status.
    except ReadError as error:
        if stopper is not None and stopper.is_set():
            return None  # A wait was ended.
        if not isinstance(error, NotSynced) and not operator.is_end(error):
            raise
        if isinstance(cause, _kopf.WebhookCause):
            raise kopf.AdmissionError(error.line, code=503) from error  # The client retries.
        raise kopf.TemporaryError(error.line, delay=RETRY_SECONDS) from error


def _awaiting(error: NotDeclared, *, is_retried: bool) -> NotSynced:
    """Return the error of a handler that waits for a kind without a cache, which may be declared later. Kopf
    calls it again, unless it is a handler of events.
    """
    what = f"the handler waits for a cache, but {error.what}"
    remedy = f"To declare it: {call_of('declare')}"
    if is_retried:
        return NotSynced(what, remedy=f"{remedy}\nThe handler is then called again")
    what += ", and Kopf never retries @kopf.on.event"
    return NotSynced(what, remedy=f"{remedy}\nUse @kopf.on.create, on.update and on.resume instead")


async def _act(
    target: Function, operator: Operator, cause: _kopf.ActivityCause, kwargs: dict[str, Any]
) -> Any:
    """Call a handler of an activity. It never waits for a cache, because the caches may wait for it."""
    if (name := EARLY_ACTIVITIES.get(cause.activity)) is not None:
        what = f"a {name} handler can't read caches, which start after startup and login"
        raise DeclarationError(what, remedy="Remove with_cache from it")
    try:
        waits = ThreadWaits(operator.waits)
        kwargs["cache"] = cache = for_handler(target, Cache(operator.runtime, waits=waits))
        with as_current(cache):
            return await call(target, operator, kwargs, waits, is_async=_kopf.is_async_fn(target))
    except NotSynced as error:
        # Kopf would retry an error after a minute, and the request of the probe would hang as long.
        if cause.activity is not _kopf.Activity.PROBE:
            cause.logger.warning(
                "A %(activity)s handler read a cache too early: %(error)s",
                {"activity": cause.activity.value, "error": error.line},
            )
        return error.line


def _operator() -> Operator:
    """Return the operator that the running code belongs to; raise NotSynced if it cannot be started here."""
    settings = _kopf.settings_var.get(None)
    if settings is None:
        raise TypeError("a function with @with_cache was called outside of an operator. Pass it cache=...")
    operator = operator_of(settings)
    if operator is None:
        try:
            operator = launch(settings)
        except RuntimeError:  # A thread has no running loop.
            raise NotSynced(
                "no cache is synced, because none was started yet", remedy="Decorate the handler itself"
            ) from None
    elif operator.is_of_another():  # In a handler of an object, a declaration error would count as permanent.
        raise shared_settings_error(ReadError)
    return operator


def _cache_for(operator: Operator, cause: object, waits: ThreadWaits) -> Cache:
    """Return the cache for a handler that was called for this cause."""
    if not isinstance(cause, _kopf.ResourceCause) or isinstance(cause, _kopf.WebhookCause):
        return Cache(
            operator.runtime, waits=waits
        )  # The object of an admission request is not stored yet, and may never be.
    # The body of a daemon or timer is that of the last event of any type.
    deleted = (
        None
        if isinstance(cause, _kopf.DaemonCause)
        else isinstance(cause, _kopf.WatchingCause) and cause.type == "DELETED"
    )
    return _laid_over(operator, cause.body, cause.resource, deleted=deleted, waits=waits)


def _cache_for_callback(kwargs: Mapping[str, Any]) -> Cache:
    """Return the cache for a callback. Kopf calls it with the arguments of a cause before it sets
    the cause.
    """
    operator, body = _operator(), kwargs.get("body")
    admission = "userinfo" in kwargs or isinstance(_kopf.cause_var.get(None), _kopf.WebhookCause)
    if body is None or admission:  # As above; a handler may call it, too, with as little as its body.
        return Cache(operator.runtime)
    deleted = None
    if "type" in kwargs or "reason" in kwargs:  # Raw events and changes have them, daemons do not.
        deleted = kwargs.get("type") == "DELETED" or kwargs.get("reason") == "gone"
    return _laid_over(operator, body, kwargs.get("resource"), deleted=deleted)


def _laid_over(
    operator: Operator,
    body: Mapping[str, Any],
    resource: _kopf.Resource | None,
    *,
    deleted: bool | None,
    waits: ThreadWaits | None = None,
) -> Cache:
    """Return the cache with the handler's own object laid over it. Each read takes the present body, since
    bodies of daemons change.

    `deleted` is None if Kopf does not show it. If Kopf watches under a selector, an object that leaves the
    selector comes as a deletion, with its previous labels and its new version: it is neither deleted, nor
    does it match.
    """
    departed = None if deleted is False else (body.get("metadata") or {}).get("uid")
    if deleted is not False and resource is not None and narrowed(operator.settings, resource):
        return Cache(operator.runtime, departed=departed, waits=waits)
    return Cache(operator.runtime, own=body, deleted=bool(deleted), departed=departed, waits=waits)


def refuse_async_object(fn: Any, call: str) -> None:
    """Raise DeclarationError for an object with an async `__call__`, which Kopf takes for a sync handler."""
    if is_async(fn) and not _kopf.is_async_fn(fn):
        name = type(fn).__qualname__
        raise DeclarationError(
            f"{call}: {name}.__call__ is async, and Kopf takes the object for a sync handler",
            remedy="Give the method, handler.__call__; or write an async function",
        )


def is_decorated(fn: object) -> bool:
    """Return True for a wrapper of `with_cache`."""
    return is_decorated(fn.func) if isinstance(fn, partial) else hasattr(fn, ORIGINAL)


def _combined(when: object) -> list[Any]:
    """Return the functions inside one of Kopf's combinations, such as `kopf.all_`; none for other
    functions.
    """
    if not str(getattr(when, "__module__", "")).startswith("kopf."):
        return []
    parts = [cell.cell_contents for cell in getattr(when, "__closure__", None) or ()]
    parts = [each for part in parts for each in (part if isinstance(part, Collection) else (part,))]
    return [each for part in parts for each in (part, *_combined(part))]


def _is_lambda(fn: object) -> bool:
    return getattr(fn, "__name__", "") == "<lambda>"


def _given(handler: _kopf.ResourceHandler, argument: str) -> Collection[object]:
    """Return the values or functions that a handler's decorator got in an argument."""
    value = getattr(handler, argument, None)
    return list(value.values()) if isinstance(value, Mapping) else [value]


def _refuse_missing_cache(handler: str, fn: Function, indices: Collection[str], where: str) -> None:
    """Raise DeclarationError for a handler, or its callback, that takes `cache` or `events` without
    `with_cache`: Kopf could not call it.
    """
    if is_decorated(fn):
        return
    taken: Mapping[str, inspect.Parameter] = {}
    with suppress(TypeError, ValueError):
        # Another decorator may pass it: only its own signature counts.
        taken = inspect.signature(getattr(fn, ORIGINAL, fn), follow_wrapped=False).parameters
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    for name, what in _PASSED.items():
        found = None if name in indices else taken.get(name)
        if found is not None and found.default is found.empty and found.kind not in variable:
            raise DeclarationError(f"{handler} takes {what}, which Kopf does not pass", remedy=where)


def async_callbacks(registry: _kopf.OperatorRegistry) -> Iterator[str]:
    """Yield a text about each async callback of Kopf's handlers. Kopf does not await callbacks, and their
    coroutines count as true.
    """
    for handler in (*_kopf.watching_handlers(registry), *_kopf.admission_handlers(registry)):
        for argument in ("when", *_VALUES):
            for given in _given(handler, argument):
                for fn in filter(is_async, map(undecorated, (given, *_combined(given)))):
                    code = getattr(fn, "__code__", None) or type(fn).__call__.__code__
                    place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
                    yield f"{handler}: its {argument}= is async ({place}), so it would always be true"


def check_handlers(registry: _kopf.OperatorRegistry) -> None:
    """Refuse handlers that would fail later, for each object."""
    if (text := next(async_callbacks(registry), None)) is not None:
        raise DeclarationError(text, remedy=NOT_ASYNC)
    watching = (*_kopf.watching_handlers(registry), *_kopf.admission_handlers(registry))
    for handler in watching:
        # `with_cache` cannot see handlers of a registry that is not the default one.
        if any(made_of == id(handler.fn) for made_of, _ in getattr(handler.fn, _WRAPPERS, ())):
            raise _above_kopf(str(handler))
        reading = (each for each in _VALUES if any(map(is_decorated, _given(handler, each))))
        if argument := next(reading, None):
            what = f"{handler}: a function in its {argument}= reads a cache, which may not be synced yet"
            raise DeclarationError(what, remedy="Read it in when=, which is evaluated again later")
        if any(map(is_decorated, _combined(handler.when))) or (
            is_decorated(handler.when) and not is_decorated(handler.fn)
        ):
            what = f"{handler}: its when= reads a cache, which may not be synced yet"
            raise DeclarationError(what, remedy=_ALSO_DECORATED)
    indices = {str(handler.id) for handler in _kopf.index_handlers(registry)}
    later = [
        each
        for each in _kopf.activity_handlers(registry)
        if each.activity in (_kopf.Activity.PROBE, _kopf.Activity.CLEANUP)
    ]
    for taking in (*watching, *later):
        _refuse_missing_cache(str(taking), taking.fn, indices, ABOVE_THE_FUNCTION)
        when = getattr(taking, "when", None)
        for asked in filter(callable, (when, *_combined(when))):
            _refuse_missing_cache(f"{taking}: its when=", asked, indices, _ALSO_DECORATED)
