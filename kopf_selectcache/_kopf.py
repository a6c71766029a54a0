"""The private names of Kopf that this package uses, each with its purpose, and functions that use private
attributes of its registries and its vault. No other module touches them.

If a name is missing, the import fails and names it. Kopf may change private names in any release:
tests/plugin/test_kopf_names.py and test_kopf_vault.py check that each exists and works as this package
expects.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any, TypeAlias

import kopf

TESTED = "1.45.2"
"""The newest version of Kopf that the tests have run with; tests/docs/test_versions.py fails when there is a
newer one."""
OLDEST = "1.44.5"
"""The oldest version of Kopf that the tests run with, and that setup.cfg allows."""
NARROWS = "1.45"
"""The version of Kopf that brought selectors in `settings.watching`; before it, Kopf always watches all
objects of a kind."""


INSTALLED = str(vars(kopf).get("__version__"))


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared, without what else there is to it."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


if _numbers(INSTALLED) < _numbers(OLDEST):
    raise ImportError(
        f"kopf_selectcache needs Kopf {OLDEST} or newer, but this is Kopf {INSTALLED}. Install a newer"
        f" one: pip install 'kopf>={OLDEST},<2'"
    )

try:
    from kopf._cogs.aiokits.aiotoggles import ToggleSet
    from kopf._cogs.clients import api, watching
    from kopf._cogs.clients.auth import APIContext, authenticated, vault_var
    from kopf._cogs.clients.errors import APINotFoundError
    from kopf._cogs.helpers.loaders import preload
    from kopf._cogs.structs.bodies import Body, Meta, Spec, Status
    from kopf._cogs.structs.credentials import (
        AiohttpSession,
        ConnectionInfo,
        KubeContext,
        LoginError,
        Vault,
        VaultItem,
        VaultKey,
    )
    from kopf._cogs.structs.dicts import MappingView
    from kopf._cogs.structs.ids import HandlerId
    from kopf._cogs.structs.patches import MetaPatch, SpecPatch, StatusPatch
    from kopf._cogs.structs.references import Resource, Selector, select_specific_namespaces
    from kopf._core.actions.execution import Cause, Handler, cause_var, execute_handler_once, handler_var
    from kopf._core.actions.invocation import invoke, is_async_fn
    from kopf._core.actions.loggers import ObjectLogger
    from kopf._core.engines import admission, posting
    from kopf._core.engines.activities import ActivityError, authenticator
    from kopf._core.engines.daemons import Daemon, stop_daemon
    from kopf._core.engines.indexing import OperatorIndexers
    from kopf._core.engines.posting import K8sEvent, event_queue_loop_var, event_queue_var, settings_var
    from kopf._core.intents.causes import (
        Activity,
        ActivityCause,
        ChangingCause,
        DaemonCause,
        ResourceCause,
        WatchingCause,
        WebhookCause,
    )
    from kopf._core.intents.filters import MetaFilterToken
    from kopf._core.intents.handlers import (
        ActivityHandler,
        ChangingHandler,
        DaemonHandler,
        IndexingHandler,
        ResourceHandler,
        SpawningHandler,
    )
    from kopf._core.intents.registries import (
        ActivityRegistry,
        OperatorRegistry,
        SmartOperatorRegistry,
        get_callable_id,
    )
    from kopf._core.intents.stoppers import DaemonStopper, DaemonStoppingReason
    from kopf._core.reactor import observation, orchestration, running
    from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory
    from kopf._core.reactor.subhandling import subexecuted_var
    from kopf.cli import CLIControls
    from kopf.cli import run as run_command

    # The attributes `_current`, `_guard` and `_ready` of a vault belong to its instances:
    # tests/plugin/test_kopf_names.py checks them.
    _ = Vault._flush_caches
except (ImportError, AttributeError) as error:
    raise ImportError(
        f"kopf_selectcache can't work with Kopf {INSTALLED}, which lacks a name that"
        f" it needs: {error}. Install a version that it is tested with: pip install 'kopf=={TESTED}'"
    ) from error

__all__ = [
    "LISTED",  # Tells a watcher that the present objects are listed.
    "APIContext",  # Has the session of a request.
    "APINotFoundError",  # By it Kopf knows that it has nothing to patch.
    "Activity",  # The hook that runs: startup, cleanup, probe.
    "ActivityCause",  # Startup, cleanup, login and probe handlers never wait for a cache.
    "ActivityError",  # Its cause is the error of the handler that has ended the operator.
    "ActivityHandler",  # The type of our hooks.
    "ActivityRegistry",  # Every operator, with any registry, gets its hooks from one.
    "AiohttpSession",  # Credentials that are a session of the user's own.
    "Body",  # The base of the views of `as_='view'`; its `metadata`, `spec` and `status` read the items.
    "CLIControls",  # Stops an operator that runs during a test.
    "Cause",  # The cause of a call, with the arguments; the base of our cause of changes.
    # Its handlers are called again after an error: they need not wait for a cache that is stale.
    "ChangingCause",
    "ChangingHandler",  # Narrowing is refused to kinds whose handlers need a finalizer.
    "ConnectionInfo",  # Credentials as Kopf's logins hand them out.
    "Daemon",  # A running daemon or timer.
    "DaemonCause",  # Has the stopper of daemons and timers, which end the waiting for a cache.
    # A daemon whose `when=` turns out false sleeps until it is stopped: one that exits never returns.
    "DaemonHandler",
    # The type of `DaemonCause.stopper`: `async_event` to wait for, `sync_waiter` for threads.
    "DaemonStopper",
    "DaemonStoppingReason",  # That of a daemon whose object goes to another replica: Kopf may start it again.
    "Events",  # The events of a watcher.
    "Handler",  # The base of our handlers of changes.
    "HandlerId",  # The type of a handler's id.
    "IndexingHandler",  # The type of the handlers that `index_handlers` returns.
    "K8sEvent",  # An event in the queue of an operator.
    "KubeContext",  # The base of all credentials; it has the server.
    "LoginError",  # There are no credentials left.
    "MappingView",  # The type of the labels and annotations of a body.
    "Memos",  # The memos of objects, those of Kopf's own handlers.
    "Meta",  # The type of the `metadata` of a body, for our views.
    "MetaFilterToken",  # The type of `kopf.PRESENT` and `kopf.ABSENT`, as values of labels and fields.
    "MetaPatch",  # The metadata in `Patch`.
    "ObjectLogger",  # The logger of a handler, which names the object.
    "OperatorIndexers",  # The indices that startup handlers are given, empty as they are then.
    "OperatorParts",  # The pause of an operator, and its queue of events.
    "OperatorRegistry",  # Has the kinds that the operator itself watches, for the warning at the start.
    "Patch",  # The patch of a reconciler.
    "Resource",  # To ask Kopf's selectors whether they mean a kind.
    "ResourceCause",  # Has the object that the handler is called for.
    "ResourceHandler",  # Any handler of objects: it has a selector, and `when=`.
    "ResourceMemories",  # Has the memos of an operator's objects.
    "ResourceMemory",  # Has the memo of one object.
    "Selector",  # The kinds of a handler, from its decorator.
    # For the fixture `registry`: the class of Kopf's default registry, which logs in by itself.
    "SmartOperatorRegistry",
    "SpawningHandler",  # A daemon or timer: narrowing would leave it behind.
    "Spec",  # The type of the `spec` of a body.
    "SpecPatch",  # The spec in `Patch`.
    "Status",  # The type of the `status` of a body.
    "StatusPatch",  # The status in `Patch`.
    "ToggleSet",  # The type of the pause of an operator.
    "Vault",  # Kopf's credentials, with re-login when they fail.
    "VaultItem",  # Credentials in the vault, with the sessions that were made of them.
    "VaultKey",  # The key by which failed credentials are handed back.
    "Watcher",  # One of Kopf's watchers of a kind.
    "WatchingCause",  # Its type shows if the object was deleted.
    "WebhookCause",  # Admission: waits for a bounded time, and its object is not yet stored.
    "activity_handlers",  # The handlers of startup, cleanup, login and probes, for checks and commands.
    "admission",  # Its `configuration_manager` writes the configuration of webhooks.
    "admission_handlers",  # The handlers of admission requests, for checks at the start.
    "api",  # Its `request` sends all that Kopf writes.
    "authenticated",  # Gives a request its session.
    "authenticator",  # Logs in, and again, for the commands that ask a cluster without running the operator.
    "can_narrow",  # Whether this Kopf can watch fewer objects of a kind than all.
    "cause_var",  # The cause of the running handler.
    "chunk_size",  # The default of `page_limit`.
    "end_daemon",  # Asks a daemon to end, as Kopf does while it is paused.
    "event_queue_loop_var",  # The loop of the queue below.
    "event_queue_var",  # The queue of events that the operator posts.
    "exact_namespaces",  # The `-n`, unless there are patterns among them.
    "execute_handler_once",  # Calls a handler, with its timeout, retries and errors.
    "feed_watchers",  # Has Kopf's watchers fed.
    "gate_events",  # Has the events of an operator pass a gate before Kopf calls handlers.
    "get_callable_id",  # The id that Kopf gives a handler: decorated, it must stay the same.
    "guard_events",  # Has each Event of Kopf checked.
    "guard_writes",  # Has each write of Kopf checked.
    "handler_var",  # The running handler, for its `when=`.
    "has_activities",  # Attributes a call of `ActivityRegistry.iter_handlers` to the default registry.
    "has_credentials",  # Checks that no other request has replaced the refused credentials.
    "has_indices",  # Whether an index of a kind holds up all handlers.
    "index_handlers",  # The handlers of Kopf's indices.
    "invoke",  # Runs a sync function in Kopf's own threads, with context, shield and all.
    "is_async_fn",  # Whether Kopf takes a function for async.
    "keep_parts",  # Has the parts of each operator kept.
    "log_in_again",  # Has Kopf replace refused credentials, by equal ones as well.
    "log_in_if_empty",  # To go on when Kopf has given up.
    "manage_webhooks",  # Has one replica write the configuration of webhooks.
    "observation",  # Its `namespace_observer` is given the namespaces of the operator.
    "orchestration",  # Its `orchestrator` is given the pause and the queue of events.
    "parts_of",  # The parts of the operator with these settings.
    "posting",  # Its `enqueue` takes the Events that Kopf posts.
    "preload",  # Loads an operator's files and modules as `kopf run` does.
    "remove_credentials",  # Removes refused credentials, of which equal ones may come back.
    # To know when the operator begins to stop, long before its cleanup.
    "root_tasks_var",
    "run_command",  # To know `kopf run` in click's context, which alone has the `-n` list.
    "running",  # Its `startup_cleanup_activities` is given the root tasks, and raises errors.
    "select_specific_namespaces",  # Which of the `-n` are names and not patterns.
    # The settings of the operator that the running code belongs to, in tasks and threads alike.
    "settings_var",
    "stop_daemon",  # Ends a daemon that has a time limit for it.
    "subexecuted_var",  # Whether the sub-handlers of the running handler were called.
    "until_narrow",  # What advice to narrow begins with.
    "vault_var",  # The credentials of that operator.
    "watch_selectors",  # The selectors under which Kopf watches a kind.
    "watched_patterns",  # The namespaces that `kopf.operator` is given.
    "watching",  # Its `infinite_watch` has the events of a watcher.
    "watching_handlers",  # The handlers for which Kopf watches kinds.
]


def activity_handlers(
    registry: OperatorRegistry, activity: Activity | None = None
) -> Collection[ActivityHandler]:
    """Return the handlers of an activity, or of all activities."""
    activities = registry._activities
    return activities.get_all_handlers() if activity is None else activities.get_handlers(activity=activity)


def has_activities(registry: OperatorRegistry, activities: ActivityRegistry) -> bool:
    """Return True if these are the activities of the registry."""
    return registry._activities is activities


def admission_handlers(registry: OperatorRegistry) -> Collection[ResourceHandler]:
    return registry._webhooks.get_all_handlers()


def index_handlers(registry: OperatorRegistry) -> Collection[IndexingHandler]:
    return registry._indexing.get_all_handlers()


def watching_handlers(registry: OperatorRegistry) -> Iterator[ResourceHandler]:
    """Yield all handlers for which Kopf watches objects. Admission handlers are not among them."""
    for handlers in (registry._indexing, registry._watching, registry._spawning, registry._changing):
        yield from handlers.get_all_handlers()


def can_narrow(settings: kopf.OperatorSettings) -> bool:
    """Return True if Kopf's watches can have selectors, which are there since Kopf 1.45."""
    return hasattr(settings.watching, "label_selectors")


def until_narrow(settings: kopf.OperatorSettings) -> str:
    """Return what comes before lines that would narrow Kopf's watches; empty if this Kopf can."""
    return "" if can_narrow(settings) else f"install Kopf {NARROWS} or newer, and "


def watch_selectors(settings: kopf.OperatorSettings, setting: str, resource: Resource) -> list[str]:
    """Return the texts of `label_selectors` or `field_selectors` for a resource; none before Kopf 1.45."""
    return list(getattr(settings.watching, setting).collect(resource)) if can_narrow(settings) else []


def chunk_size(settings: kopf.OperatorSettings) -> int | None:
    """Return the size of Kopf's own pages; None for no pages, as always before Kopf 1.45."""
    return getattr(settings.watching, "chunk_size", None) or None


class Patch(kopf.Patch):
    """A patch whose parts are made on access.

    Kopf's constructor makes all of them. They refer to the patch as it does to them, so that it lives on with
    the object, and what the handler has left there, until the next garbage collection.
    """

    _meta = property(MetaPatch)
    _spec = property(SpecPatch)
    _status = property(StatusPatch)

    def __init__(self, body: Body) -> None:
        self._original, self._fns = body, []


class Memos:
    """The memos of an operator's objects, which Kopf's own handlers of an object are given as well.

    Kopf notes in the memory of an object if its first list had the object, by which `on.resume` is called. If
    a memo is needed before Kopf has seen the object, Kopf notes it later.
    """

    def __init__(self, memories: ResourceMemories | None = None, base: Any = None) -> None:
        self._memories = memories if memories is not None else ResourceMemories()
        self._base: Any = base if base is not None else kopf.Memo()
        self._marks: dict[str, Any] = {}
        """Objects by uid: with their resource if Kopf has not seen them, so that it does not forget them;
        with the body of the event after which Kopf forgets them."""
        self._listed: dict[str, bool] = {}
        """By uid: True if the next event of an object counts as one of Kopf's list, False if not."""
        self._recall = self._memories.recall
        # As an attribute of the instance it hides the method.
        vars(self._memories)["recall"] = self._recall_for_kopf

    def _recall_for_kopf(
        self, raw_body: Any, *, ephemeral: bool = False, **options: Any
    ) -> Coroutine[None, None, ResourceMemory]:
        if ephemeral or not (self._marks or self._listed):  # Nothing is noted of any object, mostly.
            return self._recall(raw_body, ephemeral=ephemeral, **options)
        return self._recall_noted(raw_body, **options)

    async def _recall_noted(
        self, raw_body: Any, *, noticed_by_listing: bool = False, **options: Any
    ) -> ResourceMemory:
        uid = self._memories._build_key(raw_body)
        noticed_by_listing = self._listed.pop(uid, noticed_by_listing)
        mark: Any = self._marks.get(uid)
        memory = await self._recall(raw_body, noticed_by_listing=noticed_by_listing, **options)
        if mark is raw_body:
            del self._marks[uid]
            await self._memories.forget(raw_body)
        elif mark is not None and not isinstance(mark, dict):
            del self._marks[uid]
            memory.noticed_by_listing = noticed_by_listing
        return memory

    async def recall(self, body: Any, resource: object) -> Any:
        """Return the memo of an object of a resource."""
        uid = self._memories._build_key(body)
        if (memory := self._memories._items.get(uid)) is None:
            self._marks[uid] = resource
            memory = await self._recall(body, memobase=self._base)
        return memory.memo

    def forget_with(self, body: Any) -> None:
        """Have Kopf forget an object with the event of this body, as it does with its deletion."""
        self._marks[self._memories._build_key(body)] = body

    def begin(self, uid: str, *, is_listed: bool) -> None:
        """Note that Kopf gets an object, perhaps again: as if a list had it, or not. If it has skipped the
        event with which it was to forget the object, it does not forget it.
        """
        if isinstance(self._marks.get(uid), dict):
            del self._marks[uid]
        self._listed[uid] = is_listed

    def drop(self, uid: str) -> None:
        """Forget an object of which Kopf gets no event any more."""
        self._marks.pop(uid, None)
        self._listed.pop(uid, None)
        self._memories._items.pop(uid, None)

    def daemons_of(self, uid: str) -> Collection[Daemon]:
        """Return the running daemons and timers of an object."""
        memory = self._memories._items.get(uid)
        return () if memory is None else memory.daemons_memory.running_daemons.values()

    def daemons(self) -> Iterator[tuple[Body, Daemon]]:
        """Yield the running daemons and timers, each with its object."""
        for memory in self._memories.iter_all_daemon_memories():
            for daemon in memory.running_daemons.values():
                assert memory.live_fresh_body is not None, "it has daemons"
                yield memory.live_fresh_body, daemon

    def release(self, uid: str) -> None:
        """Forget the memo of an object, unless Kopf has seen the object: Kopf forgets it itself."""
        if not isinstance(self._marks.get(uid, {}), dict):
            self.drop(uid)

    def forget_all(self, resource: object) -> None:
        """Forget the memos of all objects of a resource that Kopf has not seen."""
        for uid in [uid for uid, each in self._marks.items() if each == resource]:
            self.drop(uid)


@dataclass(frozen=True)
class OperatorParts:
    """Parts of an operator that Kopf keeps in local variables of `spawn_tasks`."""

    paused: ToggleSet
    events: asyncio.Queue[Any] | None
    memos: Memos
    is_paused: Callable[[], bool]
    """Returns True while another operator has the priority (peering)."""
    indexers: OperatorIndexers = field(default_factory=OperatorIndexers)

    def forget(self, namespace: str, name: str, uid: str) -> None:
        """Forget an object of which Kopf gets no event any more: its memo, and its values in indices."""
        self.memos.drop(uid)
        metadata = {"name": name, "uid": uid, **({"namespace": namespace} if namespace else {})}
        identity: Any = {"metadata": metadata}
        self.indexers.discard(Body(identity))

    async def wait_until_resumed(self) -> None:
        if self.is_paused():
            await self.paused.wait_for(False)

    def allow_events(self) -> None:
        """Let the running task, and those that it creates, post events with `kopf.event` and loggers."""
        if self.events is not None:
            event_queue_var.set(self.events)
            event_queue_loop_var.set(asyncio.get_running_loop())


_PARTS = "_selectcache_parts"  # The attribute of settings with the parts of their operator.
_PATTERNS = "_selectcache_patterns"  # That with the namespaces that the operator is given.
_GATE = "_selectcache_gate"  # That with the gate of the events of its operator.

Gate: TypeAlias = "Callable[..., Coroutine[Any, Any, str | None]]"
"""Called with what has Kopf process an event, and the event's keywords."""

root_tasks_var: ContextVar[Sequence[asyncio.Task[Any]]] = ContextVar("selectcache_root_tasks")
"""The root tasks of the operator whose code is running. Its stop begins when one of them ends: Kopf cancels
the others then, and calls the cleanup handlers once they have ended."""


def keep_parts(explain: Callable[[ActivityError], None]) -> None:
    """Have the parts of each operator kept in its settings, and its root tasks in a context variable.
    `spawn_tasks` passes them to `orchestrator`, the namespaces to `namespace_observer`, and the root tasks to
    `startup_cleanup_activities`.

    `explain` is called with the error of a startup handler, or of another activity, that ends an operator.
    """
    orchestrator, observer = orchestration.orchestrator, observation.namespace_observer
    activities = running.startup_cleanup_activities

    @wraps(orchestrator)
    def keeping_parts(**kwargs: Any) -> Coroutine[None, None, None]:
        processor: Any = kwargs.get("processor")
        parts = getattr(processor, "keywords", {})
        paused = kwargs.get("operator_paused")
        if isinstance(paused, ToggleSet):
            settings, memos = kwargs["settings"], Memos(parts.get("memories"), parts.get("memobase"))
            indexers = parts.get("indexers", OperatorIndexers())
            vars(settings)[_PARTS] = OperatorParts(
                paused, parts.get("event_queue"), memos, paused.is_on, indexers
            )
            kwargs["processor"] = partial(_gated, settings, processor)
        return orchestrator(**kwargs)

    @wraps(observer)
    def keeping_namespaces(**kwargs: Any) -> Coroutine[None, None, None]:
        vars(kwargs["settings"])[_PATTERNS] = tuple(map(str, kwargs.get("namespaces", ())))
        return observer(**kwargs)

    @wraps(activities)
    def keeping_roots(**kwargs: Any) -> Coroutine[None, None, None]:
        # Called before the task exists: it, and those that are created later, have the variable.
        root_tasks_var.set(kwargs.get("root_tasks", ()))
        return explaining(activities(**kwargs))

    async def explaining(running: Coroutine[None, None, None]) -> None:
        try:
            await running
        except ActivityError as error:
            explain(error)
            raise

    # Replaced, since nothing else of Kopf has these parts.
    running.startup_cleanup_activities = keeping_roots  # type: ignore[assignment]  # Kopf calls it by names.
    orchestration.orchestrator = keeping_parts
    observation.namespace_observer = keeping_namespaces


def _gated(settings: kopf.OperatorSettings, processor: Gate, **event: Any) -> Any:
    gate: Gate | None = vars(settings).get(_GATE)
    return processor(**event) if gate is None else gate(partial(processor, **event), **event)


def gate_events(settings: kopf.OperatorSettings, gate: Gate) -> None:
    """Have the events of the operator with these settings pass a gate before Kopf processes them."""
    vars(settings)[_GATE] = gate


def end_daemon(settings: kopf.OperatorSettings, daemon: Daemon) -> asyncio.Task[None] | None:
    """Ask a daemon or timer to end, as Kopf does while it is paused. Return what cancels it, if its decorator
    says after which time.
    """
    reason = DaemonStoppingReason.OPERATOR_PAUSING
    if daemon.stopper.is_set(reason=reason):
        return None
    daemon.stopper.set(reason=reason)
    if getattr(daemon.handler, "cancellation_timeout", None) is None:
        return None
    stopping = stop_daemon(settings=settings, daemon=daemon, reason=reason)
    return asyncio.create_task(stopping, name=f"selectcache: stop {daemon.handler.id}")


LISTED = watching.Bookmark.LISTED
"""Tells a watcher that the present objects are listed."""

Events: TypeAlias = AsyncGenerator[Any, None]
"""The events of a watcher: dicts with `type` and `object`, and LISTED."""


@dataclass(frozen=True)
class Watcher:
    """One of Kopf's watchers of a kind, in one namespace or in all of them."""

    settings: kopf.OperatorSettings
    resource: Resource
    namespace: str | None
    paused: ToggleSet
    watch: Callable[[], Events]
    """Opens Kopf's own watch."""


def feed_watchers(feed: Callable[[Watcher], Events | None]) -> None:
    """Ask `feed` for the events of each watcher that begins; None stands for Kopf's own watch. Does nothing
    the second time.

    Kopf's watchers of namespaces, custom resource definitions and peerings are not asked about: these are
    the watchers that no pause stops.
    """

    def wrapper(own: Callable[..., Events]) -> Callable[..., Events]:
        def infinite_watch(**kwargs: Any) -> Events:
            paused, watch = kwargs.get("operator_paused"), partial(own, **kwargs)
            if paused is None:
                return watch()
            of = kwargs["settings"], kwargs["resource"], kwargs["namespace"]
            return feed(Watcher(*of, paused, watch)) or watch()

        return infinite_watch

    _wrap(watching, "infinite_watch", wrapper)


def _wrap(module: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Have a function of Kopf wrapped, which Kopf looks up at each call. Does nothing the second time."""
    own = vars(module)[name]
    if vars(module).setdefault(f"_selectcache_{name}", own) is own:
        setattr(module, name, wraps(own)(wrapper(own)))


class _Guarded:
    """A session of Kopf whose requests are sent by `send`."""

    def __init__(self, session: Any, send: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._session = session
        self.request = partial(send, session)

    @property
    def closed(self) -> bool:
        """True if other credentials have replaced those of the session."""
        return bool(self._session.closed)


def guard_writes(is_guarded: Callable[[], bool], send: Callable[..., Coroutine[Any, Any, Any]]) -> None:
    """Have `send` send each try of what Kopf writes while `is_guarded` returns True. It is called with the
    session and the arguments of its `request`, and may raise APINotFoundError.
    """

    def wrapper(own: Callable[..., Any]) -> Callable[..., Any]:
        @authenticated
        async def guarded(*, context: APIContext, **options: Any) -> Any:
            seen: Any = copy(context)
            seen.session = _Guarded(context.session, send)
            return await own(context=seen, **options)

        async def request(method: str, url: str, **options: Any) -> Any:
            chosen = guarded if method.upper() != "GET" and is_guarded() else own
            return await chosen(method=method, url=url, **options)

        return request

    _wrap(api, "request", wrapper)


def guard_events(may_post: Callable[[], bool]) -> None:
    """Have Kopf post no Event, of handlers or of logging, while `may_post` returns False."""
    _wrap(posting, "enqueue", lambda own: lambda *args, **options: may_post() and own(*args, **options))


def manage_webhooks(keeper: Callable[[kopf.OperatorSettings], Callable[..., Any] | None]) -> None:
    """Ask `keeper` for what decides when Kopf writes the configuration of webhooks; None stands for always.
    It is called with what writes until it is cancelled. The webhooks stay then: other replicas serve them.
    """

    def wrapper(own: Callable[..., Any]) -> Callable[..., Any]:
        def manager(**options: Any) -> Any:
            if (keep := keeper(options["settings"])) is None:
                return own(**options)
            handlers = options["registry"]._webhooks.get_all_handlers()
            staying = [replace(each, persistent=True) for each in handlers]
            registry = SimpleNamespace(_webhooks=SimpleNamespace(get_all_handlers=lambda: staying))
            return keep(partial(own, **{**options, "registry": registry}))

        return manager

    _wrap(admission, "configuration_manager", wrapper)


def has_indices(registry: OperatorRegistry, resource: Resource) -> bool:
    """Return True if Kopf calls no handler of an operator before it has listed this resource."""
    return registry._indexing.has_handlers(resource=resource)


def parts_of(settings: kopf.OperatorSettings) -> OperatorParts | None:
    """Return the parts of the operator with these settings; None if it handles no objects."""
    parts: OperatorParts | None = vars(settings).get(_PARTS)
    return parts


def watched_patterns(settings: kopf.OperatorSettings) -> tuple[str, ...]:
    """Return the namespaces, and patterns of them, that the operator with these settings is given; none if
    that is all or unknown.
    """
    patterns: tuple[str, ...] = vars(settings).get(_PATTERNS, ())
    return patterns


def exact_namespaces(patterns: Collection[str]) -> tuple[str, ...] | None:
    """Return these namespaces, sorted, if all are names; None if there are none, or patterns among them."""
    names = tuple(sorted(select_specific_namespaces(patterns)))
    return names if names and len(names) == len({*patterns}) else None


def servers_of(vault: Vault) -> set[str]:
    """Return the addresses of the servers that a vault has credentials for."""
    return {item.info.server for item in vault._current.values()}


def has_credentials(vault: Vault, key: VaultKey, info: KubeContext) -> bool:
    """Return True if exactly these credentials are in the vault; equal ones of a later login do not count."""
    return (item := vault._current.get(key)) is not None and item.info is info


async def remove_credentials(vault: Vault, key: VaultKey, info: KubeContext) -> bool:
    """Remove credentials as Kopf removes expired ones; return False if they are the only ones, which stay.

    `Vault.invalidate` would remember them, and refuse equal ones of the next login.
    """
    async with vault._guard:
        if has_credentials(vault, key, info):
            if len(vault._current) == 1:
                return False
            await vault._flush_caches(vault._current.pop(key))
        return True


async def log_in_again(vault: Vault, key: VaultKey, info: KubeContext, kept: KubeContext) -> None:
    """Put `kept` in the place of these credentials, have Kopf log in, and wait for it.

    The credentials of the login replace `kept`. The vault is never empty: without credentials Kopf would end
    the operator.
    """
    async with vault._guard:
        if has_credentials(vault, key, info):
            item, vault._current[key] = vault._current[key], VaultItem(kept)
            vault._ready = False
            vault._guard.notify_all()
            await vault._flush_caches(item)
            await vault._guard.wait_for(lambda: vault._ready)


async def log_in_if_empty(vault: Vault) -> None:
    """Have Kopf log in again if there are no credentials, and wait for it: Kopf itself has given up."""
    # These credentials are not in the vault, so that Kopf remembers none as invalid.
    await vault.invalidate(VaultKey(""), KubeContext(server=""))
