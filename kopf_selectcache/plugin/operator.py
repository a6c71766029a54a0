"""Operator: the task that runs the caches of one operator, and its lookup by the operator's settings.

An `Operator` is stored in a private attribute of the settings. Running code has the settings in a context
variable of Kopf, in handlers, threads and callbacks alike, also with several operators in one process. The
module has no other state.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, NotDeclared, NotSynced, ReadError, in_one_line
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.freshness import wait_until_fresh
from kopf_selectcache.core.redact import one_line
from kopf_selectcache.core.selection.kinds import KindKey, find
from kopf_selectcache.informer.environment import Unsettling, ended
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.log import in_words
from kopf_selectcache.informer.metrics import Collector
from kopf_selectcache.reactions.engine import queue_metrics
from kopf_selectcache.recorder.recorder import Recorder, end_recordings
from kopf_selectcache.recorder.recording import event_metrics
from kopf_selectcache.selectors.kind_keys import text_of
from kopf_selectcache.selectors.selector import Branches, Selector
from kopf_selectcache.settings.options import SelectCacheSettings, settings_of

from .caches import Stop, create_runtime, make_recorder, named_caches
from .feed_safety import DECLARED_LATER, Decisions, decide, source_of, would_silence
from .narrowing import advise, handlers_of_key, warn_of_filter, warn_of_peering

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from kopf_selectcache.sharding.replica import Replica
    from kopf_selectcache.sharding.shards import Shards

    from .replicas import KopfHandlers

_E = TypeVar("_E", ReadError, DeclarationError)

Kinds: TypeAlias = tuple[KindKey, ...] | None
"""The kinds that are waited for; None for all that are declared."""

Beside: TypeAlias = "Callable[[Operator, Runtime, _kopf.OperatorRegistry | None], Awaitable[None]]"
"""Runs beside the informers, until it is cancelled."""

Join: TypeAlias = "Callable[[Operator, Runtime], Replica]"
"""Makes an operator one replica among others."""

_SLOT = "_selectcache_operator"  # The attribute of settings with their operator.
_AWAITED = "_selectcache_awaited"  # The attribute of settings with futures that wait for the launch.

EARLY_ACTIVITIES: Mapping[_kopf.Activity, str] = {
    _kopf.Activity.STARTUP: "startup",
    _kopf.Activity.AUTHENTICATION: "login",
}
"""The activities whose handlers the caches wait for, so that these must not wait for the caches; with the
names of their decorators in `kopf.on`."""

LEAVING_SECONDS = 10.0
"""The seconds that a replica has to give its ranges to others at its end."""

_logger = logging.getLogger("kopf_selectcache")


def shared_settings_error(kind: type[_E]) -> _E:
    """Return the error of two operators with the same settings."""
    return kind(
        "these settings belong to another running operator",
        remedy="Give each operator its own settings: settings=copy.copy(settings)",
    )


def make_runtime(settings: kopf.OperatorSettings, *, namespaces: tuple[str, ...] | None) -> Runtime:
    """Create the runtime of the operator whose code is running, with Kopf's credentials."""
    return create_runtime(
        settings_of(settings),
        _kopf.vault_var.get(),
        kopf_settings=settings,
        namespaces=namespaces,
        logger=_logger,
    )


class Operator:
    """The caches of one running operator, and the task that runs them."""

    def __init__(
        self,
        settings: kopf.OperatorSettings,
        *,
        make_runtime: Callable[..., Runtime] = make_runtime,
        registry: _kopf.OperatorRegistry | None = None,
        beside: Beside | None = None,
        join: Join | None = None,
    ) -> None:
        self.settings = settings
        self._declared = settings_of(settings)
        self._make_runtime = make_runtime
        self.registry = registry
        self._beside, self._join = beside, join
        self.fed = FedKinds()
        """The kinds whose handlers of Kopf get their events from a cache."""
        self.decisions = Decisions(_logger)
        """Whether that is safe, and why not."""
        self._starter: asyncio.Task[Any] | None = None
        self.vault = _kopf.vault_var.get()
        """Kopf's credentials. Each operator has its own vault, which distinguishes operators with the same
        settings."""
        self.unsettling = Unsettling()
        """Whether all kinds of the start are known to be synced, or to have failed: nobody has to wait."""
        self.stop = Stop(settings, begin=self._end_calls, end=self._reach_deadline)
        self.waits = self.stop.waits
        """The waits of the handlers and threads of this operator."""
        self.replica: Replica | None = None
        """This replica among others; None if there are no others."""
        self.kopfs: KopfHandlers | None = None
        """Kopf's own handlers in this replica; None if there are no others."""
        self._handling: asyncio.Task[None] | None = None
        """Calls the handlers of changes and the reconcilers."""
        self._runtime: asyncio.Future[Runtime] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._keep(), name="selectcache")
        self.task.add_done_callback(self._end_reads)

    @property
    def runtime(self) -> Runtime:
        """The runtime, for code that cannot wait; raises NotSynced before there are credentials, ReadError
        after the end.
        """
        if self.task.done():
            raise ended()
        if not self._runtime.done():
            what = "no cache is synced, because the operator has not logged in yet"
            raise NotSynced(what, remedy="To wait for it, in a background task: await cache.wait_synced()")
        error = self._runtime.exception()
        if error is None:
            return self._runtime.result()
        # Kopf must not take it for a permanent error, after which it would not handle the event again.
        if isinstance(error, DeclarationError):
            raise NotSynced(error.what, remedy=error.remedy) from error
        raise NotSynced(
            f"the caches can't be started: {type(error).__name__}", remedy="See the operator's log"
        ) from error

    @cached_property
    def recorder(self) -> Recorder:
        """The recorder that handlers get as `events`, with the component of Kopf's own events."""
        return make_recorder(self.settings, self.runtime)

    @cached_property
    def cache(self) -> Cache:
        """The cache of async handlers that are called for changes, and of reconcilers."""
        return Cache(self.runtime, waits=self.waits)

    @property
    def shards(self) -> Shards | None:
        """The ranges of keys that this replica handles; None if it handles all."""
        return None if self.replica is None else self.replica.shards

    async def _keep(self) -> None:
        """Run the caches until cancelled. Reads raise the errors of this task."""
        # An empty vault is filled after all startup handlers, retried ones too, have succeeded: declarations
        # are final.
        await self.vault.wait_for_readiness()
        try:
            runtime = self._make_runtime(
                self.settings, namespaces=namespaces_of(self.settings, self._declared)
            )
        except Exception as error:
            _logger.exception("The caches can't be started.")
            self._runtime.set_exception(error)
            self._runtime.exception()  # Retrieved, so that asyncio does not warn.
            # Handlers find this operator, and what is wrong, rather than start another each.
            await asyncio.Event().wait()
        else:
            runtime.namespaces_for = lambda key, filter_: watched_namespaces(self.settings, {key: filter_})
            runtime.warn_of_filter = partial(self._note_filter, runtime)
            patterns = _kopf.watched_patterns(self.settings)
            is_command = click.get_current_context(silent=True) is not None
            place = "-n" if is_command else "kopf.operator(namespaces=...)"
            if self._join is not None:
                self.replica = self._join(self, runtime)
            runtime.warn_of_absent(sorted(_kopf.select_specific_namespaces(patterns)), place)
            await self._run(runtime)

    async def _run(self, runtime: Runtime) -> None:
        with self._declared.selectors.in_use():
            self._runtime.set_result(runtime)
            advice = asyncio.create_task(
                advise(self.settings, self.registry, self._declared, runtime, is_fed=self._needs_no_advice),
                name="selectcache: advice",
            )
            peering = asyncio.create_task(
                warn_of_peering(self.settings, runtime), name="selectcache: peering"
            )
            caches = asyncio.create_task(runtime.run(), name="selectcache: caches")
            self._handling = asyncio.create_task(self._run_beside(runtime), name="selectcache: handlers")
            rest = asyncio.create_task(runtime.trim_at_rest(), name="selectcache: free memory")
            replica = asyncio.create_task(self._be_replica(), name="selectcache: replica")
            try:
                (await asyncio.wait({caches}))[0].pop().result()  # They end after the handlers.
            finally:
                advice.cancel()
                peering.cancel()
                rest.cancel()
                self.stop.begin()
                if self.replica is not None:
                    self.replica.leave()  # Ranges without calls are free at once.
                # Handlers read the caches up to their ends.
                await asyncio.gather(self._handling, return_exceptions=True)
                await end_recordings(runtime)
                await self._leave(replica)
                self.waits.end("the operator ends")
                caches.cancel()
                await asyncio.gather(caches, return_exceptions=True)
                if self._starter is not None and self._starter.done():
                    # If it has failed, or was cancelled, Kopf leaves our connections open.
                    await self.vault.close()

    async def _be_replica(self) -> None:
        if self.replica is not None:
            await self.gate(None, None, fresh=False)  # A replica takes nothing that it can't handle yet.
            await self.replica.run()

    async def _leave(self, replica: asyncio.Task[None]) -> None:
        """Give the ranges to other replicas at once: they would wait for the end of the Lease."""
        if self.replica is not None and self.replica.has_begun and not replica.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVING_SECONDS):
                    await asyncio.wait({replica})
        replica.cancel()
        await asyncio.gather(replica, return_exceptions=True)

    def _needs_no_advice(self, informer: Informer) -> bool:
        """Return True if Kopf's handlers of a kind are fed, or would be with labels in their decorators, or
        if a narrower watch would silence some.
        """
        source, namespaces = source_of(informer), watched_namespaces(self.settings, {})
        return source is not None and (
            all(
                why is None or why.is_avoidable
                for why in decide(self.settings, self.registry, source, namespaces).values()
            )
            or would_silence(self.registry, source)
        )

    def _note_filter(self, runtime: Runtime, key: KindKey, filter_: Branches) -> None:
        """Look at a filter that is declared while the operator runs."""
        if key in self._declared.selectors:
            if self._declared.narrow_handlers:
                warn_of_filter(self.settings, self._declared, key, filter_)
            return
        informer = runtime.informers.get(key) if self._declared.one_watch else None
        if (
            informer is not None
            and not self.decisions.shown(informer.key)
            and handlers_of_key(self.registry, key)
        ):
            self.decisions.note(informer, None, DECLARED_LATER)

    async def _run_beside(self, runtime: Runtime) -> None:
        if self._beside is not None and not self.is_stopping:
            await self._beside(self, runtime, self.registry)

    def _end_reads(self, _: asyncio.Task[None]) -> None:
        """End the reads that wait, and refuse new ones, for any end of the task."""
        if not self._runtime.done():
            self._runtime.set_exception(ended())
        if self._runtime.exception() is None:  # Retrieved, as above.
            self._runtime.result().end()
        self.stop.close()

    def is_of_another(self, starter: asyncio.Task[Any] | None = None) -> bool:
        """Return True if the running code belongs to another operator with the same settings.

        Kopf gives each operator its own credentials. If the user gives several operators the same ones, the
        task that calls the startup handlers distinguishes them; it is known once the startup hook has run.
        """
        vault = _kopf.vault_var.get(None)
        return (vault is not None and vault is not self.vault) or (
            starter is not None and self._starter not in (None, starter)
        )

    def start_with(self, starter: asyncio.Task[Any]) -> None:
        """Take the task that lives as long as the operator, and end with it."""
        self._starter = starter
        starter.add_done_callback(lambda _: self.end())

    @property
    def is_stopping(self) -> bool:
        """True from the moment at which Kopf begins to stop the operator."""
        return self.stop.has_begun

    def _end_calls(self) -> None:
        """Let no handler of changes and no reconciler be called any more."""
        if self._handling is not None:
            self._handling.cancel()

    def _reach_deadline(self) -> None:
        """End all reads, writes and filter changes, whatever Kopf still waits for, and then the caches."""
        if self._runtime.done() and self._runtime.exception() is None:
            # Its recorders end later: Events of the last calls are still to be written.
            self._runtime.result().ending.end()
        self.end()

    def end(self) -> None:
        """End the caches, unless they end already: a second cancellation would cancel what the first one
        waits for.
        """
        if not self.task.cancelling():
            self.task.cancel()

    def is_end(self, error: ReadError) -> bool:
        """Return True if a read has failed only because the operator stops."""
        return self.is_stopping and type(error) is ReadError

    async def gate(self, kinds: Kinds, cause: object, *, fresh: bool = True, since: float = 0.0) -> bool:
        """Wait until these kinds, or all, are synced or have failed; return True if the handler must not run,
        because it was stopped.

        With `fresh`, wait as well until the kind of the handled object is as new as its body; raise Stale for
        a handler that Kopf calls again after an error, if that takes too long. The time limit of admission is
        counted from when the request came, `since` seconds ago: its handlers share it.
        """
        stopper = cause.stopper if isinstance(cause, _kopf.DaemonCause) else None
        limit = self._declared.admission_timeout if isinstance(cause, _kopf.WebhookCause) else None
        waits: set[asyncio.Task[object]] = set()
        try:
            async with asyncio.timeout(None if limit is None else max(0.0, limit - since)):
                if stopper is None:
                    await self._ready(kinds, cause, fresh=fresh)
                    return False
                waits |= {
                    asyncio.create_task(self._ready(kinds, cause, fresh=fresh)),
                    asyncio.create_task(stopper.async_event.wait()),
                }
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in done:
                    wait.result()
                return stopper.is_set()
        except TimeoutError:
            message = f"The operator's caches are not synced yet, after {limit:g} s. Try again."
            raise kopf.AdmissionError(message, code=503) from None
        finally:
            for wait in waits:
                wait.cancel()
            if waits:
                await asyncio.gather(*waits, return_exceptions=True)

    async def logged_in(self) -> None:
        """Wait until the runtime exists, or cannot be created: then `runtime` raises the error."""
        with suppress(Exception):
            await asyncio.shield(self._runtime)

    async def _ready(self, kinds: Kinds, cause: object, *, fresh: bool) -> None:
        await self.logged_in()
        runtime = self.runtime
        if kinds is None:
            await self._settle_initial(runtime)
            informers = runtime.initial
        else:
            informers = [await self.informer(kind) for kind in kinds]
            for informer in informers:
                await self._settle(informer, is_asked_for=True)
            informers = [informer for informer in informers if not informer.ending.reached]
        if kinds is None:
            later = (each for each in runtime.informers.values() if each not in informers)
            informers += [each for each in later if each.state.ready is not None]
        if not fresh or not isinstance(cause, _kopf.ResourceCause) or isinstance(cause, _kopf.WebhookCause):
            return  # The object of an admission request is not stored yet.
        handled = [
            informer
            for informer in informers
            if informer.state.is_of(cause.resource.group, cause.resource.plural)
        ]
        namespace = cause.body.metadata.namespace
        if handled and not self.fed.has(cause.resource, namespace):  # Else the cache had the event before.
            await wait_until_fresh(handled, cause.body, patient=not _is_retried(cause), ending=runtime.ending)

    async def _settle_initial(self, runtime: Runtime) -> None:
        """Wait until all kinds of the start are synced or have failed."""
        if self.unsettling.is_settled:
            return
        unsettling = self.unsettling = runtime.environment.unsettling
        before = unsettling.count
        for informer in runtime.initial:
            await self._settle(informer)
        # What has happened during these waits may concern one that was looked at before.
        unsettling.is_settled = unsettling.count == before

    async def informer(self, kind: KindKey) -> Informer:
        """Return the informer of a kind; wait until custom kinds are resolved that it may mean."""
        try:
            return self.runtime.informer(kind)
        except (NotDeclared, NotSynced):
            # The name of a custom resource may mean a declared key that is not resolved yet.
            for informer in self.runtime.informers.values():
                if informer.state.resource is None:
                    await self._settle(informer)
            return self.runtime.informer(kind)

    async def _settle(self, informer: Informer, *, is_asked_for: bool = False) -> None:
        """Wait until a kind is synced or has failed. One that is removed meanwhile counts as settled, unless
        the handler asks for it.
        """
        try:
            await informer.wait_until_settled()
        except NotDeclared:
            if is_asked_for:
                raise

    def report(self) -> Mapping[str, Any]:
        """Return the health of each cache, for people. It has no contents of objects."""
        try:
            found = reports(self.runtime.informers.values())
        except ReadError as error:
            return {"trouble": error.what, "remedy": one_line(error.remedy)}
        for informer in +self.fed.awaited:
            found[informer.key]["handlers"] = "none is called before it is synced, because it is indexed"
        for key, each in found.items():
            if decision := self.decisions.shown(key):
                each["kopf_handlers"] = decision
        return found

    def restartable(self) -> str:
        """Return a text about caches whose state must fail the liveness probe; empty if there are none."""
        try:
            return failing(self.runtime.informers.values(), self._declared.probe_limits())
        except ReadError:
            return ""


class FedKinds:
    """The watchers of Kopf that get their events from a cache, and those that do not."""

    def __init__(self) -> None:
        self._fed: dict[tuple[str, str, str | None], bool] = {}
        self.awaited = Counter[Informer]()
        """The informers for which Kopf has held up all handlers for some time, with the number of watchers
        that wait for each."""

    def note(self, watcher: _kopf.Watcher, *, is_fed: bool) -> None:
        """Note if a watcher is fed from now on."""
        resource = watcher.resource
        self._fed[resource.group, resource.plural, watcher.namespace] = is_fed

    def has(self, resource: _kopf.Resource, namespace: str | None) -> bool:
        """Return True if the events of the objects of a resource in a namespace come from its cache."""
        if not self._fed:
            return False
        kind = resource.group, resource.plural
        found = self._fed.get((*kind, namespace))
        return bool(self._fed.get((*kind, None)) if found is None else found)


def failing(informers: Iterable[Informer], limits: Mapping[str, float]) -> str:
    """Return a text about caches that have been in one of these states for at least its number of seconds."""
    return " ".join(
        f"The cache of {informer} {_in_state(informer, limit)}:"
        f" {in_one_line(informer.state.message, *informer.state.remedy.splitlines())}"
        for informer in informers
        if (limit := limits.get(informer.state.health.value)) is not None and informer.state.lasted() >= limit
    )


def _in_state(informer: Informer, limit: float) -> str:
    state = informer.state.health.value
    return f"has been {state} for {limit:g} s or more" if limit else f"is {state}"


def reports(informers: Iterable[Informer]) -> dict[str, dict[str, Any]]:
    """Return the health of each informer by its key, for people. It has no contents of objects."""
    return {informer.key: _report(informer) for informer in informers}


def _report(informer: Informer) -> dict[str, Any]:
    records, version = informer.state.store.records()
    age = informer.state.age()
    report = {
        "health": informer.state.health.value,
        "filter": str(informer.state.filter),
        "objects": len(records),
        "version": version,
        "age": None if age is None else round(age, 1),
        "trouble": informer.state.message,
        "remedy": one_line(informer.state.remedy),
        "unreadable": in_words(informer.state.store.unreadable.values()),
    }
    return {name: value for name, value in report.items() if value not in ("", None)}


def _is_retried(cause: _kopf.ResourceCause) -> bool:
    """Return True if Kopf calls the running handler again after a TemporaryError, as often as that takes."""
    if not isinstance(cause, _kopf.ChangingCause):
        return False
    handler = _kopf.handler_var.get()
    # An error of a sub-handler, `parent/own`, counts for its parent, which may have limits. Those of fields
    # are `own/field`.
    field = ".".join(getattr(handler, "field", None) or ())
    is_subhandler = "/" in handler.id.removesuffix(f"/{field}")
    return handler.retries is None and handler.timeout is None and not is_subhandler


def operator_of(settings: kopf.OperatorSettings) -> Operator | None:
    """Return the running operator of exactly these settings. A copy of them shares the declarations, but not
    the operator.
    """
    found = last_operator_of(settings)
    return found if found is not None and not found.task.done() else None


def last_operator_of(settings: kopf.OperatorSettings) -> Operator | None:
    """Return the operator of exactly these settings. It may have ended."""
    found = vars(settings).get(_SLOT)
    return found if isinstance(found, Operator) and found.settings is settings else None


def expect_operator(settings: kopf.OperatorSettings) -> Future[None]:
    """Return a future that is done when an operator is launched with these settings, in any thread."""
    launched: Future[None] = Future()
    request_launch(settings).append(launched)
    if operator_of(settings) is not None:  # It may have been launched before it could see the future.
        _resolve(launched)
    return launched


def request_launch(settings: kopf.OperatorSettings) -> list[Future[None]]:
    """Make the startup hook launch the operator, even without declarations; return the futures that are done
    then.
    """
    awaited: list[Future[None]] = vars(settings).setdefault(_AWAITED, [])
    return awaited


def is_requested(settings: kopf.OperatorSettings) -> bool:
    """Return True if a launch was requested, and has not happened yet."""
    return _AWAITED in vars(settings)


def _resolve(launched: Future[None]) -> None:
    with suppress(InvalidStateError):  # It is done, or was given up.
        launched.set_result(None)


def collector(settings: kopf.OperatorSettings) -> Collector:
    """Return the Prometheus collector of an operator's caches, and of named `Caches` beside them.

    @kopf.on.startup()
    def configure(settings, **_):
        prometheus_client.REGISTRY.register(selectcache.collector(settings))
    """

    def runtime() -> Runtime | None:
        operator = operator_of(settings)
        with suppress(
            ReadError
        ):  # There are no metrics before the operator has logged in, and after its end.
            return operator.runtime if operator is not None else None
        return None

    def informers() -> Iterable[Informer]:
        return tuple(found.informers.values()) if (found := runtime()) is not None else ()

    def longest_stall() -> float | None:
        return found.pulse.longest if (found := runtime()) is not None else None

    def others() -> Mapping[str, Iterable[Informer]]:
        return {name: caches.informers for name, caches in named_caches(settings).items()}

    def further() -> Iterator[Metric]:
        if (found := runtime()) is not None:
            yield from event_metrics(found)
            yield from queue_metrics(found)
        if (operator := operator_of(settings)) is not None and operator.replica is not None:
            yield from operator.replica.metrics()

    return Collector(informers, others=others, further=further, longest_stall=longest_stall)


def launch(
    settings: kopf.OperatorSettings,
    *,
    make_runtime: Callable[..., Runtime] = make_runtime,
    registry: _kopf.OperatorRegistry | None = None,
    beside: Beside | None = None,
    join: Join | None = None,
) -> Operator:
    """Return the operator of these settings; on its event loop, start it if there is none."""
    operator = operator_of(settings)
    if operator is None:
        last = last_operator_of(settings)
        # Kopf may still call probes, and handlers that were queued.
        if last is not None and last.stop.is_of_caller:
            raise ended()
        operator = Operator(settings, make_runtime=make_runtime, registry=registry, beside=beside, join=join)
        vars(settings)[_SLOT] = operator
        for launched in vars(settings).pop(_AWAITED, ()):
            _resolve(launched)
    elif operator.task.get_loop() is not asyncio.get_running_loop() or operator.is_of_another():
        raise shared_settings_error(DeclarationError)
    return operator


def namespaces_of(settings: kopf.OperatorSettings, declared: SelectCacheSettings) -> tuple[str, ...] | None:
    """Return the namespaces that the operator watches, or None for all; raise DeclarationError if they are
    unknown.
    """
    return watched_namespaces(settings, declared.effective_filters())


def watched_namespaces(
    settings: kopf.OperatorSettings, filters: Mapping[KindKey, Branches]
) -> tuple[str, ...] | None:
    """Return the namespaces that the operator watches, or None for all; raise DeclarationError if they are
    unknown, and a filter needs them.
    """
    undecided = [
        key
        for key, filter_ in filters.items()
        if any(branch.namespaces is None for branch in filter_.branches)
        and ((kind := find(key)) is None or kind.namespaced is not False)
    ]
    context = click.get_current_context(silent=True)
    if context is not None and context.command is _kopf.run_command:
        # The environment variable is read by the command itself, and is not among its parameters.
        patterns = {*context.params["namespaces"], *filter(None, [os.environ.get("KOPF_RUN_NAMESPACE")])}
        if not patterns:
            return None
        why, other = "-n has a pattern", "Run it with -A, or with -n and a name for each namespace"
    elif settings.peering.clusterwide:
        return None
    else:
        patterns = {*_kopf.watched_patterns(settings)}
        why = "kopf.operator() was given a pattern" if patterns else "kopf.operator() was given none"
        other = "Run kopf.operator(clusterwide=True), or kopf.operator(namespaces=['...'])"
    if (exact := _kopf.exact_namespaces(patterns)) is not None:
        return Selector(namespaces=exact).namespaces
    if not undecided:
        return None
    what = f"the namespaces of {' and '.join(map(text_of, undecided))} are not known: {why}"
    raise DeclarationError(what, remedy=f"Declare them: Selector(..., namespaces=['...'])\n{other}")
