"""Calls of the handlers that the caches call: what handlers of changes and reconcilers have in common."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import NotSynced, ReadError, tell_kopf
from kopf_selectcache.cache.access import as_current, of_class
from kopf_selectcache.cache.blocking import Waits
from kopf_selectcache.cache.cache import AnyCache, Cache, SyncCache
from kopf_selectcache.cache.formats.formats import Form
from kopf_selectcache.cache.formats.views import record_of
from kopf_selectcache.informer.environment import let_end
from kopf_selectcache.informer.informers import Runtime

from ._stop import STOPPING
from .handlers import RETRY, call
from .operator import Operator

CALLS_AT_ONCE = 100
"""Calls of one handler that run at the same time, unless `settings.queueing.worker_limit` is set."""


@dataclass
class Attempts:
    """The calls for one change or key, as Kopf counts them."""

    started: datetime
    begun: float
    clock: Callable[[], float]
    retries: int = 0

    @property
    def awakened(self) -> bool:
        return True

    @property
    def runtime(self) -> timedelta:
        return timedelta(seconds=self.clock() - self.begun)


def until_callable(operator: Operator, parts: _kopf.OperatorParts | None) -> Coroutine[Any, Any, None] | None:
    """Return what waits until the operator is not paused, and all caches are synced or have failed; None if
    handlers may be called now.
    """
    if operator.has_settled and not (parts is not None and parts.is_paused):
        return None
    return _wait_until_callable(operator, parts)


async def _wait_until_callable(operator: Operator, parts: _kopf.OperatorParts | None) -> None:
    if parts is not None:
        await parts.wait_until_resumed()
    await operator.gate(None, None, fresh=False)


def _begin(fn: Callable[..., Any], operator: Operator, /, **kwargs: Any) -> Any:
    """Call a sync function, unless it got its thread only after the operator had begun to stop."""
    if operator.is_stopping:
        raise kopf.TemporaryError(STOPPING, delay=RETRY)
    return fn(**kwargs)


def _make(form: Form, kwargs: dict[str, Any]) -> None:
    """Replace the views among the arguments by objects in a form: one for each view."""
    made: dict[int, Any] = {}
    for name in ("body", "old", "new"):
        if (view := kwargs.get(name)) is not None:
            if id(view) not in made:
                made[id(view)] = form.make(record_of(view), None)
            kwargs[name] = made[id(view)]


async def call_with_cache(
    fn: Callable[..., Any], operator: Operator, runtime: Runtime, form: Form | None = None, /, **kwargs: Any
) -> Any:
    """Call the user's function as Kopf would, with objects in its form. A read that must wait for a cache is
    tried again.
    """
    waits, called = operator.waits, fn
    cache: AnyCache = operator.cache
    if not _kopf.is_async_fn(fn):  # The waits of a thread end with its handler.
        waits, called = Waits(waits), partial(_begin, fn, operator)
        cache = of_class(Cache(runtime, waits=waits), SyncCache)
    kwargs |= {"cache": cache, "events": operator.recorder}
    try:
        if form is not None:
            _make(form, kwargs)
        with as_current(cache):
            return await call(called, operator, kwargs, waits)
    except ReadError as error:
        if not isinstance(error, NotSynced) and not operator.is_end(error):
            tell_kopf(error)
            raise
        raise kopf.TemporaryError(error.line, delay=RETRY) from error
    except Exception as error:
        tell_kopf(error)
        raise
    except BaseException as error:
        let_end(error)
        # Kopf repeats calls that raise an Exception, and no others.
        raise RuntimeError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error
