"""The hooks of every operator, and `settings.selectcache`. The import installs them. The module has no state.

import             settings.selectcache appears; every registry gets three hooks more (`install`)
startup, last      declarations are checked, and a task begins to wait for Kopf's credentials (`_startup`)
credentials        the task makes the runtime of what is declared by then, and runs it (`Operator`)
each handler       waits for the caches that it reads, then runs with `cache` (`with_cache`)
probe              tells how each cache is doing (`_probe`)
cleanup            the task is cancelled and awaited (`_cleanup`)
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from typing import Any

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, SelectCacheError
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.declaration import Selectors
from kopf_selectcache.settings.options import SelectCacheSettings, settings_of

from .access import note_activity
from .caches import Route, named_caches, route_events
from .calls import NOT_ASYNC
from .changes import deliver_changes
from .feed import feed
from .handlers import async_callbacks, check_handlers
from .narrowing import narrow
from .on import ChangeHandler, change_handlers, check_change_handlers, declared_key, require_form
from .operator import (
    Join,
    Operator,
    failing,
    is_requested,
    launch,
    make_runtime,
    namespaces_of,
    operator_of,
    reports,
    shared_settings_error,
)
from .reconcile import Reconciler, check_finalizers, check_reconcilers, reconcilers
from .reconcilers import run_reconcilers

# The attribute of a registry of activities with the operator's registry that it is part of.
_OWNER = "_selectcache_registry"

_logger = logging.getLogger("kopf_selectcache")


def checked(
    settings: kopf.OperatorSettings, registry: _kopf.OperatorRegistry | None
) -> SelectCacheSettings | None:
    """Check all that startup handlers have declared, and return it; None if that is nothing. Narrow Kopf's
    own watches, if wanted.
    """
    declared = vars(settings).get("selectcache")
    filters = {} if declared is None else settings_of(settings).effective_filters()
    check_change_handlers(registry, filters)
    check_reconcilers(registry, filters)
    handlers: list[ChangeHandler | Reconciler] = [*change_handlers(registry), *reconcilers(registry)]
    for handler in handlers:
        key = declared_key(handler.kind, filters)
        stored = ALL if key is None else settings_of(settings).effective(key).projection
        require_form(handler, handler.form, handler.kind, stored)
    if declared is None or not (settings_of(settings).selectors or settings_of(settings).sharding):
        # Without caches it is an operator of Kopf alone, whose behaviour is not changed.
        for text in dict.fromkeys(() if registry is None else async_callbacks(registry)):
            _logger.warning("A callback is async: %(text)s. %(remedy)s.", {"text": text, "remedy": NOT_ASYNC})
        return None
    namespaces_of(settings, declared)
    if declared.sharding is not None:
        from .division import check_sharding  # Few operators need it.  # noqa: PLC0415

        check_sharding(settings, registry)
    if registry is not None:
        check_handlers(registry)
    if any(each.has_finalizer for each in reconcilers(registry)):
        check_finalizers(settings.persistence.finalizer, registry, settings_of(settings))
    if declared.narrow_handlers:
        narrow(settings, registry, declared)
    return settings_of(settings)


async def _startup(
    *,
    settings: kopf.OperatorSettings,
    make_runtime: Callable[..., Runtime],
    registry: _kopf.OperatorRegistry | None,
    **_: Any,
) -> None:
    # The current task lives as long as the operator. Its end is the only signal that comes in all cases: a
    # failed startup, a cancelled operator, a skipped cleanup.
    starter = asyncio.current_task()
    assert starter is not None, "a coroutine runs in a task"
    if (running := operator_of(settings)) is not None and running.is_of_another(starter):
        raise shared_settings_error(DeclarationError)
    declared = checked(settings, registry)
    join: Join | None = None
    if declared is not None and declared.sharding is not None:
        declared.sharding.found()  # Commands check an operator outside its pod.
        from .division import join, keeper  # Few operators need it.  # noqa: PLC0415

        _kopf.manage_webhooks(keeper)
    is_needed = declared is not None or any(change_handlers(registry))
    route = route_events(settings)
    if not is_needed and not is_requested(settings) and route is None:
        return  # A handler that only uses `fetch` starts the operator at its first read.
    _kopf.feed_watchers(feed)
    beside = partial(_run_handlers, route=route)
    operator = launch(settings, make_runtime=make_runtime, registry=registry, beside=beside, join=join)
    operator.start_with(starter)


async def _run_handlers(
    operator: Operator, runtime: Runtime, registry: _kopf.OperatorRegistry | None, *, route: Route | None
) -> None:
    """Run what calls handlers when caches change, until cancelled."""
    if route is not None:
        route.open(operator.recorder)
    if (parts := _kopf.parts_of(operator.settings)) is not None:
        parts.allow_events()
    async with asyncio.TaskGroup() as group:
        for runs in (deliver_changes, run_reconcilers):
            group.create_task(runs(operator, runtime, registry))


def _own(settings: kopf.OperatorSettings) -> Operator | None:
    """Return the operator that the running code belongs to, if its caches were started."""
    operator = operator_of(settings)
    return None if operator is None or operator.is_of_another() else operator


async def _cleanup(*, settings: kopf.OperatorSettings, **_: Any) -> None:
    if operator := _own(settings):
        operator.end()
        await asyncio.wait({operator.task})


async def _probe(*, settings: kopf.OperatorSettings, **_: Any) -> object:
    operator, others = _own(settings), named_caches(settings)
    whys = [operator.restartable()] if operator is not None else []
    for name, each in others.items():
        if why := failing(each.informers, each.settings.probe_limits()):
            whys.append(f"Of {name}: {why}")
    if any(whys):  # Kopf answers 500. With any other error it would not answer.
        raise kopf.PermanentError(" ".join(filter(None, whys)))
    report = dict(operator.report()) if operator is not None else {}
    if operator is not None and operator.replica is not None:
        report["sharding"] = operator.replica.report()
    for name, each in others.items():
        report |= {f"{name}: {key}": found for key, found in reports(each.informers).items()}
    return report or None


def _is_shown(record: logging.LogRecord) -> bool:
    """Return False for what Kopf logs about a hook of this package without an error. Kopf calls the hook of
    the startup in every operator, also in one that declares nothing, and after a startup handler that has
    failed.
    """
    return record.levelno > logging.INFO or not str(record.msg).startswith("Activity 'selectcache.")


def hook(
    activity: _kopf.Activity,
    *,
    make_runtime: Callable[..., Runtime] = make_runtime,
    registry: _kopf.OperatorRegistry | None = None,
) -> _kopf.ActivityHandler:
    """Return the hook of this activity. A registry that has a handler with its id gets no other."""
    functions: Mapping[_kopf.Activity, Callable[..., Any]] = {
        _kopf.Activity.STARTUP: partial(_startup, make_runtime=make_runtime, registry=registry),
        _kopf.Activity.CLEANUP: _cleanup,
        _kopf.Activity.PROBE: _probe,
    }
    return _kopf.ActivityHandler(
        id=_kopf.HandlerId(f"selectcache.{activity.value}"),
        fn=functions[activity],
        activity=activity,
        param=None,
        errors=None,
        timeout=None,
        retries=None,
        backoff=None,
    )


def _hooks(activities: _kopf.ActivityRegistry, activity: _kopf.Activity) -> Iterator[_kopf.ActivityHandler]:
    settings = _kopf.settings_var.get(None)
    running = settings is not None and _own(settings) is not None
    has_others = settings is not None and bool(named_caches(settings))
    if (
        activity is _kopf.Activity.STARTUP
        or (running and activity is _kopf.Activity.CLEANUP)
        or ((running or has_others) and activity is _kopf.Activity.PROBE)
    ):
        ours = hook(activity, registry=_registry_of(activities))
        if all(handler.id != ours.id for handler in activities.get_all_handlers()):
            yield ours


def _registry_of(activities: _kopf.ActivityRegistry) -> _kopf.OperatorRegistry | None:
    owner = vars(activities).get(_OWNER)
    if owner is not None:
        return owner()  # type: ignore[no-any-return]  # A weak reference, put there by `install`.
    default = kopf.get_default_registry()  # It may be older than the import of this package.
    return default if _kopf.has_activities(default, activities) else None


def _repeat_reason(error: _kopf.ActivityError) -> None:
    """Repeat our sentence in the last line of `kopf run`, if an error of ours has ended the operator.

    The log begins with the sentence, and the error itself follows, in the middle of some 90 lines: the error
    that Kopf raises last says only that a handler has failed. Python prints the notes of an exception below
    it. So nothing is printed by us, nor at any other end, and the exit code is Kopf's.
    """
    if isinstance(error.__cause__, SelectCacheError):
        error.add_note(error.__cause__.line)


class _Declarations:
    """The attribute `settings.selectcache`: created at the first access, and stored in the settings."""

    def __get__(self, settings: kopf.OperatorSettings | None, _: type) -> object:
        if settings is None:
            return self
        declared = SelectCacheSettings(Selectors(declarer=lambda: _kopf.handler_var.get(None)))
        return vars(settings).setdefault("selectcache", declared)


def install() -> None:
    """Reach all operators of this process, whatever their settings and registries. Does nothing the second
    time.

    The classes are extended, since no registry is known: `with_cache` runs before `@kopf.on` sees the
    function, and a registry made later, by an operator of a process in which we are imported already, runs no
    import of ours.
    """
    if "selectcache" in vars(kopf.OperatorSettings):
        return
    # It is added, as said above.
    kopf.OperatorSettings.selectcache = _Declarations()  # type: ignore[attr-defined]
    iter_handlers, init = _kopf.ActivityRegistry.iter_handlers, _kopf.OperatorRegistry.__init__

    @wraps(iter_handlers)
    def iter_with_hooks(
        self: _kopf.ActivityRegistry,
        activity: _kopf.Activity,
    ) -> Iterator[_kopf.ActivityHandler]:
        note_activity(activity)
        yield from iter_handlers(self, activity)
        yield from _hooks(self, activity)  # The last: settings are final then.

    @wraps(init)
    def init_with_owner(self: _kopf.OperatorRegistry, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        vars(self._activities)[_OWNER] = weakref.ref(self)

    for activity in (_kopf.Activity.STARTUP, _kopf.Activity.CLEANUP, _kopf.Activity.PROBE):
        logging.getLogger(f"kopf.activities.{activity.value}").addFilter(_is_shown)
    _kopf.keep_parts(_repeat_reason)
    # Extended, as said above.
    _kopf.ActivityRegistry.iter_handlers = iter_with_hooks  # type: ignore[method-assign]
    _kopf.OperatorRegistry.__init__ = init_with_owner  # type: ignore[method-assign]  # As well.


install()
