"""Runtimes: the runtime of an operator, or of `Caches` beside it; its stop, Kopf's Events, and peering."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.cache.blocking import Waits
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.fetcher import Client, exists
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.recorder.events import MOST_OF_A_REASON, EventType
from kopf_selectcache.recorder.recorder import Recorder
from kopf_selectcache.recorder.recording import WAITING
from kopf_selectcache.settings.options import SelectCacheSettings

_logger = logging.getLogger("kopf_selectcache")


def create_runtime(
    declared: SelectCacheSettings,
    vault: _kopf.Vault,
    *,
    kopf_settings: kopf.OperatorSettings,
    namespaces: tuple[str, ...] | None,
    logger: logging.Logger,
) -> Runtime:
    """Create a runtime with these credentials. Kopf's settings are the defaults of the options."""
    networking, watching = kopf_settings.networking, kopf_settings.watching
    declared = declared.with_defaults(
        page_limit=_kopf.chunk_size(kopf_settings),
        idle_timeout=watching.inactivity_timeout or None,
        request_timeout=min(networking.request_timeout or declared.request_timeout, declared.request_timeout),
    )
    transport = create_transport(declared, vault, kopf_settings)
    return Runtime(declared, transport, namespaces=namespaces, chance=random.random, logger=logger)


def create_transport(
    declared: SelectCacheSettings, vault: _kopf.Vault, kopf_settings: kopf.OperatorSettings
) -> KopfTransport:
    """Create a transport with these credentials and the options of requests."""
    return KopfTransport(
        vault,
        request_timeout=declared.request_timeout,
        connect_timeout=kopf_settings.networking.connect_timeout,
        max_bytes=declared.page_bytes(),
        batch_delay=declared.batch_delay,
        gzip=declared.requests_gzip(),
    )


# ---- The stop of the operator whose code is running: its beginning and its deadline.

STOPPING = "the operator is being stopped"


class Stop:
    """Ends what belongs to an operator in two steps, long before Kopf calls the cleanup handlers: it waits
    for its threads first, and a thread may wait for a cache.

    When Kopf begins to stop the operator, `waits` raise, and `begin` is called. At the deadline,
    `settings.queueing.exit_timeout` seconds later, no thread waits for a cache any more, and `end` is called.
    """

    def __init__(
        self,
        settings: kopf.OperatorSettings,
        *,
        begin: Callable[[], object] = lambda: None,
        end: Callable[[], object],
    ) -> None:
        self._settings, self._begin, self._end = settings, begin, end
        self._begun = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self.waits = Waits(stopped=self._begun, why=STOPPING)
        """The waits of handlers and threads."""
        # A stop begins when a root task ends: Kopf cancels the others then.
        roots = _kopf.root_tasks_var.get(())
        # Code that has awaited `kopf.operator()` has the tasks of an operator that has ended.
        self._roots = () if all(root.done() for root in roots) else roots
        for root in self._roots:
            root.add_done_callback(self.begin)

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    @property
    def is_of_caller(self) -> bool:
        """True if the running code belongs to the operator that has begun to stop."""
        return self.has_begun and bool(self._roots) and self._roots is _kopf.root_tasks_var.get(())

    def begin(self, _: object = None) -> None:
        """End the waits now, and the rest at the deadline. Further calls do nothing."""
        if self.has_begun:
            return
        self._begun.set()
        self._begin()
        seconds = self._settings.queueing.exit_timeout
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._reach_deadline)

    def _reach_deadline(self) -> None:
        self.waits.end(STOPPING)
        self._end()

    def close(self) -> None:
        """Forget the operator, after the end of what belongs to it."""
        for root in self._roots:
            root.remove_done_callback(self.begin)
        if self._deadline is not None:
            self._deadline.cancel()


# ---- Routes the events of Kopf through a recorder: `settings.selectcache.events = True`.


def make_recorder(settings: kopf.OperatorSettings, runtime: Runtime) -> Recorder:
    """Return a recorder under the names of Kopf's own events, or under that of Kopf if they do not fit."""
    posting, cache = settings.posting, Cache(runtime)
    try:
        return Recorder(posting.reporting_component, host=posting.reporting_instance, cache=cache)
    except DeclarationError as error:  # Kopf takes any text, and events must not stop the handlers.
        _logger.warning("settings.posting: %(error)s", {"error": error.line})
        return Recorder("kopf", cache=cache)


def route_events(settings: kopf.OperatorSettings) -> Route | None:
    """Route the events of Kopf, if the settings ask for it, and it posts any."""
    declared, parts = vars(settings).get("selectcache"), _kopf.parts_of(settings)
    if declared is None or not declared.events or parts is None or parts.events is None:
        return None
    route = Route()
    # Kopf has no other place for it: its functions and its logging share this method of one operator's queue.
    parts.events.put_nowait = route.take  # type: ignore[assignment, method-assign]
    return route


class Route:
    """The way of the events that one operator posts by `kopf.event`, `info`, `warn` and `exception`, and by
    logging: to a recorder instead of Kopf's own poster.

    It takes the place of the method with which Kopf puts events into the queue of the operator.
    """

    def __init__(self) -> None:
        self._waiting: deque[_kopf.K8sEvent] = deque(maxlen=WAITING)
        self._recorder: Recorder | None = None

    def take(self, event: _kopf.K8sEvent) -> None:
        """Record an event, or keep it until there is a recorder. Kopf calls it on the operator's loop."""
        if self._recorder is None:
            self._waiting.append(event)
        else:
            _record(self._recorder, event)

    def open(self, recorder: Recorder) -> None:
        """Record all events from now on, and first those that have waited."""
        self._recorder = recorder
        while self._waiting:
            _record(recorder, self._waiting.popleft())


def _record(recorder: Recorder, event: _kopf.K8sEvent) -> None:
    # The API defines two types. Kopf has others as well, and passes on any text of the user.
    type_ = EventType.NORMAL if event.type in ("Normal", "Debug") else EventType.WARNING
    reason = "".join(word[0].upper() + word[1:] for word in re.findall("[A-Za-z][A-Za-z0-9]*", event.reason))
    try:
        recorder.record(event.ref, type_, reason[:MOST_OF_A_REASON] or type_, event.message)
    except DeclarationError as error:  # Kopf's poster would log the refusal of the server.
        _logger.warning("An event can't be recorded: %(error)s", {"error": error.line})


# ---- Peering: finds the object that Kopf waits for before it calls any handler, if it is mandatory.

AFTER = 10.0
"""Seconds from the login to the warning."""

GROUPS = ("kopf.dev", "zalando.org")
"""The API groups of Kopf's peerings. Kopf waits for an object of each group that is served."""

_INSTEAD = "or run the operator with --standalone and without --peering"


class Unmet(NamedTuple):
    """A missing condition for Kopf to call handlers, and the change that provides it."""

    what: str
    remedy: str


async def unmet_peering(
    server: Client, settings: kopf.OperatorSettings, namespaces: Collection[str] | None
) -> Unmet | None:
    """Return what a mandatory peering lacks; None if it lacks nothing, or is not mandatory. `namespaces` are
    those of the operator, None for all. Raise Refused, Unreachable or Garbled.
    """
    peering = settings.peering
    if not peering.mandatory:
        return None
    if peering.standalone:
        return Unmet(
            "the peering is mandatory, but --standalone turns it off",
            "Leave out --standalone, or leave out --peering and settings.peering.mandatory",
        )
    kinds = [_kind(group, of_cluster=peering.clusterwide) for group in GROUPS]
    places = [None] if peering.clusterwide else [*(namespaces or (None,))]
    is_served = False
    for kind in kinds:
        resource = Resource(kind, "v1")
        for namespace in places:
            exists = await _exists(server, resource, namespace, peering.name)
            if exists is None:
                break
            if not exists:
                where = f" in {namespace}" if namespace else ""
                return Unmet(
                    f"the peering {resource}/{peering.name}{where} does not exist",
                    f"Create it: {_manifest(kind, peering.name, namespace)}, {_INSTEAD}",
                )
            is_served = True
    if is_served:
        return None
    kind = kinds[0]
    return Unmet(
        f"the peering {peering.name} is mandatory, but the cluster does not serve {Resource(kind, 'v1')}",
        f"Install the CRDs of Kopf's peering, and create"
        f" {_manifest(kind, peering.name, places[0])}, {_INSTEAD}",
    )


def _kind(group: str, *, of_cluster: bool) -> Kind:
    name, plural = (
        ("ClusterKopfPeering", "clusterkopfpeerings") if of_cluster else ("KopfPeering", "kopfpeerings")
    )
    return Kind.unknown(group, name, plural, namespaced=not of_cluster)


def _manifest(kind: Kind, name: str, namespace: str | None = None) -> str:
    where = f", namespace: {namespace}" if namespace else ""
    return f"{{apiVersion: {kind.group}/v1, kind: {kind.kind}, metadata: {{name: {name}{where}}}}}"


async def _exists(server: Client, resource: Resource, namespace: str | None, name: str) -> bool | None:
    """Ask the server for an object; return None if the kind is not served."""
    try:
        return await exists(server, resource, namespace, name)
    except Refused as error:
        # Who has the permissions of one group only needs no others.
        if error.refusal.code == 404 or (error.refusal.code == 403 and resource.kind.group != GROUPS[0]):
            return None
        raise


async def warn_of_peering(settings: kopf.OperatorSettings, runtime: Runtime) -> None:
    """Log once if Kopf still waits for a mandatory peering some time after the login."""
    await runtime.environment.sleep(AFTER)
    namespaces = _kopf.exact_namespaces(_kopf.watched_patterns(settings))
    ask = partial(unmet_peering, runtime.transport, settings, namespaces)
    unmet = None
    with suppress(Refused):  # Kopf itself needs the permission that is missing.
        unmet = await runtime.environment.answer_to(ask)
    if unmet is not None:
        _logger.warning(
            "Kopf calls no handler: %(what)s. %(remedy)s.", {"what": unmet.what, "remedy": unmet.remedy}
        )
